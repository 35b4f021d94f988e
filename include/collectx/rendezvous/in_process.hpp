// SPDX-License-Identifier: Apache-2.0
/// Ranks that start in one process, as its threads or as its forked children: a table in memory that they inherit, no name anywhere.
#pragma once

#include "collectx/process.hpp"
#include "collectx/rendezvous.hpp"

#include <sys/mman.h>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

namespace collectx {
inline namespace v0 {
namespace detail {

/// Fixed records in memory that all ranks see. No lock: a process killed while it held one would stop all others.
class rendezvous_table {
 public:
  struct record {
    int rank = -1;
    char key[32] = {};
    rendezvous_value value;
  };

  bool find(char const* key, record& found) noexcept {
    for (cell& c : cells_) {
      if (read(c, found) != 0 && std::strcmp(found.key, key) == 0) return true;
    }
    return false;
  }

  bool add(record const& added) noexcept {
    std::uint64_t words[words_per_record] = {};
    std::memcpy(words, &added, sizeof added);
    for (cell& c : cells_) {
      std::uint64_t stamp = word(c.stamp).load(std::memory_order_acquire);
      if (stamp % 4 != empty || !word(c.stamp).compare_exchange_strong(stamp, stamp + 4 + busy, std::memory_order_acq_rel)) continue;
      for (std::size_t i = 0; i < words_per_record; ++i) word(c.words[i]).store(words[i], std::memory_order_release);
      word(c.stamp).store(stamp + 4 + valid, std::memory_order_release);
      return true;
    }
    return false;
  }

  void withdraw(int rank) noexcept {
    record seen;
    for (cell& c : cells_) {
      if (std::uint64_t stamp = read(c, seen); stamp != 0 && seen.rank == rank) {
        word(c.stamp).compare_exchange_strong(stamp, stamp - valid, std::memory_order_acq_rel);
      }
    }
  }

 private:
  static constexpr std::size_t words_per_record = (sizeof(record) + 7) / 8;
  enum : std::uint64_t { empty = 0, busy = 1, valid = 2 };

  struct cell {
    std::uint64_t stamp;  // one of the three + 4 x number of writings
    std::uint64_t words[words_per_record];
  };

  static std::atomic_ref<std::uint64_t> word(std::uint64_t& w) noexcept { return std::atomic_ref<std::uint64_t>(w); }

  /// The stamp of a record read whole, or 0.
  static std::uint64_t read(cell& c, record& out) noexcept {
    std::uint64_t words[words_per_record];
    std::uint64_t const stamp = word(c.stamp).load(std::memory_order_acquire);
    if (stamp % 4 != valid) return 0;
    for (std::size_t i = 0; i < words_per_record; ++i) words[i] = word(c.words[i]).load(std::memory_order_acquire);
    if (word(c.stamp).load(std::memory_order_relaxed) != stamp) return 0;
    std::memcpy(static_cast<void*>(&out), words, sizeof out);
    return stamp;
  }

  cell cells_[64];
};

}  // namespace detail

/// A table made before the threads start or the processes are forked, and one end of it per rank. Models Rendezvous.
class in_process_rendezvous {
 public:
  /// The owner of the table; it outlives the ends that `of` gives. A forked child owns its own view.
  static result<in_process_rendezvous> create(int size) noexcept {
    void* const memory = ::mmap(nullptr, sizeof(detail::rendezvous_table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      return status::failure(errc::out_of_memory, -1, "no memory for a rendezvous, needs %zu bytes", sizeof(detail::rendezvous_table));
    }
    return in_process_rendezvous(static_cast<detail::rendezvous_table*>(memory), true, -1, size);
  }
  in_process_rendezvous of(int rank) const noexcept { return {table_, false, rank, size_}; }

  in_process_rendezvous(in_process_rendezvous&& other) noexcept
      : table_(other.table_), owner_(std::exchange(other.owner_, false)), rank_(other.rank_), size_(other.size_) {}
  in_process_rendezvous& operator=(in_process_rendezvous&&) = delete;
  ~in_process_rendezvous() {
    if (owner_) ::munmap(table_, sizeof *table_);
  }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  status put(char const* key, rendezvous_value const& value) noexcept {
    detail::rendezvous_table::record record;
    if (table_->find(key, record)) return status::failure(errc::busy, record.rank, "rendezvous: rank %d has put %s", record.rank, key);
    record = {};
    record.rank = rank_;
    record.value = value;
    std::snprintf(record.key, sizeof record.key, "%s", key);
    if (!table_->add(record)) return status::failure(errc::out_of_memory, rank_, "rendezvous: the table is full");
    return {};
  }

  result<rendezvous_value> get(char const* key, nanoseconds deadline) noexcept {
    detail::rendezvous_table::record record;
    while (!table_->find(key, record)) {
      if (detail::monotonic_now() >= deadline) return status::failure(errc::timeout, -1, "rendezvous: nobody has put %s", key);
      detail::nap(100'000);
    }
    return record.value;
  }

  void conclude() noexcept { table_->withdraw(rank_); }

 private:
  in_process_rendezvous(detail::rendezvous_table* table, bool owner, int rank, int size) noexcept
      : table_(table), owner_(owner), rank_(rank), size_(size) {}

  detail::rendezvous_table* table_;
  bool owner_;
  int rank_;
  int size_;
};
static_assert(Rendezvous<in_process_rendezvous>);

}  // namespace v0
}  // namespace collectx
