// SPDX-License-Identifier: Apache-2.0
// compile: -O0
// labels: address
/// One end of a channel and the other, by one thread: what the two protocols of devices promise.
#include <collectx/device/slots.cuh>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>

#include "support/on_blocks.hpp"

namespace cx = collectx;
using cx::device::flagged;
using cx::device::low_latency;

namespace {

constexpr std::size_t slot_bytes = 128;

cx::device::layout two_ranks() {
  cx::device::layout l;
  l.ranks = 2;
  l.slots = l.low_latency = {4, slot_bytes};
  return l;
}

/// A block of one thread.
template <class F>
void alone(F const& f) {
  cx::device::run_on_cpu(1, 1, 0, [&](cx::device::cpu_block& block) { f(block); });
}

/// Rank 0's end to rank 1 and the other way round.
template <class Protocol>
struct channel {
  support::block_group<Protocol> group{two_ranks()};
  typename Protocol::sender& sender = group.wires(0).senders[group.layout().channel(0, 1, 0)];
  typename Protocol::receiver& receiver = group.wires(1).receivers[group.layout().channel(0, 0, 0)];

  void send(cx::device::cpu_block& block, std::size_t bytes, unsigned char value, std::uint32_t tag) {
    std::byte* const slot = sender.try_acquire(bytes);
    REQUIRE(slot != nullptr);
    std::memset(slot, value, bytes);
    if constexpr (Protocol::staged) sender.put(block, bytes, tag);
    sender.commit(bytes, tag);
  }
  /// Whether the next message is that one.
  bool takes(cx::device::cpu_block& block, std::size_t bytes, unsigned char value, std::uint32_t tag) {
    cx::message const m = receiver.try_peek();
    if (m.data == nullptr || m.bytes != bytes || m.tag != tag) return false;
    if constexpr (Protocol::staged) {
      cx::device::world const world = group.world(1);
      cx::device::patience<typename Protocol::atomics, cx::device::cpu_block> waiting(block, world);
      if (receiver.fetch(block, bytes, waiting) != cx::device::outcome::done) return false;
    }
    for (std::size_t i = 0; i < bytes; ++i)
      if (m.data[i] != static_cast<std::byte>(value)) return false;
    receiver.release();
    receiver.flush();
    return true;
  }
};

template <class Protocol>
void carries_messages() {
  alone([](cx::device::cpu_block& block) {
    channel<Protocol> c;
    CHECK(c.receiver.try_peek().data == nullptr);
    for (std::size_t bytes = 1; bytes <= slot_bytes; ++bytes) {
      unsigned char const value = static_cast<unsigned char>(bytes);
      c.send(block, bytes, value, 7 * value);
      CHECK(c.takes(block, bytes, value, 7 * value));
      CHECK(c.receiver.try_peek().data == nullptr);
    }
    for (unsigned char k = 0; k < 4; ++k) c.send(block, 20, k, k);
    CHECK(c.sender.try_acquire(20) == nullptr);
    for (unsigned char k = 0; k < 4; ++k) CHECK(c.takes(block, 20, k, k));
    CHECK(c.sender.try_acquire(20) != nullptr);
  });
}

}  // namespace

TEST_CASE("messages of any length go through in order, and a full channel takes no more") {
  carries_messages<flagged<>>();
  carries_messages<low_latency<>>();
}

TEST_CASE("low latency: what a long message has left behind is never taken for new, even when its number comes again") {
  constexpr std::uint64_t again = std::uint64_t{1} << 32;
  alone([](cx::device::cpu_block& block) {
    channel<low_latency<>> c;
    auto const go_on_from = [&](std::uint64_t number) {
      c.sender.number = c.receiver.number = number;
      c.receiver.flush();
    };
    std::uint64_t const first = 100;
    go_on_from(first);
    c.send(block, slot_bytes, 0xaa, 1);
    CHECK(c.takes(block, slot_bytes, 0xaa, 1));
    // Short messages since then, of which these are the first after each 2^31.
    for (std::uint64_t half : {again / 2, again}) {
      go_on_from(half);
      for (unsigned char k = 0; k < 4; ++k) {
        c.send(block, 8, k, k);
        CHECK(c.takes(block, 8, k, k));
      }
    }
    go_on_from(first + again);
    cx::device::word_pair const* const slot = c.receiver.slot();
    std::uint32_t payload[2];
    for (std::uint32_t cell = 0; cell < c.receiver.cells_per_slot; ++cell)
      CHECK(!cx::device::halves_with_flags::unpack(slot[cell], c.receiver.flag(), payload));
  });
}
