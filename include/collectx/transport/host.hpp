// SPDX-License-Identifier: Apache-2.0
/// Which host a process is on, as far as sharing memory goes, and on which of its CPUs.
#pragma once

#include "collectx/process.hpp"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstdint>

namespace collectx {
inline namespace v0 {
namespace detail {

/// One number for all processes that can hand each other memory: of one boot of one kernel, and of one network namespace, whose sockets
/// they would do it by. Never 0.
inline std::uint64_t host_identity() noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u;
  auto const mix = [&hash](void const* data, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ static_cast<unsigned char const*>(data)[i]) * 0x100000001b3u;
  };
  char boot[64] = {};
  if (int const length = read_small_file("/proc/sys/kernel/random/boot_id", boot, sizeof boot); length > 0) {
    mix(boot, static_cast<std::size_t>(length));
  }
  struct ::stat space {};
  if (::stat("/proc/self/ns/net", &space) == 0) mix(&space.st_ino, sizeof space.st_ino);
  return hash | 1;
}

/// The CPUs that this thread may run on.
struct cpu_mask {
  std::uint64_t words[16] = {};

  static cpu_mask mine() noexcept {
    cpu_mask m;
    static_assert(sizeof m.words == sizeof(::cpu_set_t));
    if (::sched_getaffinity(0, sizeof m.words, reinterpret_cast<::cpu_set_t*>(m.words)) == 0) return m;
    long const online = ::sysconf(_SC_NPROCESSORS_ONLN);  // more CPUs than the mask has bits
    for (long i = 0; i < online && i < 1024; ++i) m.words[i / 64] |= std::uint64_t{1} << (i % 64);
    return m;
  }
  cpu_mask& operator|=(cpu_mask const& other) noexcept {
    for (int i = 0; i < 16; ++i) words[i] |= other.words[i];
    return *this;
  }
  int count() const noexcept {
    int n = 0;
    for (std::uint64_t word : words) n += __builtin_popcountll(word);
    return n;
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
