// SPDX-License-Identifier: Apache-2.0
/// Recursive doubling: everybody exchanges everything with a partner twice as far away in each step. Few messages, for short vectors.
#pragma once

#include "collectx/collective.hpp"

namespace collectx {
inline namespace v0 {
namespace algo {

/// Recursive doubling all-reduce (Thakur, Rabenseifner, Gropp 2005). Where n is no power of two, the first ranks pair up before and after.
/// steps floor(log2 n), 2 more where n is no power of two | messages per rank floor(log2 n), 1 more for half of the pairs |
/// bytes per rank B times its messages | slots 1 | any n | keeps rank order
struct doubling_all_reduce {
  static constexpr char const* name = "recursive_doubling";
  static constexpr bool keeps_rank_order = true;
  static constexpr bool agrees_bitwise = true;
  constexpr int steps(int size) const { return doublings(size) + (pairs(size) > 0 ? 2 : 0); }
  constexpr int parts(int) const { return 1; }
  template <RankContext Me>
  constexpr void step(int k, Me& me) const {
    int const n = me.size(), paired = 2 * pairs(n), r = me.rank();
    bool const before = paired > 0 && k == 0, after = paired > 0 && k == steps(n) - 1;
    if (before || after) {
      if (r >= paired) return;
      if (r % 2 == 0) return before ? me.reduce(r + 1, everything(me)) : me.send(r + 1, everything(me));
      return before ? me.send(r - 1, everything(me)) : me.recv(r - 1, everything(me));
    }
    if (r < paired && r % 2 != 0) return;  // its even neighbour stands for both
    int const mine = r < paired ? r / 2 : r - paired / 2, other = mine ^ (1 << (paired > 0 ? k - 1 : k));
    int const partner = other < paired / 2 ? 2 * other : other + paired / 2;
    me.send(partner, everything(me));
    me.reduce(partner, everything(me));
  }
  friend constexpr bool operator==(doubling_all_reduce, doubling_all_reduce) = default;

 private:
  static constexpr int doublings(int size) {
    int count = 0;
    while (2 << count <= size) ++count;
    return count;
  }
  /// How many ranks are too many for a power of two.
  static constexpr int pairs(int size) { return size - (1 << doublings(size)); }
};

struct recursive_doubling {
  static constexpr char const* name = "recursive_doubling";
  constexpr auto all_reduce() const { return doubling_all_reduce{}; }
  friend constexpr bool operator==(recursive_doubling, recursive_doubling) = default;
};

}  // namespace algo
}  // namespace v0
}  // namespace collectx
