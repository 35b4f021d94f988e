// SPDX-License-Identifier: Apache-2.0
/// A thread that moves on what is under way on a communicator while its rank does something else. Include it by name.
#pragma once

#include "collectx/communicator.hpp"
#include "collectx/process.hpp"

#include <sched.h>
#include <atomic>
#include <memory>
#include <thread>

namespace collectx {
inline namespace v0 {

/// As long as it lives, planned calls that were started go on by themselves, and so do messages that this rank has only begun to take.
///
/// Calls on the communicator are made as without it: one at a time; they wait for the end of a round of the thread, which is as long as
/// it takes to do what can be done at once. Deadlines are those of wait(); a failure is said by the next call. Costs a core while there
/// is something to move, else a look every `pause`. May be destroyed before or after the communicator. It is not inherited by fork.
template <Transport Tr>
class background_progress {
 public:
  /// @throws std::system_error where there can be no thread (without exceptions: ends the process, as std::thread does)
  explicit background_progress(communicator<Tr>& comm, std::chrono::nanoseconds pause = std::chrono::microseconds(50))
      : helped_(comm.member_) {
    if (helped_ != nullptr) thread_ = std::thread([this, pause] { help(pause.count()); });
  }
  background_progress(background_progress const&) = delete;
  background_progress& operator=(background_progress const&) = delete;
  ~background_progress() {
    stop_.store(true, std::memory_order_relaxed);
    if (!thread_.joinable()) return;
    if (mark_.here())
      thread_.join();
    else
      thread_.detach();  // the parent's
  }

 private:
  void help(nanoseconds pause) {
    while (!stop_.load(std::memory_order_relaxed)) {
      if (helped_->help())
        ::sched_yield();  // for a call that waits for its turn
      else
        detail::nap(pause);
    }
  }

  std::shared_ptr<detail::member<Tr>> helped_;
  std::atomic<bool> stop_{false};
  detail::fork_mark mark_ = detail::fork_mark::take();
  std::thread thread_;
};

}  // namespace v0
}  // namespace collectx
