// SPDX-License-Identifier: Apache-2.0
#include "collectx/combine.hpp"

#include "collectx/algo/double_binary_tree.hpp"
#include "collectx/algo/recursive_halving.hpp"
#include "collectx/algo/ring.hpp"

#include "cells.hpp"

namespace combine_test {

namespace cx = collectx;
using cx::algo::chain_reduce;
using cx::algo::ring_all_gather;
using cx::algo::ring_all_reduce;
using cx::algo::ring_reduce_scatter;

template <class S, auto Collective, int... N>
constexpr bool proved(cells::at<N...>) {
  return (cells::proof<S, Collective, N>.finding.ok() && ...);
}
using sizes = cells::at<1, 2, 3, 4, 5, 7>;

// then: one after the other; parts are those that both can live with.
static_assert(proved<cx::then<ring_reduce_scatter, cx::reversed<cx::algo::halving_reduce_scatter>>, cx::all_reduce{}>(sizes{}));
static_assert(ring_all_reduce{}.steps(5) == 8 && ring_all_reduce{}.parts(5) == 1 && ring_all_reduce{}.lanes() == 1);
template <int Parts>
struct in_parts : chain_reduce {
  constexpr int parts(int) const { return Parts; }
};
static_assert(cx::then<in_parts<4>, cx::reversed<in_parts<6>>>{}.parts(3) == 12);
static_assert(proved<cx::then<in_parts<4>, cx::reversed<in_parts<6>>>, cx::all_reduce{}>(sizes{}));

// reversed: the film backwards; twice backwards is forwards, except that nothing is combined.
static_assert(proved<cx::reversed<ring_reduce_scatter>, cx::all_gather{}>(sizes{}));
static_assert(proved<cx::reversed<cx::reversed<cx::reversed<ring_reduce_scatter>>>, cx::all_gather{}>(sizes{}));
static_assert(cx::keeps_rank_order<ring_all_gather>() && !cx::keeps_rank_order<ring_all_reduce>());

// staggered: a chain that sums its parts one by one, and one that hands them back as soon as they are whole.
struct chunked_chain {
  static constexpr bool keeps_rank_order = true;
  static constexpr bool agrees_bitwise = true;
  constexpr int steps(int n) const { return n > 1 ? n - 1 + parts(n) - 1 : 0; }
  constexpr int parts(int) const { return 3; }
  constexpr int first_ready(int n) const { return n - 1; }
  /// Part p leaves rank r in step n - 1 - r + p.
  template <cx::RankContext Me>
  constexpr void step(int k, Me& me) const {
    int const n = me.size(), part = me.chunks() / parts(n), mine = k - (n - 1 - me.rank()), theirs = k - (n - 2 - me.rank());
    if (me.rank() > 0 && mine >= 0 && mine < parts(n)) me.send(me.rank() - 1, cx::chunks{mine * part, part});
    if (me.rank() < n - 1 && theirs >= 0 && theirs < parts(n)) me.reduce(me.rank() + 1, cx::chunks{theirs * part, part});
  }
  friend constexpr bool operator==(chunked_chain, chunked_chain) = default;
};
/// From rank 0 up, part after part.
struct chunked_return {
  static constexpr bool keeps_rank_order = true;
  static constexpr bool agrees_bitwise = true;
  constexpr int steps(int n) const { return chunked_chain{}.steps(n); }
  constexpr int parts(int n) const { return chunked_chain{}.parts(n); }
  template <cx::RankContext Me>
  constexpr void step(int k, Me& me) const {
    int const n = me.size(), part = me.chunks() / parts(n), mine = k - me.rank(), theirs = k - (me.rank() - 1);
    if (me.rank() < n - 1 && mine >= 0 && mine < parts(n)) me.send(me.rank() + 1, cx::chunks{mine * part, part});
    if (me.rank() > 0 && theirs >= 0 && theirs < parts(n)) me.recv(me.rank() - 1, cx::chunks{theirs * part, part});
  }
  friend constexpr bool operator==(chunked_return, chunked_return) = default;
};
using overlapping = cx::staggered<chunked_chain, chunked_return>;
static_assert(proved<chunked_chain, cx::reduce{}>(sizes{}) && proved<chunked_return, cx::broadcast{}>(sizes{}));
static_assert(proved<overlapping, cx::all_reduce{}>(sizes{}));
static_assert(overlapping{}.steps(5) == 4 + 6 && cx::then<chunked_chain, chunked_return>{}.steps(5) == 6 + 6 && overlapping{}.lanes() == 2);
static_assert(cx::keeps_rank_order<overlapping>() && cells::proof<overlapping, cx::all_reduce{}, 8>.rank_order);
// It starts when the first part is whole, and not before: what is promised too soon is found out, with the step and the chunk.
struct overhasty : chunked_chain {
  constexpr int first_ready(int n) const { return n - 2; }
};
constexpr cx::finding too_soon = cx::examine(cx::staggered<overhasty, chunked_return>{}, cx::all_reduce{}, 5);
static_assert(too_soon.what != cx::flaw::none && too_soon.step == 3 && too_soon.chunk >= 0 && too_soon.chunk < 5);

// beside: disjoint chunks, lanes of their own, with one block and with many.
using both_ways = cx::beside<ring_reduce_scatter, ring_reduce_scatter>;
static_assert(both_ways{}.parts(4) == 2 && both_ways{}.lanes() == 2 && both_ways{}.steps(4) == 3);
static_assert(proved<both_ways, cx::reduce_scatter{}>(sizes{}) && proved<cx::reversed<both_ways>, cx::all_gather{}>(sizes{}));
static_assert(proved<cx::then<both_ways, cx::reversed<both_ways>>, cx::all_reduce{}>(cells::at<1, 2, 3, 4, 6>{}));
static_assert(proved<cx::beside<cx::algo::halving_reduce_scatter, ring_reduce_scatter>, cx::reduce_scatter{}>(sizes{}));
static_assert(proved<cx::beside<both_ways, ring_reduce_scatter>, cx::reduce_scatter{}>(sizes{}));
static_assert(proved<cx::beside<chain_reduce, cx::algo::tree_reduce<cx::algo::numbering::first>>, cx::reduce{}>(sizes{}));
static_assert(cells::proof<both_ways, cx::reduce_scatter{}, 6>.cost.messages == 10);

// renumbered, rotated: other names for ranks, and for the blocks they own.
static_assert(proved<cx::rotated<ring_reduce_scatter, 0>, cx::reduce_scatter{}>(sizes{}));
static_assert(proved<cx::rotated<ring_reduce_scatter, 3>, cx::reduce_scatter{}>(sizes{}));
static_assert(proved<cx::rotated<cx::algo::halving_reduce_scatter, -2>, cx::reduce_scatter{}>(sizes{}));
static_assert(proved<cx::rotated<ring_all_reduce, 2>, cx::all_reduce{}>(sizes{}));
static_assert(proved<cx::beside<ring_reduce_scatter, cx::rotated<cx::algo::halving_reduce_scatter, 1>>, cx::reduce_scatter{}>(sizes{}));
static_assert(cx::rotated<chain_reduce, 2>{}.by == 2 && cx::renumbered<chain_reduce>{{}, 2} != cx::renumbered<chain_reduce>{{}, 3});
static_assert(cx::keeps_rank_order<cx::rotated<chain_reduce, 0>>() && !cx::keeps_rank_order<cx::rotated<chain_reduce, 1>>());

// within: even ranks among themselves; the odd ones keep out.
struct even_ranks {
  constexpr int size(int n) const { return (n + 1) / 2; }
  constexpr int index(int rank, int) const { return rank % 2 == 0 ? rank / 2 : -1; }
  constexpr int rank(int index, int) const { return 2 * index; }
  constexpr int chunks(int total, int) const { return total; }
  template <class F>
  constexpr void for_each(cx::chunks run, int, int, F&& f) const {
    f(run);
  }
  friend constexpr bool operator==(even_ranks, even_ranks) = default;
};
/// Every odd rank gives to the even one below it; then the even ones go on by themselves.
struct pairs {
  static constexpr bool keeps_rank_order = true;
  static constexpr bool agrees_bitwise = true;
  constexpr int steps(int n) const { return n > 1 ? 1 : 0; }
  constexpr int parts(int) const { return 1; }
  template <cx::RankContext Me>
  constexpr void step(int, Me& me) const {
    if (me.rank() % 2 == 1) return me.send(me.rank() - 1, cx::everything(me));
    if (me.rank() + 1 < me.size()) me.reduce(me.rank() + 1, cx::everything(me));
  }
  friend constexpr bool operator==(pairs, pairs) = default;
};
using folded = cx::then<pairs, cx::within<chain_reduce, even_ranks>>;
static_assert(proved<folded, cx::reduce{}>(sizes{}) && proved<cx::reversed<folded>, cx::broadcast{}>(sizes{}));
static_assert(proved<cx::then<folded, cx::reversed<folded>>, cx::all_reduce{}>(sizes{}));
static_assert(folded{}.steps(8) == 4 && cx::keeps_rank_order<folded>() && cells::proof<folded, cx::reduce{}, 8>.rank_order);

// Declarations are those of both; admission too; state is compared.
struct even_only : ring_reduce_scatter {
  constexpr bool admits(int n) const { return n % 2 == 0; }
};
static_assert(!cx::admits(cx::then<ring_reduce_scatter, cx::reversed<even_only>>{}, 3) &&
              cx::admits(cx::beside<even_only, even_only>{}, 4));
static_assert(!cx::admits(cx::reversed<even_only>{}, 3) && !cx::admits(cx::renumbered<even_only>{{}, 1}, 3));
static_assert(cx::admits(cx::within<even_only, even_ranks>{}, 3) && !cx::admits(cx::within<even_only, even_ranks>{}, 5));
static_assert(cx::admits(cx::carried<chain_reduce>{{}, 1}, 3));

// What a schedule says of a rank's neighbours needs no name of a namespace, alone and inside of every combinator.
namespace somewhere_else {
struct around {
  constexpr int steps(int size) const { return size - 1; }
  constexpr int parts(int) const { return 1; }
  template <collectx::RankContext Me>
  constexpr void step(int k, Me& me) const {
    me.send(next(me), collectx::chunk(me.rank() - k - 1 + 0 * everything(me).count));
    me.reduce(prev(me), collectx::chunk(me.rank() - k - 2));
  }
};
}  // namespace somewhere_else
using somewhere_else::around;
static_assert(proved<around, cx::reduce_scatter{}>(sizes{}));
static_assert(proved<cx::then<around, cx::reversed<around>>, cx::all_reduce{}>(sizes{}));
static_assert(proved<cx::beside<around, around>, cx::reduce_scatter{}>(sizes{}));

}  // namespace combine_test
