// SPDX-License-Identifier: Apache-2.0
// compile: -O0 everywhere
// labels: threads
/// Channels over a network whose payloads lie in memory of devices: the host's own plays its part.
#include <collectx/rendezvous/in_process.hpp>
#include <collectx/transport/libfabric.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "network/ready.hpp"

namespace cx = collectx;

namespace {

constexpr int slots = 4, lanes = 2;
constexpr std::size_t slot_bytes = 4096, inline_bytes = cx::slot_line::inline_bytes;

struct device {
  std::vector<std::byte> memory, seen;  // what the network has written, and what the device has been made to see of it
  int made_visible = 0;
  cx::status blind, full;

  static cx::result<std::byte*> allocate(void* context, std::size_t bytes) {
    device& self = *static_cast<device*>(context);
    if (!self.full) return self.full;
    self.memory.resize(bytes);
    return self.memory.data();
  }
  static cx::status make_visible(void* context) {
    device& self = *static_cast<device*>(context);
    ++self.made_visible;
    self.seen = self.memory;
    return self.blind;
  }
  bool has(std::byte const* at) const { return at >= memory.data() && at < memory.data() + memory.size(); }
  std::byte const* as_seen(std::byte const* at) const { return has(at) ? seen.data() + (at - memory.data()) : at; }
};

cx::libfabric_options over(char const* provider) {
  cx::libfabric_options o;
  o.slots = slots;
  o.lanes = lanes;
  o.slot_bytes = slot_bytes;
  o.provider = provider;
  return o;
}

/// f(transport&, device&) on two threads; what they say is empty where all is well.
template <class F>
std::vector<std::string> two_ranks(char const* provider, F f, cx::status const& of_rank_1 = {}) {
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  std::vector<std::string> said(2);
  std::vector<std::thread> ranks;
  for (int r = 0; r < 2; ++r)
    ranks.emplace_back([&, r] {
      device mine;
      if (r == 1) mine.full = of_rank_1;
      cx::detail::fabric_device reached;
      reached.allocate = mine.allocate;
      reached.make_visible = mine.make_visible;
      reached.context = &mine;
      auto meeting = table->of(r);
      auto wire = cx::libfabric_transport::join(meeting, over(provider), &reached);
      said[static_cast<std::size_t>(r)] = wire ? f(*wire, mine) : wire.error().what();
    });
  for (std::thread& rank : ranks) rank.join();
  return said;
}

template <class Ready>
cx::status wait(cx::libfabric_transport& wire, Ready ready) {
  for (int polls = 0; !ready(); ++polls) {
    wire.progress();
    if (ready()) break;
    if (cx::status s = wire.idle(polls, 1 - wire.rank()); !s) return s;
  }
  return {};
}

std::byte value(int rank, int lane, int number, std::size_t i) {
  return static_cast<std::byte>((static_cast<std::size_t>(number * 7 + lane * 3 + rank) + i * 13) % 251);
}
std::size_t length(int number) {
  constexpr std::size_t lengths[] = {0, slot_bytes, 1, inline_bytes + 1, inline_bytes, slot_bytes - 1, 100};
  return lengths[number % 7];
}

/// Both send on every lane, and take what the other sends.
std::string exchange(cx::libfabric_transport& wire, device& mine) {
  int const peer = 1 - wire.rank();
  for (int number = 0; number < 400; ++number)
    for (int lane = 0; lane < lanes; ++lane) {
      std::size_t const bytes = length(number);
      auto& to = wire.channel_to(peer, lane);
      std::byte* slot = nullptr;
      if (cx::status s = wait(wire, [&] { return (slot = to.try_acquire(bytes)) != nullptr; }); !s) return s.what();
      if (mine.has(slot) != (bytes > inline_bytes)) return "a payload of " + std::to_string(bytes) + " bytes lies in the wrong memory";
      for (std::size_t i = 0; i < bytes; ++i) slot[i] = value(wire.rank(), lane, number, i);
      to.commit(bytes, static_cast<std::uint32_t>(number));

      auto& from = wire.channel_from(peer, lane);
      cx::message got;
      if (cx::status s = wait(wire, [&] { return (got = from.try_peek()).data != nullptr; }); !s) return s.what();
      if (got.bytes != bytes || got.tag != static_cast<std::uint32_t>(number)) return "a message that was not sent";
      if (mine.has(got.data) && mine.seen.empty()) return "a payload is handed out before the device sees it";
      std::byte const* const data = mine.as_seen(got.data);
      for (std::size_t i = 0; i < bytes; ++i)
        if (data[i] != value(peer, lane, number, i)) return "a wrong byte in message " + std::to_string(number);
      from.release();
    }
  return {};
}

}  // namespace

