// SPDX-License-Identifier: Apache-2.0
/// Direct algorithms: everybody talks to everybody (or to the root), in as few steps as can be.
#pragma once

#include "collectx/algo/recursive_halving.hpp"

namespace collectx {
inline namespace v0 {
namespace algo {

namespace detail {
/// Visits all other ranks, beginning behind mine so that not all ranks talk to the same one first.
template <RankContext Me, class F>
constexpr void others(Me const& me, F&& f) {
  for (int i = 1; i < me.size(); ++i) f((me.rank() + i) % me.size());
}
}  // namespace detail

/// One-shot all-reduce: each gives all of its vector to all others, each combines all in rank order.
/// steps 1 | messages per rank n-1 | bytes per rank B (n-1) | slots 1 | any n | keeps rank order
struct one_shot_all_reduce {
  static constexpr bool keeps_rank_order = true;
  static constexpr bool agrees_bitwise = true;
  constexpr int steps(int size) const { return size > 1 ? 1 : 0; }
  constexpr int parts(int) const { return 1; }
  template <RankContext Me>
  constexpr void step(int, Me& me) const {
    detail::others(me, [&](int peer) { me.send(peer, everything(me)); });
    detail::others(me, [&](int peer) { me.reduce(peer, everything(me)); });
  }
  friend constexpr bool operator==(one_shot_all_reduce, one_shot_all_reduce) = default;
};

/// Each gives chunk p to rank p. Rank r ends with chunk r, combined in rank order.
/// steps 1 | messages per rank n-1 | bytes per rank B (n-1)/n (optimal) | slots 1 | any n | keeps rank order
struct direct_reduce_scatter {
  static constexpr bool keeps_rank_order = true;
  static constexpr bool agrees_bitwise = true;
  constexpr int steps(int size) const { return size > 1 ? 1 : 0; }
  constexpr int parts(int) const { return 1; }
  template <RankContext Me>
  constexpr void step(int, Me& me) const {
    int const share = me.chunks() / me.size();
    detail::others(me, [&](int peer) { me.send(peer, chunks{peer * share, share}); });
    detail::others(me, [&](int peer) { me.reduce(peer, chunks{me.rank() * share, share}); });
  }
  friend constexpr bool operator==(direct_reduce_scatter, direct_reduce_scatter) = default;
};

/// All others give their vector to rank 0, which combines them in rank order.
/// steps 1 | messages per rank 1, at the root n-1 received | bytes per rank B | slots 1 | any n | keeps rank order
struct direct_reduce {
  static constexpr bool keeps_rank_order = true;
  static constexpr bool agrees_bitwise = true;
  constexpr int steps(int size) const { return size > 1 ? 1 : 0; }
  constexpr int parts(int) const { return 1; }
  template <RankContext Me>
  constexpr void step(int, Me& me) const {
    if (me.rank() != 0) return me.send(0, everything(me));
    detail::others(me, [&](int peer) { me.reduce(peer, everything(me)); });
  }
  friend constexpr bool operator==(direct_reduce, direct_reduce) = default;
};

/// All others give the chunk they own to rank 0.
/// steps 1 | messages per rank 1 | bytes per rank B/n | slots 1 | any n | moves only
struct direct_gather {
  static constexpr bool keeps_rank_order = true;
  static constexpr bool agrees_bitwise = true;
  constexpr int steps(int size) const { return size > 1 ? 1 : 0; }
  constexpr int parts(int size) const { return size; }
  template <RankContext Me>
  constexpr void step(int, Me& me) const {
    if (me.rank() != 0) return me.send(0, chunk(me.rank()));
    detail::others(me, [&](int peer) { me.recv(peer, chunk(peer)); });
  }
  friend constexpr bool operator==(direct_gather, direct_gather) = default;
};

/// One step for everything: least latency, most bytes. For small vectors, and for few ranks on one node.
struct direct {
  static constexpr char const* name = "direct";
  constexpr auto reduce_scatter() const { return direct_reduce_scatter{}; }
  constexpr auto all_gather() const { return reversed<direct_reduce_scatter>{}; }
  constexpr auto all_reduce() const { return one_shot_all_reduce{}; }
  constexpr auto reduce(int root) const { return renumbered<direct_reduce>{{}, root}; }
  constexpr auto broadcast(int root) const { return renumbered<reversed<direct_reduce>>{{}, root}; }
  friend constexpr bool operator==(direct, direct) = default;
};

/// Two steps: scatter the work, then collect. As few bytes as a ring, with n-1 messages at once.
/// all_reduce: steps 2 | messages per rank 2(n-1) | bytes per rank 2 B (n-1)/n (optimal) | slots 2 | any n | keeps rank order
/// reduce: steps 2 | messages per rank n | bytes per rank B (optimal) | slots 1 | any n | keeps rank order
/// broadcast: steps 2 | messages at the root 2(n-1) | bytes at the root 2 B (n-1)/n | slots 1 | any n
struct two_shot {
  static constexpr char const* name = "two_shot";
  using reduce_to_first = then<detail::scattered<direct_reduce_scatter>, direct_gather>;
  constexpr auto reduce_scatter() const { return direct_reduce_scatter{}; }
  constexpr auto all_gather() const { return reversed<direct_reduce_scatter>{}; }
  constexpr auto all_reduce() const { return then<direct_reduce_scatter, reversed<direct_reduce_scatter>>{}; }
  constexpr auto reduce(int root) const { return renumbered<reduce_to_first>{{}, root}; }
  constexpr auto broadcast(int root) const { return renumbered<reversed<reduce_to_first>>{{}, root}; }
  friend constexpr bool operator==(two_shot, two_shot) = default;
};

/// The parameter server (Li et al. 2014): everything through rank 0, the baseline that the others are measured against.
/// all_reduce: steps 2 | messages at the server n-1 each way | bytes at the server B (n-1) each way | slots 1 | any n | keeps rank order
struct central {
  static constexpr char const* name = "central";
  constexpr auto all_reduce() const { return then<direct_reduce, reversed<direct_reduce>>{}; }
  constexpr auto reduce(int root) const { return renumbered<direct_reduce>{{}, root}; }
  constexpr auto broadcast(int root) const { return renumbered<reversed<direct_reduce>>{{}, root}; }
  friend constexpr bool operator==(central, central) = default;
};

}  // namespace algo
}  // namespace v0
}  // namespace collectx
