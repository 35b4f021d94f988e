// SPDX-License-Identifier: Apache-2.0
/// The two sides of joining: the host (rank 0) gathers and judges, a guest knocks and obeys. Every wait of both has a deadline.
#pragma once

#include "collectx/process.hpp"
#include "collectx/transport/handshake.hpp"
#include "collectx/transport/segment.hpp"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <cerrno>
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

class join_host {
 public:
  /// After the first defect the others get this long to come and hear of it, instead of waiting for their own deadline.
  static constexpr nanoseconds grace = 2'000'000'000;
  static constexpr nanoseconds look_interval = 50'000'000;

  static result<join_host> open(hello const& mine) noexcept {
    join_host self(mine);
    self.guests_.reset(new (std::nothrow) guest[self.capacity()]);
    self.polled_.reset(new (std::nothrow)::pollfd[self.capacity() + 1]);
    if (!self.guests_ || !self.polled_) return status::failure(errc::out_of_memory, 0, "no memory to join %d ranks", mine.size);
    if (::getrandom(self.place_.nonce, sizeof self.place_.nonce, 0) < 0) return status::system(errno, "no random number for joining");
    self.listener_ = descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ::sockaddr_un address{};
    address.sun_family = AF_UNIX;
    ::socklen_t length = sizeof address.sun_family;  // no name: the kernel finds an abstract one
    ::sockaddr* const a = reinterpret_cast<::sockaddr*>(&address);
    if (!self.listener_ || ::bind(self.listener_.get(), a, length) != 0 || ::listen(self.listener_.get(), mine.size) != 0) {
      return status::system(errno, "no socket to join at");
    }
    length = sizeof address;
    if (::getsockname(self.listener_.get(), a, &length) != 0) return status::system(errno, "no name for the socket to join at");
    self.place_.length = static_cast<std::uint32_t>(length - offsetof(::sockaddr_un, sun_path));
    std::memcpy(self.place_.name, address.sun_path, lesser(sizeof self.place_.name, std::size_t{self.place_.length}));
    self.place_.host = this_process();
    return result<join_host>(std::move(self));
  }

  meeting_point const& place() const noexcept { return place_; }

  /// `ask(whom)` now and then says whether there is still any use in waiting.
  void watch(status (*ask)(void*), void* whom) noexcept { ask_ = ask, whom_ = whom; }

  /// Hears every rank; on return `agreed` holds the least of what all want. A failure has been told to everyone who came.
  status gather(transport_options& agreed) noexcept {
    deadline_ = monotonic_now() + mine_.patience;
    judge_options(mine_, agreed, true);
    while (heard_ + 1 < mine_.size && poll_all(deadline_)) {
      if (polled_[0].revents != 0) admit();
      for (std::size_t i = 0; i < count_; ++i) {
        guest& g = guests_[i];
        if (!g.socket || polled_[i + 1].revents == 0) continue;
        hello h;
        bool const spoke = receive_packet(g.socket.get(), h);
        if (g.rank >= 0) {
          object(status::failure(errc::peer_lost, g.rank, "rank %d died while joining", g.rank));
          g.socket = {};
        } else if (!spoke || std::memcmp(h.nonce, place_.nonce, sizeof h.nonce) != 0) {
          g.socket = {};  // it looks for somebody who had this address before us
        } else {
          g.rank = h.rank;
          ++heard_;
          judge(h, i);
          judge_options(h, agreed, false);
        }
      }
    }
    if (defect_.ok() && heard_ + 1 < mine_.size) object(missing());
    if (!defect_) tell(verdict::of(defect_));
    return defect_;
  }

