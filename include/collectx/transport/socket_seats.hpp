// SPDX-License-Identifier: Apache-2.0
/// What a rank knows of all ranks of its group, by what they have told it.
#pragma once

#include "collectx/process.hpp"
#include "collectx/rendezvous.hpp"
#include "collectx/transport.hpp"
#include "collectx/transport/call_report.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace collectx {
inline namespace v0 {
namespace detail {

/// Models Seats.
class socket_seats {
 public:
  enum class presence : std::uint8_t { there, left, dead, unreachable };
  static constexpr int most_posted = 4;

  struct posting {
    char key[32] = {};
    std::uint32_t bytes = 0;  // 0: taken back
    std::byte value[rendezvous_value::capacity] = {};
  };
  /// As it travels.
  struct told {
    call_record record;
    std::uint64_t finished = 0;
    std::int32_t waits_for = -1;
  };
  struct seat : told {
    std::atomic<presence> is{presence::there};
    std::uint64_t told_in = 0;  // the call in which it waits for `waits_for`
    nanoseconds told_at = 0;    // which was heard then
    bool released = false;      // it needs nothing of this rank any more
    bool wants_answer = false;  // it is leaving, and this rank has not said yet that it may
    posting posted[most_posted];
  };

  socket_seats(int rank, int size) : rank_(rank), seats_(static_cast<std::size_t>(size)) {}

  seat& at(int rank) noexcept { return seats_[static_cast<std::size_t>(rank)]; }
  seat const& at(int rank) const noexcept { return seats_[static_cast<std::size_t>(rank)]; }
  seat& own() noexcept { return at(rank_); }
  seat const& own() const noexcept { return at(rank_); }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(seats_.size()); }
  bool read_record(int rank, call_record& record) const noexcept {
    record = at(rank).record;
    return true;
  }
  std::uint64_t finished(int rank) const noexcept { return at(rank).finished; }
  /// Who is stopped keeps saying nothing.
  int waits_for(int rank) const noexcept {
    seat const& s = at(rank);
    if (rank == rank_) return s.waits_for;
    bool const stale = s.told_in != s.record.sequence || monotonic_now() - s.told_at > attention_span;
    return stale ? -1 : static_cast<int>(s.waits_for);
  }

  bool keep(int from, posting const& p) noexcept {
    posting* room = nullptr;
    for (posting& q : at(from).posted) {
      if (std::strcmp(q.key, p.key) == 0) return q = p, true;
      if (q.bytes == 0) room = &q;
    }
    if (p.bytes == 0) return true;
    if (room == nullptr) return false;
    *room = p;
    return true;
  }

 private:
  int rank_;
  std::vector<seat> seats_;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