TEST_CASE("messages of all lengths by the memory of devices") {
  for (char const* provider : {"net", "tcp;ofi_rxm", "shm"}) {
    CAPTURE(provider);
    for (std::string const& said : two_ranks(provider, exchange)) CHECK(said == "");
  }
}

TEST_CASE("a device that cannot be made to see what has come ends the group") {
  auto const said = two_ranks("net", [](cx::libfabric_transport& wire, device& mine) -> std::string {
    if (wire.rank() == 1) mine.blind = cx::status::failure(cx::errc::system, 1, "the device of rank 1 is blind");
    std::string const end = exchange(wire, mine);
    cx::status heard = wire.verdict();
    for (int polls = 0; heard.ok(); ++polls) wire.progress(), heard = wire.idle(polls, 1 - wire.rank());
    return heard.what();
  });
  for (std::string const& s : said) CHECK(s == "collectx: the device of rank 1 is blind");
}

TEST_CASE("a rank whose device has no memory left: nobody joins, and all hear which") {
  auto const said = two_ranks("net", exchange, cx::status::failure(cx::errc::out_of_memory, 1, "the device of rank 1 is full"));
  for (std::string const& s : said) CHECK(s == "collectx: the device of rank 1 is full");
}

TEST_CASE("head and payload may come in any order, and those of several messages mixed") {
  cx::detail::fabric_port port;
  port.sealed = true;  // there is no network
  port.layout = cx::detail::fabric_layout::of(1, 1, slots, slot_bytes);
  port.layout.apart = true;
  std::vector<std::byte> memory(port.layout.bytes()), payloads(port.layout.bytes_apart());
  port.base = memory.data();
  port.base_apart = payloads.data();
  cx::detail::fabric_sender to(port, 0, 0, 0, false);
  cx::detail::fabric_receiver from(port, 0, 0, 0, to);
  auto const ring = cx::detail::fabric_ring::receiving(port, 0);
  auto const begins = [&](std::uint32_t number, std::uint32_t bytes) {  // and may not be there to its end
    cx::detail::fabric_head const h{number + 1, bytes, number, 0};
    std::memcpy(ring.front(number % slots) - sizeof h, &h, sizeof h);
  };
  auto const head = [&](std::uint32_t number, std::uint32_t bytes) {
    begins(number, bytes);
    from.arrived(number % slots);
  };
  std::uint32_t const bytes = 100, few = 20;
  for (std::uint32_t lap = 0; lap < 3; ++lap) {
    std::uint32_t const first = lap * 4;
    begins(first, few);
    head(first + 1, few);  // overtakes
    CHECK(from.try_peek().data == nullptr);
    from.landed((first + 2) % slots);
    head(first, bytes);
    CHECK(from.try_peek().data == nullptr);
    from.landed(first % slots);
    REQUIRE(from.try_peek().data == ring.payload(first % slots, true));
    REQUIRE(from.try_peek(1).data == ring.front((first + 1) % slots));
    CHECK(from.try_peek(2).data == nullptr);
    head(first + 2, bytes);
    REQUIRE(from.try_peek(2).data == ring.payload((first + 2) % slots, true));
    head(first + 3, bytes);
    CHECK(from.try_peek(3).data == nullptr);
    from.landed((first + 3) % slots);
    REQUIRE(from.try_peek(3).bytes == bytes);
    for (int i = 0; i < slots; ++i) from.release();
  }
}
