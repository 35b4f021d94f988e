// SPDX-License-Identifier: Apache-2.0
#include "collectx/algo/hierarchical.hpp"
#include "collectx/algo/ring.hpp"
#include "collectx/algo/striped.hpp"

#include "cells.hpp"

namespace striped_test {

namespace cx = collectx;
using stripes = cx::algo::striped<cx::algo::ring>;

template <class C, int N>
constexpr bool proof = cx::proven(stripes{}, C{}, N);  // each an evaluation of its own, with the compiler's full number of steps
template <class C>
constexpr bool proved = proof<C, 1> && proof<C, 2> && proof<C, 3> && proof<C, 4>;
static_assert(proved<cx::all_reduce> && proved<cx::reduce_scatter> && proved<cx::all_gather>);
static_assert(proved<cx::broadcast> && proved<cx::reduce>);

// steps those of Family | messages per rank K times as many | bytes per rank those of Family | lanes K times as many
constexpr cx::cost cost = cx::cost_of(stripes{}, cx::all_reduce{}, 5);
static_assert(cost.steps == 8 && cost.messages == 16 && cells::fewest_bytes(cost, cx::all_reduce{}.needs(5)));
static_assert(cx::lanes_of(cx::algo::striped<cx::algo::ring, 3>{}.all_reduce()) == 3);

// Stripes of two levels find their groups as two levels do.
template <class F>
concept takes_groups = requires(F const& family, cx::algo::placed const& hosts) {
  family.over(hosts);
};
using levels = cx::algo::hierarchical<cx::algo::ring, cx::algo::ring>;
static_assert(takes_groups<cx::algo::striped<levels>> && !takes_groups<stripes>);
static_assert(cx::proven(cx::algo::striped<levels>{}, cx::all_reduce{}, 4));

}  // namespace striped_test
