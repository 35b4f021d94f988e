// SPDX-License-Identifier: Apache-2.0
/// A board that travels: what the ranks of a group on several hosts know of each other, by frames over a mesh of connections.
///
/// Nothing travels while all goes well. Who waits for long says so, and for whom. A process that dies closes its connections, and a kernel
/// answers as long as its host is there: a stopped process, a dead one and a cut cable are three different things.
#pragma once

#include "collectx/transport/call_report.hpp"
#include "collectx/transport/socket_mesh.hpp"
#include "collectx/transport/socket_seats.hpp"

#include <sys/epoll.h>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>

namespace collectx {
inline namespace v0 {
namespace detail {

class socket_board {
 public:
  explicit socket_board(socket_mesh mesh) : mesh_(std::move(mesh)), seats_(mesh_.rank(), mesh_.size()) {}
  socket_board(socket_board const&) = delete;
  socket_board& operator=(socket_board const&) = delete;

  status open() noexcept {
    polled_ = descriptor(::epoll_create1(EPOLL_CLOEXEC));
    if (!polled_) return status::system(errno, "rank %d cannot watch its connections", rank());
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      ::epoll_event e{EPOLLIN | EPOLLRDHUP, {.u64 = static_cast<std::uint64_t>(r)}};
      if (::epoll_ctl(polled_.get(), EPOLL_CTL_ADD, mesh_.to(r).get(), &e) != 0) {
        return status::system(errno, "rank %d cannot watch its connection with rank %d", rank(), r);
      }
    }
    return {};
  }

  /// Ranks that share this host's cores: patience is another where they outnumber them.
  void share_host(int ranks, int cpus) noexcept { crowded_ = ranks > cpus; }
  bool crowded() const noexcept { return crowded_; }

  int rank() const noexcept { return mesh_.rank(); }
  int size() const noexcept { return mesh_.size(); }
  socket_mesh& mesh() noexcept { return mesh_; }

  void begin(call_record const& record) noexcept { own().record = record; }
  void end() noexcept {
    announce(-1);
    own().finished = own().record.sequence;
    if (closings_ > 0) answer_closings();
  }

  COLLECTX_FORCEINLINE status verdict() noexcept {
    if (!failed_.load(std::memory_order_acquire)) return {};
    return spell();
  }

  int waits_for() const noexcept { return seats_.own().waits_for; }
  void announce(int peer) noexcept {
    own().waits_for = peer;
    if (peer >= 0) return;
    if (told_waiting_ >= 0) publish();
    if (closings_ > 0 && needs_nothing()) answer_closings();
  }

  void attend(nanoseconds now) noexcept { now_ = now; }

  /// From any thread.
  status abort(status const& why) noexcept {
    std::lock_guard const hold(mutex_);
    if (!failed_.load(std::memory_order_relaxed)) {
      failure_ = why.ok() ? status::failure(errc::aborted, rank(), "rank %d called abort", rank()) : why;
      failed_.store(true, std::memory_order_release);
      tell_all(frame::of(frame::verdict, rank(), report_of(failure_)));
    }
    return failure_;
  }

  int blame(int peer) noexcept {
    look();
    return report().end_of_waits(peer);
  }
  void absent(char* text, std::size_t capacity) noexcept { report().absent(text, capacity); }
  status conflict(int peer) noexcept { return abort(report().conflict(peer)); }

  /// What a message says of its sender.
  void heard_of(int rank, call_record const& record) noexcept {
    if (record.sequence >= seat(rank).record.sequence) seat(rank).record = record;
  }

  /// What no message will ever tell: a rank that left or died before it did its part of this call, or that makes another call; and
  /// that `peer`, which is waited for, is no more.
  status look_around(int peer) noexcept {
    publish();
    look();
    if (status s = verdict(); !s) return s;
    if (status s = look_at_call(); !s) return s;
    // Who leaves lingers for the sake of what it has sent, and closes its connection then.
    if (peer < 0 || peer == rank() || mesh_.to(peer) || !whole_cut_is_known(peer)) return {};
    // What it sent before it went is still to be had, so the caller looks once more before this is the end.
    if (std::exchange(suspect_, peer) != peer) return {};
    presence const is = seat(peer).is.load(std::memory_order_relaxed);
    return abort(is != presence::left ? gone(is)
                                      : status::failure(errc::peer_lost, peer, "rank %d has left, rank %d waits for it", peer, rank()));
  }

  /// Hears what has come and sends what was left; a system call where nothing has.
  void look() noexcept {
    ::epoll_event events[16];
    for (int n = ::epoll_wait(polled_.get(), events, 16, 0); n > 0; n = n == 16 ? ::epoll_wait(polled_.get(), events, 16, 0) : 0) {
      for (int i = 0; i < n; ++i) hear(static_cast<int>(events[i].data.u64));
    }
    if (owing_) {
      std::lock_guard const hold(mutex_);
      owing_ = false;
      for (int r = 0; r < size(); ++r) {
        if (r != rank() && mesh_.to(r) && mesh_.to(r).flush() && mesh_.to(r).owes()) owing_ = true;
      }
    }
  }

  /// Hears only those whose connection has ended; a system call. Who is leaving is not answered before this rank knows what it needs.
  void look_for_ends() noexcept {
    ::epoll_event events[16];
    int const n = ::epoll_wait(polled_.get(), events, 16, 0);
    for (int i = 0; i < n; ++i)
      if ((events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) hear(static_cast<int>(events[i].data.u64));
  }

  bool lost(int rank) const noexcept { return seats_.at(rank).is.load(std::memory_order_relaxed) != presence::there; }

  bool has_left(int rank) const noexcept { return seats_.at(rank).is.load(std::memory_order_relaxed) == presence::left; }

  bool died(int rank) const noexcept { return seats_.at(rank).is.load(std::memory_order_relaxed) == presence::dead; }

  /// Posts a value of this rank for the others; null takes it back.
  status post(char const* key, rendezvous_value const* value) noexcept {
    posting p;
    std::memcpy(p.key, key, ::strnlen(key, sizeof p.key - 1));
    p.bytes = value == nullptr ? 0 : static_cast<std::uint32_t>(value->size());
    if (value != nullptr) std::memcpy(p.value, value->data(), value->size());
    std::lock_guard const hold(mutex_);
    tell_all(frame::of(frame::notice, rank(), p));
    return seats_.keep(rank(), p)
               ? status{}
               : status::failure(errc::out_of_memory, rank(), "rank %d has posted too much: no room for %s", rank(), key);
  }
  bool posted(int rank, char const* key, rendezvous_value& value) noexcept {
    look();
    for (posting const& p : seat(rank).posted) {
      if (p.bytes == 0 || std::strcmp(p.key, key) != 0) continue;
      value = rendezvous_value(p.value, p.bytes);
      return true;
    }
    return false;
  }

  /// Leaves in good order: says so, and waits until nobody needs anything of this rank any more, at most `linger`. A connection that is
  /// closed with something unread takes with it what the other side has not read yet.
  template <class Progress>
  void leave(nanoseconds linger, Progress&& progress) noexcept {
    if (size() == 1) return;
    {
      std::lock_guard const hold(mutex_);
      farewell c{own().finished, failed_.load(std::memory_order_relaxed)};
      tell_all(frame::of(frame::closing, rank(), c));
    }
    if (closings_ > 0) answer_closings();
    for (nanoseconds const until = monotonic_now() + linger; !failed_.load(std::memory_order_relaxed);) {
      progress();
      look();
      bool waiting = false;
      for (int r = 0; r < size(); ++r) waiting |= r != rank() && !lost(r) && !seat(r).released;
      if (!waiting || monotonic_now() > until) return;
      nap(20'000);
    }
  }

 private:
  using presence = socket_seats::presence;
  using posting = socket_seats::posting;

  /// Why the group has failed, and whom the reporter has lost: a cut is noticed by one rank before the other.
  struct end_of_group {
    static constexpr int most = 30;
    detail::verdict why;
    std::int16_t count = 0;
    std::int16_t lost[most] = {};
  };
  /// How a rank leaves.
  struct farewell {
    std::uint64_t finished = 0;
    bool failed = false;
  };

  status look_at_call() noexcept {
    call_report const now = report();
    if (now.owes_nothing(rank())) return {};
    for (int r = 0; r < size(); ++r) {
      if (now.differs(r)) return abort(now.mismatch());
      if (!lost(r) || now.owes_nothing(r)) continue;
      presence const is = seat(r).is.load(std::memory_order_relaxed);
      if (is == presence::left) return abort(now.left(r));
      if (whole_cut_is_known(r)) return abort(gone(is));
    }
    return {};
  }

  /// Behind a cut there is seldom one rank alone: the others' connections end within the same second.
  bool whole_cut_is_known(int rank) noexcept {
    return seat(rank).is != presence::unreachable || monotonic_now() - cut_since_ > 1'500'000'000;
  }

  socket_seats::seat& seat(int rank) noexcept { return seats_.at(rank); }
  socket_seats::seat& own() noexcept { return seats_.own(); }
  call_report<socket_seats> report() noexcept { return {seats_, rank(), own().record.sequence, own().record.tag}; }

  [[gnu::noinline]] status spell() noexcept {
    std::lock_guard const hold(mutex_);
    return failure_;
  }

  /// @pre the mutex is held
  void tell(int rank, frame const& said, int reserve = 0) noexcept {
    if (!mesh_.to(rank)) return;
    mesh_.to(rank).send(said, reserve);
    if (mesh_.to(rank).owes()) owing_ = true;
  }
  void tell_all(frame const& said, int reserve = 0) noexcept {
    for (int r = 0; r < size(); ++r)
      if (r != rank()) tell(r, said, reserve);
  }

  /// Says whom this rank waits for, where the others have not heard it. A peer that takes nothing misses that, but no verdict.
  void publish() noexcept {
    if (told_waiting_ == own().waits_for && told_sequence_ == own().record.sequence && now_ - told_at_ < attention_span / 4) return;
    told_at_ = now_;
    told_waiting_ = own().waits_for;
    told_sequence_ = own().record.sequence;
    std::lock_guard const hold(mutex_);
    tell_all(frame::of(frame::seat, rank(), static_cast<socket_seats::told const&>(own())), 4);
  }

  void hear(int from) noexcept {
    for (frame f;;) {
      switch (mesh_.to(from).receive(f)) {
        case socket_link::event::nothing:
          return;
        case socket_link::event::broken:
          return lose(from);
        case socket_link::event::frame:
          understand(from, f);
      }
    }
  }

  void understand(int from, frame const& f) noexcept {
    socket_seats::seat& s = seat(from);
    switch (f.kind) {
      case frame::seat: {
        socket_seats::told told;
        f.read(told);
        if (told.waits_for >= size()) told.waits_for = -1;  // another build, or worse
        static_cast<socket_seats::told&>(s) = told;
        s.told_in = told.record.sequence;
        s.told_at = monotonic_now();
        break;
      }
      case frame::verdict: {
        end_of_group e;
        f.read(e);
        adopt(from, e);
        break;
      }
      case frame::closing: {
        farewell c;
        f.read(c);
        s.finished = c.finished;
        s.wants_answer = true;
        s.is = presence::left;
        ++closings_;
        if (needs_nothing() || c.failed) answer_closings();
        break;
      }
      case frame::closed:
        s.released = true;
        break;
      case frame::notice: {
        posting p;
        f.read(p);
        p.key[sizeof p.key - 1] = 0;
        p.bytes = (std::min)(p.bytes, static_cast<std::uint32_t>(sizeof p.value));
        seats_.keep(from, p);
        break;
      }
      default:
        break;
    }
  }

  end_of_group report_of(status const& why) const noexcept {
    end_of_group e;
    e.why = detail::verdict::of(why);
    for (int r = 0; r < size() && e.count < end_of_group::most && r <= INT16_MAX; ++r) {
      if (lost(r)) e.lost[e.count++] = static_cast<std::int16_t>(r);
    }
    return e;
  }

  void adopt(int from, end_of_group const& e) noexcept {
    std::lock_guard const hold(mutex_);
    status const why = e.why.spell();
    if (failed_.load(std::memory_order_relaxed) || why.ok()) return;
    for (int i = 0; i < e.count && i < end_of_group::most; ++i) {
      int const r = e.lost[i];
      if (r >= 0 && r < size() && r != rank() && !lost(r)) seat(r).is = presence::unreachable;
    }
    failure_ = why.rank() == from ? why : status::failure(why.code(), why.rank(), "%s (reported by rank %d)", sentence(why), from);
    failed_.store(true, std::memory_order_release);
  }

  /// In no call, so that it has received all it is going to ask for.
  bool needs_nothing() noexcept { return own().waits_for < 0 && own().finished >= own().record.sequence; }

  /// Who is leaving may go.
  void answer_closings() noexcept {
    std::lock_guard const hold(mutex_);
    closings_ = 0;
    for (int r = 0; r < size(); ++r) {
      socket_seats::seat& s = seat(r);
      if (!s.wants_answer) continue;
      s.wants_answer = false;
      tell(r, frame::of(frame::closed, rank(), 0));
    }
  }

  void lose(int from) noexcept {
    socket_seats::seat& s = seat(from);
    std::lock_guard const hold(mutex_);
    int const error = mesh_.to(from).error();
    bool const cut = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
    mesh_.to(from).close();  // which ends its being watched, too
    if (s.wants_answer) --closings_;
    s.wants_answer = false;
    if (s.is == presence::left) return;
    s.is = cut ? presence::unreachable : presence::dead;
    if (cut && cut_since_ == 0) cut_since_ = monotonic_now();
  }

  status gone(presence how) noexcept {
    char list[120];
    int first = -1, count = 0;
    std::size_t used = 0;
    for (int r = 0; r < size(); ++r) {
      if (seat(r).is != how) continue;
      if (used + 16 < sizeof list) {
        used += static_cast<std::size_t>(std::snprintf(list + used, sizeof list - used, "%s%d", count > 0 ? ", " : "", r));
      }
      if (count++ == 0) first = r;
    }
    return status::failure(errc::peer_lost, first, "rank%s %s %s %s", count > 1 ? "s" : "", list, count > 1 ? "are" : "is",
                           how == presence::dead ? "dead" : "unreachable");
  }

  socket_mesh mesh_;
  socket_seats seats_;
  descriptor polled_;
  std::mutex mutex_;  // sending, and the verdict: abort may come from any thread
  std::atomic<bool> failed_{false};
  status failure_;
  std::atomic<bool> owing_{false};
  nanoseconds cut_since_ = 0;
  int closings_ = 0;
  bool crowded_ = false;
  int suspect_ = -1;  // was lost when looked at last
  int told_waiting_ = -1;
  std::uint64_t told_sequence_ = 0;
  nanoseconds told_at_ = 0, now_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
