// SPDX-License-Identifier: Apache-2.0
/// The CPU twin of a grid: blocks whose threads are threads, so that the body of a kernel runs where there is no device, and under a race
/// detector. For tests, yours too. Include it by name.
#pragma once

#include "collectx/transport.hpp"

#include <sched.h>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace collectx {
inline namespace v0 {
namespace device {

/// What the threads of one block share.
class cpu_team {
 public:
  cpu_team(int size, std::size_t shared_bytes) : size_(size), memory_(new unit[shared_bytes / sizeof(unit) + 1]) {}

  int size() const { return size_; }
  std::byte* shared() const { return memory_.get()->bytes; }

  /// Whether one of the threads said yes. All of them come here, and nobody leaves before.
  bool meet(bool yes) noexcept {
    std::uint32_t const round = round_.load(std::memory_order_relaxed);
    if (yes) votes_[round % 2].store(true, std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      votes_[(round + 1) % 2].store(false, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
    } else {
      while (round_.load(std::memory_order_acquire) == round) ::sched_yield();
    }
    return votes_[round % 2].load(std::memory_order_relaxed);
  }

 private:
  struct alignas(64) unit {
    std::byte bytes[64];
  };
  int size_;
  std::unique_ptr<unit[]> memory_;
  std::atomic<int> arrived_{0};
  std::atomic<std::uint32_t> round_{0};
  std::atomic<bool> votes_[2] = {};
};

/// A Block of threads of the CPU.
class cpu_block {
 public:
  cpu_block(cpu_team& team, int rank, int index, int count) : team_(&team), rank_(rank), index_(index), count_(count) {}

  int rank() const { return rank_; }
  int size() const { return team_->size(); }
  int index() const { return index_; }
  int count() const { return count_; }
  void sync() const { team_->meet(false); }
  bool any(bool yes) const { return team_->meet(yes); }
  std::byte* shared() const { return team_->shared(); }
  void relax() const { ::sched_yield(); }
  nanoseconds now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

 private:
  cpu_team* team_;
  int rank_, index_, count_;
};

/// body(block) by each thread of a grid, all of them at once; returns when all have.
template <class F>
void run_on_cpu(int blocks, int threads, std::size_t shared_bytes, F const& body) {
  std::vector<std::unique_ptr<cpu_team>> teams;
  for (int b = 0; b < blocks; ++b) teams.push_back(std::make_unique<cpu_team>(threads, shared_bytes));
  std::vector<std::thread> all;
  for (int b = 0; b < blocks; ++b)
    for (int t = 0; t < threads; ++t)
      all.emplace_back([&, b, t] {
        cpu_block block(*teams[static_cast<std::size_t>(b)], t, b, blocks);
        body(block);
      });
  for (std::thread& thread : all) thread.join();
}

}  // namespace device
}  // namespace v0
}  // namespace collectx
