// SPDX-License-Identifier: Apache-2.0
/// Ranks on any hosts that know rank 0's address: rank 0 keeps the values, the others come to it over TCP.
#pragma once

#include "collectx/network.hpp"
#include "collectx/process.hpp"
#include "collectx/rendezvous.hpp"
#include "collectx/rendezvous/siphash.hpp"
#include "collectx/rendezvous/store_client.hpp"
#include "collectx/rendezvous/store_frame.hpp"
#include "collectx/rendezvous/store_place.hpp"
#include "collectx/rendezvous/store_server.hpp"
#include "collectx/status.hpp"

#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

namespace collectx {
inline namespace v0 {

struct tcp_store_options {
  char const* address = "127.0.0.1";    ///< rank 0's: a name, IPv4, IPv6 with or without brackets; also with a port, "[::1]:29500"
  int port = 29500;                     ///< where the address has none; 0, for rank 0: the kernel chooses, and `port()` tells
  char const* secret = nullptr;         ///< what all ranks know and strangers do not; null: COLLECTX_SECRET, or nothing
  std::chrono::nanoseconds timeout{0};  ///< for all ranks to come; 0: COLLECTX_JOIN_TIMEOUT seconds, or 60
  std::chrono::nanoseconds linger = std::chrono::seconds(2);  ///< rank 0 stays so long after a failure, for those who have to hear of it
};

/// Models Rendezvous. Rank 0 listens at the address, and only there (at all addresses where its own name leads to loopback, as on Debian);
/// ranks may come before it or after it. What goes wrong for one, goes wrong for all who are there, with one sentence: ranks that never
/// came, died, came twice, or differ in size or version. Nothing is left when processes are killed.
///
/// The secret keeps strangers and other groups out: a rank and rank 0 each prove by a keyed hash that they know it, and it is never sent.
/// It does not hide or sign what is said afterwards; who can change packets on the way can take a connection over, and who can read them
/// can try guesses at the secret, so let it be long and random. Without a secret everybody who can reach the port may take part.
///
/// Where torchrun listens at MASTER_PORT itself, `environment_rendezvous` moves the store to COLLECTX_MASTER_PORT, or to the port above.
class tcp_store_rendezvous {
 public:
  /// Rank 0 begins to listen; the others return when they are in.
  /// Errors: busy ports and foreign addresses; timeout where rank 0 never comes; another secret; and what goes wrong for all.
  static result<tcp_store_rendezvous> create(int rank, int size, tcp_store_options const& options = {}) noexcept {
    if (size < 1 || rank < 0 || rank >= size) {
      return status::failure(errc::invalid_argument, rank, "rank %d is not in a group of %d", rank, size);
    }
    detail::store_place place;
    int port = -1;
    if (options.address == nullptr || !detail::split_endpoint(options.address, place.host, port)) {
      return status::failure(errc::invalid_argument, rank, "\"%.100s\" is no address: examples are node1, 10.0.0.1, ::1, [::1]:29500",
                             options.address == nullptr ? "" : options.address);
    }
    port = port < 0 ? options.port : port;
    if (port < 0 || port > 65535 || (port == 0 && rank != 0)) {
      return status::failure(errc::invalid_argument, rank, "port %d: rank %d needs one from %d to 65535", port, rank, rank == 0 ? 0 : 1);
    }
    place.set_port(port);
    char const* const secret = options.secret != nullptr ? options.secret : std::getenv("COLLECTX_SECRET");
    place.key = detail::key_of(secret == nullptr ? "" : secret);
    result<nanoseconds> patience = detail::join_patience(options.timeout.count(), rank);
    if (!patience) return patience.error();
    nanoseconds const linger = (std::clamp)(nanoseconds{options.linger.count()}, nanoseconds{0}, detail::years);
    return rank == 0 ? lead(place, size, *patience, linger) : follow(place, rank, size, *patience);
  }

  tcp_store_rendezvous(tcp_store_rendezvous&&) noexcept = default;
  tcp_store_rendezvous& operator=(tcp_store_rendezvous&&) = delete;
  /// Rank 0 waits for ranks that are in the midst of joining, at most until the timeout; where joining has failed, `linger`.
  ~tcp_store_rendezvous() {
    if (::getpid() == owner_) client_.say_goodbye();
  }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  int port() const noexcept { return port_; }

  status put(char const* key, rendezvous_value const& value) noexcept {
    detail::store_frame f;
    if (status s = name(f, detail::frame_kind::put, key); !s) return s;
    f.bytes = value.size();
    std::memcpy(f.data, value.data(), value.size());
    return client_.ask(f, 0).error();
  }

  result<rendezvous_value> get(char const* key, nanoseconds deadline) noexcept {
    detail::store_frame f;
    if (status s = name(f, detail::frame_kind::get, key); !s) return s;
    f.patience = (std::max)(deadline - detail::monotonic_now(), nanoseconds{0});
    result<detail::store_frame> answer = client_.ask(f, deadline);
    if (!answer) return answer.error();
    return answer->value();
  }

  status trouble() noexcept { return client_.hear(); }

  void conclude() noexcept {
    detail::store_frame f;
    f.kind = detail::frame_kind::conclude;
    static_cast<void>(client_.ask(f, 0).has_value());  // joining is over, well or badly
  }

 private:
  tcp_store_rendezvous(std::unique_ptr<detail::store_server> server, detail::store_client client, int rank, int size, int port) noexcept
      : server_(std::move(server)), client_(std::move(client)), rank_(rank), size_(size), port_(port), owner_(::getpid()) {}

  static result<tcp_store_rendezvous> lead(detail::store_place const& place, int size, nanoseconds patience, nanoseconds linger) noexcept {
    detail::descriptor own;
    result<std::unique_ptr<detail::store_server>> server = detail::store_server::start(place, size, patience, linger, own);
    nanoseconds const until = detail::monotonic_now() + 2'000'000'000;
    nanoseconds const a_while = 100'000'000 + ::getpid() % 100 * 1'000'000;
    while (!server) {
      if (server.error().native() != EADDRINUSE) return server.error();
      // If it is another rank 0 of this group, it shall hear of this one, and tell the others. Of two that begin to listen in one instant
      // the kernel may refuse both, so who meets nobody tries again, after a time of its own.
      result<detail::store_client> other = detail::store_client::meet(place, 0, size, a_while);
      if (!other && other.error().code() != errc::timeout) return other.error();
      if (detail::monotonic_now() > until) return server.error();
      server = detail::store_server::start(place, size, patience, linger, own);
    }
    result<detail::store_client> client = detail::store_client::enter(std::move(own), (*server)->place(), 0, size);
    if (!client) return client.error();
    int const port = (*server)->place().port;
    return tcp_store_rendezvous(std::move(*server), std::move(*client), 0, size, port);
  }

  static result<tcp_store_rendezvous> follow(detail::store_place const& place, int rank, int size, nanoseconds patience) noexcept {
    result<detail::store_client> client = detail::store_client::meet(place, rank, size, patience);
    if (!client) return client.error();
    return tcp_store_rendezvous(nullptr, std::move(*client), rank, size, place.port);
  }

  status name(detail::store_frame& f, detail::frame_kind kind, char const* key) const noexcept {
    std::size_t const length = std::strlen(key);
    if (!detail::is_key(key, length)) {
      return status::failure(errc::invalid_argument, rank_, "rendezvous: \"%.40s\" is no key: 1 to 31 characters without blanks", key);
    }
    f.kind = kind;
    std::memcpy(f.key, key, length + 1);
    return {};
  }

  std::unique_ptr<detail::store_server> server_;  // goes after the client, whose goodbye it waits for
  detail::store_client client_;
  int rank_, size_, port_;
  ::pid_t owner_;
};
static_assert(Rendezvous<tcp_store_rendezvous>);

}  // namespace v0
}  // namespace collectx
