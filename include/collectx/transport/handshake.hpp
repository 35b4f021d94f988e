// SPDX-License-Identifier: Apache-2.0
/// How processes on one host come together: rank 0 listens on an unnamed-on-disk socket, judges who comes, and hands out the memory.
#pragma once

#include "collectx/process.hpp"
#include "collectx/rendezvous.hpp"
#include "collectx/transport/segment.hpp"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>

namespace collectx {
inline namespace v0 {
namespace detail {

/// What two builds must agree on to share memory. Header-only means that two processes may be two builds.
struct build_facts {
  static constexpr int count = 7;
  static constexpr char const* names[count] = {"version",    "byte order",   "slot line bytes", "slot skew",
                                               "seat bytes", "record bytes", "word bytes"};

  std::uint32_t values[count] = {COLLECTX_VERSION,   0x01020304,          sizeof(slot_line), slot_ring::skew,
                                 sizeof(board_seat), sizeof(call_record), sizeof(void*)};
};

/// Who I am and what I want. The first four fields stay where they are in every version, so that versions can tell each other apart.
struct hello {
  static constexpr std::uint64_t expected_magic = 0x7874636c6c6f6321;

  std::uint64_t magic = expected_magic;
  std::uint8_t nonce[16] = {};
  std::int32_t rank = 0;
  build_facts facts;
  std::int32_t size = 0;
  std::int32_t slots = 0, lanes = 0;
  std::uint64_t slot_bytes = 0, memory = 0;
  std::int64_t patience = 0;  // what is left of my join_timeout, in ns
};

/// What rank 0 has decided; also how a rank says that it is ready, or why it is not.
struct verdict {
  std::uint64_t magic = hello::expected_magic;
  std::int32_t code = 0;
  std::int32_t rank = -1;
  char text[status::capacity] = {};
  std::int32_t slots = 0, lanes = 0;
  std::uint64_t slot_bytes = 0;

  static verdict of(status const& s) noexcept {
    verdict v;
    v.code = static_cast<std::int32_t>(s.code());
    v.rank = s.rank();
    keep_sentence(v.text, s);
    return v;
  }
  status spell() const noexcept {
    if (code == 0) return {};
    return status::failure(static_cast<errc>(code), rank, "%.*s", static_cast<int>(sizeof text - 1), text);
  }
};

/// The value under which rank 0 is found: an abstract address, which no file system ever sees, and the proof of having read it here.
struct meeting_point {
  std::uint8_t nonce[16] = {};
  std::uint32_t length = 0;
  char name[16] = {};
  process_identity host;
};
static_assert(sizeof(meeting_point) <= rendezvous_value::capacity);

inline bool same_user(int socket) noexcept {
  ::ucred peer{};
  ::socklen_t length = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

/// Waits until one of `count` descriptors has something; false at the deadline.
inline bool wait_for_input(::pollfd* descriptors, std::size_t count, nanoseconds deadline) noexcept {
  for (;;) {
    nanoseconds const left = deadline - monotonic_now();
    int const ms = left <= 0 ? 0 : static_cast<int>(lesser(left / 1'000'000 + 1, nanoseconds{1'000'000}));
    int const ready = ::poll(descriptors, count, ms);
    if (ready > 0) return true;
    if (ready == 0 && left <= 0) return false;
    if (ready < 0 && errno != EINTR && errno != EAGAIN) return false;
  }
}

/// Sends one packet, with a descriptor if there is one. A packet of ours always fits the empty buffer of a peer, so it never blocks.
template <class Packet>
bool send_packet(int socket, Packet const& packet, int passed = -1) noexcept {
  Packet copy = packet;
  ::iovec part{&copy, sizeof copy};
  alignas(::cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  ::msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (passed >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    ::cmsghdr* const c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &passed, sizeof passed);
  }
  for (;;) {
    ssize_t const sent = ::sendmsg(socket, &header, MSG_NOSIGNAL);
    if (sent >= 0 || errno != EINTR) return sent == static_cast<ssize_t>(sizeof copy);
  }
}

/// Receives one packet that is there; false where the peer has gone or said something else. A shorter packet leaves the rest as it was.
template <class Packet>
bool receive_packet(int socket, Packet& packet, descriptor* passed = nullptr) noexcept {
  ::iovec part{&packet, sizeof packet};
  alignas(::cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  ::msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t got;
  do got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  while (got < 0 && errno == EINTR);
  if (got <= 0) return false;
  for (::cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    int number = -1;
    std::memcpy(&number, CMSG_DATA(c), sizeof number);
    descriptor owned(number);
    if (passed != nullptr) *passed = std::move(owned);
  }
  return packet.magic == hello::expected_magic;
}

}  // namespace detail
}  // namespace v0
}  // namespace collectx
