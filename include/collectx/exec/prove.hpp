// SPDX-License-Identifier: Apache-2.0
/// The doors to the proof: `proven` (yes or no), `examine` (what is wrong), `cost_of`, and `prove`, whose failure is one sentence.
///
/// All take an algorithm family or a bare schedule. At run time any n. At compile time the schedule up to n = 16 and the plans up to
/// n = `plans_at_compile_time`, with up to 8 slots (64 at run time): what fits into the default limits of every compiler, since nobody
/// should raise a limit to use a library. A schedule of many more chunks than ranks reaches clang's sooner: ask about fewer ranks there.
#pragma once

#include "collectx/exec/verify_plan.hpp"

#include <type_traits>

namespace collectx {
inline namespace v0 {

namespace exec {

inline constexpr int plans_at_compile_time = 8;

/// The schedule step by step, then the plans that ranks would run, with as few slots as they need.
template <class A, Collective C>
constexpr report verify(A const& algorithm, C const& collective, int n) {
  auto const schedule = schedule_of(algorithm, collective);
  report out = verify_schedule(schedule, collective, n);
  if (!out.finding.ok() || (std::is_constant_evaluated() && n > plans_at_compile_time)) return out;
  report const of_plan = verify_bounded(collective, make_plans(schedule, collective, n), std::is_constant_evaluated() ? 8 : 64);
  out.cost.slots = of_plan.cost.slots;
  out.finding = of_plan.finding;
  if (out.finding.ok() && (of_plan.rank_order != out.rank_order || of_plan.agreement != out.agreement))
    out.finding = {flaw::plan_differs_from_schedule, n, -1, -1, -1, -1};
  return out;
}

}  // namespace exec

/// What is wrong with a schedule among n ranks: nothing, or the first flaw with rank, peer, step and chunk.
template <class A, Collective C>
constexpr finding examine(A const& algorithm, C const& collective, int n) {
  return exec::verify(algorithm, collective, n).finding;
}

/// Every contribution arrives exactly once, nothing waits for ever, nothing is read and written at once, and the plan says the same.
template <class A, Collective C>
constexpr bool proven(A const& algorithm, C const& collective, int n) {
  return examine(algorithm, collective, n).ok();
}

/// Steps, messages, chunks and slots on the busiest rank.
template <class A, Collective C>
constexpr cost cost_of(A const& algorithm, C const& collective, int n) {
  return exec::verify(algorithm, collective, n).cost;
}

// One name for each flaw. To make one is an error, and the compiler says which: what, schedule, size, rank, step and chunk.
template <class Schedule, int Size, int Rank, int Step, int Chunk>
struct SCHEDULE_NOT_ADMITTED_AT_SIZE {
  static_assert(Size < 0, "collectx: the schedule is not defined for this number of ranks");
};
template <class Schedule, int Size, int Rank, int Step, int Chunk>
struct RECV_WITHOUT_MATCHING_SEND {
  static_assert(Size < 0, "collectx: a rank waits for a chunk that no peer sends in this step");
};
template <class Schedule, int Size, int Rank, int Step, int Chunk>
struct SEND_NOBODY_RECEIVES {
  static_assert(Size < 0, "collectx: a rank sends a chunk that no peer receives in this step");
};
template <class Schedule, int Size, int Rank, int Step, int Chunk>
struct CONTRIBUTION_COUNTED_TWICE {
  static_assert(Size < 0, "collectx: a contribution is counted twice");
};
template <class Schedule, int Size, int Rank, int Step, int Chunk>
struct CONTRIBUTION_MISSING {
  static_assert(Size < 0, "collectx: a contribution is missing");
};
template <class Schedule, int Size, int Rank, int Step, int Chunk>
struct CHUNK_READ_AND_WRITTEN_IN_ONE_STEP {
  static_assert(Size < 0, "collectx: a chunk is read and written, or written twice, in one step");
};
template <class Schedule, int Size, int Rank, int Step, int Chunk>
struct DEADLOCK_WITH_SLOTS {
  static_assert(Size < 0, "collectx: the ranks wait for each other for ever with this many slots per channel");
};
template <class Schedule, int Size, int Rank, int Step, int Chunk>
struct PLAN_DIFFERS_FROM_SCHEDULE {
  static_assert(Size < 0, "collectx: a pass of the plan changed what the schedule says");
};

namespace detail {
template <class S, flaw What, int Ranks, int Rank, int Step, int Chunk>
constexpr bool explain() {
  if constexpr (What == flaw::schedule_not_admitted_at_size) return sizeof(SCHEDULE_NOT_ADMITTED_AT_SIZE<S, Ranks, Rank, Step, Chunk>) == 0;
  if constexpr (What == flaw::recv_without_matching_send) return sizeof(RECV_WITHOUT_MATCHING_SEND<S, Ranks, Rank, Step, Chunk>) == 0;
  if constexpr (What == flaw::send_nobody_receives) return sizeof(SEND_NOBODY_RECEIVES<S, Ranks, Rank, Step, Chunk>) == 0;
  if constexpr (What == flaw::contribution_counted_twice) return sizeof(CONTRIBUTION_COUNTED_TWICE<S, Ranks, Rank, Step, Chunk>) == 0;
  if constexpr (What == flaw::contribution_missing) return sizeof(CONTRIBUTION_MISSING<S, Ranks, Rank, Step, Chunk>) == 0;
  if constexpr (What == flaw::chunk_read_and_written_in_one_step)
    return sizeof(CHUNK_READ_AND_WRITTEN_IN_ONE_STEP<S, Ranks, Rank, Step, Chunk>) == 0;
  if constexpr (What == flaw::deadlock_with_slots) return sizeof(DEADLOCK_WITH_SLOTS<S, Ranks, Rank, Step, Chunk>) == 0;
  if constexpr (What == flaw::plan_differs_from_schedule) return sizeof(PLAN_DIFFERS_FROM_SCHEDULE<S, Ranks, Rank, Step, Chunk>) == 0;
  return What == flaw::none;
}
}  // namespace detail

/// `static_assert(prove<S, C, n>())`: true, or a compile error of one sentence that names schedule, size, rank, step and chunk.
template <class A, class C, int Ranks>
consteval bool prove() {
  constexpr finding f = examine(A{}, C{}, Ranks);
  return detail::explain<A, f.what, Ranks, f.rank, f.step, f.chunk>();
}

}  // namespace v0
}  // namespace collectx
