// SPDX-License-Identifier: Apache-2.0
/// Where a store is, and how rank 0 comes to listen there.
#pragma once

#include "collectx/network.hpp"
#include "collectx/process.hpp"
#include "collectx/rendezvous/siphash.hpp"
#include "collectx/status.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

namespace collectx {
inline namespace v0 {
namespace detail {

/// A host as the user names it, a port, and the key without which nobody is let in.
struct store_place {
  char host[256] = {};
  int port = 0;
  siphash_key key;
  char text[280] = {};  ///< "10.0.0.1:29500", "[::1]:29500"

  void set_port(int number) noexcept {
    port = number;
    bool const colons = std::strchr(host, ':') != nullptr;
    std::snprintf(text, sizeof text, colons ? "[%s]:%d" : "%s:%d", host, port);
  }

  /// Whether the host is given in digits, not by name.
  bool numeric() const noexcept {
    unsigned char bits[16];
    return std::strchr(host, ':') != nullptr || ::inet_pton(AF_INET, host, bits) == 1;
  }
};

/// Sockets that listen at every address that the place's host has, and at no other.
class listening_sockets {
 public:
  static constexpr int capacity = resolution::capacity;

  /// Port 0 becomes one that is free at all of the addresses.
  status open(store_place& place) noexcept {
    resolution where = resolve(place.host, place.port);
    if (where.error != 0) {
      return status::failure(errc::invalid_argument, 0, "rank 0 cannot find its own address, %s: %s", place.host, where.why());
    }
    if (leads_home_only(place, where)) listen_everywhere(where, place.port);
    for (int tries = 0;; ++tries) {
      int const error = open_all(where, place.port);
      if (error == 0) break;
      close();
      if (error == EADDRINUSE && place.port == 0 && tries < 16) continue;  // what one address had free, another had not
      if (error == EADDRINUSE) {
        return status::system(error, "rank 0 cannot listen at %s, something else does: end it, or choose another MASTER_PORT", place.text);
      }
      if (error == EADDRNOTAVAIL) {
        return status::system(
            error, "rank 0 cannot listen at %s: no interface of its host has that address; MASTER_ADDR has to be rank 0's", place.text);
      }
      return status::system(error, "rank 0 cannot listen at %s", place.text);
    }
    place.set_port(port_);
    return {};
  }

  int count() const noexcept { return count_; }
  int get(int index) const noexcept { return sockets_[index].get(); }

  void close() noexcept {
    for (int i = 0; i < count_; ++i) {
      ::shutdown(sockets_[i].get(), SHUT_RDWR);  // a forked child may hold the socket, too
      sockets_[i] = {};
    }
    count_ = 0;
  }

 private:
  /// Debian's /etc/hosts gives a host's own name 127.0.1.1, where nobody else can come.
  static bool leads_home_only(store_place const& place, resolution const& where) noexcept {
    if (place.numeric() || std::strcmp(place.host, "localhost") == 0) return false;
    for (int i = 0; i < where.count; ++i)
      if (!where.found[i].is_loopback()) return false;
    return true;
  }

  static void listen_everywhere(resolution& where, int port) noexcept {
    ::sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    ::sockaddr_in four{};
    four.sin_family = AF_INET;
    where.found[0] = network_address(reinterpret_cast<::sockaddr const*>(&four), sizeof four);
    where.found[1] = network_address(reinterpret_cast<::sockaddr const*>(&six), sizeof six);
    where.count = 2;
    for (int i = 0; i < where.count; ++i) where.found[i].set_port(port);
  }

  /// 0, or why not: an address that this host has not is left out, as long as there is another.
  int open_all(resolution& where, int port) noexcept {
    int absent = EADDRNOTAVAIL;
    port_ = port;
    for (int i = 0; i < where.count; ++i) {
      where.found[i].set_port(port_);
      descriptor socket;
      int const error = open_one(where.found[i], socket);
      if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) {
        absent = error;
        continue;
      }
      if (error != 0) return error;
      ::sockaddr_storage got{};
      ::socklen_t length = sizeof got;
      if (::getsockname(socket.get(), reinterpret_cast<::sockaddr*>(&got), &length) != 0) return errno;
      port_ = network_address(reinterpret_cast<::sockaddr const*>(&got), length).port();
      sockets_[count_++] = std::move(socket);
    }
    return count_ > 0 ? 0 : absent;
  }

  static int open_one(network_address const& address, descriptor& socket) noexcept {
    int const on = 1;
    socket = descriptor(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) return errno;
    // Connections of an earlier run that the kernel still keeps do not hold the port.
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address.family() == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (::bind(socket.get(), address.get(), address.length()) != 0 || ::listen(socket.get(), SOMAXCONN) != 0) return errno;
    return 0;
  }

  descriptor sockets_[capacity];
  int count_ = 0;
  int port_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
