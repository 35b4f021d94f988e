// SPDX-License-Identifier: Apache-2.0
#include "collectx/algo/groups.hpp"

#include "collectx/algo/direct.hpp"
#include "collectx/algo/double_binary_tree.hpp"
#include "collectx/algo/hierarchical.hpp"
#include "collectx/algo/ring.hpp"

#include "cells.hpp"

namespace groups_test {

namespace cx = collectx;
using namespace cx::algo;

// The smallest groups there are.
struct archetype {
  static constexpr bool contiguous = true;
  bool admits(int) const;
  int count(int) const;
  int size(int, int) const;
  int of(int, int) const;
  int index(int, int) const;
  int rank_of(int, int, int) const;
};
static_assert(Groups<archetype> && Groups<uniform<3>> && Groups<default_groups> && Groups<sizes<3, 1, 2>>);

// Near misses, each one step away.
struct silent_about_order {
  bool admits(int) const;
  int count(int) const;
  int size(int, int) const;
  int of(int, int) const;
  int index(int, int) const;
  int rank_of(int, int, int) const;
};
struct without_inverse : archetype {
  int rank_of(int, int, int) const = delete;
};
struct admits_numbers : archetype {
  int admits(int) const;
};
struct not_const : archetype {
  int size(int, int);
};
static_assert(!Groups<int> && !Groups<silent_about_order> && !Groups<without_inverse> && !Groups<admits_numbers> && !Groups<not_const>);

/// `of` and `index` are what `rank_of` inverts, sizes add up, ranks ascend within a group.
template <class G>
constexpr bool divides(int n) {
  G const groups{};
  if (!groups.admits(n)) return false;
  int seen = 0;
  for (int j = 0; j < groups.count(n); ++j) {
    if (groups.size(j, n) < 1) return false;
    for (int i = 0; i < groups.size(j, n); ++i, ++seen) {
      int const rank = groups.rank_of(j, i, n);
      if (rank < 0 || rank >= n || groups.of(rank, n) != j || groups.index(rank, n) != i) return false;
      if (i > 0 && rank <= groups.rank_of(j, i - 1, n)) return false;
      if (G::contiguous && rank != seen) return false;
    }
  }
  return seen == n;
}
template <class G, int... N>
constexpr bool divides_all(cells::at<N...>) {
  return (divides<G>(N + 1) && ...);
}
using one_to_forty = std::make_integer_sequence<int, 40>;
static_assert(divides_all<default_groups>(one_to_forty{}) && divides_all<uniform<1>>(one_to_forty{}) &&
              divides_all<uniform<3>>(one_to_forty{}) && divides_all<uniform<8>>(one_to_forty{}));
static_assert(divides<sizes<3, 1, 2>>(6) && divides<sizes<7, 8>>(15) && divides<sizes<5, 3, 7, 1>>(16) && divides<sizes<1, 1, 1>>(3));
static_assert(!sizes<3, 1, 2>{}.admits(5) && !sizes<3, 1, 2>{}.admits(7));
static_assert(default_groups::width(1) == 1 && default_groups::width(7) == 1 && default_groups::width(12) == 3 &&
              default_groups::width(16) == 4);
static_assert(uniform<3>{}.size(2, 8) == 2 && uniform<3>{}.count(8) == 3);

// Uneven groups. What they declare they keep; they may keep more than they declare, where no operand has a chance to move.
template <class Inner, class Outer, class G, int... N>
constexpr bool two_levels_of_whole_vectors(cells::at<N...>) {
  using family = hierarchical<Inner, Outer, G>;
  using sizes_to_prove = cells::at<N...>;
  return cells::cell<family, cx::all_reduce{}, sizes_to_prove, false>::all::proved &&
         cells::cell<family, cx::broadcast{}, sizes_to_prove, false>::all::proved &&
         cells::cell<family, cx::reduce{}, sizes_to_prove, false>::all::proved;
}
template <class Inner, class Outer, class G, int... N>
constexpr bool two_levels_of_blocks(cells::at<N...>) {
  using family = hierarchical<Inner, Outer, G>;
  using sizes_to_prove = cells::at<N...>;
  return cells::cell<family, cx::reduce_scatter{}, sizes_to_prove, false>::all::proved &&
         cells::cell<family, cx::all_gather{}, sizes_to_prove, false>::all::proved;
}
static_assert(two_levels_of_whole_vectors<ring, ring, sizes<3, 1, 2>>(cells::at<6>{}));
static_assert(two_levels_of_whole_vectors<ring, double_binary_tree, sizes<3, 1, 2>>(cells::at<6>{}));
static_assert(two_levels_of_whole_vectors<double_binary_tree, two_shot, sizes<3, 1, 2>>(cells::at<6>{}));
static_assert(two_levels_of_whole_vectors<recursive_halving, direct, sizes<3, 1, 2>>(cells::at<6>{}));
static_assert(two_levels_of_whole_vectors<ring, ring, sizes<1, 1, 1>>(cells::at<3>{}));
static_assert(two_levels_of_whole_vectors<central, recursive_halving, sizes<1, 1, 1>>(cells::at<3>{}));
static_assert(two_levels_of_whole_vectors<two_shot, ring, uniform<3>>(cells::at<2, 3, 4, 5>{}));

static_assert(two_levels_of_blocks<ring, ring, sizes<3, 1, 2>>(cells::at<6>{}));
static_assert(two_levels_of_blocks<recursive_halving, direct, sizes<3, 1, 2>>(cells::at<6>{}));
static_assert(two_levels_of_blocks<ring, two_shot, sizes<1, 1, 1>>(cells::at<3>{}));
static_assert(two_levels_of_blocks<ring, recursive_halving, uniform<3>>(cells::at<2, 3, 4, 5, 6, 7, 8>{}));
static_assert(two_levels_of_blocks<direct, direct, sizes<7, 8>>(cells::at<15>{}));
static_assert(two_levels_of_blocks<direct, direct, sizes<5, 3, 7, 1>>(cells::at<16>{}));
static_assert(two_levels_of_blocks<direct, recursive_halving, sizes<5, 3, 7, 1>>(cells::at<16>{}));

// Three levels.
static_assert(two_levels_of_whole_vectors<direct, hierarchical<direct, direct>, default_groups>(cells::at<8>{}));

// A root in any group: there it leads.
static_assert(cells::proved_for_every_root<hierarchical<ring, ring, sizes<3, 1, 2>>, cx::reduce>(cells::at<6>{}));
static_assert(cells::proved_for_every_root<hierarchical<double_binary_tree, direct, sizes<3, 1, 2>>, cx::broadcast>(cells::at<6>{}));

// Sizes that groups do not divide are refused, not attempted.
static_assert(cx::examine(hierarchical<ring, ring, sizes<3, 1, 2>>{}, cx::all_reduce{}, 7) ==
              cx::finding{cx::flaw::schedule_not_admitted_at_size, 7, -1, -1, -1, -1});

}  // namespace groups_test
