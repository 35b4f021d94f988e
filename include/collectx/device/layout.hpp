// SPDX-License-Identifier: Apache-2.0
/// Where things lie in the memory that a device shares with its peers: numbers only, the same on all ranks. Include it by name.
///
/// Each rank has one window, which all others map. What a rank polls is in its own window, and what it writes is in a peer's: waiting costs
/// the link nothing. All words are 64 bits with one writer each, but the abort word, in which any report will do.
#pragma once

#include "collectx/chunk.hpp"
#include "collectx/transport/slot_ring.hpp"

#include <cstddef>

namespace collectx {
inline namespace v0 {
namespace device {

/// Slots of one protocol: how many per channel, and how long a message may be. Multiples of 64 bytes.
struct slot_shape {
  int slots = 4;
  std::size_t bytes = 0;
};

/// What all ranks of a group have to agree on. A window that begins with zeros is a window nobody has used.
struct layout {
  int ranks = 1;
  int blocks = 1;                              ///< of a grid, at most: block b of a rank talks to block b of the others and to no other
  int lanes = 1;                               ///< of a plan: channels between the same two ranks within a block
  slot_shape slots{4, std::size_t{64} << 10};  ///< for messages whose arrival a flag tells
  slot_shape low_latency{4, std::size_t{4} << 10};  ///< for messages whose every word tells

  friend constexpr bool operator==(layout const& a, layout const& b) {
    return a.ranks == b.ranks && a.blocks == b.blocks && a.lanes == b.lanes && a.slots.slots == b.slots.slots &&
           a.slots.bytes == b.slots.bytes && a.low_latency.slots == b.low_latency.slots && a.low_latency.bytes == b.low_latency.bytes;
  }

  constexpr std::size_t channels() const { return size(blocks) * size(ranks) * size(lanes); }
  /// The number of a channel between this rank and `peer`, in either direction.
  constexpr std::size_t channel(int block, int peer, int lane) const {
    return (size(block) * size(ranks) + size(peer)) * size(lanes) + size(lane);
  }

  // Offsets in a window.
  constexpr std::size_t abort_word() const { return 0; }
  constexpr std::size_t waiting_word(int block) const { return line + size(block) * word; }
  /// Two words: the phase that block `block` of rank `from` has come to, and behind it the tag of its call.
  constexpr std::size_t arrival_word(int block, int from) const { return arrivals() + (size(block) * size(ranks) + size(from)) * 2 * word; }
  constexpr std::size_t credit_word(std::size_t channel) const { return credits() + channel * word; }
  constexpr std::size_t low_latency_credit_word(std::size_t channel) const { return credits() + (channels() + channel) * word; }
  constexpr std::size_t lines(std::size_t channel) const { return rings() + channel * ring_bytes(); }
  constexpr std::size_t data(std::size_t channel) const { return lines(channel) + size(slots.slots) * sizeof(slot_line); }
  constexpr std::size_t cells(std::size_t channel) const { return rings() + channels() * ring_bytes() + channel * cell_ring_bytes(); }
  constexpr std::size_t window_bytes() const { return cells(channels()); }

  /// Cells of a low-latency slot: one that says what is coming, and one for each 8 bytes.
  constexpr std::size_t cells_per_slot() const { return 1 + low_latency.bytes / 8; }

 private:
  static constexpr std::size_t line = 128, word = sizeof(std::uint64_t);
  static constexpr std::size_t size(int n) { return static_cast<std::size_t>(n); }
  static constexpr std::size_t padded(std::size_t bytes) { return (bytes + line - 1) / line * line; }
  constexpr std::size_t arrivals() const { return line + padded(size(blocks) * word); }
  constexpr std::size_t credits() const { return arrivals() + padded(size(blocks) * size(ranks) * 2 * word); }
  constexpr std::size_t rings() const { return credits() + padded(2 * channels() * word); }
  constexpr std::size_t ring_bytes() const { return padded(size(slots.slots) * (sizeof(slot_line) + slot_ring::stride(slots.bytes))); }
  constexpr std::size_t cell_ring_bytes() const { return padded(size(low_latency.slots) * cells_per_slot() * 16); }
};

/// What block `index` of `blocks` does of `count` elements: shares that begin at multiples of 16 bytes, none longer than the first.
constexpr extent block_share(std::size_t count, std::size_t element_bytes, int blocks, int index) {
  std::size_t const odd = element_bytes & (~element_bytes + 1);  // the largest power of two in it
  std::size_t const unit = odd < 16 ? 16 / odd : 1;
  extent const units = share((count + unit - 1) / unit, blocks, index);
  std::size_t const first = units.first * unit, end = (units.first + units.count) * unit;
  return {first < count ? first : count, (end < count ? end : count) - (first < count ? first : count)};
}

}  // namespace device
}  // namespace v0
}  // namespace collectx
