// SPDX-License-Identifier: Apache-2.0
/// What a proof knows of a value: whose contributions are in it, whether in rank order, and by which expression.
#pragma once

#include "collectx/exec/list.hpp"

#include <cstdint>

namespace collectx {
inline namespace v0 {
namespace exec {

/// Values stand in rows: row i is the i-th place that the proof looks at (a rank's chunk, or one chunk of a message under way).
class provenance {
 public:
  constexpr provenance(int ranks, int rows) : words_((ranks + 63) / 64) { resize(rows); }

  constexpr int rows() const { return about_.size(); }
  constexpr void resize(int rows) {
    about_.resize(rows);
    masks_.resize(rows * words_, 0);
  }

  constexpr void clear(int row) {
    about_[row] = {};
    for (int w = 0; w < words_; ++w) masks_[row * words_ + w] = 0;
  }
  /// The contribution of one rank.
  constexpr void contribute(int row, int rank) {
    clear(row);
    about_[row] = {rank, rank + 1, mix(static_cast<std::uint64_t>(rank) + 1, 0), true};
    masks_[row * words_ + rank / 64] = std::uint64_t{1} << (rank % 64);
  }
  constexpr void copy(int to, provenance const& other, int from) {
    about_[to] = other.about_[from];
    for (int w = 0; w < words_; ++w) masks_[to * words_ + w] = other.masks_[from * words_ + w];
  }

  /// Puts `left` op `right` into `row`, which may be either; false where a contribution is in both.
  constexpr bool combine(int row, provenance const& a, int left, provenance const& b, int right) {
    for (int w = 0; w < words_; ++w)
      if ((a.masks_[left * words_ + w] & b.masks_[right * words_ + w]) != 0) return false;
    about const l = a.about_[left], r = b.about_[right];
    about_[row] = {l.low < r.low ? l.low : r.low, l.high > r.high ? l.high : r.high, mix(l.expression, r.expression),
                   l.ordered && r.ordered && l.high == r.low};
    for (int w = 0; w < words_; ++w) masks_[row * words_ + w] = a.masks_[left * words_ + w] | b.masks_[right * words_ + w];
    return true;
  }

  constexpr bool empty(int row) const { return about_[row].high == 0; }
  constexpr bool ordered(int row) const { return about_[row].ordered; }
  /// Equal for the same tree of operands; different otherwise, but for one chance in 2^64.
  constexpr std::uint64_t expression(int row) const { return about_[row].expression; }
  constexpr bool contains(int row, int rank) const { return (masks_[row * words_ + rank / 64] >> (rank % 64) & 1) != 0; }
  /// Exactly the contributions of ranks 0 .. n-1.
  constexpr bool complete(int row, int n) const {
    for (int r = 0; r < n; ++r)
      if (!contains(row, r)) return false;
    return true;
  }
  /// Exactly the contribution of one rank.
  constexpr bool only(int row, int rank) const {
    return about_[row].low == rank && about_[row].high == rank + 1 && contains(row, rank);
  }

 private:
  struct about {
    int low = 0, high = 0;
    std::uint64_t expression = 0;
    bool ordered = true;
  };
  static constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15u + (b ^ (b >> 29)) * 0xbf58476d1ce4e5b9u + 0x94d049bb133111ebu;
    x ^= x >> 31;
    return x * 0xd6e8feb86659fd93u;
  }

  int words_;
  list<about> about_;
  list<std::uint64_t> masks_;
};

}  // namespace exec
}  // namespace v0
}  // namespace collectx
