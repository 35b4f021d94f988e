// SPDX-License-Identifier: Apache-2.0
// The other half of what algo/direct.hpp offers.
#include "collectx/algo/direct.hpp"

#include "cells.hpp"

namespace direct_two_shot_test {

namespace cx = collectx;
using cells::cell;
using cx::algo::two_shot;

constexpr auto one = [](int) { return 1; };
constexpr auto scatter = [](int n, cx::cost const& cost) {
  return cost.steps == 1 && cost.messages == n - 1 && cells::fewest_bytes(cost, cx::reduce_scatter{}.needs(n));
};

using all_reduce = cell<two_shot, cx::all_reduce{}>;
using reduce_scatter = cell<two_shot, cx::reduce_scatter{}>;
using all_gather = cell<two_shot, cx::all_gather{}>;
using broadcast = cell<two_shot, cx::broadcast{}>;
using reduce = cell<two_shot, cx::reduce{}>;

static_assert(reduce_scatter::costs(scatter, one));
static_assert(all_gather::costs(scatter, one));
// steps 2 | messages per rank 2(n-1) | bytes per rank 2 B (n-1)/n (optimal) | slots 2 | keeps rank order
static_assert(all_reduce::costs(
    [](int n, cx::cost const& cost) {
      return cost.steps == 2 && cost.messages == 2 * (n - 1) && cells::fewest_bytes(cost, cx::all_reduce{}.needs(n));
    },
    [](int) { return 2; }));
// steps 2 | messages per rank n | bytes per rank B (optimal) | slots 1 | keeps rank order
static_assert(reduce::costs(
    [](int n, cx::cost const& cost) { return cost.steps == 2 && cost.messages == n && cells::fewest_bytes(cost, cx::reduce{}.needs(n)); },
    one));
// steps 2 | messages at the root 2(n-1) | bytes at the root 2 B (n-1)/n | slots 1
static_assert(broadcast::costs(
    [](int n, cx::cost const& cost) { return cost.steps == 2 && cost.messages == 2 * (n - 1) && cells::sends(cost, 2 * (n - 1), n); },
    one));
static_assert(cx::keeps_rank_order<all_reduce::schedule_type>() && cx::keeps_rank_order<reduce::schedule_type>());
static_assert(cells::proved_for_every_root<two_shot, cx::reduce>(cells::at<2, 3, 6>{}));
static_assert(cells::proved_for_every_root<two_shot, cx::broadcast>(cells::at<2, 3, 6>{}));

static_assert(cx::proven(two_shot{}, cx::all_reduce{}, 1) && cx::proven(two_shot{}, cx::reduce_scatter{}, 1));
static_assert(cx::proven(two_shot{}, cx::all_gather{}, 1) && cx::proven(two_shot{}, cx::broadcast{}, 1));
static_assert(cx::proven(two_shot{}, cx::reduce{}, 1));

}  // namespace direct_two_shot_test
