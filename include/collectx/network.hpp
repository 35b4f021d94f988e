// SPDX-License-Identifier: Apache-2.0
/// Addresses: what a text means, which hosts it leads to, and at which of its own addresses other hosts reach this one.
#pragma once

#include "collectx/status.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace collectx {
inline namespace v0 {

/// An IPv4 or IPv6 address, with a port where it is an endpoint.
class network_address {
 public:
  network_address() = default;
  network_address(::sockaddr const* address, ::socklen_t length) noexcept : length_(length) {
    if (length_ > sizeof storage_) length_ = sizeof storage_;
    std::memcpy(&storage_, address, length_);
    if (::getnameinfo(get(), length_, host_, sizeof host_, nullptr, 0, NI_NUMERICHOST) != 0) host_[0] = 0;
  }

  int family() const noexcept { return length_ == 0 ? AF_UNSPEC : storage_.ss_family; }
  ::sockaddr const* get() const noexcept { return reinterpret_cast<::sockaddr const*>(&storage_); }
  ::socklen_t length() const noexcept { return length_; }
  /// In digits, without the port: "10.0.0.1", "fe80::1%eth0".
  char const* host() const noexcept { return host_; }

  int port() const noexcept {
    ::in_port_t port = 0;
    if (std::size_t const at = port_offset(); at != 0) std::memcpy(&port, bytes() + at, sizeof port);
    return ntohs(port);
  }
  void set_port(int port) noexcept {
    ::in_port_t const value = htons(static_cast<std::uint16_t>(port));
    if (std::size_t const at = port_offset(); at != 0) std::memcpy(reinterpret_cast<unsigned char*>(&storage_) + at, &value, sizeof value);
  }

  /// The bits that are compared when networks are: 4 bytes or 16.
  unsigned char const* bits() const noexcept {
    return bytes() + (family() == AF_INET ? offsetof(::sockaddr_in, sin_addr) : offsetof(::sockaddr_in6, sin6_addr));
  }
  std::size_t bit_count() const noexcept { return family() == AF_INET ? 32 : family() == AF_INET6 ? 128 : 0; }

  bool is_loopback() const noexcept {
    if (family() == AF_INET) return bits()[0] == 127;
    if (family() != AF_INET6) return false;
    for (std::size_t i = 0; i < 15; ++i)
      if (bits()[i] != 0) return false;
    return bits()[15] == 1;
  }
  bool is_link_local() const noexcept {
    if (family() == AF_INET) return bits()[0] == 169 && bits()[1] == 254;
    return family() == AF_INET6 && bits()[0] == 0xfe && (bits()[1] & 0xc0) == 0x80;
  }

 private:
  unsigned char const* bytes() const noexcept { return reinterpret_cast<unsigned char const*>(&storage_); }
  std::size_t port_offset() const noexcept {
    if (family() == AF_INET) return offsetof(::sockaddr_in, sin_port);
    return family() == AF_INET6 ? offsetof(::sockaddr_in6, sin6_port) : 0;
  }

  ::sockaddr_storage storage_{};
  ::socklen_t length_ = 0;
  char host_[64] = {};
};

/// Whether two addresses of one family agree in their first `prefix` bits.
inline bool same_subnet(network_address const& a, network_address const& b, std::size_t prefix) noexcept {
  if (a.family() != b.family() || a.bit_count() == 0 || prefix > a.bit_count()) return false;
  for (std::size_t bit = 0; bit < prefix; ++bit) {
    unsigned const mask = 0x80u >> (bit % 8);
    if (((a.bits()[bit / 8] ^ b.bits()[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

/// Which interfaces may be used. "eth,ib": names that begin so; "=eth0": that very name; "^docker,lo": all but these, as NCCL writes it.
class interface_filter {
 public:
  /// @pre `option` names whence the pattern comes, and outlives the call. A null pattern admits everything.
  static result<interface_filter> parse(char const* pattern, char const* option) noexcept {
    interface_filter f;
    if (pattern == nullptr) return f;
    char const* at = pattern;
    if (*at == '^') f.excluding_ = true, ++at;
    if (*at == '=') f.exact_ = true, ++at;
    bool valid = std::strlen(at) < sizeof f.names_;
    if (valid) std::snprintf(f.names_, sizeof f.names_, "%s", at);
    std::size_t length = 0;
    for (;; ++at) {
      if (*at == ',' || *at == 0) {
        valid = valid && length > 0 && length < IF_NAMESIZE;
        length = 0;
        if (*at == 0) break;
      } else {
        valid = valid && *at > ' ' && *at < 127 && std::strchr("^=/", *at) == nullptr;
        ++length;
      }
    }
    if (valid) return f;
    return status::failure(
        errc::invalid_argument, -1,
        "%s is \"%.100s\": it needs names of interfaces like \"eth,ib\", \"=eth0\" for just that one, \"^docker,lo\" for "
        "all but these",
        option, pattern);
  }

  bool admits(char const* name) const noexcept {
    bool listed = names_[0] == 0;
    for (char const* at = names_; *at != 0;) {
      std::size_t const length = std::strcspn(at, ",");
      if (std::strncmp(at, name, length) == 0 && (!exact_ || name[length] == 0)) listed = true;
      at += length + (at[length] == ',' ? 1 : 0);
    }
    return listed != excluding_;
  }

 private:
  char names_[256] = {};
  bool excluding_ = false, exact_ = false;
};

namespace detail {

/// How likely other hosts are to reach this one there: not at all at loopback, rarely on the bridges that containers share.
inline int reach_of(char const* interface, network_address const& address) noexcept {
  if (address.is_loopback()) return 1;
  if (address.is_link_local()) return 2;
  for (char const* bridge : {"docker", "virbr", "veth", "br-", "lxc", "cni", "podman"})
    if (std::strncmp(interface, bridge, std::strlen(bridge)) == 0) return 3;
  return address.family() == AF_INET6 ? 4 : 5;
}

/// A number written in digits only; false where it is none, or not from `least` to `most`.
inline bool parse_digits(char const* text, long long least, long long most, long long& value) noexcept {
  value = 0;
  if (*text == 0) return false;
  for (; *text != 0; ++text) {
    if (*text < '0' || *text > '9' || value > most) return false;
    value = 10 * value + (*text - '0');
  }
  return value >= least && value <= most;
}

/// "host", "host:29500", "::1", "[::1]", "[::1]:29500": the host without brackets, and the port, or -1 where none is given.
template <std::size_t Capacity>
bool split_endpoint(char const* text, char (&host)[Capacity], int& port) noexcept {
  char const* const colon = std::strrchr(text, ':');
  char const* end = text + std::strlen(text);
  char const* port_text = nullptr;
  if (text[0] == '[') {
    char const* const bracket = std::strchr(text, ']');
    if (bracket == nullptr || (bracket[1] != 0 && bracket[1] != ':')) return false;
    if (bracket[1] == ':') port_text = bracket + 2;
    ++text;
    end = bracket;
  } else if (colon != nullptr && std::strchr(text, ':') == colon) {  // more than one colon is an IPv6 address
    port_text = colon + 1;
    end = colon;
  }
  long long number = -1;
  if (port_text != nullptr && !parse_digits(port_text, 0, 65535, number)) return false;
  port = static_cast<int>(number);
  std::size_t const length = static_cast<std::size_t>(end - text);
  if (length == 0 || length >= Capacity) return false;
  std::memcpy(host, text, length);
  host[length] = 0;
  return true;
}

/// Where a name leads; `error` is that of getaddrinfo.
struct resolution {
  static constexpr int capacity = 8;
  int error = 0;
  int count = 0;
  network_address found[capacity];

  char const* why() const noexcept { return error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error); }
};

inline resolution resolve(char const* host, int port) noexcept {
  resolution out;
  ::addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  ::addrinfo* list = nullptr;
  // Not AI_ADDRCONFIG: it hides ::1 and 127.0.0.1 on a host that has nothing but loopback.
  out.error = ::getaddrinfo(host, nullptr, &hints, &list);
  if (out.error != 0) return out;
  for (::addrinfo* a = list; a != nullptr && out.count < resolution::capacity; a = a->ai_next) {
    if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
    out.found[out.count] = network_address(a->ai_addr, a->ai_addrlen);
    out.found[out.count++].set_port(port);
  }
  ::freeaddrinfo(list);
  if (out.count == 0) out.error = EAI_NONAME;
  return out;
}

/// Small messages leave at once, and a host that is gone, or behind a cut cable, is noticed within `patience`: what is sent is acknowledged
/// by the peer's kernel, even where the process is stopped or computes. On a socket that is not TCP nothing happens.
inline void prepare_stream(int socket, std::int64_t patience = 25'000'000'000) noexcept {
  // As in <netinet/tcp.h> and <linux/tcp.h>, which do not compile where a user has a macro `check`.
  constexpr int no_delay = 1, keep_idle = 4, keep_interval = 5, keep_count = 6, user_timeout = 18;
  int const ms = static_cast<int>(patience / 1'000'000), seconds = ms / 4000, on = 1, pause = seconds < 1 ? 1 : seconds,
            probes = ms < 2000 ? 1 : 3;
  ::setsockopt(socket, IPPROTO_TCP, no_delay, &on, sizeof on);
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, keep_idle, &pause, sizeof pause);
  ::setsockopt(socket, IPPROTO_TCP, keep_interval, &pause, sizeof pause);
  ::setsockopt(socket, IPPROTO_TCP, keep_count, &probes, sizeof probes);
  ::setsockopt(socket, IPPROTO_TCP, user_timeout, &ms, sizeof ms);
}

}  // namespace detail

/// The address at which other hosts most likely reach this one: of the interfaces that are up and that `pattern` (an interface_filter;
/// null: COLLECTX_SOCKET_IFNAME) admits, a global IPv4 one before an IPv6 one, before a bridge of containers; loopback only where all is
/// loopback. Errors: invalid_argument where the pattern is none, or admits no interface that is up; the text lists those there are.
inline result<network_address> local_address(char const* pattern = nullptr) noexcept {
  constexpr char const* variable = "COLLECTX_SOCKET_IFNAME";
  if (pattern == nullptr) pattern = std::getenv(variable);
  result<interface_filter> filter = interface_filter::parse(pattern, variable);
  if (!filter) return filter.error();
  ::ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return status::system(errno, "the interfaces of this host cannot be listed");
  network_address best;
  int reach = 0;
  char names[160] = {};
  for (::ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    int const family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    std::size_t const used = std::strlen(names);
    if (std::strstr(names, i->ifa_name) == nullptr && used + IF_NAMESIZE + 2 < sizeof names)
      std::snprintf(names + used, sizeof names - used, "%s%s", used == 0 ? "" : ", ", i->ifa_name);
    if (!filter->admits(i->ifa_name)) continue;
    network_address const address(i->ifa_addr, family == AF_INET ? sizeof(::sockaddr_in) : sizeof(::sockaddr_in6));
    int const here = detail::reach_of(i->ifa_name, address);
    if (here > reach) best = address, reach = here;
  }
  ::freeifaddrs(list);
  if (reach > 0) return best;
  if (pattern == nullptr) return status::failure(errc::not_supported, -1, "no interface of this host is up");
  return status::failure(errc::invalid_argument, -1, "%s is \"%.100s\": no interface that is up has such a name; there are: %s", variable,
                         pattern, names);
}

}  // namespace v0
}  // namespace collectx
