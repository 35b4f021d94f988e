// SPDX-License-Identifier: Apache-2.0
/// Recursive halving and doubling for any number of ranks.
///
/// The ranks split into a front half and a back half (one longer where the number is odd), give each other what belongs to the other
/// half, and go on inside their half. The odd rank out gives its share to the last of the shorter half and gets nothing: no folding in
/// beforehand, contiguous runs, and rank r ends with chunk r at every n.
#pragma once

#include "collectx/collective.hpp"

namespace collectx {
inline namespace v0 {
namespace algo {

namespace detail {

/// The halves around one rank after `depth` splits: [low, middle) and [middle, high). Empty halves where its interval is one rank.
struct halves {
  int low, middle, high;
  constexpr bool split() const { return high - low > 1; }
  constexpr int front() const { return middle - low; }
  constexpr int back() const { return high - middle; }
};

constexpr halves halves_of(int rank, int size, int depth) {
  halves h{0, (size + 1) / 2, size};
  for (; depth > 0 && h.split(); --depth) {
    if (rank < h.middle)
      h.high = h.middle;
    else
      h.low = h.middle;
    h.middle = h.low + (h.high - h.low + 1) / 2;
  }
  return h;
}

}  // namespace detail

/// Recursive halving reduce-scatter (Thakur, Rabenseifner, Gropp 2005, extended to any n as above). Rank r ends with chunk r.
/// steps ceil(log2 n) | messages per rank ceil(log2 n) | bytes per rank B (n-1)/n (optimal) | slots 1 | any n | reorders operands
struct halving_reduce_scatter {
  static constexpr char const* name = "recursive_halving";
  static constexpr bool keeps_rank_order = false;
  static constexpr bool agrees_bitwise = true;
  constexpr int steps(int size) const { return collectx::detail::log2_ceil(size); }
  constexpr int parts(int) const { return 1; }
  template <RankContext Me>
  constexpr void step(int k, Me& me) const {
    auto const h = detail::halves_of(me.rank(), me.size(), k);
    if (!h.split()) return;
    chunks const mine_front{h.low, h.front()}, mine_back{h.middle, h.back()};
    if (me.rank() < h.middle) {
      int const index = me.rank() - h.low, partner = h.middle + (index < h.back() ? index : h.back() - 1);
      me.send(partner, mine_back);
      if (index < h.back()) me.reduce(partner, mine_front);
    } else {
      int const index = me.rank() - h.middle, partner = h.low + index;
      me.send(partner, mine_front);
      me.reduce(partner, mine_back);
      if (index == h.back() - 1 && h.front() > h.back()) me.reduce(partner + 1, mine_back);
    }
  }
  friend constexpr bool operator==(halving_reduce_scatter, halving_reduce_scatter) = default;
};

/// Binomial gather to rank 0 along the same halves: in each step the first of a back half gives all it has to the first of its front half.
/// steps ceil(log2 n) | messages per rank 1 | bytes per rank B floor(n/2)/n | slots 1 | any n | moves only
struct halving_gather {
  static constexpr bool keeps_rank_order = true;
  static constexpr bool agrees_bitwise = true;
  constexpr int steps(int size) const { return collectx::detail::log2_ceil(size); }
  constexpr int parts(int size) const { return size; }
  template <RankContext Me>
  constexpr void step(int k, Me& me) const {
    auto const h = detail::halves_of(me.rank(), me.size(), steps(me.size()) - 1 - k);
    if (!h.split()) return;
    if (me.rank() == h.middle) me.send(h.low, chunks{h.middle, h.back()});
    if (me.rank() == h.low) me.recv(h.middle, chunks{h.middle, h.back()});
  }
  friend constexpr bool operator==(halving_gather, halving_gather) = default;
};

namespace detail {
/// A schedule of n shares, for a collective of one: as many parts as there are ranks.
template <class S>
struct scattered {
  static constexpr bool keeps_rank_order = collectx::keeps_rank_order<S>();
  static constexpr bool agrees_bitwise = collectx::agrees_bitwise<S>();
  S original{};
  constexpr int steps(int size) const { return original.steps(size); }
  constexpr int parts(int size) const { return size * original.parts(size); }
  template <RankContext Me>
  constexpr void step(int k, Me& me) const {
    original.step(k, me);
  }
  friend constexpr bool operator==(scattered const&, scattered const&) = default;
};
}  // namespace detail

/// Reduce-scatter, then gather (Rabenseifner 2004).
/// steps 2 ceil(log2 n) | messages per rank ceil(log2 n) + 1 | bytes per rank < 2 B | slots 1 | any n | reorders operands
using halving_reduce = then<detail::scattered<halving_reduce_scatter>, halving_gather>;

/// The recursive halving family: halving for reductions, doubling (the film backwards) to collect, scatter + gather for broadcasts.
/// all_reduce: steps 2 ceil(log2 n) | at powers of two messages per rank 2 log2 n, bytes per rank 2 B (n-1)/n (optimal) | slots 2
/// Elsewhere the last rank of a shorter half gives to two: all_gather < 2 B, all_reduce < 3 B on the busiest rank.
struct recursive_halving {
  static constexpr char const* name = "recursive_halving";
  constexpr auto reduce_scatter() const { return halving_reduce_scatter{}; }
  constexpr auto all_gather() const { return reversed<halving_reduce_scatter>{}; }
  constexpr auto all_reduce() const { return then<halving_reduce_scatter, reversed<halving_reduce_scatter>>{}; }
  constexpr auto reduce(int root) const { return renumbered<halving_reduce>{{}, root}; }
  constexpr auto broadcast(int root) const { return renumbered<reversed<halving_reduce>>{{}, root}; }
  friend constexpr bool operator==(recursive_halving, recursive_halving) = default;
};

}  // namespace algo
}  // namespace v0
}  // namespace collectx
