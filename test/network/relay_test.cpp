// SPDX-License-Identifier: Apache-2.0
// compile: -O0 everywhere
// labels: threads
/// Kernels of ranks on different hosts, by the CPU's threads: what a relay carries between them gives the bits that the host gives.
#include <collectx/transport/device_relay.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "network/ready.hpp"
#include "support/as_on_host.hpp"
#include "support/sanitizers.hpp"

namespace cx = collectx;
using flagged = cx::device::flagged<>;
using block_group = support::block_group<flagged>;

namespace {

/// Where a rank's slots may lie: in memory that the network is given as a device's, or only in the host's.
enum class place { unasked, none, device };

/// The relays of a group of blocks whose ranks are on the hosts that `host_of` says.
class relays {
 public:
  relays(block_group& blocks, std::vector<int> const& host_of, std::vector<place> const& places = {}) : members_(host_of.size()) {
    int const n = blocks.layout().ranks;
    for (std::size_t r = 0; r < places.size(); ++r) members_[r].where = places[r];
    auto table = cx::in_process_rendezvous::create(n);
    REQUIRE(table.has_value());
    std::vector<std::thread> ranks;
    for (int r = 0; r < n; ++r) ranks.emplace_back([&, r] { join(blocks, host_of, *table, r); });
    for (std::thread& rank : ranks) rank.join();
    for (member const& m : members_) REQUIRE_MESSAGE(m.relay != nullptr, m.why);
  }
  /// As ranks that leave do, all at once: each lingers for the others.
  ~relays() {
    std::vector<std::thread> ranks;
    for (member& m : members_) ranks.emplace_back([&m] { m.relay.reset(); });
    for (std::thread& rank : ranks) rank.join();
  }
  void end(int rank) { members_[static_cast<std::size_t>(rank)].relay.reset(); }
  cx::detail::device_relay& of(int rank) { return *members_[static_cast<std::size_t>(rank)].relay; }

 private:
  struct member {
    std::unique_ptr<support::zeroed> shared, device;
    place where = place::unasked;
    std::unique_ptr<cx::detail::device_relay> relay;
    std::string why;

    static cx::result<std::byte*> allocate(void* context, std::size_t bytes) {
      member& self = *static_cast<member*>(context);
      self.device = std::make_unique<support::zeroed>(bytes);
      return self.device->data();
    }
  };

  void join(block_group& blocks, std::vector<int> const& host_of, cx::in_process_rendezvous& table, int rank) {
    cx::device::layout const& l = blocks.layout();
    member& m = members_[static_cast<std::size_t>(rank)];
    cx::libfabric_options options = cx::detail::device_relay::options_for(l);
    options.between_hosts = true;
    auto mine = table.of(rank);
    cx::detail::fabric_device device;
    if (m.where == place::device) device.allocate = m.allocate;
    device.context = &m;
    auto wire = cx::libfabric_transport::join(mine, options, m.where == place::unasked ? nullptr : &device);
    if (!wire) {
      m.why = wire.error().what();
      return;
    }
    std::vector<bool> far;
    for (int host : host_of) far.push_back(host != host_of[static_cast<std::size_t>(rank)]);
    m.shared = std::make_unique<support::zeroed>(cx::detail::device_relay::shared_bytes(l));
    std::byte* const shared = m.shared->data();
    CHECK(wire->in_device_memory() == (m.where == place::device));
    if (m.where == place::device) CHECK(wire->memory() == m.device->data());
    m.relay = std::make_unique<cx::detail::device_relay>(std::move(*wire), l, far, shared);
    cx::device::make_relayed_wires(l, *m.relay, shared, m.relay->slots(), blocks.wires(rank));
    for (int r = 0; r < l.ranks; ++r)
      if (m.relay->relays(r)) blocks.window_seen(rank, r) = cx::detail::device_relay::window(shared);
    blocks.told(rank) = cx::detail::device_relay::told(l, shared);
  }

  std::vector<member> members_;
};

constexpr std::size_t rounds = support::under_sanitizer ? 1 : 3;

cx::device::layout small(int n) {
  cx::device::layout l;
  l.ranks = n;
  l.blocks = l.lanes = 2;
  l.slots = {4, 1024};
  return l;
}

}  // namespace

TEST_CASE("kernels on different hosts: every collective and algorithm, bit for bit as on the host") {
  for (std::vector<int> const& hosts : {std::vector{0, 1}, std::vector{0, 1, 0}, std::vector{0, 1, 1, 2}}) {
    int const n = static_cast<int>(hosts.size());
    CAPTURE(n);
    support::for_each_collective([&]<class C>() {
      support::compare_with_host<C, support::rough, flagged>(n, rounds, support::add_rough{},
                                                             [&](block_group& blocks) { return std::make_unique<relays>(blocks, hosts); });
    });
  }
}

