// SPDX-License-Identifier: Apache-2.0
/// Rank 0's side of the store: a thread that serves all ranks, itself included, and lets no stranger keep it from that.
#pragma once

#include "collectx/network.hpp"
#include "collectx/process.hpp"
#include "collectx/rendezvous/store_frame.hpp"
#include "collectx/rendezvous/store_group.hpp"
#include "collectx/rendezvous/store_line.hpp"
#include "collectx/rendezvous/store_place.hpp"
#include "collectx/status.hpp"
#include "collectx/transport.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
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

class store_server {
 public:
  /// Connections that have not proved anything yet. One more, and the oldest of them is dropped: a rank would come again.
  static constexpr std::size_t most_strangers = 32;

  /// Listens and serves; after a failure, or after rank 0 has gone, the others get at least `grace` to hear of it. `own` becomes rank 0's
  /// connection. Destroy the server when `own` has said goodbye: it waits for its thread.
  static result<std::unique_ptr<store_server>> start(store_place const& place, int size, nanoseconds patience, nanoseconds grace,
                                                     descriptor& own) noexcept {
    std::unique_ptr<store_server> self(new (std::nothrow) store_server(place, size, patience, grace));
    if (!self) return no_memory(size);
    result<store_group> group = store_group::create(size);
    if (!group) return group.error();
    self->group_.reset(new (std::nothrow) store_group(std::move(*group)));
    self->connections_.reset(new (std::nothrow) store_line[self->capacity()]);
    self->polled_.reset(new (std::nothrow)::pollfd[self->capacity() + listening_sockets::capacity]);
    if (!self->group_ || !self->connections_ || !self->polled_) return no_memory(size);
    if (status s = self->listeners_.open(self->place_); !s) return s;
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
      return status::system(errno, "rendezvous: no socket");
    own = descriptor(ends[0]);
    self->receive_stranger(descriptor(ends[1]), true);
    if (int const error = self->launch(); error != 0) return status::system(error, "rendezvous: no thread to serve the ranks with");
    return result<std::unique_ptr<store_server>>(std::move(self));
  }

  /// Waits until all ranks are through, or the time for that is over. In a forked child there is no thread to wait for.
  ~store_server() {
    if (launched_ && ::getpid() == owner_) ::pthread_join(thread_, nullptr);
  }
  store_server(store_server const&) = delete;
  store_server& operator=(store_server const&) = delete;

  store_place const& place() const noexcept { return place_; }

 private:
  store_server(store_place const& place, int size, nanoseconds patience, nanoseconds grace) noexcept
      : place_(place), size_(size), patience_(patience), grace_(grace), deadline_(monotonic_now() + patience), owner_(::getpid()) {}

  static status no_memory(int size) noexcept {
    return status::failure(errc::out_of_memory, 0, "rendezvous: no memory to serve %d ranks", size);
  }

  std::size_t capacity() const noexcept { return static_cast<std::size_t>(size_) + most_strangers; }

  int launch() noexcept {
    ::sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the user's handlers run on the user's threads
    int const error = ::pthread_create(
        &thread_, nullptr,
        [](void* self) -> void* {
          static_cast<store_server*>(self)->serve();
          return nullptr;
        },
        this);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    launched_ = error == 0;
    return error;
  }

  void serve() noexcept {
    while (!finished()) {
      wait_for_news();
      for (int i = 0; i < listeners_.count(); ++i)
        if (polled_count_ != 0 && polled_[static_cast<std::size_t>(i)].revents != 0) admit(listeners_.get(i));
      for (std::size_t i = 0; i < capacity(); ++i)
        if (has_news(connections_[i])) serve(connections_[i]);
      look_at_the_clock();
    }
    listeners_.close();
    for (std::size_t i = 0; i < capacity(); ++i) {
      store_line& c = connections_[i];
      if (c.waiting) answer(c, status::failure(errc::peer_lost, 0, "rank 0 left %s before rank %d had got %s", place_.text, c.rank, c.key));
      if (c.socket) ::shutdown(c.socket.get(), SHUT_WR);  // also where a forked child holds the socket too
      c.socket = {};
    }
  }

  bool finished() const noexcept {
    if (closing_ == 0) return false;
    if (!group_->came(0)) return true;  // it never began
    nanoseconds const begun = defect_ ? closing_ : (std::max)(closing_, defect_at_);
    if (group_->complete() && (defect_ ? group_->all_through() : nobody_left())) return true;
    return monotonic_now() >= (defect_ ? (std::max)(deadline_, begun + grace_) : begun + grace_);
  }
  bool nobody_left() const noexcept {
    for (std::size_t i = 0; i < capacity(); ++i)
      if (connections_[i].rank >= 0 && connections_[i].socket) return false;
    return true;
  }

