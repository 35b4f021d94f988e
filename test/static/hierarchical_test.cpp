// SPDX-License-Identifier: Apache-2.0
#include "two_levels.hpp"

namespace hierarchical_test {

namespace cx = collectx;
using cells::cell;
using namespace cx::algo;
using namespace two_levels;

// A schedule for whatever both levels offer, and for nothing else.
template <class F>
constexpr bool offers_all = cx::offers<F, cx::all_reduce> && cx::offers<F, cx::reduce_scatter> && cx::offers<F, cx::all_gather> &&
                            cx::offers<F, cx::broadcast> && cx::offers<F, cx::reduce>;
template <class F>
constexpr bool offers_whole_vectors = cx::offers<F, cx::all_reduce> && !cx::offers<F, cx::reduce_scatter> &&
                                      !cx::offers<F, cx::all_gather> && cx::offers<F, cx::broadcast> && cx::offers<F, cx::reduce>;
static_assert(offers_all<hierarchical<ring, direct>> && offers_all<hierarchical<two_shot, recursive_halving>>);
static_assert(offers_all<hierarchical<ring, hierarchical<ring, ring>>>);
static_assert(offers_whole_vectors<hierarchical<ring, double_binary_tree>> && offers_whole_vectors<hierarchical<double_binary_tree, ring>>);
static_assert(offers_whole_vectors<hierarchical<central, central>>);

namespace rings {
using family = hierarchical<ring, ring>;
using all_reduce = cell<family, cx::all_reduce{}>;
using reduce_scatter = cell<family, cx::reduce_scatter{}>;
using all_gather = cell<family, cx::all_gather{}>;
using broadcast = cell<family, cx::broadcast{}>;
using reduce = cell<family, cx::reduce{}>;
// Optimal in both levels is optimal in all.
static_assert(all_reduce::all::costs([](int n, cx::cost const& cost) {
  return all_reduce_by_shards<ring, ring>(n, cost) && cells::fewest_bytes(cost, cx::all_reduce{}.needs(n)) && cost.slots <= 2;
}));
static_assert(reduce_scatter::all::costs([](int n, cx::cost const& cost) {
  return cells::fewest_bytes(cost, cx::reduce_scatter{}.needs(n)) && cost.slots <= 2;
}));
static_assert(reduce_scatter::all::costs(blocks<ring, ring, cx::reduce_scatter>) &&
              all_gather::all::costs(blocks<ring, ring, cx::all_gather>));
static_assert(reduce::all::costs(rooted<ring, ring, cx::reduce>) && broadcast::all::costs(rooted<ring, ring, cx::broadcast>));
static_assert(cells::proved_for_every_root<family, cx::reduce>(cells::at<2, 3, 4, 6>{}));
static_assert(cells::proved_for_every_root<family, cx::broadcast>(cells::at<2, 3, 4, 6>{}));
}  // namespace rings

}  // namespace hierarchical_test
