// SPDX-License-Identifier: Apache-2.0
#include "collectx/algo/double_binary_tree.hpp"

#include "cells.hpp"

namespace double_binary_tree_test {

namespace cx = collectx;
using cells::cell;
using cells::log2_ceil;
using cx::algo::double_binary_tree;
using cx::algo::numbering;

using all_reduce = cell<double_binary_tree, cx::all_reduce{}>;
using broadcast = cell<double_binary_tree, cx::broadcast{}>;
using reduce = cell<double_binary_tree, cx::reduce{}>;
static_assert(!cx::offers<double_binary_tree, cx::reduce_scatter> && !cx::offers<double_binary_tree, cx::all_gather>);

constexpr auto one = [](int) { return 1; };

// steps 2 ceil(log2 n) | messages per rank <= 4 | bytes per rank <= 2 B | slots 1 | keeps rank order
static_assert(all_reduce::costs(
    [](int n, cx::cost const& cost) { return cost.steps == 2 * log2_ceil(n) && cost.messages <= 4 && cost.chunks_sent <= 2 * cost.chunks; },
    one));
static_assert(cx::keeps_rank_order<all_reduce::schedule_type>() && cx::keeps_rank_order<reduce::schedule_type>());

// steps <= ceil(log2 n) + 1 | messages per rank <= 2 | bytes per rank B | slots 1
constexpr auto rooted = [](int n, cx::cost const& cost) {
  return cost.steps <= log2_ceil(n) + 1 && cost.messages <= 2 && cells::sends(cost, 1, 1);
};
static_assert(reduce::costs(rooted, one));
static_assert(broadcast::costs(rooted, one));
static_assert(cells::proved_for_every_root<double_binary_tree, cx::reduce>(cells::at<2, 3, 5, 6>{}));
static_assert(cells::proved_for_every_root<double_binary_tree, cx::broadcast>(cells::at<2, 3, 5, 6>{}));

// One tree: steps ceil(log2 n), one more for `below` at even n > 2 | messages per rank 1 | bytes per rank B | slots 1 | keeps rank order
template <numbering Which>
using tree = cx::algo::tree_reduce<Which>;
template <numbering Which, int... N>
constexpr bool grows(cells::at<N...>) {
  constexpr auto right = [](int n, cx::exec::report const& found) {
    int const extra = Which == numbering::below && n % 2 == 0 && n > 2 ? 1 : 0;
    return found.finding.ok() && found.rank_order && found.cost.steps == log2_ceil(n) + extra && found.cost.messages == 1 &&
           cells::sends(found.cost, 1, 1) && (n > 8 || found.cost.slots == 1);
  };
  return (right(N, cells::proof<tree<Which>, cx::reduce{}, N>) && ...);
}
static_assert(grows<numbering::first>(cells::two_to_sixteen{}) && grows<numbering::below>(cells::two_to_sixteen{}));

// What inner ranks of one tree are in the other: no rank but the roots is inside both.
template <numbering Which>
constexpr int children(int rank, int n) {
  tree<Which> const schedule;
  auto const form = cx::exec::shape_of(schedule, cx::reduce{}, n);
  int count = 0;
  for (int k = 0; k < schedule.steps(n); ++k)
    cx::exec::visit_moves<cx::exec::side::receives>(schedule, form, rank, k, [&](cx::exec::move&&) { ++count; });
  return count;
}
constexpr bool share_the_work(int n) {
  int inside_both = 0;
  for (int rank = 0; rank < n; ++rank)
    if (children<numbering::first>(rank, n) > 0 && children<numbering::mirror>(rank, n) > 0) ++inside_both;
  return inside_both <= 1;
}
static_assert(share_the_work(4) && share_the_work(5) && share_the_work(8) && share_the_work(13) && share_the_work(16));

// Relatives agree with each other.
constexpr bool related(int n) {
  cx::algo::detail::in_order_tree const tree{n};
  for (int rank = 0; rank < n; ++rank) {
    for (int const child : {tree.left(rank), tree.right(rank)})
      if (child >= 0 && (tree.parent(child) != rank || (rank != 0 && tree.turn(child) >= tree.turn(rank)))) return false;
    int const up = tree.parent(rank);
    if ((up < 0) != (rank == 0) || (up >= 0 && tree.left(up) != rank && tree.right(up) != rank)) return false;
    if (tree.left(rank) >= rank || (tree.right(rank) >= 0 && tree.right(rank) <= rank)) return false;
  }
  return true;
}
static_assert(related(1) && related(2) && related(3) && related(7) && related(8) && related(33) && related(100));

static_assert(cx::proven(double_binary_tree{}, cx::all_reduce{}, 1) && cx::proven(double_binary_tree{}, cx::reduce{}, 1));
static_assert(cx::proven(double_binary_tree{}, cx::broadcast{}, 1));

}  // namespace double_binary_tree_test
