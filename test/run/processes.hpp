// SPDX-License-Identifier: Apache-2.0
/// Ranks as forked processes for tests: each child says one line, and none outlives its deadline.
#pragma once

#include <collectx/process.hpp>
#include <collectx/status.hpp>
#include <collectx/transport.hpp>

#include <dirent.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace processes {

struct said {
  int code = 0;  // of the status, or -1 where the child was killed
  int rank = -1;
  char text[collectx::status::capacity] = {};
  double seconds = 0;
  bool names(char const* part) const { return std::strstr(text, part) != nullptr; }
};

/// Memory that children and parent share.
template <class T>
T* shared(std::size_t count = 1) {
  void* const p = ::mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<T*>(p);
}

class group {
 public:
  explicit group(int size) : size_(size), said_(shared<said>(static_cast<std::size_t>(size))) {}
  group(group&&) = delete;
  ~group() {
    for (::pid_t pid : pids_) ::kill(pid, SIGKILL);
    wait();
    ::munmap(said_, static_cast<std::size_t>(size_) * sizeof(said));
  }

  /// Forks one more child, which says what `f` returns.
  template <class F>
  ::pid_t start(F&& f) {
    std::size_t const index = pids_.size();
    said_[index].code = -1;
    ::pid_t const pid = ::fork();
    if (pid == 0) {
      ::alarm(60);
      std::int64_t const begun = collectx::detail::monotonic_now();
      collectx::status const s = f();
      said_[index].rank = s.rank();
      std::snprintf(said_[index].text, sizeof said_[index].text, "%s", s.what());
      said_[index].seconds = static_cast<double>(collectx::detail::monotonic_now() - begun) * 1e-9;
      said_[index].code = static_cast<int>(s.code());
      ::_exit(0);
    }
    pids_.push_back(pid);
    return pid;
  }
  ::pid_t pid(int index) const { return pids_[static_cast<std::size_t>(index)]; }
  void kill(int index) { ::kill(pid(index), SIGKILL); }
  void wait() {
    for (::pid_t pid : pids_) ::waitpid(pid, nullptr, 0);
    pids_.clear();
  }
  said const& operator[](int index) const { return said_[index]; }

 private:
  int size_;
  said* said_;
  std::vector<::pid_t> pids_;
};

/// f(thread) -> status in so many threads of this process: the first that failed.
template <class F>
collectx::status by_threads(int threads, F const& f) {
  std::vector<collectx::status> ends(static_cast<std::size_t>(threads));
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) all.emplace_back([&, t] { ends[static_cast<std::size_t>(t)] = f(t); });
  for (std::thread& t : all) t.join();
  for (collectx::status const& s : ends)
    if (!s.ok()) return s;
  return {};
}

/// Ways in which a process exits without destroying what it holds: as it is, in another order, by a static, in a thread. One more is
/// without what is to be done at exit.
inline constexpr int ways_to_exit = 4;
template <class Comm>
[[noreturn]] void end(int way, bool first_goes_first, Comm& first, Comm& second) {
  if (way == ways_to_exit) ::_exit(0);
  if (way == 1) {
    if (first_goes_first) auto gone = std::move(first);
    auto gone = std::move(second);
  }
  static std::optional<Comm> kept;
  if (way == 2) kept.emplace(std::move(second));
  if (way == 3) std::thread([] { std::exit(0); }).join();
  std::exit(0);
}
/// Waits for them; whether all left by themselves, with 0.
inline bool all_ended_well(std::vector<::pid_t> const& children) {
  bool well = true;
  for (::pid_t child : children) {
    int state = 0;
    ::waitpid(child, &state, 0);
    well = well && WIFEXITED(state) && WEXITSTATUS(state) == 0;
  }
  return well;
}

inline std::vector<std::string> names_in(char const* folder) {
  std::vector<std::string> names;
  if (::DIR* d = ::opendir(folder)) {
    while (::dirent* e = ::readdir(d)) names.push_back(e->d_name);
    ::closedir(d);
  }
  return names;
}
inline std::size_t count_in(char const* folder) { return names_in(folder).size(); }

/// A path nobody else has, removed with its folder.
class scratch {
 public:
  scratch() { folder_ = ::mkdtemp(name_); }
  scratch(scratch&&) = delete;
  ~scratch() {
    ::unlink(file().c_str());
    ::rmdir(folder_.c_str());
  }
  std::string const& folder() const { return folder_; }
  std::string file() const { return folder_ + "/meet"; }

 private:
  char name_[40] = "/tmp/collectx_test_XXXXXX";
  std::string folder_;
};

/// One message each way round the ring of ranks; what arrives must be what was sent.
template <class Transport>
collectx::status pass_round(Transport& t, std::uint64_t sequence, std::size_t bytes, int lane = 0) {
  int const next = (t.rank() + 1) % t.size(), previous = (t.rank() + t.size() - 1) % t.size();
  if (t.size() == 1) return {};
  collectx::call_record record;
  record.sequence = sequence;
  record.tag = 1;
  t.begin(record);
  std::byte* out = nullptr;
  for (int polls = 1; (out = t.channel_to(next, lane).try_acquire(bytes)) == nullptr; ++polls) {
    if (collectx::status s = t.idle(polls, next); !s) return s;
  }
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i + sequence + static_cast<std::size_t>(t.rank()));
  t.channel_to(next, lane).commit(bytes, static_cast<std::uint32_t>(sequence));
  collectx::message in;
  for (int polls = 1; (in = t.channel_from(previous, lane).try_peek()).data == nullptr; ++polls) {
    if (collectx::status s = t.idle(polls, previous); !s) return s;
  }
  bool good = in.bytes == bytes && in.tag == static_cast<std::uint32_t>(sequence);
  for (std::size_t i = 0; good && i < bytes; ++i) {
    good = in.data[i] == static_cast<std::byte>(i + sequence + static_cast<std::size_t>(previous));
  }
  t.channel_from(previous, lane).release();
  t.end();
  if (!good) return collectx::status::failure(collectx::errc::system, previous, "wrong message in round %d", static_cast<int>(sequence));
  return {};
}

}  // namespace processes
