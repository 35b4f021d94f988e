// SPDX-License-Identifier: Apache-2.0
/// What is under way on a communicator: calls that were started, in line, and the rank that they belong to.
///
/// Collective calls advance one after the other, in the order of their start, since messages on a channel must not mix. Messages between
/// two ranks do so per pair and direction, beside everything else.
#pragma once

#include "collectx/exec/drive.hpp"
#include "collectx/nodes.hpp"
#include "collectx/plan_cache.hpp"
#include "collectx/process.hpp"

#include <sched.h>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>  // for std::chrono::nanoseconds: <chrono> itself brings streams, a tenth of a second
#include <utility>

namespace collectx {
inline namespace v0 {

struct call_options {
  std::chrono::nanoseconds timeout{0};  ///< longest wait without progress; 0: COLLECTX_TIMEOUT seconds, or 5 minutes
};

namespace detail {

template <Transport Tr>
class lineup;

/// A call that can be started, again and again, and be under way beside others.
template <Transport Tr>
class task {
 public:
  task() = default;
  task(task const&) = delete;
  task& operator=(task const&) = delete;
  virtual ~task() = default;

  bool pending() const { return line_.load(std::memory_order_acquire) != nullptr; }
  bool started() const { return pending() || ended_; }
  /// @pre started() and not pending()
  status const& end() const { return end_; }
  int polls = 0;  // in vain, by `test`

  virtual bool collective() const = 0;
  virtual void enter() = 0;  // takes its number
  virtual exec::progress advance() = 0;
  virtual int peer() const = 0;
  virtual status late(Tr& transport, nanoseconds waited) const = 0;
  virtual status conflict(Tr& transport) const = 0;

 protected:
  status end_;

 private:
  friend class lineup<Tr>;
  std::atomic<lineup<Tr>*> line_{nullptr};  // written last: once it is null, the task is its owner's again, in whatever thread
  task* before_ = nullptr;
  task* after_ = nullptr;
  bool ended_ = false;
};

/// The tasks of one communicator that have been started and have not ended, in the order of their start.
template <Transport Tr>
class lineup {
 public:
  bool empty() const { return first_ == nullptr; }

  /// @pre not pending
  void push(task<Tr>& t) {
    t.line_.store(this, std::memory_order_relaxed);
    t.ended_ = false;
    t.end_ = {};
    t.polls = 0;
    t.after_ = nullptr;
    t.before_ = last_;
    (last_ == nullptr ? first_ : last_->after_) = &t;
    last_ = &t;
    t.enter();
  }

  exec::progress advance() {
    bool moved = false, blocked = false;
    for (task<Tr>*t = first_, *next = nullptr; t != nullptr; t = next) {
      next = t->after_;
      bool const collective = t->collective();
      if (collective && blocked) continue;
      exec::progress const p = t->advance();
      if (p == exec::progress::conflict) return conflicting_ = t, p;
      if (p == exec::progress::done) unlink(*t);
      moved = moved || p != exec::progress::stuck;
      blocked = blocked || (collective && p != exec::progress::done);
    }
    return empty() ? exec::progress::done : moved ? exec::progress::moved : exec::progress::stuck;
  }

  /// Whom `t` waits for: itself, or the collective call in front of it.
  task<Tr> const& ahead_of(task<Tr> const& t) const {
    if (!t.collective()) return t;
    for (task<Tr> const* at = first_; at != nullptr; at = at->after_)
      if (at->collective()) return *at;
    return t;
  }
  task<Tr> const& conflicting() const { return *conflicting_; }

  void fail(status const& why) {
    while (first_ != nullptr) {
      first_->end_ = why;
      unlink(*first_);
    }
  }

 private:
  void unlink(task<Tr>& t) {
    (t.before_ == nullptr ? first_ : t.before_->after_) = t.after_;
    (t.after_ == nullptr ? last_ : t.after_->before_) = t.before_;
    t.ended_ = true;
    t.line_.store(nullptr, std::memory_order_release);
  }

  task<Tr>* first_ = nullptr;
  task<Tr>* last_ = nullptr;
  task<Tr> const* conflicting_ = nullptr;
};

/// Advances all that is under way until one task has ended. What `exec::drive` drives.
template <Transport Tr>
struct until_ended {
  lineup<Tr>& line;
  task<Tr> const& target;

  exec::progress advance() {
    exec::progress const p = line.advance();
    return p != exec::progress::conflict && !target.pending() ? exec::progress::done : p;
  }
  int peer() const { return line.ahead_of(target).peer(); }
  int step() const { return 0; }
  int chunk() const { return 0; }
  status late(Tr& transport, nanoseconds waited) const { return line.ahead_of(target).late(transport, waited); }
  status conflict(Tr& transport) const { return line.conflicting().conflict(transport); }
};

/// How many messages have gone to a peer and come from it: those started, and those that have ended.
struct mailbox {
  std::uint64_t sent = 0, sent_ended = 0;
  std::uint64_t received = 0, received_ended = 0;
};

/// Who is at work on a communicator. A helper moves on what is under way, and calls wait for it; of two calls, the second is an error.
enum class worker : int { none, call, helper };

/// Holds a communicator for one call, or for one round of a helper.
struct turn {
  std::atomic<worker>& at_work;
  bool mine;
  explicit turn(std::atomic<worker>& a, worker who = worker::call) : at_work(a), mine(take(a, who)) {}
  turn(turn const&) = delete;
  turn& operator=(turn const&) = delete;
  ~turn() {
    if (mine) at_work.store(worker::none, std::memory_order_release);
  }

  static bool take(std::atomic<worker>& at_work, worker who) {
    for (worker seen = worker::none; !at_work.compare_exchange_weak(seen, who, std::memory_order_acquire, std::memory_order_relaxed);
         seen = worker::none) {
      if (seen == worker::call || (seen == worker::helper && who == worker::helper)) return false;
      if (seen == worker::helper) ::sched_yield();
    }
    return true;
  }
};

/// One rank of a communicator: what its calls share, and what calls under way keep alive.
template <Transport Tr>
struct member {
  explicit member(Tr wire) : transport(std::move(wire)), plans(transport) {
    result<nanoseconds> said = time_in("COLLECTX_TIMEOUT", timeout, transport.rank());
    if (said)
      timeout = *said;
    else
      failure = said.error();  // each call says so
    if constexpr (knows_nodes<Tr>) nodes = node_table(transport);
  }
  member(member const&) = delete;
  member& operator=(member const&) = delete;

  Tr transport;
  node_table nodes;  // of a transport that knows them; plans point into it
  plan_cache<Tr> plans;
  std::uint64_t sequence = 0;  // of collective calls
  nanoseconds timeout = nanoseconds{300} * 1'000'000'000;
  std::atomic<worker> at_work{worker::none};
  lineup<Tr> line;
  status failure;
  std::unique_ptr<mailbox[]> mail;
  int foundings = 0;       // attempts to go on among survivors
  std::uint8_t token = 0;  // what barriers send

  status busy_elsewhere() const {
    int const rank = transport.rank();
    return status::failure(errc::busy, rank, "another call is under way on this communicator of rank %d", rank);
  }
  nanoseconds patience(call_options const& options) const { return options.timeout.count() > 0 ? options.timeout.count() : timeout; }

  mailbox& mail_of(int peer) {
    if (mail == nullptr) mail = std::make_unique<mailbox[]>(static_cast<std::size_t>(transport.size()));
    return mail[static_cast<std::size_t>(peer)];
  }

  /// Why no call can begin. The group may have failed since the last one, and its messages be there all the same.
  COLLECTX_FORCEINLINE bool fit() {
    if (!failure.ok()) return false;
    status const s = transport.verdict();
    if (s.ok()) [[likely]]
      return true;
    fail(s);
    return false;
  }
  [[gnu::noinline]] void fail(status const& why) {
    failure = why;
    line.fail(why);
  }

  /// What line.advance() came to, where it is a failure.
  status advance(exec::progress& p) {
    p = line.advance();
    if (p == exec::progress::conflict) fail(transport.abort(line.conflicting().conflict(transport)));
    return failure;
  }

  /// A round of a helper: moves on whatever can be moved. @return whether something was
  bool help() {
    turn const held(at_work, worker::helper);
    if (!held.mine) return false;
    transport.progress();
    exec::progress p = exec::progress::stuck;
    if (!line.empty() && fit()) static_cast<void>(advance(p));
    return p == exec::progress::moved;
  }

  /// Puts a task in line. @pre fit(), and it is not pending
  status start(task<Tr>& t) {
    line.push(t);
    exec::progress p;
    if (status s = advance(p); !s) return s;
    return t.pending() ? status{} : t.end();
  }

  /// Both. @pre fit()
  [[gnu::noinline]] status through(task<Tr>& t, nanoseconds longest) {
    if (status s = start(t); !s) return s;
    return finish(t, longest);
  }

  /// Carries one message. @pre nothing else is under way
  template <class Run>
  status carry(Run& run, call_options const& options) {
    if (run.advance() == exec::progress::done) return {};
    static constexpr call_record none{};
    status const s = exec::drive(run, transport, none, patience(options));
    if (s.ok())
      (void)transport.idle(0, transport.rank());
    else
      failure = s;
    return s;
  }

  /// Waits until a pending task has ended, and all that it depends on, and until what was sent has left. @pre fit(), if it is pending
  status finish(task<Tr>& t, nanoseconds longest) {
    if (t.pending() || exec::detail::unsent(transport) >= 0) {
      until_ended<Tr> all{line, t};
      call_record none;
      status const s = exec::drive(all, transport, none, longest);
      if (!s) fail(s);
      if (s.ok() && !t.collective()) (void)transport.idle(0, transport.rank());
    }
    return t.end();
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