namespace {

/// Calls of every length, one after the other; results and inputs differ from place to place. Down a chain the root runs ahead for as long
/// as it has credits.
template <class C>
void long_and_short(std::vector<place> const& places = {}) {
  block_group blocks(small(3));
  relays const carried(blocks, {0, 1, 2}, places);
  auto const plans = support::plans_of(cx::schedule_of(cx::algo::ring{}, C{}), C{}, 3);
  for (std::size_t count : {std::size_t{100'000}, std::size_t{1}, std::size_t{12}, std::size_t{13}, std::size_t{50'001}}) {
    CAPTURE(count);
    support::call_on_blocks<flagged, std::uint32_t> call(blocks, plans, count, 2);
    REQUIRE(call.fits());
    std::vector<std::vector<std::uint32_t>> in(3, std::vector<std::uint32_t>(count)), out = in;
    std::vector<std::uint32_t> expected(count);
    for (std::size_t r = 0; r < 3; ++r)
      for (std::size_t i = 0; i < count; ++i) {
        in[r][i] = static_cast<std::uint32_t>((i + 1) * 2654435761u * (r + 1));
        expected[i] = std::is_same_v<C, cx::broadcast> ? in[0][i] : expected[i] + in[r][i];
      }
    for (std::size_t r = 0; r < 3; ++r) {
      call.of(static_cast<int>(r)).memory.input = in[r].data();
      call.of(static_cast<int>(r)).memory.output = (std::is_same_v<C, cx::broadcast> ? in : out)[r].data();
    }
    for (cx::device::outcome end : call.run(2, cx::sum{})) REQUIRE(end == cx::device::outcome::done);
    for (std::vector<std::uint32_t> const& o : std::is_same_v<C, cx::broadcast> ? in : out) CHECK(expected == o);
  }
}

}  // namespace

TEST_CASE("long calls on other hosts take many slots, and short ones after them find the rings as they were left") {
  long_and_short<cx::all_reduce>();
  long_and_short<cx::broadcast>();
}

TEST_CASE("payloads in memory of devices: of all ranks, of some, of none") {
  for (std::vector<place> const& places : {std::vector(3, place::device), std::vector{place::device, place::none, place::device},
                                           std::vector{place::none, place::device, place::none}, std::vector(3, place::none)}) {
    long_and_short<cx::all_reduce>(places);
    long_and_short<cx::broadcast>(places);
  }
}

TEST_CASE("payloads in memory of devices: every collective and algorithm, bit for bit as on the host") {
  if (support::under_sanitizer) return;  // no other code than of the two cases above
  std::vector<int> const hosts{0, 1, 0};
  std::vector<place> const places(3, place::device);
  support::for_each_collective([&]<class C>() {
    support::compare_with_host<C, support::rough, flagged>(
        3, rounds, support::add_rough{}, [&](block_group& blocks) { return std::make_unique<relays>(blocks, hosts, places); });
  });
}

TEST_CASE("a kernel on another host that never comes: the others are late, and all hosts know for whom") {
  block_group blocks(small(3));
  blocks.timeout = 300'000'000;
  relays carried(blocks, {0, 1, 2});
  auto const plans = support::plans_of(cx::schedule_of(cx::algo::ring{}, cx::all_reduce{}), cx::all_reduce{}, 3);
  std::vector<float> memory(600, 1.0f);
  support::call_on_blocks<flagged, float> call(blocks, plans, 100, 1);
  for (int r = 0; r < 3; ++r) {
    call.of(r).memory.input = memory.data() + r * 200;
    call.of(r).memory.output = memory.data() + r * 200 + 100;
  }
  std::atomic<bool> over{false};
  bool blamed = false;
  std::thread watcher([&] {
    while (!over && !blamed) {
      blamed = carried.of(0).blame(1) == 2 || carried.of(1).blame(0) == 2;
      cx::detail::nap(200'000);
    }
  });
  auto const ends = call.run(
      1, cx::sum{}, [](cx::device::cpu_block block) { return block; }, 2);
  over = true;
  watcher.join();
  CHECK(ends[0] == cx::device::outcome::late);
  CHECK(ends[1] == cx::device::outcome::late);
  CHECK(blamed);
}

TEST_CASE("what ends one relay's group ends it on all hosts") {
  block_group blocks(small(3));
  relays carried(blocks, {0, 1, 2});
  REQUIRE(carried.of(0).abort(cx::status::failure(cx::errc::timeout, 1, "rank 1 is late")).code() == cx::errc::timeout);
  for (int r = 0; r < 3; ++r) {
    cx::status heard;
    for (int looks = 0; looks < 10'000 && heard.ok(); ++looks) cx::detail::nap(1'000'000), heard = carried.of(r).verdict();
    CHECK(heard.code() == cx::errc::timeout);
    CHECK(heard.rank() == 1);
  }
}

TEST_CASE("what a kernel leaves behind is sent, though its relay ends at once") {
  cx::device::layout const l = small(2);
  for (std::size_t bytes : {std::size_t{8}, std::size_t{1000}}) {
    CAPTURE(bytes);
    block_group blocks(l);
    relays carried(blocks, {0, 1});
    cx::detail::nap(2'000'000);  // the relays have nothing to do by now
    auto const sender = blocks.wires(0).senders + l.channel(0, 1, 0);
    auto const receiver = blocks.wires(1).receivers + l.channel(0, 0, 0);
    std::byte* const slot = sender->try_acquire(bytes);
    REQUIRE(slot != nullptr);
    std::fill_n(slot, bytes, std::byte{7});
    sender->commit(bytes, 5);
    carried.end(0);
    cx::message got;
    for (int looks = 0; looks < 10'000 && got.data == nullptr; ++looks) cx::detail::nap(1'000'000), got = receiver->try_peek();
    REQUIRE(got.data != nullptr);
    CHECK(got.bytes == bytes);
    CHECK(got.tag == 5);
    CHECK(got.data[bytes - 1] == std::byte{7});
  }
}
