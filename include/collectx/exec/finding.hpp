// SPDX-License-Identifier: Apache-2.0
/// What a proof can find wrong, and where.
#pragma once

#include "collectx/config.hpp"

namespace collectx {
inline namespace v0 {

enum class flaw {
  none,
  schedule_not_admitted_at_size,       ///< the schedule says that it is not defined for this many ranks
  recv_without_matching_send,          ///< a rank waits for chunks that no peer sends in this step
  send_nobody_receives,                ///< a rank sends chunks that no peer takes in this step
  contribution_counted_twice,          ///< two values with a common contributor are combined
  contribution_missing,                ///< a rank sends what it does not have, or ends without all it was promised
  chunk_read_and_written_in_one_step,  ///< a rank replaces a chunk in the step in which it sends it, or twice in one step
  deadlock_with_slots,                 ///< the plan stops for ever with this many slots per channel
  plan_differs_from_schedule,          ///< a pass of the plan lost or changed a value
};

/// The first thing wrong, or nothing. `rank` is where it shows, `peer` the other end, `chunk` the first chunk concerned.
struct finding {
  flaw what = flaw::none;
  int size = 0;
  int rank = -1;
  int peer = -1;
  int step = -1;
  int chunk = -1;
  constexpr bool ok() const { return what == flaw::none; }
  friend constexpr bool operator==(finding const&, finding const&) = default;
};

/// One sentence for each flaw; the compiler says the same ones.
constexpr char const* sentence(flaw what) {
  switch (what) {
    case flaw::none: return "nothing is wrong";
    case flaw::schedule_not_admitted_at_size: return "the schedule is not defined for this number of ranks";
    case flaw::recv_without_matching_send: return "a rank waits for a chunk that no peer sends in this step";
    case flaw::send_nobody_receives: return "a rank sends a chunk that no peer receives in this step";
    case flaw::contribution_counted_twice: return "a contribution is counted twice";
    case flaw::contribution_missing: return "a contribution is missing";
    case flaw::chunk_read_and_written_in_one_step: return "a chunk is read and written, or written twice, in one step";
    case flaw::deadlock_with_slots: return "the ranks wait for each other for ever with this many slots per channel";
    case flaw::plan_differs_from_schedule: return "a pass of the plan changed what the schedule says";
  }
  return "unknown";
}

/// What a schedule costs, on the busiest rank. Bytes sent are B * chunks_sent / chunks, B being the bytes of the whole vector.
struct cost {
  int steps = 0;
  int messages = 0;
  int chunks_sent = 0;
  int chunks = 1;
  int slots = 1;
  friend constexpr bool operator==(cost const&, cost const&) = default;
};

}  // namespace v0
}  // namespace collectx
