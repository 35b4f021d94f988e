// SPDX-License-Identifier: Apache-2.0
#include "collectx/algo/recursive_doubling.hpp"

#include "cells.hpp"

namespace recursive_doubling_test {

namespace cx = collectx;
using cells::cell;
using cx::algo::recursive_doubling;

constexpr int whole_log2(int n) {
  int count = 0;
  while (2 << count <= n) ++count;
  return count;
}
constexpr bool is_power(int n) { return (n & (n - 1)) == 0; }

// steps floor(log2 n), 2 more where n is no power of two | messages floor(log2 n), 1 more for half of the pairs | bytes B times its
// messages
using all_reduce = cell<recursive_doubling, cx::all_reduce{}>;
static_assert(all_reduce::costs(
    [](int n, cx::cost const& cost) {
      int const messages = whole_log2(n) + (is_power(n) ? 0 : 1);
      return cost.steps == whole_log2(n) + (is_power(n) ? 0 : 2) && cost.messages == messages && cells::sends(cost, messages, 1);
    },
    [](int) { return 1; }));
static_assert(cx::proven(recursive_doubling{}, cx::all_reduce{}, 1));

}  // namespace recursive_doubling_test