  /// Hands the memory to everyone and waits until all have mapped it. A failure has been told to everyone.
  status share(int memory, verdict const& agreement) noexcept {
    deadline_ = greater(deadline_, monotonic_now() + grace);
    int ready = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      if (guests_[i].socket && guests_[i].rank > 0) send_packet(guests_[i].socket.get(), agreement, memory);
    }
    while (defect_.ok() && ready + 1 < mine_.size && poll_all(deadline_)) {
      for (std::size_t i = 0; i < count_; ++i) {
        guest& g = guests_[i];
        if (!g.socket || polled_[i + 1].revents == 0) continue;
        verdict answer;
        if (!receive_packet(g.socket.get(), answer)) {
          g.socket = {};
          if (g.rank > 0) object(status::failure(errc::peer_lost, g.rank, "rank %d died while joining", g.rank));
        } else if (answer.code != 0) {
          object(answer.spell());
        } else {
          ++ready;
        }
      }
    }
    if (defect_.ok() && ready + 1 < mine_.size) {
      object(status::failure(errc::timeout, -1, "%d of %d ranks mapped the memory in time", ready + 1, mine_.size));
    }
    if (!defect_) tell(verdict::of(defect_));
    return defect_;
  }

  void tell(verdict const& v) noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      if (guests_[i].socket) send_packet(guests_[i].socket.get(), v);
    }
  }

 private:
  struct guest {
    descriptor socket;
    int rank = -1;  // until it has said so
  };

  explicit join_host(hello const& mine) noexcept : mine_(mine) {}

  std::size_t capacity() const noexcept { return static_cast<std::size_t>(mine_.size) + 16; }

  std::size_t free_place() const noexcept {
    std::size_t at = 0;
    while (at < count_ && (guests_[at].socket || guests_[at].rank >= 0)) ++at;
    return at;
  }

  bool poll_all(nanoseconds deadline) noexcept {
    polled_[0] = {free_place() < capacity() ? listener_.get() : -1, POLLIN, 0};
    for (std::size_t i = 0; i < count_; ++i) polled_[i + 1] = {guests_[i].socket ? guests_[i].socket.get() : -1, POLLIN, 0};
    for (;;) {
      nanoseconds const now = monotonic_now();
      if (wait_for_input(polled_.get(), count_ + 1, lesser(deadline, now + look_interval))) return true;
      if (now >= deadline) return false;
      status const s = ask_ == nullptr ? status{} : ask_(whom_);
      if (s.ok()) continue;
      object(s);
      return false;
    }
  }

  void admit() noexcept {
    descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) {
      object(status::system(errno, "rank 0 cannot take a connection"));
      deadline_ = 0;
    }
    if (!socket || !same_user(socket.get())) return;
    std::size_t const at = free_place();
    guests_[at].socket = std::move(socket);
    if (at == count_) polled_[++count_].revents = 0;
  }

  void object(status const& why) noexcept {
    if (!defect_) return;
    defect_ = why;
    deadline_ = lesser(deadline_, monotonic_now() + grace);
  }

  void judge(hello const& h, std::size_t index) noexcept {
    for (int i = 0; i < build_facts::count; ++i) {
      if (h.facts.values[i] == mine_.facts.values[i]) continue;
      return object(status::failure(errc::invalid_configuration, h.rank, "builds differ: %s is %u on rank %d and %u on rank 0",
                                    build_facts::names[i], h.facts.values[i], h.rank, mine_.facts.values[i]));
    }
    if (h.size != mine_.size) {
      return object(status::failure(errc::invalid_configuration, h.rank, "rank %d joins a group of %d, rank 0 one of %d", h.rank, h.size,
                                    mine_.size));
    }
    bool duplicate = h.rank == 0;
    for (std::size_t i = 0; i < count_; ++i) duplicate |= i != index && guests_[i].rank == h.rank;
    if (duplicate) return object(status::failure(errc::invalid_argument, h.rank, "rank %d joined twice", h.rank));
    if (h.patience < deadline_ - monotonic_now()) deadline_ = monotonic_now() + h.patience;
  }

  void judge_options(hello const& h, transport_options& agreed, bool first) noexcept {
    if (!defect_) return;
    transport_options wanted;
    wanted.slots = h.slots;
    wanted.lanes = h.lanes;
    wanted.slot_bytes = h.slot_bytes;
    wanted.memory = h.memory;
    result<segment_layout> layout = lay_out(mine_.size, wanted);
    if (!layout) {
      return object(status::failure(layout.error().code(), h.rank, "rank %d: %s", h.rank, sentence(layout.error())));
    }
    agreed.slots = first ? wanted.slots : lesser(agreed.slots, wanted.slots);
    agreed.lanes = first ? wanted.lanes : lesser(agreed.lanes, wanted.lanes);
    agreed.slot_bytes = first ? wanted.slot_bytes : lesser(agreed.slot_bytes, wanted.slot_bytes);
    agreed.memory = 0;  // each bound holds for larger rings than those agreed on
  }

  status missing() const noexcept {
    char list[160] = {};
    std::size_t used = 0;
    int first = -1, unlisted = 0;
    for (int r = 1; r < mine_.size; ++r) {
      bool here = false;
      for (std::size_t i = 0; i < count_; ++i) here |= guests_[i].rank == r;
      if (here) continue;
      if (used + 24 > sizeof list) {
        ++unlisted;
        continue;
      }
      used += static_cast<std::size_t>(std::snprintf(list + used, sizeof list - used, "%s%d", first < 0 ? "" : ", ", r));
      if (first < 0) first = r;
    }
    if (unlisted > 0) std::snprintf(list + used, sizeof list - used, " and %d more", unlisted);
    return status::failure(errc::timeout, first, "%d of %d ranks joined, missing: %s", heard_ + 1, mine_.size, list);
  }

  hello mine_;
  meeting_point place_;
  descriptor listener_;
  std::unique_ptr<guest[]> guests_;
  std::unique_ptr<::pollfd[]> polled_;
  std::size_t count_ = 0;
  int heard_ = 0;
  nanoseconds deadline_ = 0;
  status defect_;
  status (*ask_)(void*) = nullptr;
  void* whom_ = nullptr;
};

