// SPDX-License-Identifier: Apache-2.0
// Families without blocks, which go through the leaders of the groups.
#include "two_levels.hpp"

namespace hierarchical_leaders_test {

namespace cx = collectx;
using cells::cell;
using namespace cx::algo;
using namespace two_levels;

namespace trees_between_rings {
using family = hierarchical<ring, double_binary_tree>;
using all_reduce = cell<family, cx::all_reduce{}>;
using broadcast = cell<family, cx::broadcast{}>;
using reduce = cell<family, cx::reduce{}>;
static_assert(all_reduce::all::costs(all_reduce_by_shards<ring, double_binary_tree>));
static_assert(reduce::all::costs(rooted<ring, double_binary_tree, cx::reduce>));
static_assert(broadcast::all::costs(rooted<ring, double_binary_tree, cx::broadcast>));
}  // namespace trees_between_rings

namespace direct_between_trees {
using family = hierarchical<double_binary_tree, direct>;
using all_reduce = cell<family, cx::all_reduce{}>;
using broadcast = cell<family, cx::broadcast{}>;
using reduce = cell<family, cx::reduce{}>;
static_assert(all_reduce::all::costs(all_reduce_by_leaders<double_binary_tree, direct>));
static_assert(reduce::all::costs(rooted<double_binary_tree, direct, cx::reduce>));
static_assert(broadcast::all::costs(rooted<double_binary_tree, direct, cx::broadcast>));
}  // namespace direct_between_trees

namespace servers {
using family = hierarchical<central, central>;
using all_reduce = cell<family, cx::all_reduce{}>;
using broadcast = cell<family, cx::broadcast{}>;
using reduce = cell<family, cx::reduce{}>;
static_assert(all_reduce::all::costs(all_reduce_by_leaders<central, central>));
static_assert(reduce::all::costs(rooted<central, central, cx::reduce>));
static_assert(broadcast::all::costs(rooted<central, central, cx::broadcast>));
}  // namespace servers

}  // namespace hierarchical_leaders_test
