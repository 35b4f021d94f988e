// SPDX-License-Identifier: Apache-2.0
/// How a launcher that can carry one small message from rank 0 to the others becomes a rendezvous: the message says where rank 0's store
/// is.
#pragma once

#include "collectx/network.hpp"
#include "collectx/process.hpp"
#include "collectx/rendezvous/store_frame.hpp"
#include "collectx/rendezvous/tcp_store.hpp"
#include "collectx/status.hpp"

#include <sys/random.h>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

namespace collectx {
inline namespace v0 {
namespace detail {

/// Of one size, and without pointers: it is sent as it lies in memory. The failure of rank 0 travels like the address does.
struct invitation {
  std::int32_t code = 0, rank = -1, port = 0;
  char address[64] = {};
  char secret[33] = {};
  char text[status::capacity] = {};
};

/// Rank 0 opens a store that only those who get the invitation can use.
inline result<tcp_store_rendezvous> invite(int size, std::chrono::nanoseconds timeout, invitation& out) noexcept {
  auto refuse = [&](status const& why) -> status {
    out.code = static_cast<std::int32_t>(why.code());
    out.rank = why.rank();
    std::memcpy(out.text, sentence_of(why), ::strnlen(sentence_of(why), sizeof out.text - 1));
    return why;
  };
  unsigned char random[16];
  if (::getrandom(random, sizeof random, 0) != sizeof random) return refuse(status::system(errno, "no random number for a secret"));
  for (std::size_t i = 0; i < sizeof random; ++i) std::snprintf(out.secret + 2 * i, 3, "%02x", random[i]);
  result<network_address> here = local_address();
  if (!here) return refuse(here.error());
  std::memcpy(out.address, here->host(), std::strlen(here->host()) + 1);
  tcp_store_options options;
  options.address = out.address;
  options.port = 0;
  options.secret = out.secret;
  options.timeout = timeout;
  result<tcp_store_rendezvous> store = tcp_store_rendezvous::create(0, size, options);
  if (!store) return refuse(store.error());
  out.port = store->port();
  return store;
}

/// The others follow it.
inline result<tcp_store_rendezvous> attend(invitation const& from, int rank, int size, std::chrono::nanoseconds timeout) noexcept {
  if (from.code != 0)
    return status::failure(static_cast<errc>(from.code), from.rank, "%.*s", static_cast<int>(sizeof from.text), from.text);
  tcp_store_options options;
  options.address = from.address;
  options.port = from.port;
  options.secret = from.secret;
  options.timeout = timeout;
  return tcp_store_rendezvous::create(rank, size, options);
}

}  // namespace detail
}  // namespace v0
}  // namespace collectx
