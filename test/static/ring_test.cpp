// SPDX-License-Identifier: Apache-2.0
#include "collectx/algo/ring.hpp"

#include "cells.hpp"

namespace ring_test {

namespace cx = collectx;
using cells::cell;
using cx::algo::ring;

// [proven]
static_assert(cx::proven(cx::algo::ring_all_reduce{}, cx::all_reduce{}, 8));
// [proven]

using all_reduce = cell<ring, cx::all_reduce{}>;
using reduce_scatter = cell<ring, cx::reduce_scatter{}>;
using all_gather = cell<ring, cx::all_gather{}>;
using broadcast = cell<ring, cx::broadcast{}>;
using reduce = cell<ring, cx::reduce{}>;

// steps n-1 | messages per rank n-1 | bytes per rank B (n-1)/n (optimal) | slots 2 (1 at n = 2)
constexpr auto half = [](int n, cx::cost const& cost) {
  return cost.steps == n - 1 && cost.messages == n - 1 && cells::fewest_bytes(cost, cx::reduce_scatter{}.needs(n));
};
constexpr auto two_but_for_two_ranks = [](int n) { return n == 2 ? 1 : 2; };
static_assert(reduce_scatter::costs(half, two_but_for_two_ranks));
static_assert(all_gather::costs(half, two_but_for_two_ranks));
static_assert(all_reduce::costs(
    [](int n, cx::cost const& cost) {
      return cost.steps == 2 * (n - 1) && cost.messages == 2 * (n - 1) && cells::fewest_bytes(cost, cx::all_reduce{}.needs(n));
    },
    [](int) { return 2; }));

// steps n-1 | messages per rank 1 | bytes per rank B | slots 1
constexpr auto chain = [](int n, cx::cost const& cost) { return cost.steps == n - 1 && cost.messages == 1 && cells::sends(cost, 1, 1); };
constexpr auto one = [](int) { return 1; };
static_assert(reduce::costs(chain, one));
static_assert(broadcast::costs(chain, one));
static_assert(cells::proved_for_every_root<ring, cx::reduce>(cells::two_to_eight{}));
static_assert(cells::proved_for_every_root<ring, cx::broadcast>(cells::two_to_eight{}));

// A ring of one has nothing to do.
static_assert(cx::proven(ring{}, cx::all_reduce{}, 1) && cx::cost_of(ring{}, cx::all_reduce{}, 1).messages == 0);
static_assert(cx::proven(ring{}, cx::reduce_scatter{}, 1) && cx::proven(ring{}, cx::all_gather{}, 1));
static_assert(cx::proven(ring{}, cx::broadcast{}, 1) && cx::proven(ring{}, cx::reduce{}, 1));

}  // namespace ring_test
