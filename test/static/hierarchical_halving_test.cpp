// SPDX-License-Identifier: Apache-2.0
// Recursive halving on either level.
#include "two_levels.hpp"

namespace hierarchical_halving_test {

namespace cx = collectx;
using cells::cell;
using namespace cx::algo;
using namespace two_levels;

namespace two_shots_inside_halving {
using family = hierarchical<recursive_halving, two_shot>;
using all_reduce = cell<family, cx::all_reduce{}>;
using reduce_scatter = cell<family, cx::reduce_scatter{}>;
using all_gather = cell<family, cx::all_gather{}>;
static_assert(all_reduce::all::costs(all_reduce_by_shards<recursive_halving, two_shot>));
static_assert(reduce_scatter::all::costs(blocks<recursive_halving, two_shot, cx::reduce_scatter>));
static_assert(all_gather::all::costs(blocks<recursive_halving, two_shot, cx::all_gather>));
}  // namespace two_shots_inside_halving

namespace halving_between_direct {
using family = hierarchical<direct, recursive_halving>;
using all_reduce = cell<family, cx::all_reduce{}>;
using broadcast = cell<family, cx::broadcast{}>;
using reduce = cell<family, cx::reduce{}>;
static_assert(all_reduce::all::costs(all_reduce_by_shards<direct, recursive_halving>));
static_assert(reduce::all::costs(rooted<direct, recursive_halving, cx::reduce>));
static_assert(broadcast::all::costs(rooted<direct, recursive_halving, cx::broadcast>));
}  // namespace halving_between_direct

}  // namespace hierarchical_halving_test
