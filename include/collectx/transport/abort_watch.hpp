// SPDX-License-Identifier: Apache-2.0
/// A thread that looks after the group while all others of this rank may be waiting for a device: what ends the group ends the device's
/// waits.
#pragma once

#include "collectx/process.hpp"
#include "collectx/status.hpp"
#include "collectx/transport.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace collectx {
inline namespace v0 {
namespace detail {

/// Looks every few milliseconds at what `Subject` says, until that is a failure: then calls its `raise(failure)`, once, and ends.
/// @tparam Subject  has look() -> status and raise(status const&), for this thread alone
template <class Subject>
class abort_watch {
 public:
  explicit abort_watch(Subject& subject) : subject_(subject), thread_([this] { watch(); }) {}
  abort_watch(abort_watch const&) = delete;
  abort_watch& operator=(abort_watch const&) = delete;
  ~abort_watch() {
    {
      std::lock_guard const held(lock_);
      over_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

 private:
  static constexpr std::chrono::milliseconds interval{4};

  void watch() {
    for (std::unique_lock held(lock_); !over_;) {
      held.unlock();
      status const s = subject_.look();
      if (!s) return subject_.raise(s);
      held.lock();
      if (!over_) wake_.wait_for(held, interval);
    }
  }

  Subject& subject_;
  std::mutex lock_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread thread_;  // last: it uses all that is above
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