  void wait_for_news() noexcept {
    nanoseconds const now = monotonic_now();
    std::size_t count = 0;
    for (int i = 0; i < listeners_.count(); ++i) polled_[count++] = {now < pause_ ? -1 : listeners_.get(i), POLLIN, 0};
    nanoseconds next = closing_ != 0 ? now + grace_ / 4 : now + 1'000'000'000;
    if (!group_->complete() && defect_) next = (std::min)(next, deadline_);
    if (now < pause_) next = (std::min)(next, pause_);
    for (std::size_t i = 0; i < capacity(); ++i) {
      store_line& c = connections_[i];
      c.polled = count;
      // Only what is open: poll refuses a longer list than there may be descriptors.
      if (c.socket) polled_[count++] = {c.socket.get(), static_cast<short>(POLLIN | (c.unsent() ? POLLOUT : 0)), 0};
      if (c.waiting) next = (std::min)(next, c.until);
    }
    int const ms = static_cast<int>((std::max)((next - now) / 1'000'000 + 1, nanoseconds{0}));
    polled_count_ = ::poll(polled_.get(), count, ms) < 0 ? 0 : count;
    if (polled_count_ == 0) nap(1'000'000);  // no memory, for one: better later than in a circle
  }

  /// False also for one that has come since.
  bool has_news(store_line const& c) const noexcept {
    return c.polled < polled_count_ && c.socket && polled_[c.polled].fd == c.socket.get() && polled_[c.polled].revents != 0;
  }

  void look_at_the_clock() noexcept {
    nanoseconds const now = monotonic_now();
    if (!group_->complete() && now >= deadline_) object(never_came(static_cast<double>(patience_) * 1e-9));
    bool const stuck = closing_ != 0 && group_->stuck();
    for (std::size_t i = 0; i < capacity(); ++i) {
      store_line& c = connections_[i];
      if (!c.waiting) continue;
      if (stuck) {
        answer(c, status::failure(errc::peer_lost, 0, "rank 0 left %s, and nobody else puts %s", place_.text, c.key));
      } else if (now >= c.until) {
        if (!group_->complete()) {
          answer(c, never_came(static_cast<double>(now - c.asked) * 1e-9));
        } else {
          answer(c, status::failure(errc::timeout, -1, "rendezvous: nobody has put %s at %s", c.key, place_.text));
        }
      }
    }
  }

  status never_came(double seconds) const noexcept {
    char list[160], strangers[80] = {};
    int first = -1;
    group_->absent(list, first);
    if (refused_ > 0) std::snprintf(strangers, sizeof strangers, "; %d times somebody came with another secret", refused_);
    return status::failure(errc::timeout, first, "%s of %d never came to %s within %.3g s%s", list, size_, place_.text, seconds, strangers);
  }

  status another_secret(int rank) const noexcept {
    return status::failure(errc::invalid_argument, rank,
                           "rank %d knows another secret than rank 0 at %s: give all ranks the same COLLECTX_SECRET", rank, place_.text);
  }

