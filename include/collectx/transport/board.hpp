// SPDX-License-Identifier: Apache-2.0
/// What a group in one memory shares beside its rings: the verdict that ends it, and per rank what it does and whom it waits for.
#pragma once

#include "collectx/process.hpp"
#include "collectx/rendezvous.hpp"
#include "collectx/transport.hpp"
#include "collectx/transport/notices.hpp"

#include <sched.h>
#include <unistd.h>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

namespace collectx {
inline namespace v0 {
namespace detail {

/// The sentence of a status without the library's name, which `status::failure` puts in front again. (snprintf would warn of truncation.)
inline char const* sentence(status const& s) noexcept { return s.ok() ? "" : s.what() + (sizeof "collectx: " - 1); }
inline void keep_sentence(char (&text)[status::capacity], status const& s) noexcept {
  std::size_t const length = ::strnlen(sentence(s), sizeof text - 1);
  std::memcpy(text, sentence(s), length);
  text[length] = 0;
}

/// The memory of a board: zero is its initial state. Every word is only ever touched as an atomic, except `text`, which its owner writes
/// once, before the verdict that points to it.
struct alignas(64) board_seat {
  enum presence : std::uint64_t { absent = 0, present = 1, left = 2 };

  std::uint64_t stamp;      // odd while `record` is being written
  std::uint64_t waits_for;  // 1 + rank, 0: nobody
  std::uint64_t finished;   // sequence of the last call that ended
  std::uint64_t there;      // a `presence`
  std::uint64_t pid, start, space;
  std::uint64_t reporting;
  std::uint64_t record[sizeof(call_record) / 8];
  std::uint64_t cpus[16];
  char text[status::capacity];
  notice_memory notices;
};
static_assert(sizeof(call_record) == 64 && sizeof(board_seat) % 64 == 0);

struct alignas(64) board_memory {
  std::uint64_t verdict;  // 0, or packed: code, blamed rank, reporting rank; alone on its line, which everybody keeps cached
  alignas(64) std::uint64_t users;

  board_seat& seat(int rank) { return reinterpret_cast<board_seat*>(this + 1)[rank]; }
  static constexpr std::size_t bytes(int size) { return sizeof(board_memory) + static_cast<std::size_t>(size) * sizeof(board_seat); }
};

/// One rank's place at the board. All of it belongs to the rank's thread, except `abort`, which any thread may call.
class board {
 public:
  board() = default;
  board(board_memory& memory, int rank, int size) noexcept : memory_(&memory), rank_(rank), size_(size), probe_(rank) {}

  /// False where the seat was taken before; a seat is never taken twice, since its rings remember.
  bool sit_down(process_identity const& id) noexcept {
    board_seat& mine = seat(rank_);
    std::uint64_t expected = board_seat::absent;
    if (!shared_word(mine.there).compare_exchange_strong(expected, board_seat::present, std::memory_order_acq_rel)) return false;
    space_ = id.space;
    shared_word(mine.start).store(id.start, std::memory_order_relaxed);
    shared_word(mine.space).store(id.space, std::memory_order_relaxed);
    shared_word(mine.pid).store(id.pid, std::memory_order_release);
    publish_cpus();
    return true;
  }
  void leave() noexcept { shared_word(seat(rank_).there).store(board_seat::left, std::memory_order_release); }

  void begin(call_record const& record) noexcept {
    board_seat& mine = seat(rank_);
    // A reader that sees any new word also sees the odd stamp: release on each word, since fences would blind ThreadSanitizer.
    shared_word(mine.stamp).store(++stamp_, std::memory_order_relaxed);
    for (int i = 0; i < 8; ++i) {
      std::uint64_t word;  // one by one: g++ 12 at -O2 copies the whole record by `rep movs`, which costs more than all the stores
      std::memcpy(&word, reinterpret_cast<std::byte const*>(&record) + 8 * i, sizeof word);
      shared_word(mine.record[i]).store(word, std::memory_order_release);
    }
    shared_word(mine.stamp).store(++stamp_, std::memory_order_release);
    sequence_ = record.sequence;
    tag_ = record.tag;
  }

  void end() noexcept {
    announce(-1);
    shared_word(seat(rank_).finished).store(sequence_, std::memory_order_release);
  }

  /// What the group has come to: ok as long as it lives.
  COLLECTX_FORCEINLINE status verdict() noexcept {
    if (std::uint64_t const packed = load(memory_->verdict)) return spell(packed);
    return {};
  }

  /// Whether a rank has left or its process is dead. Who has not come yet is not lost.
  bool lost(int rank) noexcept {
    board_seat& other = seat(rank);
    std::uint64_t const there = load(other.there);
    if (there != board_seat::present) return there == board_seat::left;
    return is_dead({load(other.pid), load(other.start), load(other.space)}, space_);
  }
  bool seated(int rank) const noexcept { return load(seat(rank).there) != board_seat::absent; }

  status post(char const* key, rendezvous_value const& value) noexcept {
    if (notices::post(seat(rank_).notices, key, value)) return {};
    return status::failure(errc::out_of_memory, rank_, "rank %d shows %d values already and has no room for %s", rank_,
                           notice_memory::capacity, key);
  }
  bool posted(int rank, char const* key, rendezvous_value& value) noexcept { return notices::read(seat(rank).notices, key, value); }
  void withdraw(char const* key) noexcept { notices::withdraw(seat(rank_).notices, key); }

  /// Whom this rank waits for, -1 if for nobody. Announced late, so that a short wait writes nothing that others may be reading.
  int waits_for() const noexcept { return waiting_ - 1; }
  void announce(int peer) noexcept {
    if (waiting_ == peer + 1) return;
    waiting_ = peer + 1;
    shared_word(seat(rank_).waits_for).store(static_cast<std::uint64_t>(waiting_), std::memory_order_relaxed);
  }

  status abort(status const& why) noexcept {
    if (load(memory_->verdict) == 0) {
      board_seat& mine = seat(rank_);
      if (shared_word(mine.reporting).exchange(1, std::memory_order_acq_rel) == 0) {
        status const said = why.ok() ? status::failure(errc::aborted, rank_, "rank %d called abort", rank_) : why;
        keep_sentence(mine.text, said);
        std::uint64_t const code = static_cast<std::uint64_t>(said.code()), blamed = static_cast<std::uint64_t>(said.rank() + 1);
        std::uint64_t none = 0;
        shared_word(memory_->verdict)
            .compare_exchange_strong(none, code | blamed << 8 | static_cast<std::uint64_t>(rank_ + 1) << 32, std::memory_order_acq_rel);
      } else {
        while (load(memory_->verdict) == 0) ::sched_yield();  // another thread of this rank is between the two lines above
      }
    }
    return spell(load(memory_->verdict));
  }

  /// Follows who waits for whom from `peer` to the rank that waits for nobody. A circle has no such rank: then it is `peer`.
  int blame(int peer) noexcept {
    int at = peer;
    for (int hops = 0; hops <= size_; ++hops) {
      std::uint64_t const next = load(seat(at).waits_for);
      if (next == 0) return at;
      at = static_cast<int>(next) - 1;
    }
    return peer;
  }

  /// Who has not begun the call that this rank is in, as many as the text holds: "1, 3".
  void absent(char* text, std::size_t capacity) noexcept {
    std::size_t used = 0;
    for (int r = 0; r < size_ && used + 16 < capacity; ++r) {
      call_record other;
      if (r == rank_ || !read_record(r, other) || other.sequence >= sequence_) continue;
      used += static_cast<std::size_t>(std::snprintf(text + used, capacity - used, "%s%d", used > 0 ? ", " : "", r));
    }
    text[used] = 0;
  }

  /// What no message will ever tell: a rank that left or died before it did its part of this call, or that makes another call; and
  /// that `peer`, which is waited for, is no more.
  status look_around(int peer) noexcept {
    if (status s = look_at_call(peer); !s) return s;
    if (peer < 0 || peer == rank_ || !lost(peer)) return {};
    // What it sent before it went is still to be had, so the caller looks once more before this is the end.
    if (std::exchange(suspect_, peer) != peer) return {};
    char const* const how = load(seat(peer).there) == board_seat::left ? "has left" : "is dead";
    return abort(status::failure(errc::peer_lost, peer, "rank %d %s, rank %d waits for it", peer, how, rank_));
  }

  /// A message of `peer` does not belong to this rank's call: their calls differ, or one of them is calls ahead.
  status conflict(int peer) noexcept {
    call_record theirs;
    bool const known = read_record(peer, theirs);
    if (!known || (theirs.sequence == sequence_ && theirs.tag != tag_)) return abort(mismatch());
    char mine_text[112], their_text[112];
    describe(rank_, mine_text, sizeof mine_text);
    if (theirs.sequence == sequence_) {  // who only sends ends its call without hearing that the others made another one
      return abort(status::failure(errc::mismatch, peer,
                                   "rank %d and rank %d are both in call %llu, %s, but a message of rank %d is left from before: their "
                                   "calls have differed",
                                   peer, rank_, static_cast<unsigned long long>(sequence_), mine_text, peer));
    }
    describe(peer, their_text, sizeof their_text);
    return abort(status::failure(errc::mismatch, peer, "rank %d is in its call %llu, %s, while rank %d is in its call %llu, %s", peer,
                                 static_cast<unsigned long long>(theirs.sequence), their_text, rank_,
                                 static_cast<unsigned long long>(sequence_), mine_text));
  }

  /// True where `rank` has done its part of the call that this rank is in.
  bool owes_nothing(int rank) const noexcept { return finished(rank) >= sequence_; }

  void publish_cpus() noexcept {
    std::uint64_t words[16] = {};
    static_assert(sizeof words == sizeof(::cpu_set_t));
    if (::sched_getaffinity(0, sizeof words, reinterpret_cast<::cpu_set_t*>(words)) != 0) {
      long const online = ::sysconf(_SC_NPROCESSORS_ONLN);  // more CPUs than the mask has bits
      for (long i = 0; i < online && i < 1024; ++i) words[i / 64] |= std::uint64_t{1} << (i % 64);
    }
    for (int i = 0; i < 16; ++i) shared_word(seat(rank_).cpus[i]).store(words[i], std::memory_order_relaxed);
  }
  /// CPUs that the ranks of the group may run on, all together.
  int cpus() noexcept {
    int count = 0;
    for (int word = 0; word < 16; ++word) {
      std::uint64_t any = 0;
      for (int r = 0; r < size_; ++r) any |= shared_word(seat(r).cpus[word]).load(std::memory_order_relaxed);
      count += __builtin_popcountll(any);
    }
    return count;
  }
  int size() const noexcept { return size_; }

 private:
  static constexpr int looks = 4;  // processes looked up each time: 10 us apiece

  static std::uint64_t load(std::uint64_t& word) noexcept { return shared_word(word).load(std::memory_order_acquire); }
  board_seat& seat(int rank) const noexcept { return memory_->seat(rank); }
  std::uint64_t finished(int rank) const noexcept { return load(seat(rank).finished); }

  /// What no message will ever tell of the collective call that this rank is in.
  status look_at_call(int peer) noexcept {
    if (sequence_ == 0 || finished(rank_) >= sequence_) return {};
    for (int r = 0; r < size_; ++r) {
      call_record other;
      if (r != rank_ && read_record(r, other) && other.sequence == sequence_ && other.tag != tag_) return abort(mismatch());
      // `there` first: who left has ended its calls before.
      if (load(seat(r).there) == board_seat::left && finished(r) < sequence_) {
        return abort(status::failure(errc::peer_lost, r, "rank %d has left, rank %d waits for it in call %llu", r, rank_,
                                     static_cast<unsigned long long>(sequence_)));
      }
    }
    for (int i = 0; i < looks; ++i) {
      int const r = i == 0 ? peer : (probe_ = (probe_ + 1) % size_);
      board_seat& other = seat(r);
      if (r == rank_ || owes_nothing(r) || load(other.there) != board_seat::present) continue;
      process_identity const id{load(other.pid), load(other.start), load(other.space)};
      // Asked again after the look: it may have ended the call and gone in good order just before.
      if (is_dead(id, space_) && !owes_nothing(r) && load(other.there) == board_seat::present) {
        return abort(status::failure(errc::peer_lost, r, "rank %d (process %llu) is dead", r, static_cast<unsigned long long>(id.pid)));
      }
    }
    return {};
  }

  bool read_record(int rank, call_record& record) noexcept {
    board_seat& other = seat(rank);
    std::uint64_t words[8];
    std::uint64_t const before = load(other.stamp);
    for (int i = 0; i < 8; ++i) words[i] = load(other.record[i]);
    if (before % 2 != 0 || shared_word(other.stamp).load(std::memory_order_relaxed) != before) return false;
    std::memcpy(&record, words, sizeof words);
    return true;
  }

  /// Names the rank whose call is the rarest beside one whose call is the most common, so that all reporters say the same.
  status mismatch() noexcept {
    int odd = rank_, common = rank_, fewest = size_ + 1, most = 0;
    for (int r = 0; r < size_; ++r) {
      call_record mine, other;
      int same = 0;
      if (!read_record(r, mine) || mine.sequence != sequence_) continue;
      for (int q = 0; q < size_; ++q) same += read_record(q, other) && other.sequence == sequence_ && other.tag == mine.tag ? 1 : 0;
      if (same > most) most = same, common = r;
      if (same <= fewest) fewest = same, odd = r;
    }
    char odd_text[112], common_text[112];
    describe(odd, odd_text, sizeof odd_text);
    describe(common, common_text, sizeof common_text);
    return status::failure(errc::mismatch, odd, "rank %d calls %s, rank %d calls %s", odd, odd_text, common, common_text);
  }

  void describe(int rank, char* text, std::size_t capacity) noexcept {
    call_record record;
    if (!read_record(rank, record)) record = {};
    int const used = std::snprintf(text, capacity, "%.*s of %llu", static_cast<int>(sizeof record.what), record.what,
                                   static_cast<unsigned long long>(record.count));
    if (record.root < 0) return;
    std::snprintf(text + used, capacity - static_cast<std::size_t>(used), " with root %d", static_cast<int>(record.root));
  }

  [[gnu::noinline]] status spell(std::uint64_t verdict) noexcept {
    errc const code = static_cast<errc>(verdict & 255);
    int const blamed = static_cast<int>(verdict >> 8 & 0xffffff) - 1, reporter = static_cast<int>(verdict >> 32) - 1;
    if (blamed == reporter) return status::failure(code, blamed, "%s", seat(reporter).text);
    return status::failure(code, blamed, "%s (reported by rank %d)", seat(reporter).text, reporter);
  }

  board_memory* memory_ = nullptr;
  int rank_ = 0;
  int size_ = 0;
  int waiting_ = 0;  // as published: 1 + rank
  int probe_ = 0;
  int suspect_ = -1;  // was lost when looked at last
  std::uint32_t tag_ = 0;
  std::uint64_t stamp_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t space_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