class join_guest {
 public:
  /// Nothing came of it where the address is nobody's: ask again, for it may be that of an earlier run.
  enum class answer { none, given };

  /// Knocks at `place`, and waits for the verdict and the memory that comes with it.
  answer knock(meeting_point const& place, hello const& mine, nanoseconds deadline, verdict& decided, descriptor& memory) noexcept {
    socket_ = descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket_) return decided = verdict::of(status::system(errno, "no socket to join with")), answer::given;
    ::sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::size_t const length = lesser(sizeof place.name, std::size_t{place.length});
    std::memcpy(address.sun_path, place.name, length);
    ::socklen_t const bytes = static_cast<::socklen_t>(offsetof(::sockaddr_un, sun_path) + length);
    if (::connect(socket_.get(), reinterpret_cast<::sockaddr*>(&address), bytes) != 0 || !same_user(socket_.get())) return answer::none;
    hello h = mine;
    h.patience = deadline - monotonic_now();
    std::memcpy(h.nonce, place.nonce, sizeof h.nonce);
    return send_packet(socket_.get(), h) && listen(deadline, decided, &memory) ? answer::given : answer::none;
  }

  /// Says that this rank is ready, or why not, and waits for all others.
  status ready(status const& mine, nanoseconds deadline) noexcept {
    verdict decided;
    send_packet(socket_.get(), verdict::of(mine));
    if (!mine) return mine;
    if (listen(deadline, decided, nullptr)) return decided.spell();
    return status::failure(errc::peer_lost, 0, "rank 0 left while ranks were joining");
  }

 private:
  bool listen(nanoseconds deadline, verdict& decided, descriptor* memory) noexcept {
    ::pollfd input{socket_.get(), POLLIN, 0};
    if (wait_for_input(&input, 1, deadline + 1'000'000'000)) return receive_packet(socket_.get(), decided, memory);
    decided = verdict::of(status::failure(errc::timeout, 0, "rank 0 did not say in time that all ranks have joined"));
    return true;
  }

  descriptor socket_;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
