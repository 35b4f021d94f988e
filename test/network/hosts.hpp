// SPDX-License-Identifier: Apache-2.0
/// Hosts for tests: network namespaces on one switch, made and removed by whoever is root.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "processes.hpp"

namespace network {

/// Runs a command, quietly; false where it fails.
inline bool shell(std::string const& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

/// What a killed test has left behind.
inline void remove_stale_namespaces() {
  for (std::string const& name : processes::names_in("/var/run/netns")) {
    int pid = 0;
    if (std::sscanf(name.c_str(), "cxt%d", &pid) == 1 && ::kill(pid, 0) != 0 && errno == ESRCH) shell("ip netns del " + name);
  }
}

/// Goes into a namespace for good: for a child that was just forked.
inline bool enter_namespace(std::string const& name) {
  int const space = ::open(("/var/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
  bool const entered = space >= 0 && ::setns(space, CLONE_NEWNET) == 0;
  if (space >= 0) ::close(space);
  return entered;
}

class hosts {
 public:
  /// Null, with the reason printed, where namespaces cannot be made.
  static std::unique_ptr<hosts> make(int count) {
    if (::geteuid() != 0) return skip("not root");
    remove_stale_namespaces();
    std::unique_ptr<hosts> self(new hosts(count));
    std::string const hub = self->name_of(-1);
    bool made =
        shell("ip netns add " + hub) && shell("ip -n " + hub + " link add br0 type bridge") && shell("ip -n " + hub + " link set br0 up");
    for (int h = 0; h < count && made; ++h) {
      std::string const host = self->name_of(h), port = self->port_of(h);
      made = shell("ip netns add " + host) && shell("ip -n " + host + " link set lo up") &&
             shell("ip -n " + host + " link add eth0 type veth peer name " + port + " netns " + hub) &&
             shell("ip -n " + host + " addr add 10.79.0." + std::to_string(h + 1) + "/24 dev eth0") &&
             shell("ip -n " + host + " link set eth0 up") && shell("ip -n " + hub + " link set " + port + " master br0 up");
    }
    return made ? std::move(self) : skip("ip netns, veth or bridge is missing");
  }
  hosts(hosts&&) = delete;
  ~hosts() {
    for (int h = -1; h < count_; ++h) shell("ip netns del " + name_of(h));
  }

  bool enter(int host) const { return enter_namespace(name_of(host)); }
  /// Takes the plug out, or puts it back.
  void cut(int host) const { shell("ip -n " + name_of(-1) + " link set " + port_of(host) + " down"); }
  void mend(int host) const { shell("ip -n " + name_of(-1) + " link set " + port_of(host) + " up"); }

 private:
  explicit hosts(int count) : count_(count) {}
  static std::unique_ptr<hosts> skip(char const* why) {
    std::printf("skipped, since no network namespaces can be made: %s\n", why);
    return nullptr;
  }
  std::string name_of(int host) const {
    return "cxt" + std::to_string(maker_) + (host < 0 ? std::string("s") : "h" + std::to_string(host));
  }
  static std::string port_of(int host) { return "p" + std::to_string(host); }

  int count_;
  ::pid_t maker_ = ::getpid();
};

}  // namespace network
