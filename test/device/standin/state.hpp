// SPDX-License-Identifier: Apache-2.0
/// The state behind the stand-in: memory by address, streams, and the count of calls.
#pragma once

#include "standin.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace standin {

enum class origin { device, host, registered, opened, mapped };

/// One stretch of memory that the process knows. `file` backs it where others may map it.
struct region {
  std::size_t bytes = 0;
  origin from = origin::device;
  int device = 0;
  int file = -1;
  std::uint64_t id = 0;
  int users = 1;             // of one that was opened
  ino_t exporter = 0;        // the file that was opened
  std::uint64_t handle = 0;  // of mapped physical memory
};

/// Physical memory of the driver's virtual memory management.
struct physical {
  int file = -1;
  std::size_t bytes = 0;
  int users = 1;  // handles and mappings
  std::uint64_t id = 0;
  bool shareable = false;
};

using job = std::function<void()>;

struct state {
  std::recursive_mutex lock;
  std::map<std::uintptr_t, region> regions;
  std::map<std::uintptr_t, std::size_t> reserved;  // addresses
  std::map<std::uint64_t, physical> handles;
  std::multimap<std::size_t, std::uintptr_t> freed;  // addresses that are given out again, as a real allocator does
  std::map<void const*, std::pair<body_maker, void*>> bodies;
  std::vector<CUstream_st*> streams;
  std::uint64_t next_id = 1;
  int capturing = 0;

  static state& get() {
    static state* const one = new state;  // never destroyed: programs end while streams still wait
    return *one;
  }
  /// The region that holds an address, or the end.
  std::map<std::uintptr_t, region>::iterator find(std::uintptr_t at) {
    auto next = regions.upper_bound(at);
    if (next == regions.begin()) return regions.end();
    --next;
    return at < next->first + next->second.bytes ? next : regions.end();
  }
};

inline std::uintptr_t number(void const* p) { return reinterpret_cast<std::uintptr_t>(p); }
inline void* pointer(std::uintptr_t n) { return reinterpret_cast<void*>(n); }

inline int setting(char const* name, int otherwise) {
  char const* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

/// The device that the thread has chosen, or -1: then it is the first.
inline thread_local int chosen_device = -1;

/// Counts a call; true where it is the one that is to fail.
bool strikes(char const* name);

/// An address for `bytes` of a file, preferably one that was freed.
void* place(int file, std::size_t bytes);

}  // namespace standin

/// A stream: jobs in order, on a thread of its own.
struct CUstream_st {
  explicit CUstream_st(int on) : device(on), worker([this] { work(); }) {}
  ~CUstream_st() {
    push({});
    worker.join();
  }
  void push(standin::job j) {
    std::lock_guard const held(lock);
    jobs.push_back(std::move(j));
    changed.notify_all();
  }
  void drain() {
    std::unique_lock held(lock);
    changed.wait(held, [this] { return jobs.empty(); });
  }
  bool idle() {
    std::lock_guard const held(lock);
    return jobs.empty();
  }

  int const device;
  std::vector<standin::job>* recording = nullptr;  // of a capture
  bool spoilt = false;                             // by a call that a capture forbids

 private:
  void work() {
    for (;;) {
      standin::job* next;
      {
        std::unique_lock held(lock);
        changed.wait(held, [this] { return !jobs.empty(); });
        next = &jobs.front();
      }
      bool const last = !*next;
      if (!last) (*next)();
      std::lock_guard const held(lock);
      jobs.pop_front();
      changed.notify_all();
      if (last) return;
    }
  }
  std::mutex lock;
  std::condition_variable changed;
  std::deque<standin::job> jobs;
  std::thread worker;
};
