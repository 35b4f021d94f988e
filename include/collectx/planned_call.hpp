// SPDX-License-Identifier: Apache-2.0
/// A call made ready once, to be started again and again, and to be under way beside others: what `plan_all_reduce` and its like give.
#pragma once

#include "collectx/pending.hpp"

#include <sched.h>
#include <atomic>
#include <memory>
#include <utility>

namespace collectx {
inline namespace v0 {

namespace detail {
template <Transport Tr>
class call_planner;
template <class Self, class Outcome>
class collective_calls;
}  // namespace detail

/// 1. `start()` begins the call and returns at once; a short send is gone then. All ranks start the same collective calls in the same
///    order, among themselves and among blocking calls; messages between two ranks match in the order of their start.
/// 2. `test()` says whether it has ended, after moving on whatever is under way on its communicator. `wait()` returns when it has.
///    Progress is made only inside calls on its own communicator (and by a `background_progress`): who waits for calls of several
///    communicators does so in one order on all ranks, or tests them in turn.
/// 3. Its buffers belong to the call from start() until it has ended; the operation is copied. Then it may be started again.
/// 4. Asked again after its end, test() and wait() say the same again. test() or wait() before the first start() and start() of a call
///    under way are errors of the caller, which change nothing. What was wrong with its arguments, start() says each time.
/// 5. Destroyed while under way, it waits as wait() would: the other ranks count on its messages, and its buffers are the caller's again
///    only afterwards. If that takes longer than its timeout, the communicator fails, and says so at the next call. Who leaves because
///    of an error, and will not make the calls that others wait for, says abort() first.
/// 6. It keeps its rank's end of the group alive, also beyond the communicator.
template <Transport Tr>
class [[nodiscard]] planned_call {
 public:
  planned_call(planned_call&&) noexcept = default;
  planned_call& operator=(planned_call&& other) noexcept {
    std::swap(member_, other.member_);
    std::swap(task_, other.task_);
    std::swap(refused_, other.refused_);
    std::swap(options_, other.options_);
    return *this;
  }
  ~planned_call() {
    if (task_ != nullptr && task_->pending()) leave();
  }

  status start() {
    if (task_ == nullptr) return refusal();
    detail::turn const held(member_->at_work);
    if (!held.mine) return member_->busy_elsewhere();
    if (task_->pending()) {
      return status::failure(errc::busy, rank(), "rank %d starts a call again that has not ended: wait for it first", rank());
    }
    if (!member_->fit()) return member_->failure;
    return member_->start(*task_);
  }

  /// Never blocks. A failure of the call is the result's error.
  result<bool> test() {
    if (task_ == nullptr) return refusal();
    detail::turn const held(member_->at_work);
    if (!held.mine) return member_->busy_elsewhere();
    if (!task_->started()) return not_started();
    if (task_->pending() && member_->fit()) advance();
    if (task_->pending()) return false;
    if (!task_->end().ok()) return task_->end();
    return true;
  }

  /// The options' timeout is for this wait; without, the one given with the plan.
  status wait(call_options const& options = {}) {
    if (task_ == nullptr) return refusal();
    detail::turn const held(member_->at_work);
    if (!held.mine) return member_->busy_elsewhere();
    if (!task_->started()) return not_started();
    if (task_->pending() && !member_->fit()) return member_->failure;
    return member_->finish(*task_, member_->patience(options.timeout.count() > 0 ? options : options_));
  }

 private:
  template <Transport>
  friend class communicator;
  template <class, class>
  friend class detail::collective_calls;
  template <Transport>
  friend class detail::call_planner;

  planned_call(status const& why) noexcept : refused_(why) {}
  planned_call(std::shared_ptr<detail::member<Tr>> whose, std::unique_ptr<detail::task<Tr>> what, call_options const& options) noexcept
      : member_(std::move(whose)), task_(std::move(what)), options_(options) {}

  int rank() const { return member_->transport.rank(); }

  void advance() {
    Tr& transport = member_->transport;
    exec::progress p;
    transport.progress();
    if (!member_->advance(p) || !task_->pending()) return;
    if (p != exec::progress::stuck) {
      task_->polls = 0;
      return;
    }
    task_->polls = task_->polls == exec::many_polls ? exec::many_polls - 127 : task_->polls + 1;
    if (status s = transport.idle(task_->polls, member_->line.ahead_of(*task_).peer()); !s) member_->fail(s);
  }

  [[gnu::noinline]] void leave() {
    while (!detail::turn::take(member_->at_work, detail::worker::call)) ::sched_yield();  // of another thread: its call has a deadline
    if (member_->fit()) (void)member_->finish(*task_, member_->patience(options_));
    member_->at_work.store(detail::worker::none, std::memory_order_release);
  }

  status not_started() const {
    return status::failure(errc::invalid_argument, rank(), "rank %d asks for the end of a call that it has not started", rank());
  }
  status refusal() const {
    return refused_.ok() ? status::failure(errc::invalid_argument, -1, "this planned call has been moved from") : refused_;
  }

  std::shared_ptr<detail::member<Tr>> member_;
  std::unique_ptr<detail::task<Tr>> task_;
  status refused_;
  call_options options_;
};

}  // namespace v0
}  // namespace collectx
