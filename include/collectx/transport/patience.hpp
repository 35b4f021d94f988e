// SPDX-License-Identifier: Apache-2.0
/// How to wait: spin while there is a core for every rank, hand the core over at once where there is not, look around now and then.
#pragma once

#include "collectx/process.hpp"
#include "collectx/transport.hpp"

#include <sched.h>
#include <cstdint>

namespace collectx {
inline namespace v0 {
namespace detail {

/// Lets the other hardware thread of this core run while we spin.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Over any board: `verdict()`, `waits_for()`, `announce(peer)`, `attend(now)`,
/// `look_around(peer)`, and `crowded()`, whether ranks outnumber cores here.
class patience {
 public:
  /// Polls in vain before a wait is announced, where each rank has a core and where not. `relaxes`: polls are so cheap that whoever waits
  /// had better pause between them.
  explicit patience(int polls_alone = 64, int polls_crowded = 8, bool relaxes = true) noexcept
      : polls_alone_(polls_alone), polls_crowded_(polls_crowded), polls_(polls_alone), relaxes_(relaxes) {}

  /// True at the first of many polls in vain: the wait is long enough for some housekeeping.
  template <class Board>
  bool begins_to_wait(Board const& group, int polls) const noexcept {
    return polls >= polls_ && group.waits_for() < 0;
  }

  template <class Board>
  status idle(Board& group, int polls, int peer) noexcept {
    if (status s = group.verdict(); !s) return s;
    if (polls >= polls_) return wait(group, polls, peer);
    group.announce(-1);
    if (polls > 0 && relaxes_) relax();
    return {};
  }

 private:
  static constexpr nanoseconds spin = 40'000;  // waking an idle core costs 25 us, so it is given up late
  static constexpr nanoseconds look_interval = 8'000'000;

  /// Asked anew now and then, since ranks pin themselves when they like.
  template <class Board>
  void adapt(Board& group) noexcept {
    crowded_ = group.crowded();
    polls_ = crowded_ ? polls_crowded_ : polls_alone_;
  }

  template <class Board>
  [[gnu::noinline]] status wait(Board& group, int polls, int peer) noexcept {
    bool const begins = group.waits_for() < 0;
    group.announce(peer);
    if (begins) {
      if (waits_++ % 1024 == 0) adapt(group);
      since_ = looked_ = monotonic_now();
      group.attend(looked_);
      yielding_ = crowded_;
    } else if (polls % (yielding_ ? 8 : 64) == 0) {
      nanoseconds const time = monotonic_now();
      if (time - since_ > spin) yielding_ = true;
      if (time - looked_ > look_interval) {
        looked_ = time;
        group.attend(time);
        adapt(group);
        if (status s = group.look_around(peer); !s) return s;
      }
    }
    if (yielding_) {
      ::sched_yield();
    } else if (relaxes_) {
      relax();
    }
    return {};
  }

  int polls_alone_, polls_crowded_, polls_;
  bool relaxes_;
  bool crowded_ = false;
  bool yielding_ = false;
  std::uint32_t waits_ = 0;
  nanoseconds since_ = 0;
  nanoseconds looked_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
