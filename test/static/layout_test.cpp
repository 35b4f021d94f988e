// SPDX-License-Identifier: Apache-2.0
// Nothing in a window lies upon anything else, and blocks share a vector without gap or overlap.
#include "collectx/device/layout.hpp"

namespace cx = collectx;
using cx::device::block_share;
using cx::device::layout;

/// Everything in a window, as intervals.
template <class F>
constexpr void for_each_part(layout const& l, F&& part) {
  part(l.abort_word(), 8, 8);
  for (int b = 0; b < l.blocks; ++b) {
    part(l.waiting_word(b), 8, 8);
    for (int r = 0; r < l.ranks; ++r) part(l.arrival_word(b, r), 16, 16);
  }
  for (std::size_t c = 0; c < l.channels(); ++c) {
    part(l.credit_word(c), 8, 8);
    part(l.low_latency_credit_word(c), 8, 8);
    part(l.lines(c), static_cast<std::size_t>(l.slots.slots) * sizeof(cx::slot_line), 64);
    part(l.data(c), static_cast<std::size_t>(l.slots.slots) * cx::slot_ring::stride(l.slots.bytes), 64);
    part(l.cells(c), static_cast<std::size_t>(l.low_latency.slots) * l.cells_per_slot() * 16, 16);
  }
}

constexpr bool is_laid_out(layout const& l) {
  bool good = true;
  for_each_part(l, [&](std::size_t first, std::size_t bytes, std::size_t alignment) {
    good = good && first % alignment == 0 && first + bytes <= l.window_bytes();
    int here = 0;
    for_each_part(l, [&](std::size_t other, std::size_t other_bytes, std::size_t) {
      if (first < other + other_bytes && other < first + bytes) ++here;
    });
    good = good && here == 1;  // itself
  });
  return good;
}
constexpr layout with(int ranks, int blocks, int lanes, cx::device::slot_shape slots, cx::device::slot_shape low_latency) {
  layout l;
  l.ranks = ranks;
  l.blocks = blocks;
  l.lanes = lanes;
  l.slots = slots;
  l.low_latency = low_latency;
  return l;
}
static_assert(is_laid_out(layout{}));
static_assert(is_laid_out(with(3, 2, 2, {3, 192}, {5, 64})));
static_assert(is_laid_out(with(2, 5, 1, {1, 64}, {1, 128})));

// Channels are numbered without gap.
static_assert(layout{}.channels() == 1 && with(3, 2, 2, {}, {}).channels() == 12 && with(3, 2, 2, {}, {}).channel(1, 2, 1) == 11);
static_assert(with(2, 1, 1, {4, 64}, {4, 64}) == with(2, 1, 1, {4, 64}, {4, 64}));
static_assert(!(with(2, 1, 1, {4, 64}, {4, 64}) == with(2, 1, 1, {4, 64}, {4, 128})));

constexpr bool is_shared(std::size_t count, std::size_t bytes, int blocks) {
  std::size_t end = 0;
  for (int b = 0; b < blocks; ++b) {
    cx::extent const e = block_share(count, bytes, blocks, b);
    if (e.first != end || (e.first < count && e.first * bytes % 16 != 0)) return false;
    end += e.count;
    if (e.count > block_share(count, bytes, blocks, 0).count) return false;  // what is made for the first is enough for all
  }
  return end == count;
}
constexpr bool all_are_shared(std::size_t bytes) {
  for (unsigned count : {0u, 1u, 3u, 15u, 16u, 17u, 31u, 100u, 1000u, 4097u})
    for (int blocks : {1, 2, 3, 7, 32})
      if (!is_shared(count, bytes, blocks)) return false;
  return true;
}
static_assert(all_are_shared(1) && all_are_shared(2) && all_are_shared(4) && all_are_shared(8) && all_are_shared(12) &&
              all_are_shared(16) && all_are_shared(24));
// 2^40 elements and more are no trouble.
static_assert(block_share((std::size_t{1} << 40) + 1, 4, 3, 2).first + block_share((std::size_t{1} << 40) + 1, 4, 3, 2).count ==
              (std::size_t{1} << 40) + 1);
