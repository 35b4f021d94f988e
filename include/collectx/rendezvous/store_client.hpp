// SPDX-License-Identifier: Apache-2.0
/// A rank's side of the store: finds it, shows that it knows the secret, asks, and waits no longer than it was told to.
#pragma once

#include "collectx/network.hpp"
#include "collectx/process.hpp"
#include "collectx/rendezvous/store_frame.hpp"
#include "collectx/rendezvous/store_place.hpp"
#include "collectx/status.hpp"
#include "collectx/transport.hpp"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

namespace collectx {
inline namespace v0 {
namespace detail {

class store_client {
 public:
  /// An answer may take this long although nothing is waited for: rank 0 may be busy, and a network is between.
  static constexpr nanoseconds grace = 5'000'000'000;

  store_client() = default;

  /// Comes to the store at `place` until it is there. Errors: timeout says what the last try came to; what the store says is passed on.
  static result<store_client> meet(store_place const& place, int rank, int size, nanoseconds patience) noexcept {
    nanoseconds const deadline = monotonic_now() + patience;
    char reason[200] = "";
    for (nanoseconds pause = 5'000'000;; pause = (std::min)(2 * pause, nanoseconds{200'000'000})) {
      resolution const where = resolve(place.host, place.port);
      if (where.error != 0) std::snprintf(reason, sizeof reason, "its address cannot be found: %.150s", where.why());
      for (int i = 0; i < where.count; ++i) {
        nanoseconds const until = (std::min)(deadline, monotonic_now() + 3'000'000'000);
        descriptor socket = call(where.found[i], until, reason);
        if (!socket) continue;
        store_client self;
        outcome const o = self.enter(std::move(socket), place, rank, size, (std::min)(deadline, monotonic_now() + grace), reason);
        if (o == outcome::inside) return result<store_client>(std::move(self));
        if (o == outcome::refused) return self.failed_;
      }
      nanoseconds const now = monotonic_now();
      if (now >= deadline) {
        return status::failure(errc::timeout, 0, "rank %d could not join rank 0 at %s within %.3g s: %s", rank, place.text,
                               static_cast<double>(patience) * 1e-9, reason);
      }
      nap((std::min)(pause, deadline - now));
    }
  }

  /// The same over a socket that is connected already.
  static result<store_client> enter(descriptor socket, store_place const& place, int rank, int size) noexcept {
    store_client self;
    char reason[200] = "";
    outcome const o = self.enter(std::move(socket), place, rank, size, monotonic_now() + grace, reason);
    if (o == outcome::inside) return result<store_client>(std::move(self));
    return o == outcome::refused ? self.failed_ : status::failure(errc::system, rank, "rendezvous: rank %d: %s", rank, reason);
  }

  bool connected() const noexcept { return static_cast<bool>(socket_); }
  /// What the store has said of the whole group by now, asked or not: nothing comes after it.
  status const& hear() noexcept {
    store_frame f;
    if (failed_.ok() && socket_ && receive(f, 0) == reception::frame && f.kind == frame_kind::verdict) failed_ = f.spell();
    return failed_;
  }

  /// Sends a request and waits for its answer until `deadline`, and a while.
  result<store_frame> ask(store_frame const& request, nanoseconds deadline) noexcept {
    if (!failed_) return failed_;
    nanoseconds const until = (std::max)(deadline, monotonic_now()) + grace;
    send(request, until);  // where it cannot be sent, what was received before says why
    store_frame answer;
    switch (receive(answer, until)) {
      case reception::frame:
        break;
      case reception::nothing:
        return failed_ = status::failure(errc::timeout, 0, "rank 0 does not answer at %s", place_text_);
      case reception::end:
        return failed_ = status::failure(errc::peer_lost, 0, "rank 0 at %s died or left while ranks were joining", place_text_);
      case reception::nonsense:
        return failed_ = status::failure(errc::system, 0, "what answers at %s is no store", place_text_);
    }
    if (answer.kind == frame_kind::verdict) return failed_ = answer.spell();
    if (answer.failed()) return answer.spell();
    return answer;
  }

  void say_goodbye() noexcept {
    if (!socket_) return;
    store_frame f;
    f.kind = frame_kind::bye;
    if (!send(f, monotonic_now() + grace)) ::shutdown(socket_.get(), SHUT_RDWR);
  }

 private:
  enum class outcome { inside, refused, again };
  enum class reception { frame, nothing, end, nonsense };

  template <std::size_t Capacity>
  static descriptor call(network_address const& where, nanoseconds deadline, char (&reason)[Capacity]) noexcept {
    descriptor socket(::socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int error = socket ? 0 : errno;
    if (error == 0 && ::connect(socket.get(), where.get(), where.length()) != 0) {
      error = errno;
      ::socklen_t length = sizeof error;
      if (error == EINPROGRESS || error == EINTR) {
        if (!ready(socket.get(), POLLOUT, deadline)) {
          error = ETIMEDOUT;
        } else if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
          error = errno;
        }
      }
    }
    // A port that nobody listens at may be given to the very socket that calls there, which then is connected to itself.
    if (error == 0 && calls_itself(socket.get())) error = ECONNREFUSED;
    if (error == 0) {
      prepare_stream(socket.get());
      return socket;
    }
    std::snprintf(reason, Capacity, "%s: %.100s", where.host(), std::strerror(error));
    return {};
  }

  static bool calls_itself(int socket) noexcept {
    ::sockaddr_storage mine{}, other{};
    ::socklen_t mine_length = sizeof mine, other_length = sizeof other;
    return ::getsockname(socket, reinterpret_cast<::sockaddr*>(&mine), &mine_length) == 0 &&
           ::getpeername(socket, reinterpret_cast<::sockaddr*>(&other), &other_length) == 0 && mine_length == other_length &&
           std::memcmp(&mine, &other, mine_length) == 0;
  }

  template <std::size_t Capacity>
  outcome enter(descriptor socket, store_place const& place, int rank, int size, nanoseconds deadline, char (&reason)[Capacity]) noexcept {
    socket_ = std::move(socket);
    std::memcpy(place_text_, place.text, sizeof place_text_);
    nanoseconds const begun = monotonic_now();
    auto again = [&](char const* why) {
      // A try that had no time left tells less than the one before.
      if (reason[0] == 0 || monotonic_now() < deadline || deadline - begun > grace / 2) std::snprintf(reason, Capacity, "%s", why);
      socket_ = {};
      received_ = 0;
      return outcome::again;
    };
    store_frame challenge, hello, answer;
    reception r = receive(challenge, deadline);
    if (r == reception::nothing) return again("what listens there says nothing");
    if (r == reception::end) return again("what listens there hangs up");
    if (r == reception::nonsense || challenge.kind != frame_kind::challenge) return again("what listens there is no store");
    hello.kind = frame_kind::hello;
    hello.rank = rank;
    hello.size = size;
    hello.process = static_cast<std::uint64_t>(::getpid());
    host_name(hello.host);
    if (::getrandom(hello.nonce, sizeof hello.nonce, 0) != sizeof hello.nonce) return again("there are no random numbers");
    hello.proof = proof_of(hello, challenge.nonce, place.key);
    send(hello, deadline);
    r = receive(answer, deadline);
    if (r == reception::frame && answer.kind == frame_kind::verdict) {
      failed_ = answer.spell();
      if (failed_.code() != errc::busy) return outcome::refused;
      return again(sentence_of(failed_));  // an earlier group's store, which is about to go
    }
    if (r == reception::nonsense) return again("what listens there is no store");
    if (r != reception::frame || answer.kind != frame_kind::welcome) return again("rank 0 hangs up");
    if (same_hash(answer.proof, counter_proof_of(hello.nonce, challenge.nonce, place.key))) return outcome::inside;
    failed_ =
        status::failure(errc::invalid_argument, 0, "what answers rank %d at %s does not know the secret of this group", rank, place.text);
    return outcome::refused;
  }

  template <std::size_t Capacity>
  static void host_name(char (&name)[Capacity]) noexcept {
    if (::gethostname(name, Capacity) != 0) name[0] = 0;
    name[Capacity - 1] = 0;
    for (char* c = name; *c != 0; ++c)
      if (*c <= ' ' || *c > '~') *c = '?';
  }

  static bool ready(int socket, short wanted, nanoseconds deadline) noexcept {
    for (;;) {
      nanoseconds const left = deadline - monotonic_now();
      ::pollfd p{socket, wanted, 0};
      int const ms = left <= 0 ? 0 : static_cast<int>((std::min)(left / 1'000'000 + 1, nanoseconds{1'000'000}));
      int const got = ::poll(&p, 1, ms);
      if (got > 0) return true;
      if (left <= 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return false;
    }
  }

  bool send(store_frame const& f, nanoseconds deadline) noexcept {
    std::byte out[store_frame::capacity];
    std::size_t const bytes = write_frame(f, out);
    for (std::size_t at = 0; at < bytes;) {
      ssize_t const sent = ::send(socket_.get(), out + at, bytes - at, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent >= 0) {
        at += static_cast<std::size_t>(sent);
      } else if (errno == EAGAIN) {
        if (!ready(socket_.get(), POLLOUT, deadline)) return false;
      } else if (errno != EINTR) {
        return false;
      }
    }
    return true;
  }

  reception receive(store_frame& f, nanoseconds deadline) noexcept {
    for (;;) {
      parsed_frame const p = parse_frame(in_, received_, f);
      if (p.state == parsed_frame::bad) return reception::nonsense;
      if (p.state == parsed_frame::good) {
        received_ -= p.bytes;
        std::memmove(in_, in_ + p.bytes, received_);
        return reception::frame;
      }
      ssize_t const got = ::recv(socket_.get(), in_ + received_, sizeof in_ - received_, MSG_DONTWAIT);
      if (got > 0) {
        received_ += static_cast<std::size_t>(got);
      } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        return reception::end;
      } else if (errno == EAGAIN && !ready(socket_.get(), POLLIN, deadline)) {
        return reception::nothing;
      }
    }
  }

  descriptor socket_;
  std::size_t received_ = 0;
  std::byte in_[2 * store_frame::capacity] = {};
  char place_text_[sizeof store_place::text] = {};
  status failed_;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
