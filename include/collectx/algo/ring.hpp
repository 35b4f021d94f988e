// SPDX-License-Identifier: Apache-2.0
/// Rings: everybody gives to the next and takes from the one before.
#pragma once

#include "collectx/collective.hpp"

namespace collectx {
inline namespace v0 {
namespace algo {

// [ring]
/// Ring reduce-scatter (Patarasuk & Yuan 2009). Rank r ends with chunk r.
/// steps n-1 | messages per rank n-1 | bytes per rank B (n-1)/n (optimal) | slots 2, 1 at n = 2 | any n | reorders operands
struct ring_reduce_scatter {
  static constexpr char const* name = "ring";
  static constexpr bool keeps_rank_order = false;
  static constexpr bool agrees_bitwise = true;
  constexpr int steps(int size) const { return size - 1; }
  constexpr int parts(int) const { return 1; }
  template <RankContext Me>
  constexpr void step(int k, Me& me) const {
    me.send(next(me), chunk(me.rank() - k - 1));
    me.reduce(prev(me), chunk(me.rank() - k - 2));
  }
  friend constexpr bool operator==(ring_reduce_scatter, ring_reduce_scatter) = default;
};
using ring_all_gather = reversed<ring_reduce_scatter>;  // the same film, backwards
using ring_all_reduce = then<ring_reduce_scatter, ring_all_gather>;
// [ring]

/// Chain to rank 0: the last rank begins, each adds its own in front. Pipelined over the pieces of a large vector.
/// steps n-1 | messages per rank 1 | bytes per rank B | slots 1 | any n | keeps rank order
struct chain_reduce {
  static constexpr char const* name = "ring";
  static constexpr bool keeps_rank_order = true;
  static constexpr bool agrees_bitwise = true;
  constexpr int steps(int size) const { return size - 1; }
  constexpr int parts(int) const { return 1; }
  template <RankContext Me>
  constexpr void step(int k, Me& me) const {
    int const sender = me.size() - 1 - k;
    if (me.rank() == sender) me.send(sender - 1, everything(me));
    if (me.rank() == sender - 1) me.reduce(sender, everything(me));
  }
  friend constexpr bool operator==(chain_reduce, chain_reduce) = default;
};

/// The ring family: one ring for the symmetric collectives, a chain for the rooted ones.
struct ring {
  static constexpr char const* name = "ring";
  constexpr auto reduce_scatter() const { return ring_reduce_scatter{}; }
  constexpr auto all_gather() const { return ring_all_gather{}; }
  constexpr auto all_reduce() const { return ring_all_reduce{}; }
  constexpr auto reduce(int root) const { return renumbered<chain_reduce>{{}, root}; }
  constexpr auto broadcast(int root) const { return renumbered<reversed<chain_reduce>>{{}, root}; }
  friend constexpr bool operator==(ring, ring) = default;
};

}  // namespace algo
}  // namespace v0
}  // namespace collectx
