// SPDX-License-Identifier: Apache-2.0
/// A connection that carries what ranks say to each other beside their data: frames of one size over TCP, never blocking.
#pragma once

#include "collectx/process.hpp"
#include "collectx/rendezvous.hpp"
#include "collectx/status.hpp"
#include "collectx/transport/handshake.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace collectx {
inline namespace v0 {
namespace detail {

/// What two ranks say to each other.
struct frame {
  enum kinds : std::uint32_t { none, greeting, facts, refusal, seat, verdict, closing, closed, notice, twin };
  static constexpr std::size_t capacity = 496;

  std::uint64_t magic = hello::expected_magic;
  std::uint32_t kind = none;
  std::int32_t from = -1;
  std::byte payload[capacity] = {};

  template <class T>
  static frame of(kinds kind, int from, T const& said) noexcept {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= capacity);
    frame f;
    f.kind = kind;
    f.from = from;
    std::memcpy(f.payload, &said, sizeof said);
    return f;
  }
  template <class T>
  void read(T& said) const noexcept {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= capacity);
    std::memcpy(static_cast<void*>(&said), payload, sizeof said);
  }
};
static_assert(sizeof(frame) == 512);

/// An address to connect to, and the proof of having read it at the rendezvous.
struct socket_place {
  std::uint8_t nonce[16] = {};
  std::uint32_t length = 0;
  alignas(8) std::byte address[sizeof(::sockaddr_in6)] = {};

  void stand_at(::sockaddr const* where, ::socklen_t bytes) noexcept {
    length = bytes < sizeof address ? static_cast<std::uint32_t>(bytes) : static_cast<std::uint32_t>(sizeof address);
    std::memcpy(address, where, length);
  }
  ::sockaddr const* where() const noexcept { return reinterpret_cast<::sockaddr const*>(address); }
};
static_assert(sizeof(socket_place) <= rendezvous_value::capacity);

/// One end of a connection. What does not fit into the kernel's buffer waits in a short queue.
class socket_link {
 public:
  enum class event { nothing, frame, broken };

  socket_link() = default;
  explicit socket_link(descriptor socket) noexcept : socket_(std::move(socket)) {}
  socket_link(socket_link&&) noexcept = default;
  socket_link& operator=(socket_link&&) noexcept = default;

  explicit operator bool() const noexcept { return static_cast<bool>(socket_); }
  int get() const noexcept { return socket_.get(); }
  void close() noexcept { socket_ = {}; }
  bool owes() const noexcept { return queued_ > 0; }
  /// What broke it: errno, 0 where the peer has closed it.
  int error() const noexcept { return receive_error_ != 0 ? receive_error_ : send_error_; }

  /// Starts to connect; false where that is refused at once.
  bool open(socket_place const& place) noexcept {
    socket_ = descriptor(::socket(place.where()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    got_ = 0;
    queued_ = 0;
    send_error_ = receive_error_ = 0;
    if (!socket_) return false;
    int const rc = ::connect(socket_.get(), place.where(), static_cast<::socklen_t>(place.length));
    if (rc != 0 && errno != EINPROGRESS && errno != EINTR) socket_ = {};
    return static_cast<bool>(socket_);
  }

  /// False where the queue has no room for it besides `reserve` others, or the connection is broken.
  bool send(frame const& said, int reserve = 0) noexcept {
    if (!socket_ || queued_ + reserve >= depth) return false;
    queue_[(first_ + queued_++) % depth] = said;
    return flush();
  }

  /// Hands to the kernel what it takes. False where the connection is broken.
  bool flush() noexcept {
    while (queued_ > 0) {
      std::byte const* const at = reinterpret_cast<std::byte const*>(&queue_[first_]) + sent_;
      ssize_t const sent = ::send(get(), at, sizeof(frame) - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) {
        if (errno == EAGAIN || errno == ENOTCONN || errno == EINPROGRESS) return true;
        send_error_ = errno;  // said once: a later recv only hears that it is over
        return false;
      }
      sent_ += static_cast<std::size_t>(sent);
      if (sent_ < sizeof(frame)) continue;
      sent_ = 0;
      first_ = (first_ + 1) % depth;
      --queued_;
    }
    return true;
  }

  event receive(frame& said) noexcept {
    for (;;) {
      ssize_t const got = ::recv(get(), reinterpret_cast<std::byte*>(&in_) + got_, sizeof(frame) - got_, MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == ENOTCONN)) return event::nothing;
      if (got <= 0) {
        if (got < 0) receive_error_ = errno;
        return event::broken;
      }
      got_ += static_cast<std::size_t>(got);
      if (got_ < sizeof(frame)) continue;
      got_ = 0;
      said = in_;
      return said.magic == hello::expected_magic ? event::frame : event::broken;
    }
  }

 private:
  static constexpr int depth = 8;

  descriptor socket_;
  frame in_;
  std::size_t got_ = 0;
  int send_error_ = 0, receive_error_ = 0;  // one may send while another thread receives
  frame queue_[depth];
  std::size_t sent_ = 0;  // of the first
  int first_ = 0;
  int queued_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
