// SPDX-License-Identifier: Apache-2.0
#include "collectx/exec/prove.hpp"

#include "collectx/algo/double_binary_tree.hpp"
#include "collectx/algo/ring.hpp"

namespace prove_test {

namespace cx = collectx;

// A family, a bare schedule, an instance with state.
static_assert(cx::prove<cx::algo::ring, cx::all_reduce, 5>() && cx::prove<cx::algo::ring_all_reduce, cx::all_reduce, 5>());
static_assert(cx::prove<cx::algo::double_binary_tree, cx::reduce, 5>());
static_assert(cx::proven(cx::algo::chain_reduce{}, cx::reduce{3}, 5) &&
              cx::proven(cx::carried<cx::algo::chain_reduce>{{}, 0}, cx::reduce{}, 5));

static_assert(cx::examine(cx::algo::ring{}, cx::all_reduce{}, 5) == cx::finding{} &&
              cx::examine(cx::algo::ring{}, cx::all_reduce{}, 5).ok());
static_assert(cx::cost_of(cx::algo::ring{}, cx::all_reduce{}, 5) == cx::cost{8, 8, 8, 5, 2});

// A schedule for another collective promises too little.
static_assert(!cx::proven(cx::algo::ring_reduce_scatter{}, cx::all_reduce{}, 4));
static_assert(cx::examine(cx::algo::ring_reduce_scatter{}, cx::all_reduce{}, 4) ==
              cx::finding{cx::flaw::contribution_missing, 4, 1, -1, 3, 0});

// What needs more slots than are tried stops.
struct flooding {
  constexpr int steps(int) const { return 1; }
  constexpr int parts(int) const { return 5; }
  template <cx::RankContext Me>
  constexpr void step(int, Me& me) const {
    for (int c = 0; c < me.chunks(); ++c) me.send(cx::next(me), cx::chunk(c));
    for (int c = 0; c < me.chunks(); ++c) me.reduce(cx::prev(me), cx::chunk(c));
  }
};
static_assert(cx::exec::verify_schedule(flooding{}, cx::all_reduce{}, 2).finding.ok());
static_assert(cx::examine(flooding{}, cx::all_reduce{}, 2).what == cx::flaw::deadlock_with_slots);

}  // namespace prove_test
