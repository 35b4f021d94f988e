// SPDX-License-Identifier: Apache-2.0
/// What each collective promises, as data: which blocks a rank has before and after, who contributes, and what that costs at least.
///
/// Everything that is true of a collective whatever its algorithm is here, so that a proof, a plan and a benchmark read the same page.
#pragma once

#include "collectx/combine.hpp"

namespace collectx {
inline namespace v0 {

/// The least that any algorithm must do. Bytes are a fraction of B, the bytes of the whole vector (all ranks' shares together).
struct lower_bound {
  int steps = 0;             ///< where no rank sends or receives two messages in one step
  int sent = 0, out_of = 1;  ///< bytes sent by the busiest rank, as sent / out_of of B
};

/// A Collective says, for n ranks:
///
/// 1. `shares(n)`: chunk names per part; `blocks(n)`: 1 where every rank that ends with something ends with everything, else n.
/// 2. `input(n, rank)`, `output(n, rank)`: the blocks that a rank has before and after, as a run of block names.
/// 3. `reduces`: a block ends as the combination of all ranks' contributions; else it is `source(n, block)`'s.
/// 4. `needs(n)`: its lower bound. `select(family)`: the family's schedule for it.
///
/// Not required: element types, counts, operations.
template <class C>
concept Collective = requires(C const& collective, int n, int rank, int block) {
  { C::name } -> std::convertible_to<char const*>;
  { C::reduces } -> std::convertible_to<bool>;
  { collective.shares(n) } -> std::same_as<int>;
  { collective.blocks(n) } -> std::same_as<int>;
  { collective.input(n, rank) } -> std::same_as<chunks>;
  { collective.output(n, rank) } -> std::same_as<chunks>;
  { collective.source(n, block) } -> std::same_as<int>;
  { collective.needs(n) } -> std::same_as<lower_bound>;
};

namespace detail {
constexpr int log2_ceil(int n) {
  int bits = 0;
  while ((1LL << bits) < n) ++bits;
  return bits;
}
}  // namespace detail

/// Every rank ends with the combination of all ranks' vectors (Chan et al. 2007: 2 B (n-1)/n sent at least).
struct all_reduce {
  static constexpr char const* name = "all_reduce";
  static constexpr bool reduces = true;
  constexpr int shares(int n) const { return n; }
  constexpr int blocks(int) const { return 1; }
  constexpr chunks input(int, int) const { return {0, 1}; }
  constexpr chunks output(int, int) const { return {0, 1}; }
  constexpr int source(int, int) const { return -1; }
  constexpr lower_bound needs(int n) const { return {detail::log2_ceil(n), 2 * (n - 1), n}; }
  template <class F>
  requires requires(F const& f) { f.all_reduce(); }
  static constexpr auto select(F const& family, int) { return family.all_reduce(); }
  friend constexpr bool operator==(all_reduce, all_reduce) = default;
};

/// Rank r ends with block r of the combination of all ranks' vectors.
struct reduce_scatter {
  static constexpr char const* name = "reduce_scatter";
  static constexpr bool reduces = true;
  constexpr int shares(int n) const { return n; }
  constexpr int blocks(int n) const { return n; }
  constexpr chunks input(int n, int) const { return {0, n}; }
  constexpr chunks output(int, int rank) const { return {rank, 1}; }
  constexpr int source(int, int) const { return -1; }
  constexpr lower_bound needs(int n) const { return {detail::log2_ceil(n), n - 1, n}; }
  template <class F>
  requires requires(F const& f) { f.reduce_scatter(); }
  static constexpr auto select(F const& family, int) { return family.reduce_scatter(); }
  friend constexpr bool operator==(reduce_scatter, reduce_scatter) = default;
};

/// Every rank ends with all blocks; block r is rank r's.
struct all_gather {
  static constexpr char const* name = "all_gather";
  static constexpr bool reduces = false;
  constexpr int shares(int n) const { return n; }
  constexpr int blocks(int n) const { return n; }
  constexpr chunks input(int, int rank) const { return {rank, 1}; }
  constexpr chunks output(int n, int) const { return {0, n}; }
  constexpr int source(int, int block) const { return block; }
  constexpr lower_bound needs(int n) const { return {detail::log2_ceil(n), n - 1, n}; }
  template <class F>
  requires requires(F const& f) { f.all_gather(); }
  static constexpr auto select(F const& family, int) { return family.all_gather(); }
  friend constexpr bool operator==(all_gather, all_gather) = default;
};

/// Every rank ends with the root's vector.
struct broadcast {
  static constexpr char const* name = "broadcast";
  static constexpr bool reduces = false;
  int root = 0;
  constexpr int shares(int) const { return 1; }
  constexpr int blocks(int) const { return 1; }
  constexpr chunks input(int, int rank) const { return {0, rank == root ? 1 : 0}; }
  constexpr chunks output(int, int) const { return {0, 1}; }
  constexpr int source(int, int) const { return root; }
  constexpr lower_bound needs(int n) const { return {detail::log2_ceil(n), n > 1 ? 1 : 0, 1}; }
  template <class F>
  requires requires(F const& f) { f.broadcast(0); }
  static constexpr auto select(F const& family, int root) { return family.broadcast(root); }
  friend constexpr bool operator==(broadcast, broadcast) = default;
};

/// The root ends with the combination of all ranks' vectors; the others with nothing.
struct reduce {
  static constexpr char const* name = "reduce";
  static constexpr bool reduces = true;
  int root = 0;
  constexpr int shares(int) const { return 1; }
  constexpr int blocks(int) const { return 1; }
  constexpr chunks input(int, int) const { return {0, 1}; }
  constexpr chunks output(int, int rank) const { return {0, rank == root ? 1 : 0}; }
  constexpr int source(int, int) const { return -1; }
  constexpr lower_bound needs(int n) const { return {detail::log2_ceil(n), n > 1 ? 1 : 0, 1}; }
  template <class F>
  requires requires(F const& f) { f.reduce(0); }
  static constexpr auto select(F const& family, int root) { return family.reduce(root); }
  friend constexpr bool operator==(reduce, reduce) = default;
};

/// A family that offers a schedule for the collective.
template <class F, class C>
concept offers = requires(F const& family) {
  C::select(family, 0);
};

namespace detail {
template <class C>
constexpr int root_of(C const& collective) {
  if constexpr (requires { collective.root; })
    return collective.root;
  else
    return 0;
}
}  // namespace detail

/// The schedule of an algorithm for a collective: of a family its member for it, of a bare schedule itself, about the collective's root.
template <class A, Collective C>
constexpr auto schedule_of(A const& algorithm, C const& collective) {
  int const root = detail::root_of(collective);
  if constexpr (offers<A, C>) {
    return C::select(algorithm, root);
  } else if constexpr (Schedule<A>) {
    if constexpr (requires { collective.root; })
      return renumbered<A>{algorithm, root};
    else
      return algorithm;
  } else {
    static_assert(offers<A, C>,
                  "collectx: this algorithm offers no schedule for this collective: choose another algorithm, or give it a member "
                  "function of the collective's name that returns one (and a bare schedule needs steps(n), parts(n), step(k, me))");
  }
}

/// The result of a schedule that ends at rank 0, carried to `root` by one more move. For operations whose operands must stay in order:
/// renumbering would begin with the root's.
template <class S>
struct carried {
  static constexpr bool keeps_rank_order = collectx::keeps_rank_order<S>();
  static constexpr bool agrees_bitwise = collectx::agrees_bitwise<S>();
  S original{};
  int root = 0;

  constexpr bool admits(int n) const { return collectx::admits(original, n); }
  constexpr int lanes() const { return lanes_of(original); }
  constexpr int steps(int n) const { return original.steps(n) + (root == 0 ? 0 : 1); }
  constexpr int parts(int n) const { return original.parts(n); }
  template <RankContext M>
  constexpr void step(int k, M& me) const {
    if (k < original.steps(me.size())) return original.step(k, me);
    if (me.rank() == 0) me.send(root, everything(me));
    if (me.rank() == root) me.recv(0, everything(me));
  }
  friend constexpr bool operator==(carried const& x, carried const& y) requires comparable_schedule<S> {
    return same_schedule(x.original, y.original) && x.root == y.root;
  }
};

}  // namespace v0
}  // namespace collectx
