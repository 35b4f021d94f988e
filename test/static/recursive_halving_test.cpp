// SPDX-License-Identifier: Apache-2.0
#include "collectx/algo/recursive_halving.hpp"

#include "cells.hpp"

namespace recursive_halving_test {

namespace cx = collectx;
using cells::cell;
using cells::log2_ceil;
using cx::algo::recursive_halving;

using all_reduce = cell<recursive_halving, cx::all_reduce{}>;
using reduce_scatter = cell<recursive_halving, cx::reduce_scatter{}>;
using all_gather = cell<recursive_halving, cx::all_gather{}>;
using broadcast = cell<recursive_halving, cx::broadcast{}>;
using reduce = cell<recursive_halving, cx::reduce{}>;

constexpr bool power_of_two(int n) { return (n & (n - 1)) == 0; }
constexpr auto one = [](int) { return 1; };
constexpr auto two = [](int) { return 2; };

// steps ceil(log2 n) | messages per rank ceil(log2 n) | bytes per rank B (n-1)/n (optimal) | slots 1
static_assert(reduce_scatter::costs(
    [](int n, cx::cost const& cost) {
      return cost.steps == log2_ceil(n) && cost.messages == log2_ceil(n) && cells::fewest_bytes(cost, cx::reduce_scatter{}.needs(n));
    },
    one));

// At other sizes than powers of two the last rank of a shorter half gives to two.
static_assert(all_gather::costs(
    [](int n, cx::cost const& cost) {
      bool const fewest = cost.messages == log2_ceil(n) && cells::fewest_bytes(cost, cx::all_gather{}.needs(n));
      return cost.steps == log2_ceil(n) && cost.messages < 2 * log2_ceil(n) && cost.chunks_sent < 2 * cost.chunks &&
             (fewest || !power_of_two(n));
    },
    one));
static_assert(all_reduce::costs(
    [](int n, cx::cost const& cost) {
      bool const fewest = cost.messages == 2 * log2_ceil(n) && cells::fewest_bytes(cost, cx::all_reduce{}.needs(n));
      return cost.steps == 2 * log2_ceil(n) && cost.messages < 3 * log2_ceil(n) && cost.chunks_sent < 3 * cost.chunks &&
             (fewest || !power_of_two(n));
    },
    two));

// reduce: steps 2 ceil(log2 n) | messages per rank ceil(log2 n) + 1 | bytes per rank < 2 B | slots 1
static_assert(reduce::costs(
    [](int n, cx::cost const& cost) {
      return cost.steps == 2 * log2_ceil(n) && cost.messages == log2_ceil(n) + 1 && cost.chunks_sent < 2 * cost.chunks;
    },
    one));
static_assert(broadcast::costs(
    [](int n, cx::cost const& cost) {
      return cost.steps == 2 * log2_ceil(n) && cost.messages <= 2 * log2_ceil(n) && cost.chunks_sent < 3 * cost.chunks;
    },
    one));
static_assert(cells::proved_for_every_root<recursive_halving, cx::reduce>(cells::at<2, 3, 5, 6>{}));
static_assert(cells::proved_for_every_root<recursive_halving, cx::broadcast>(cells::at<2, 3, 5, 6>{}));

// The gather alone: it begins where a reduce-scatter ends.
struct gathering {
  static constexpr char const* name = "gather";
  static constexpr bool reduces = false;
  constexpr int shares(int) const { return 1; }
  constexpr int blocks(int) const { return 1; }
  constexpr cx::chunks input(int, int) const { return {0, 1}; }
  constexpr cx::chunks output(int, int) const { return {0, 0}; }
  constexpr int source(int, int) const { return 0; }
  constexpr cx::lower_bound needs(int) const { return {}; }
  friend constexpr bool operator==(gathering, gathering) = default;
};
template <int... N>
constexpr bool gathers(cells::at<N...>) {
  return ((cells::proof<cx::algo::halving_gather, gathering{}, N>.finding.ok() &&
           cells::proof<cx::algo::halving_gather, gathering{}, N>.cost.messages == 1 &&
           cells::sends(cells::proof<cx::algo::halving_gather, gathering{}, N>.cost, N / 2, N)) &&
          ...);
}
static_assert(gathers(cells::two_to_sixteen{}));

static_assert(cx::proven(recursive_halving{}, cx::all_reduce{}, 1) && cx::proven(recursive_halving{}, cx::reduce_scatter{}, 1));
static_assert(cx::proven(recursive_halving{}, cx::all_gather{}, 1) && cx::proven(recursive_halving{}, cx::broadcast{}, 1));
static_assert(cx::proven(recursive_halving{}, cx::reduce{}, 1));

}  // namespace recursive_halving_test
