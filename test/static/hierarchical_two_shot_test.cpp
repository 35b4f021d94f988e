// SPDX-License-Identifier: Apache-2.0
// Two-shot on both levels.
#include "two_levels.hpp"

namespace hierarchical_two_shot_test {

namespace cx = collectx;
using cells::cell;
using namespace cx::algo;
using namespace two_levels;

namespace two_shots {
using family = hierarchical<two_shot, two_shot>;
using all_reduce = cell<family, cx::all_reduce{}>;
using reduce_scatter = cell<family, cx::reduce_scatter{}>;
using all_gather = cell<family, cx::all_gather{}>;
static_assert(all_reduce::all::costs(all_reduce_by_shards<two_shot, two_shot>));
static_assert(reduce_scatter::all::costs(blocks<two_shot, two_shot, cx::reduce_scatter>));
static_assert(all_gather::all::costs(blocks<two_shot, two_shot, cx::all_gather>));
}  // namespace two_shots

}  // namespace hierarchical_two_shot_test
