// SPDX-License-Identifier: Apache-2.0
/// Descriptors on their way from any rank of a host to any other: each rank has a socket that is in no file system.
#pragma once

#include "collectx/transport/handshake.hpp"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace collectx {
inline namespace v0 {
namespace detail {

/// Where a rank gets its mail, and what it takes for mail of its group.
struct mail_address {
  std::uint8_t nonce[16] = {};
  std::uint32_t length = 0;
  char name[16] = {};
};

/// What comes with a descriptor. `round` counts the exchanges of a group, so that nothing left over from a failed one is taken for new.
struct mail {
  std::uint64_t magic = hello::expected_magic;
  std::uint8_t nonce[16] = {};
  std::uint64_t round = 0;
  std::int32_t from = 0;
  std::uint32_t index = 0;
  std::uint64_t bytes = 0;  // of the memory
};

class descriptor_mail {
 public:
  static result<descriptor_mail> open() noexcept {
    descriptor_mail self;
    if (::getrandom(self.here_.nonce, sizeof self.here_.nonce, 0) < 0) return status::system(errno, "no random number for a mailbox");
    self.socket_ = descriptor(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ::sockaddr_un address{};
    address.sun_family = AF_UNIX;
    ::socklen_t length = sizeof address.sun_family;  // no name: the kernel finds an abstract one
    ::sockaddr* const a = reinterpret_cast<::sockaddr*>(&address);
    if (!self.socket_ || ::bind(self.socket_.get(), a, length) != 0) return status::system(errno, "no socket for a mailbox");
    length = sizeof address;
    if (::getsockname(self.socket_.get(), a, &length) != 0) return status::system(errno, "no name for a mailbox");
    self.here_.length = static_cast<std::uint32_t>(length - offsetof(::sockaddr_un, sun_path));
    std::memcpy(self.here_.name, address.sun_path, lesser(sizeof self.here_.name, std::size_t{self.here_.length}));
    return result<descriptor_mail>(std::move(self));
  }

  mail_address const& address() const noexcept { return here_; }

  /// False with errno EAGAIN where the other's box is full for now.
  static bool send(mail_address const& to, mail letter, int passed) noexcept {
    descriptor const out(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ::sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::size_t const length = lesser(sizeof to.name, std::size_t{to.length});
    std::memcpy(address.sun_path, to.name, length);
    ::socklen_t const bytes = static_cast<::socklen_t>(offsetof(::sockaddr_un, sun_path) + length);
    std::memcpy(letter.nonce, to.nonce, sizeof letter.nonce);
    if (!out || ::connect(out.get(), reinterpret_cast<::sockaddr*>(&address), bytes) != 0) return false;
    return send_packet(out.get(), letter, passed);
  }

  /// Takes the next letter of this group that is there. What a stranger has sent is thrown away.
  bool take(mail& letter, descriptor& passed) noexcept {
    ::pollfd waiting{socket_.get(), POLLIN, 0};
    while (::poll(&waiting, 1, 0) == 1) {
      descriptor got;
      letter = {};
      if (!receive_packet(socket_.get(), letter, &got) || !got) continue;
      if (std::memcmp(letter.nonce, here_.nonce, sizeof letter.nonce) != 0) continue;
      passed = std::move(got);
      return true;
    }
    return false;
  }

 private:
  descriptor socket_;
  mail_address here_;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