  void admit(int listener) noexcept {
    for (int more = 16; more > 0; --more) {
      descriptor socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket) {
        prepare_stream(socket.get());
        receive_stranger(std::move(socket));
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        // Poll would say at once that somebody still knocks. Without strangers to drop, wait for better times.
        if (store_line* const oldest = oldest_stranger(1); oldest != nullptr) {
          drop(*oldest);
        } else {
          pause_ = monotonic_now() + 50'000'000;
          return;
        }
      } else if (errno != EINTR && errno != ECONNABORTED) {
        return;
      }
    }
  }

  /// Null where there are fewer than `least`.
  store_line* oldest_stranger(std::size_t least) const noexcept {
    store_line* oldest = nullptr;
    std::size_t count = 0;
    for (std::size_t i = 0; i < capacity(); ++i) {
      store_line& c = connections_[i];
      if (!c.socket || c.rank >= 0 || c.home) continue;
      ++count;
      if (oldest == nullptr || c.since < oldest->since) oldest = &c;
    }
    return count < least ? nullptr : oldest;
  }

  void receive_stranger(descriptor socket, bool home = false) noexcept {
    if (store_line* const oldest = oldest_stranger(most_strangers); oldest != nullptr) drop(*oldest);
    for (std::size_t i = 0; i < capacity(); ++i) {
      store_line& c = connections_[i];
      if (c.socket) continue;
      c.open(std::move(socket), home);
      store_frame f;
      f.kind = frame_kind::challenge;
      if (::getrandom(c.challenge, sizeof c.challenge, 0) != sizeof c.challenge) return drop(c);
      std::memcpy(f.nonce, c.challenge, sizeof f.nonce);
      return c.send(f);
    }
  }

  void serve(store_line& c) noexcept {
    if (!c.flush() || !c.fetch()) return lose(c);
    store_frame f;
    while (c.socket) {
      auto const state = c.next(f);
      if (state == parsed_frame::unfinished) return;
      // A rank that has given up says so before it has its answer, and nothing else.
      if (state == parsed_frame::bad || (c.waiting && f.kind != frame_kind::bye)) return lose(c);
      handle(c, f);
    }
  }

  void handle(store_line& c, store_frame const& f) noexcept {
    if (c.rank < 0) return f.kind == frame_kind::hello ? welcome(c, f) : drop(c);
    switch (f.kind) {
      case frame_kind::put:
        return take(c, f);
      case frame_kind::get:
        group_->wait(c.rank, c.waiting = true);
        std::memcpy(c.key, f.key, sizeof c.key);
        c.asked = monotonic_now();
        c.until = c.asked + (std::clamp)(f.patience, std::int64_t{0}, years);
        if (rendezvous_value const* const value = group_->find(f.key); value != nullptr) give(c, *value);
        return;
      case frame_kind::conclude:
        group_->conclude(c.rank);
        return answer(c, {});
      case frame_kind::bye:
        c.waiting = false;
        static_cast<void>(group_->leave(c.rank, true).ok());
        return drop(c);
      default:
        return lose(c);
    }
  }

  void welcome(store_line& c, store_frame const& hello) noexcept {
    if (!same_hash(hello.proof, proof_of(hello, c.challenge, place_.key))) {
      ++refused_;
      c.send(store_frame::of(frame_kind::verdict, another_secret(hello.rank)));
      return drop(c);
    }
    // Another rank 0, faster than the one whose store this is: it shall come again, to hear of both.
    if (hello.rank == 0 && !c.home && !group_->came(0)) return drop(c);
    status const judged = defect_ ? group_->come(hello) : defect_;
    if (!judged) {
      c.send(store_frame::of(frame_kind::verdict, judged));
      if (judged.code() != errc::busy) object(judged);
      ::shutdown(c.socket.get(), SHUT_WR);
      return drop(c);
    }
    c.rank = hello.rank;
    store_frame f;
    f.kind = frame_kind::welcome;
    f.proof = counter_proof_of(hello.nonce, c.challenge, place_.key);
    c.send(f);
  }

  void take(store_line& c, store_frame const& f) noexcept {
    status const s = group_->put(c.rank, f.key, f.value());
    answer(c, s);
    for (std::size_t i = 0; s.ok() && i < capacity(); ++i) {
      store_line& other = connections_[i];
      if (other.waiting && std::strcmp(other.key, f.key) == 0) give(other, f.value());
    }
  }

  void give(store_line& c, rendezvous_value const& value) noexcept {
    store_frame f;
    f.kind = frame_kind::answer;
    f.bytes = value.size();
    std::memcpy(f.data, value.data(), f.bytes);
    if (c.waiting) group_->wait(c.rank, c.waiting = false);
    c.send(f);
  }

  void answer(store_line& c, status const& s) noexcept {
    if (c.waiting) group_->wait(c.rank, c.waiting = false);
    c.send(store_frame::of(frame_kind::answer, s));
  }

  /// The first thing that is wrong is what all are told.
  void object(status const& why) noexcept {
    if (!defect_) return;
    defect_ = why;
    defect_at_ = monotonic_now();
    for (std::size_t i = 0; i < capacity(); ++i) {
      store_line& c = connections_[i];
      if (!c.socket || c.rank < 0) continue;
      if (c.waiting) group_->wait(c.rank, c.waiting = false);
      c.send(store_frame::of(frame_kind::verdict, defect_));
      c.told = true;
    }
  }

  /// The other end has gone, or speaks nonsense.
  void lose(store_line& c) noexcept {
    int const rank = c.rank;
    c.waiting = false;
    drop(c);
    if (rank < 0) return;
    status const s = group_->leave(rank, rank == 0);
    if (!s) object(s);
  }

  void drop(store_line& c) noexcept {
    if (c.home) closing_ = monotonic_now();
    c.close();
  }

  store_place place_;
  int size_;
  nanoseconds patience_, grace_, deadline_;
  ::pid_t owner_;
  bool launched_ = false;
  ::pthread_t thread_{};
  listening_sockets listeners_;
  std::unique_ptr<store_group> group_;
  std::unique_ptr<store_line[]> connections_;
  std::unique_ptr<::pollfd[]> polled_;
  std::size_t polled_count_ = 0;
  status defect_;
  int refused_ = 0;
  nanoseconds defect_at_ = 0, closing_ = 0, pause_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
