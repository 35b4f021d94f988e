// SPDX-License-Identifier: Apache-2.0
/// What a group in one memory shares beside its rings: the verdict that ends it, and per rank what it does and whom it waits for.
#pragma once

#include "collectx/process.hpp"
#include "collectx/rendezvous.hpp"
#include "collectx/transport.hpp"
#include "collectx/transport/call_report.hpp"
#include "collectx/transport/host.hpp"
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
  std::uint64_t attentive;  // when it last looked around in the wait for `waits_for`, 0: it does not say
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

/// What all ranks have written there, for who reads. Models Seats.
class board_seats {
 public:
  board_seats() = default;
  board_seats(board_memory& memory, int size) noexcept : memory_(&memory), size_(size) {}

  int size() const noexcept { return size_; }
  board_seat& at(int rank) const noexcept { return memory_->seat(rank); }
  std::uint64_t finished(int rank) const noexcept { return load(at(rank).finished); }
  /// Who is stopped keeps saying whom it waited for before, but looks around no more.
  int waits_for(int rank) const noexcept {
    std::uint64_t const looked = load(at(rank).attentive);
    bool const stale = looked != 0 && monotonic_now() - static_cast<nanoseconds>(looked) > attention_span;
    return stale ? -1 : static_cast<int>(load(at(rank).waits_for)) - 1;
  }
  bool read_record(int rank, call_record& record) const noexcept {
    board_seat& other = at(rank);
    std::uint64_t words[8];
    std::uint64_t const before = load(other.stamp);
    for (int i = 0; i < 8; ++i) words[i] = load(other.record[i]);
    if (before % 2 != 0 || shared_word(other.stamp).load(std::memory_order_relaxed) != before) return false;
    std::memcpy(&record, words, sizeof words);
    return true;
  }

  static std::uint64_t load(std::uint64_t& word) noexcept { return shared_word(word).load(std::memory_order_acquire); }

 private:
  board_memory* memory_ = nullptr;
  int size_ = 0;
};

/// One rank's place at the board. All of it belongs to the rank's thread, except `abort`, which any thread may call.
class board {
 public:
  board() = default;
  board(board_memory& memory, int rank, int size) noexcept
      : memory_(&memory), seats_(memory, size), rank_(rank), size_(size), probe_(rank) {}

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
  /// Whether it did so in good order.
  bool has_left(int rank) const noexcept { return load(seat(rank).there) == board_seat::left; }
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

  /// This rank is at its wait still.
  void attend(nanoseconds now) noexcept {
    shared_word(seat(rank_).attentive).store(static_cast<std::uint64_t>(now), std::memory_order_relaxed);
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

  int blame(int peer) noexcept { return report().end_of_waits(peer); }
  void absent(char* text, std::size_t capacity) noexcept { report().absent(text, capacity); }

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

  status conflict(int peer) noexcept { return abort(report().conflict(peer)); }
  bool doing(int rank, call_record& record) const noexcept { return seats_.read_record(rank, record); }
  /// True where `rank` has done its part of the call that this rank is in.
  bool owes_nothing(int rank) const noexcept { return report().owes_nothing(rank); }

  void publish_cpus() noexcept {
    cpu_mask const mine = cpu_mask::mine();
    for (int i = 0; i < 16; ++i) shared_word(seat(rank_).cpus[i]).store(mine.words[i], std::memory_order_relaxed);
  }
  /// CPUs that the ranks of the group may run on, all together.
  int cpus() noexcept {
    cpu_mask all;
    for (int r = 0; r < size_; ++r)
      for (int i = 0; i < 16; ++i) all.words[i] |= shared_word(seat(r).cpus[i]).load(std::memory_order_relaxed);
    return all.count();
  }
  bool crowded() noexcept {
    publish_cpus();
    return size_ > cpus();
  }

 private:
  static constexpr int looks = 4;  // processes looked up each time: 10 us apiece

  static std::uint64_t load(std::uint64_t& word) noexcept { return board_seats::load(word); }
  board_seat& seat(int rank) const noexcept { return memory_->seat(rank); }
  call_report<board_seats> report() const noexcept { return {seats_, rank_, sequence_, tag_}; }

  /// What no message will ever tell of the collective call that this rank is in.
  status look_at_call(int peer) noexcept {
    call_report const now = report();
    if (sequence_ == 0 || now.owes_nothing(rank_)) return {};
    for (int r = 0; r < size_; ++r) {
      if (now.differs(r)) return abort(now.mismatch());
      // `there` first: who left has ended its calls before.
      if (load(seat(r).there) == board_seat::left && !now.owes_nothing(r)) return abort(now.left(r));
    }
    for (int i = 0; i < looks; ++i) {
      int const r = i == 0 ? peer : (probe_ = (probe_ + 1) % size_);
      board_seat& other = seat(r);
      if (r == rank_ || now.owes_nothing(r) || load(other.there) != board_seat::present) continue;
      process_identity const id{load(other.pid), load(other.start), load(other.space)};
      // Asked again after the look: it may have ended the call and gone in good order just before.
      if (is_dead(id, space_) && !now.owes_nothing(r) && load(other.there) == board_seat::present) {
        return abort(status::failure(errc::peer_lost, r, "rank %d (process %llu) is dead", r, static_cast<unsigned long long>(id.pid)));
      }
    }
    return {};
  }

  [[gnu::noinline]] status spell(std::uint64_t verdict) noexcept {
    errc const code = static_cast<errc>(verdict & 255);
    int const blamed = static_cast<int>(verdict >> 8 & 0xffffff) - 1, reporter = static_cast<int>(verdict >> 32) - 1;
    if (blamed == reporter) return status::failure(code, blamed, "%s", seat(reporter).text);
    return status::failure(code, blamed, "%s (reported by rank %d)", seat(reporter).text, reporter);
  }

  board_memory* memory_ = nullptr;
  board_seats seats_;
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
