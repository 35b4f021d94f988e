// SPDX-License-Identifier: Apache-2.0
/// A cable between two network namespaces with a rate and a delay, for kernels that cannot delay packets themselves (sch_netem).
#pragma once

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include <collectx/process.hpp>

namespace slow_link {

inline bool enter(std::string const& space) {
  int const f = ::open(("/var/run/netns/" + space).c_str(), O_RDONLY | O_CLOEXEC);
  bool const entered = f >= 0 && ::setns(f, CLONE_NEWNET) == 0;
  if (f >= 0) ::close(f);
  return entered;
}

/// Carries packets from one end to the other: each begins when the last is through, and arrives a delay after its end.
class delay_link {
 public:
  /// @param delay  one way, in nanoseconds  @param rate  in bits per second
  delay_link(double delay, double rate) : delay_(delay), ns_per_byte_(8e9 / rate) {}

  /// An end in a namespace, with an address; false where the kernel refuses.
  bool attach(int end, std::string const& space, std::string const& address) {
    if (!enter(space)) return false;
    int const tun = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    ::ifreq request{};
    std::strcpy(request.ifr_name, "slow0");
    request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;  // whole TCP segments, up to 64 KiB, or the relay would be the limit
    if (tun < 0 || ::ioctl(tun, TUNSETIFF, &request) != 0) return false;
    if (::ioctl(tun, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0) return false;
    std::string const up =
        "ip addr add " + address + "/24 dev slow0 && ip link set slow0 up mtu 9000 txqueuelen 10000 && ip link set lo up";
    directions_[end].from = directions_[1 - end].to = tun;
    return std::system(up.c_str()) == 0;
  }

  /// Until it is killed.
  [[noreturn]] void run() {
    ::prctl(PR_SET_TIMERSLACK, 1);
    for (;;) {
      std::int64_t next = INT64_MAX;
      for (direction& d : directions_) {
        take(d);
        deliver(d);
        if (!d.flight.empty()) next = (std::min)(next, d.flight.front().due);
      }
      ::pollfd ends[2] = {{directions_[0].from, room(directions_[0]), 0}, {directions_[1].from, room(directions_[1]), 0}};
      std::int64_t const left = (std::max)(next - collectx::detail::monotonic_now(), std::int64_t{0});
      std::timespec const wait{left / 1'000'000'000, left % 1'000'000'000};
      ::ppoll(ends, 2, next == INT64_MAX ? nullptr : &wait, nullptr);
    }
  }

 private:
  static constexpr std::size_t most_in_flight = 1024;
  struct packet {
    std::int64_t due;
    std::vector<char> bytes;
  };
  struct direction {
    int from = -1, to = -1;
    double free_at = 0;
    std::deque<packet> flight;
  };

  static short room(direction const& d) { return d.flight.size() < most_in_flight ? POLLIN : 0; }

  void take(direction& d) {
    while (d.flight.size() < most_in_flight) {
      std::vector<char> bytes(66'000);
      ssize_t const got = ::read(d.from, bytes.data(), bytes.size());
      if (got <= 0) return;
      bytes.resize(static_cast<std::size_t>(got));
      d.free_at = (std::max)(d.free_at, static_cast<double>(collectx::detail::monotonic_now())) + static_cast<double>(got) * ns_per_byte_;
      d.flight.push_back({static_cast<std::int64_t>(d.free_at + delay_), std::move(bytes)});
    }
  }
  static void deliver(direction& d) {
    while (!d.flight.empty() && d.flight.front().due <= collectx::detail::monotonic_now()) {
      packet const& p = d.flight.front();
      if (::write(d.to, p.bytes.data(), p.bytes.size()) < 0 && errno == EAGAIN) return;
      d.flight.pop_front();
    }
  }

  double delay_, ns_per_byte_;
  direction directions_[2];
};

}  // namespace slow_link
