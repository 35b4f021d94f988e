// SPDX-License-Identifier: Apache-2.0
/// What a store knows: which ranks have come and gone, what they have put, and what is wrong with them. No socket, no clock, no thread.
#pragma once

#include "collectx/config.hpp"
#include "collectx/rendezvous.hpp"
#include "collectx/rendezvous/store_frame.hpp"
#include "collectx/status.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace collectx {
inline namespace v0 {
namespace detail {

class store_group {
 public:
  /// More values at once than any way of joining needs; a bound, so that a rank cannot use up the memory of rank 0.
  static constexpr std::size_t most_values_of_a_rank = 64;

  static result<store_group> create(int size) noexcept {
    store_group self(size);
    self.members_.reset(new (std::nothrow) member[static_cast<std::size_t>(size)]);
    if (!self.members_) return status::failure(errc::out_of_memory, 0, "rendezvous: no memory to know %d ranks", size);
    return result<store_group>(std::move(self));
  }

  int size() const noexcept { return size_; }
  bool complete() const noexcept { return came_ == size_; }
  bool came(int rank) const noexcept { return of(rank).came; }

  /// A rank says who it is. ok: it is in. busy: it is too late, and no business of those who are in. Else: nobody's rendezvous can work.
  status come(store_frame const& hello) noexcept {
    char who[120];
    if (hello.version != COLLECTX_VERSION) {
      return status::failure(errc::invalid_configuration, hello.rank, "versions differ: rank %d (%s) has collectx %s, rank 0 has %s",
                             hello.rank, name(who, hello.process, hello.host), version_text(hello.version).text,
                             version_text(COLLECTX_VERSION).text);
    }
    if (hello.size != size_) {
      return status::failure(errc::invalid_configuration, hello.rank, "rank %d (%s) joins a group of %d, rank 0 one of %d", hello.rank,
                             name(who, hello.process, hello.host), hello.size, size_);
    }
    if (hello.rank < 0 || hello.rank >= size_) {
      return status::failure(errc::invalid_argument, hello.rank, "rank %d (%s) is not in a group of %d", hello.rank,
                             name(who, hello.process, hello.host), size_);
    }
    member& m = of(hello.rank);
    if (m.here) {
      char other[120];
      name(other, m.process, m.host);
      if (settled()) {
        return status::failure(errc::busy, hello.rank, "rank %d (%s) comes when the group is complete: %s is rank %d of it", hello.rank,
                               name(who, hello.process, hello.host), other, hello.rank);
      }
      return status::failure(errc::invalid_argument, hello.rank, "two processes are rank %d: %s and %s", hello.rank, other,
                             name(who, hello.process, hello.host));
    }
    if (!m.came) ++came_;
    m.came = m.here = true;
    m.process = hello.process;
    std::memcpy(m.host, hello.host, sizeof m.host);
    return {};
  }

  /// A rank has gone. A failure where it did not say goodbye, and had not finished: nobody has before all have come.
  status leave(int rank, bool said_goodbye) noexcept {
    bool const finished = through(rank);
    conclude(rank);
    of(rank).here = false;
    char who[120];
    if (said_goodbye || (finished && complete())) return {};
    return status::failure(errc::peer_lost, rank, "rank %d (%s) died while ranks were joining", rank,
                           name(who, of(rank).process, of(rank).host));
  }

  status put(int rank, char const* key, rendezvous_value const& value) noexcept {
    if (entry const* e = look(key)) {
      return status::failure(errc::busy, e->rank, "rendezvous: rank %d has put %s", e->rank, key);
    }
    member& m = of(rank);
    if (m.holds == most_values_of_a_rank) {
      return status::failure(errc::out_of_memory, rank, "rendezvous: rank %d has put %zu values, the most it may", rank, m.holds);
    }
    if (count_ == capacity_ && !grow()) return status::failure(errc::out_of_memory, rank, "rendezvous: rank 0 has no memory for %s", key);
    entry& e = entries_[count_++];
    e.rank = rank;
    std::snprintf(e.key, sizeof e.key, "%s", key);
    e.value = value;
    ++m.holds;
    m.active = true;
    return {};
  }

  rendezvous_value const* find(char const* key) const noexcept {
    entry const* const e = look(key);
    return e == nullptr ? nullptr : &e->value;
  }

  /// A rank waits for a value, or no longer does.
  void wait(int rank, bool waiting) noexcept {
    of(rank).waiting = waiting;
    of(rank).active = true;
  }

  void conclude(int rank) noexcept {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      if (entries_[i].rank == rank) continue;
      if (kept != i) entries_[kept] = entries_[i];
      ++kept;
    }
    count_ = kept;
    of(rank).holds = 0;
    of(rank).active = true;
    settled();
  }

  /// Whether the rank may be left alone: it has come, and gone, or taken part and neither holds nor waits for anything.
  bool through(int rank) const noexcept {
    member const& m = of(rank);
    return m.came && (!m.here || (m.active && m.holds == 0 && !m.waiting));
  }
  bool all_through() const noexcept {
    for (int r = 0; r < size_; ++r)
      if (!through(r)) return false;
    return true;
  }
  /// Whether everybody waits for values that nobody is left to put.
  bool stuck() const noexcept {
    if (!complete()) return false;
    for (int r = 0; r < size_; ++r)
      if (!through(r) && !of(r).waiting) return false;
    return true;
  }

  /// "rank 2", "ranks 1, 3": those who never came.
  template <std::size_t Capacity>
  char const* absent(char (&text)[Capacity], int& first) const noexcept {
    std::size_t used = static_cast<std::size_t>(std::snprintf(text, Capacity, size_ - came_ == 1 ? "rank " : "ranks "));
    int left = size_ - came_;
    first = -1;
    for (int r = 0; r < size_; ++r) {
      if (of(r).came) continue;
      if (used + 32 > Capacity) break;
      used += static_cast<std::size_t>(std::snprintf(text + used, Capacity - used, "%s%d", first < 0 ? "" : ", ", r));
      if (first < 0) first = r;
      --left;
    }
    if (left > 0) std::snprintf(text + used, Capacity - used, " and %d more", left);
    return text;
  }

 private:
  struct member {
    bool came = false, here = false, active = false, waiting = false;
    std::size_t holds = 0;
    std::uint64_t process = 0;
    char host[64] = {};
  };
  struct entry {
    int rank = -1;
    char key[32] = {};
    rendezvous_value value;
  };
  struct version_text {
    explicit version_text(std::uint32_t v) noexcept { std::snprintf(text, sizeof text, "%u.%u.%u", v / 10000, v / 100 % 100, v % 100); }
    char text[40];
  };

  explicit store_group(int size) noexcept : size_(size) {}

  member& of(int rank) noexcept { return members_[static_cast<std::size_t>(rank)]; }
  member const& of(int rank) const noexcept { return members_[static_cast<std::size_t>(rank)]; }

  /// Everybody has come and has been through once: who comes now is somebody else.
  bool settled() noexcept { return settled_ = settled_ || (complete() && all_through()); }

  template <std::size_t Capacity>
  static char const* name(char (&text)[Capacity], std::uint64_t process, char const* host) noexcept {
    std::snprintf(text, Capacity, "process %llu on %s", static_cast<unsigned long long>(process), host);
    return text;
  }

  entry const* look(char const* key) const noexcept {
    for (std::size_t i = 0; i < count_; ++i)
      if (std::strcmp(entries_[i].key, key) == 0) return &entries_[i];
    return nullptr;
  }

  bool grow() noexcept {
    std::size_t const more = 2 * capacity_ + 16;
    std::unique_ptr<entry[]> larger(new (std::nothrow) entry[more]);
    if (!larger) return false;
    for (std::size_t i = 0; i < count_; ++i) larger[i] = entries_[i];
    entries_ = std::move(larger);
    capacity_ = more;
    return true;
  }

  int size_;
  int came_ = 0;
  bool settled_ = false;
  std::unique_ptr<member[]> members_;
  std::unique_ptr<entry[]> entries_;
  std::size_t count_ = 0, capacity_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
