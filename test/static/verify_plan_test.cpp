// SPDX-License-Identifier: Apache-2.0
#include "collectx/exec/verify_plan.hpp"

#include "collectx/algo/ring.hpp"

namespace verify_plan_test {

namespace cx = collectx;
using cx::flaw;
using plans = cx::exec::list<cx::exec::plan>;

constexpr cx::all_reduce all{};
constexpr plans ring(int n) { return cx::exec::make_plans(cx::algo::ring_all_reduce{}, all, n); }

static_assert(cx::exec::verify_plans(all, ring(4), 2).finding.ok() && cx::exec::verify_plans(all, ring(4), 2).agreement);
static_assert(cx::exec::verify_bounded(all, ring(4)).cost.slots == 2);

// Too few slots: who waits, for whom, in which step.
constexpr cx::finding stopped = cx::exec::verify_plans(all, ring(4), 1).finding;
static_assert(stopped.what == flaw::deadlock_with_slots && stopped.size == 4 && stopped.rank == 0 && stopped.peer == 1 &&
              stopped.step >= 0);
static_assert(cx::exec::verify_bounded(all, ring(4), 1).finding.what == flaw::deadlock_with_slots);

// A rank that does not come: one waits for it, and another for that one; the first of them is named.
constexpr cx::finding without_a_rank() {
  plans p = ring(3);
  p[1].operations.clear();
  return cx::exec::verify_plans(all, p, 4).finding;
}
static_assert(without_a_rank() == cx::finding{flaw::deadlock_with_slots, 3, 0, 2, 1, 0});

// A fold of nothing has no value.
constexpr cx::finding folding_nothing() {
  plans p = ring(3);
  p[1].operations[0].segments[0].sources.clear();
  return cx::exec::verify_plans(all, p, 4).finding;
}
static_assert(folding_nothing() == cx::finding{flaw::contribution_missing, 3, 1, -1, 0, 0});

// A message longer than what is taken from it, or about another chunk.
constexpr cx::finding naming_another_chunk() {
  plans p = ring(3);
  p[1].operations[1].segments[0].run.first = 0;
  return cx::exec::verify_plans(all, p, 4).finding;
}
static_assert(naming_another_chunk().what == flaw::plan_differs_from_schedule && naming_another_chunk().rank == 1);
constexpr cx::finding leaving_some() {
  plans p = ring(3);
  p[1].operations[1].segments.clear();
  p[1].operations[1].segments.push({{0, 0}, {}, {}});
  return cx::exec::verify_plans(all, p, 4).finding;
}
static_assert(leaving_some().what == flaw::plan_differs_from_schedule && leaving_some().peer == 0);

}  // namespace verify_plan_test
