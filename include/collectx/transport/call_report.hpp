// SPDX-License-Identifier: Apache-2.0
/// What the ranks of a group are doing, in words: who is to blame, who is missing, whose calls differ. Over any way of knowing the others.
#pragma once

#include "collectx/status.hpp"
#include "collectx/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace collectx {
inline namespace v0 {
namespace detail {

/// What a board knows of the ranks. `read_record` is false where nothing is known; `waits_for` is -1 where a rank waits for nobody.
template <class S>
concept Seats = requires(S const& seats, int rank, call_record& record) {
  { seats.size() } -> std::same_as<int>;
  { seats.read_record(rank, record) } -> std::same_as<bool>;
  { seats.finished(rank) } -> std::same_as<std::uint64_t>;
  { seats.waits_for(rank) } -> std::same_as<int>;
};

/// Who waits looks around every few milliseconds; what it said of its wait counts no more when it has not done so for this long.
inline constexpr nanoseconds attention_span = 250'000'000;

/// One rank's view: `rank` is in call `sequence`, whose messages carry `tag`.
template <Seats S>
class call_report {
 public:
  call_report(S const& seats, int rank, std::uint64_t sequence, std::uint32_t tag) noexcept
      : seats_(seats), rank_(rank), sequence_(sequence), tag_(tag) {}

  /// Follows who waits for whom from `peer` to the rank that waits for nobody. A circle has no such rank: then it is `peer`.
  int end_of_waits(int peer) const noexcept {
    int at = peer;
    for (int hops = 0; hops <= seats_.size(); ++hops) {
      int const next = seats_.waits_for(at);
      if (next < 0) return at;
      at = next;
    }
    return peer;
  }

  /// Who has not begun the call that this rank is in, as many as the text holds: "1, 3".
  void absent(char* text, std::size_t capacity) const noexcept {
    std::size_t used = 0;
    for (int r = 0; r < seats_.size() && used + 16 < capacity; ++r) {
      call_record other;
      if (r == rank_ || !seats_.read_record(r, other) || other.sequence >= sequence_) continue;
      used += static_cast<std::size_t>(std::snprintf(text + used, capacity - used, "%s%d", used > 0 ? ", " : "", r));
    }
    text[used] = 0;
  }

  /// True where `rank` has done its part of the call that this rank is in.
  bool owes_nothing(int rank) const noexcept { return seats_.finished(rank) >= sequence_; }

  /// True where `rank` is in a call of the same number that is another call.
  bool differs(int rank) const noexcept {
    call_record other;
    return rank != rank_ && seats_.read_record(rank, other) && other.sequence == sequence_ && other.tag != tag_;
  }

  status left(int rank) const noexcept {
    return status::failure(errc::peer_lost, rank, "rank %d has left, rank %d waits for it in call %llu", rank, rank_, number(sequence_));
  }

  /// Why a message of `peer` does not belong to this rank's call: their calls differ, or one of them is calls ahead.
  status conflict(int peer) const noexcept {
    call_record theirs;
    bool const known = seats_.read_record(peer, theirs);
    if (!known || (theirs.sequence == sequence_ && theirs.tag != tag_)) return mismatch();
    char mine_text[112], their_text[112];
    describe(rank_, mine_text, sizeof mine_text);
    if (theirs.sequence == sequence_) {  // who only sends ends its call without hearing that the others made another one
      return status::failure(errc::mismatch, peer,
                             "rank %d and rank %d are both in call %llu, %s, but a message of rank %d is left from before: their calls "
                             "have differed",
                             peer, rank_, number(sequence_), mine_text, peer);
    }
    describe(peer, their_text, sizeof their_text);
    return status::failure(errc::mismatch, peer, "rank %d is in its call %llu, %s, while rank %d is in its call %llu, %s", peer,
                           number(theirs.sequence), their_text, rank_, number(sequence_), mine_text);
  }

  /// Names the rank whose call is the rarest beside one whose call is the most common, so that all reporters say the same.
  status mismatch() const noexcept {
    int odd = rank_, common = rank_, fewest = seats_.size() + 1, most = 0;
    for (int r = 0; r < seats_.size(); ++r) {
      call_record mine, other;
      int same = 0;
      if (!seats_.read_record(r, mine) || mine.sequence != sequence_) continue;
      for (int q = 0; q < seats_.size(); ++q) same += seats_.read_record(q, other) && other.sequence == sequence_ && other.tag == mine.tag;
      if (same > most) most = same, common = r;
      if (same <= fewest) fewest = same, odd = r;
    }
    char odd_text[112], common_text[112];
    describe(odd, odd_text, sizeof odd_text);
    describe(common, common_text, sizeof common_text);
    return status::failure(errc::mismatch, odd, "rank %d calls %s, rank %d calls %s", odd, odd_text, common, common_text);
  }

 private:
  static unsigned long long number(std::uint64_t n) noexcept { return static_cast<unsigned long long>(n); }

  void describe(int rank, char* text, std::size_t capacity) const noexcept {
    call_record record;
    if (!seats_.read_record(rank, record)) record = {};
    int const used = std::snprintf(text, capacity, "%.*s of %llu", static_cast<int>(sizeof record.what), record.what, number(record.count));
    if (record.root < 0) return;
    std::snprintf(text + used, capacity - static_cast<std::size_t>(used), " with root %d", static_cast<int>(record.root));
  }

  S const& seats_;
  int rank_;
  std::uint64_t sequence_;
  std::uint32_t tag_;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
