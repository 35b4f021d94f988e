// SPDX-License-Identifier: Apache-2.0
/// One connection of the store: frames in and out of two small buffers, without ever waiting.
#pragma once

#include "collectx/process.hpp"
#include "collectx/rendezvous/store_frame.hpp"
#include "collectx/transport.hpp"

#include <sys/socket.h>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace collectx {
inline namespace v0 {
namespace detail {

struct store_line {
  descriptor socket;
  int rank = -1;      // until it has proved that it may be one
  bool home = false;  // rank 0's own
  bool told = false;  // the verdict, after which nothing comes
  nanoseconds since = 0;
  std::uint8_t challenge[16] = {};

  bool waiting = false;  // for the value under `key`, since `asked` and not longer than `until`
  char key[32] = {};
  nanoseconds asked = 0, until = 0;

  std::size_t polled = 0;  // its place in the list of what is polled

  void open(descriptor opened, bool own) noexcept {
    close();
    socket = std::move(opened);
    home = own;
    since = monotonic_now();
  }
  void close() noexcept {
    socket = {};
    rank = -1;
    home = told = waiting = false;
    received_ = pending_ = 0;
  }

  bool unsent() const noexcept { return pending_ > 0; }

  /// Sends now or later. What breaks is seen by the next poll, not amid a loop over all lines.
  void send(store_frame const& f) noexcept {
    if (told || pending_ + store_frame::capacity > sizeof out_) return;
    pending_ += write_frame(f, out_ + pending_);
    if (!flush()) ::shutdown(socket.get(), SHUT_RDWR);
  }

  /// False where nobody is at the other end any more.
  bool flush() noexcept {
    while (pending_ > 0) {
      ssize_t const sent = ::send(socket.get(), out_, pending_, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return errno == EAGAIN;
      pending_ -= static_cast<std::size_t>(sent);
      std::memmove(out_, out_ + sent, pending_);
    }
    return true;
  }

  /// Takes in what has come; false where nothing will any more.
  bool fetch() noexcept {
    ssize_t const got = ::recv(socket.get(), in_ + received_, sizeof in_ - received_, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (got > 0) received_ += static_cast<std::size_t>(got);
    return true;
  }

  /// The oldest frame that has come whole.
  auto next(store_frame& f) noexcept {
    parsed_frame const p = parse_frame(in_, received_, f);
    received_ -= p.bytes;
    if (p.bytes > 0) std::memmove(in_, in_ + p.bytes, received_);
    return p.state;
  }

 private:
  std::size_t received_ = 0, pending_ = 0;
  std::byte in_[store_frame::capacity];
  std::byte out_[3 * store_frame::capacity];  // a rank waits for its answer before it asks again; a verdict comes unasked
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
