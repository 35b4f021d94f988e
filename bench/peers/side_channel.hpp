// SPDX-License-Identifier: Apache-2.0
/// What ranks tell each other beside the library that is measured: when to begin, how often to repeat, and how long it took. It never
/// touches that library, so that no library is measured with another's barrier.
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace peers {

/// A program that cannot go on says why and ends; whoever has started it ends the other ranks.
[[noreturn]] inline void give_up(char const* why) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", why);
  ::_exit(2);
}

inline double microseconds() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// One end per rank of a file that all ranks map, and that was empty before the first of them came.
class side_channel {
 public:
  static constexpr int most_ranks = 16, most_batches = 4096;

  side_channel(char const* path, int rank, int size) : rank_(rank), size_(size) {
    if (rank < 0 || rank >= size || size > most_ranks) give_up("side channel: there is no such rank");
    int const file = ::open(path, O_RDWR | O_CLOEXEC);
    if (file < 0 || ::ftruncate(file, sizeof(board)) != 0) give_up("side channel: cannot open the file");
    void* const memory = ::mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) give_up("side channel: cannot map the file");
    ::close(file);
    board_ = static_cast<board*>(memory);
    // Ranks may all be pinned to one core each: what counts is how many cores the machine has for them.
    crowded_ = size > static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  }
  side_channel(side_channel const&) = delete;
  side_channel& operator=(side_channel const&) = delete;
  ~side_channel() { ::munmap(board_, sizeof(board)); }

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool crowded() const { return crowded_; }  ///< ranks outnumber cores

  /// Where ranks outnumber cores, who waits here sleeps: it would take a core from a rank that is still measured.
  void barrier() {
    std::uint32_t const round = word(board_->rounds).load(std::memory_order_acquire);
    if (word(board_->here).fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<std::uint32_t>(size_)) {
      word(board_->here).store(0, std::memory_order_relaxed);
      word(board_->rounds).store(round + 1, std::memory_order_release);
      ::syscall(SYS_futex, &board_->rounds, FUTEX_WAKE, size_, nullptr, nullptr, 0);
      return;
    }
    for (int left = crowded_ ? 0 : patience; word(board_->rounds).load(std::memory_order_acquire) == round; --left) {
      if (left > 0)
        relax();
      else
        ::syscall(SYS_futex, &board_->rounds, FUTEX_WAIT, round, nullptr, nullptr, 0);
    }
  }

  /// The same on every rank: the largest of what they say.
  double largest(double mine) {
    board_->said[rank_] = mine;
    barrier();
    double const all = *std::max_element(board_->said, board_->said + size_);
    barrier();
    return all;
  }

  void note(int batch, double mine) { board_->times[rank_][batch] = mine; }
  /// Of the slowest rank. @pre a barrier since the notes
  double slowest(int batch) const {
    double all = 0;
    for (int r = 0; r < size_; ++r) all = std::max(all, board_->times[r][batch]);
    return all;
  }

 private:
  static constexpr int patience = 20000;

  struct board {
    alignas(64) std::uint32_t here;
    alignas(64) std::uint32_t rounds;
    alignas(64) double said[most_ranks];
    double times[most_ranks][most_batches];
  };
  static std::atomic_ref<std::uint32_t> word(std::uint32_t& w) { return std::atomic_ref<std::uint32_t>(w); }

  board* board_;
  int rank_, size_;
  bool crowded_;
};

}  // namespace peers
