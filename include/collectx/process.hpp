// SPDX-License-Identifier: Apache-2.0
/// Who a process is, in a way that survives the reuse of process numbers; the clock all waits are measured by, and what the environment
/// says of their length.
#pragma once

#include "collectx/config.hpp"
#include "collectx/status.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

namespace collectx {
inline namespace v0 {

/// A process number alone may be somebody else tomorrow; with its start time it is not. `space` is the pid namespace it counts in.
/// `start` 0 stands for "cannot be looked up": such a process is never taken for dead.
struct process_identity {
  std::uint64_t pid = 0;
  std::uint64_t start = 0;
  std::uint64_t space = 0;
  friend constexpr bool operator==(process_identity const&, process_identity const&) = default;
};

namespace detail {

/// Instead of <algorithm>, which costs every user a tenth of a second.
template <class T>
constexpr T lesser(T a, T b) noexcept {
  return b < a ? b : a;
}
template <class T>
constexpr T greater(T a, T b) noexcept {
  return a < b ? b : a;
}

inline std::int64_t monotonic_now() noexcept {
  std::timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

inline void nap(std::int64_t ns) noexcept {
  std::timespec const time{static_cast<std::time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  ::nanosleep(&time, nullptr);
}

/// As good as for ever, and the clock does not overflow.
inline constexpr std::int64_t years = 100'000'000'000'000'000;

/// The seconds that an environment variable holds, in ns, or `otherwise` where it is not set.
/// Errors: invalid_configuration with what it holds.
inline result<std::int64_t> time_in(char const* variable, std::int64_t otherwise, int rank) noexcept {
  char const* const text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  double const time = std::strtod(text, &end) * 1e9;
  if (end != text && *end == 0 && time >= 1 && time < 1e18) return lesser(static_cast<std::int64_t>(time), years);
  return status::failure(errc::invalid_configuration, rank, "%s is \"%.40s\": it needs seconds, above 0 and below 1e9", variable, text);
}

/// A file descriptor that is closed when it goes.
class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int number) noexcept : number_(number) {}
  descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const noexcept { return number_; }
  explicit operator bool() const noexcept { return number_ >= 0; }

 private:
  int number_ = -1;
};

/// Reads a whole small file; returns its length, or -1 with errno.
inline int read_small_file(char const* path, char* text, int capacity) noexcept {
  descriptor const file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return -1;
  int used = 0;
  while (used < capacity - 1) {
    ssize_t const got = ::read(file.get(), text + used, static_cast<std::size_t>(capacity - 1 - used));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    used += static_cast<int>(got);
  }
  text[used] = 0;
  return used;
}

struct process_look {
  bool readable = false;  // false with gone == false: nothing is known
  bool gone = false;
  std::uint64_t start = 0;
};

inline process_look look_at_process(std::uint64_t pid) noexcept {
  char path[48], text[1024];
  std::snprintf(path, sizeof path, "/proc/%llu/stat", static_cast<unsigned long long>(pid));
  if (read_small_file(path, text, sizeof text) <= 0) return {false, errno == ENOENT || errno == ESRCH, 0};
  // The command may hold blanks and parentheses, so the fields are counted from the last ')': state is the third.
  char const* p = std::strrchr(text, ')');
  if (p == nullptr || p[1] != ' ') return {};
  char const state = p[2];
  unsigned long long threads = 0, start = 0;
  p += 2;
  for (int field = 3; field <= 22; ++field) {
    if (field == 20) threads = std::strtoull(p, nullptr, 10);
    if (field == 22) start = std::strtoull(p, nullptr, 10);
    p = std::strchr(p, ' ');
    if (p++ == nullptr) return {};
  }
  // A main thread that has ended looks like a zombie while other threads go on.
  return {true, (state == 'Z' && threads <= 1) || state == 'X', start};
}

}  // namespace detail

inline process_identity this_process() noexcept {
  process_identity id;
  id.pid = static_cast<std::uint64_t>(::getpid());
  struct ::stat space {};
  if (::stat("/proc/self/ns/pid", &space) != 0) return id;
  id.space = space.st_ino;
  detail::process_look const look = detail::look_at_process(id.pid);
  if (look.readable) id.start = look.start;
  return id;
}

/// True only where it is certain; a process of another pid namespace, or one that cannot be looked up, counts as alive.
inline bool is_dead(process_identity const& id, std::uint64_t my_space) noexcept {
  if (id.pid == 0 || id.start == 0 || id.space != my_space) return false;
  detail::process_look const look = detail::look_at_process(id.pid);
  return look.gone || (look.readable && look.start != id.start);
}

namespace detail {

/// A word that the kernel clears in a forked child. getpid() is a system call since glibc 2.25, too slow to ask on every collective.
class fork_mark {
 public:
  static fork_mark take() noexcept {
    static std::uint64_t* const word = [] {
      void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (page == MAP_FAILED) return static_cast<std::uint64_t*>(nullptr);
      ::madvise(page, 4096, MADV_WIPEONFORK);
      return static_cast<std::uint64_t*>(page);
    }();
    fork_mark m;
    m.word_ = word;
    m.pid_ = static_cast<std::uint64_t>(::getpid());
    if (word != nullptr) __atomic_store_n(word, m.pid_, __ATOMIC_RELAXED);
    return m;
  }
  /// False in a child of the process that took the mark.
  bool here() const noexcept { return word_ == nullptr || __atomic_load_n(word_, __ATOMIC_RELAXED) == pid_; }
  unsigned long long pid() const noexcept { return pid_; }

 private:
  std::uint64_t* word_ = nullptr;
  std::uint64_t pid_ = 0;
};

}  // namespace detail

}  // namespace v0
}  // namespace collectx
