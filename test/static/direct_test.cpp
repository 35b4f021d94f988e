// SPDX-License-Identifier: Apache-2.0
#include "collectx/algo/direct.hpp"

#include "cells.hpp"

namespace direct_test {

namespace cx = collectx;
using cells::cell;
using cx::algo::central;
using cx::algo::direct;

constexpr auto one = [](int) { return 1; };

namespace in_one_step {
using all_reduce = cell<direct, cx::all_reduce{}>;
using reduce_scatter = cell<direct, cx::reduce_scatter{}>;
using all_gather = cell<direct, cx::all_gather{}>;
using broadcast = cell<direct, cx::broadcast{}>;
using reduce = cell<direct, cx::reduce{}>;

// steps 1 | messages per rank n-1 | bytes per rank B (n-1) | slots 1 | keeps rank order
static_assert(all_reduce::costs(
    [](int n, cx::cost const& cost) { return cost.steps == 1 && cost.messages == n - 1 && cells::sends(cost, n - 1, 1); }, one));
// steps 1 | messages per rank n-1 | bytes per rank B (n-1)/n (optimal) | slots 1 | keeps rank order
constexpr auto scatter = [](int n, cx::cost const& cost) {
  return cost.steps == 1 && cost.messages == n - 1 && cells::fewest_bytes(cost, cx::reduce_scatter{}.needs(n));
};
static_assert(reduce_scatter::costs(scatter, one));
static_assert(all_gather::costs(scatter, one));
// steps 1 | messages per rank 1, at the root n-1 received | bytes per rank B | slots 1 | keeps rank order
static_assert(reduce::costs(
    [](int n, cx::cost const& cost) {
      return cost.steps == 1 && cost.messages == 1 && cells::sends(cost, 1, 1) &&
             cells::ports_of(reduce::schedule, cx::reduce{}, n) == n - 1;
    },
    one));
static_assert(broadcast::costs(
    [](int n, cx::cost const& cost) { return cost.steps == 1 && cost.messages == n - 1 && cells::sends(cost, n - 1, 1); }, one));
static_assert(cx::keeps_rank_order<all_reduce::schedule_type>() && cx::keeps_rank_order<reduce_scatter::schedule_type>() &&
              cx::keeps_rank_order<reduce::schedule_type>());
static_assert(cells::proved_for_every_root<direct, cx::reduce>(cells::at<2, 3, 6>{}));
static_assert(cells::proved_for_every_root<direct, cx::broadcast>(cells::at<2, 3, 6>{}));
}  // namespace in_one_step

namespace through_one_rank {
using all_reduce = cell<central, cx::all_reduce{}>;
using broadcast = cell<central, cx::broadcast{}>;
using reduce = cell<central, cx::reduce{}>;
static_assert(!cx::offers<central, cx::reduce_scatter> && !cx::offers<central, cx::all_gather>);

// steps 2 | messages at the server n-1 each way | bytes at the server B (n-1) each way | slots 1 | keeps rank order
static_assert(all_reduce::costs(
    [](int n, cx::cost const& cost) {
      return cost.steps == 2 && cost.messages == n - 1 && cells::sends(cost, n - 1, 1) &&
             cells::ports_of(all_reduce::schedule, cx::all_reduce{}, n) == n - 1;
    },
    one));
static_assert(cx::keeps_rank_order<all_reduce::schedule_type>() && cx::keeps_rank_order<reduce::schedule_type>());
static_assert(reduce::schedule == in_one_step::reduce::schedule && broadcast::schedule == in_one_step::broadcast::schedule);
static_assert(reduce::all::proved && broadcast::all::proved);
}  // namespace through_one_rank

template <class F>
constexpr bool alone = cx::proven(F{}, cx::all_reduce{}, 1) && cx::proven(F{}, cx::broadcast{}, 1) && cx::proven(F{}, cx::reduce{}, 1);
static_assert(alone<direct> && alone<central>);
static_assert(cx::proven(direct{}, cx::reduce_scatter{}, 1) && cx::proven(direct{}, cx::all_gather{}, 1));

}  // namespace direct_test
