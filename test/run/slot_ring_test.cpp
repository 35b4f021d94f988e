// SPDX-License-Identifier: Apache-2.0
// labels: sanitize
#include <collectx/transport/slot_ring.hpp>

#include <doctest/doctest.h>

#include "processes.hpp"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>

#if defined(__SANITIZE_THREAD__)
#define TEST_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_THREAD_SANITIZER 1
#endif
#endif
#if !defined(TEST_THREAD_SANITIZER)
#define TEST_THREAD_SANITIZER 0
#endif

namespace cx = collectx;

namespace {

/// One party only, so that the compiler can run the ring.
struct plain_words {
  static constexpr std::uint64_t load_acquire(std::uint64_t& word) { return word; }
  static constexpr void store_release(std::uint64_t& word, std::uint64_t value) { word = value; }
};

template <int Slots>
struct constant_ring {
  static constexpr std::size_t slot_bytes = 128;
  cx::slot_line lines[std::size_t{Slots}] = {};
  std::uint64_t released = 0;
  std::byte data[std::size_t{Slots} * cx::slot_ring::stride(slot_bytes)] = {};
  constexpr cx::slot_ring ring() { return {lines, &released, data, Slots, slot_bytes}; }
};

template <int Slots>
constexpr bool passes_in_order(std::uint64_t start) {
  constant_ring<Slots> memory;
  cx::ring_sender<plain_words> sender(memory.ring(), start);
  cx::ring_receiver<plain_words> receiver(memory.ring(), start);
  unsigned sent = 0, taken = 0;
  while (taken < 5 * Slots) {
    for (; sent < 5 * Slots; ++sent) {
      std::size_t const bytes = sent % 2 == 0 ? 8 : 100;
      std::byte* const slot = sender.try_acquire(bytes);
      if (slot == nullptr) break;
      for (std::size_t i = 0; i < bytes; ++i) slot[i] = static_cast<std::byte>(sent + i);
      sender.commit(bytes, sent);
    }
    if (sent - taken > static_cast<unsigned>(Slots)) return false;
    cx::message const m = receiver.try_peek();
    if (m.data == nullptr || m.tag != taken || m.bytes != (taken % 2 == 0 ? 8u : 100u)) return false;
    for (std::size_t i = 0; i < m.bytes; ++i) {
      if (m.data[i] != static_cast<std::byte>(taken + i)) return false;
    }
    receiver.release();
    receiver.flush();
    ++taken;
  }
  return receiver.try_peek().data == nullptr;
}
static_assert(passes_in_order<1>(0) && passes_in_order<2>(0) && passes_in_order<3>(7) && passes_in_order<9>(0));
constexpr std::uint64_t before_wrap = (std::uint64_t{1} << 32) - 3;  // after it a 32-bit counter would start again
static_assert(passes_in_order<4>(before_wrap) && passes_in_order<5>(before_wrap) && passes_in_order<3>(~std::uint64_t{5}));

/// A ring in memory that a forked child shares.
class shared_ring {
 public:
  shared_ring(int slots, std::size_t slot_bytes) {
    std::size_t const n = static_cast<std::size_t>(slots), lines = (n + 1) * 64;
    bytes_ = lines + n * cx::slot_ring::stride(slot_bytes);
    memory_ = processes::shared<std::byte>(bytes_);
    cx::slot_line* const line = reinterpret_cast<cx::slot_line*>(memory_);
    ring = {line, &line[n].sequence, memory_ + lines, slots, slot_bytes};
  }
  shared_ring(shared_ring&&) = delete;
  ~shared_ring() { ::munmap(memory_, bytes_); }

  cx::slot_ring ring;

 private:
  std::byte* memory_;
  std::size_t bytes_;
};

/// Sizes on both sides of what travels in the line, up to a full slot; every message is one of a kind.
std::size_t size_of(std::uint64_t i, std::size_t most) { return static_cast<std::size_t>(i * 2654435761u >> 7) % (most + 1); }
std::byte byte_of(std::uint64_t i, std::size_t at) { return static_cast<std::byte>(i * 31 + at * 7); }

template <class Atomics>
void send_all(cx::slot_ring const& ring, std::uint64_t count, std::uint64_t start) {
  cx::ring_sender<Atomics> sender(ring, start);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::size_t const bytes = size_of(i, ring.slot_bytes);
    std::byte* slot;
    while ((slot = sender.try_acquire(bytes)) == nullptr) ::sched_yield();
    for (std::size_t k = 0; k < bytes; ++k) slot[k] = byte_of(i, k);
    sender.commit(bytes, static_cast<std::uint32_t>(i));
  }
}

template <class Atomics>
std::uint64_t receive_all(cx::slot_ring const& ring, std::uint64_t count, std::uint64_t start) {
  cx::ring_receiver<Atomics> receiver(ring, start);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    cx::message m;
    while ((m = receiver.try_peek()).data == nullptr) {
      receiver.flush();
      ::sched_yield();
    }
    bool good = m.bytes == size_of(i, ring.slot_bytes) && m.tag == static_cast<std::uint32_t>(i);
    for (std::size_t k = 0; good && k < m.bytes; ++k) good = m.data[k] == byte_of(i, k);
    wrong += good ? 0 : 1;
    receiver.release();
  }
  return wrong;
}

}  // namespace

// Few slots mean a handover per message, which takes milliseconds where others want the cores: so the number of messages follows the slots.
TEST_CASE("two threads: every message arrives once, whole and in order, whatever the number of slots") {
  for (int slots : {1, 2, 3, 7, 8, 16, 64}) {
    for (std::uint64_t start : {std::uint64_t{0}, before_wrap}) {
      shared_ring memory(slots, 192);
      std::uint64_t const count = 100 + 100 * static_cast<std::uint64_t>(slots);
      std::uint64_t wrong = 1;
      std::thread receiver([&] { wrong = receive_all<cx::host_atomics>(memory.ring, count, start); });
      send_all<cx::host_atomics>(memory.ring, count, start);
      receiver.join();
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("two processes: every message arrives once, whole and in order") {
  for (int slots : {1, 3, 64}) {
    shared_ring memory(slots, 4096);
    std::uint64_t const count = 100 + 50 * static_cast<std::uint64_t>(slots);
    processes::group g(1);
    g.start([&]() -> cx::status {
      send_all<cx::host_atomics>(memory.ring, count, 0);
      return {};
    });
    CHECK(receive_all<cx::host_atomics>(memory.ring, count, 0) == 0);
    g.wait();
    CHECK(g[0].code == 0);
  }
}

TEST_CASE("a ring takes as many messages as it has slots, and again as many after one has been released and its credit flushed") {
  for (int slots = 1; slots <= 20; ++slots) {
    shared_ring memory(slots, 64);
    cx::ring_sender<> sender(memory.ring);
    cx::ring_receiver<> receiver(memory.ring);
    for (int i = 0; i < slots; ++i) {
      REQUIRE(sender.try_acquire(64) != nullptr);
      sender.commit(64, 0);
    }
    for (int i = 0; i < 3 * slots; ++i) {
      CHECK(sender.try_acquire(8) == nullptr);
      REQUIRE(receiver.try_peek().data != nullptr);
      receiver.release();
      receiver.flush();
      REQUIRE(sender.try_acquire(8) != nullptr);
      sender.commit(8, 0);
    }
  }
}

TEST_CASE("credits come back in quarters of the ring without a flush, one by one where there are few") {
  for (int slots : {1, 2, 7, 8, 64}) {
    int const batch = slots < 8 ? 1 : slots / 4;
    shared_ring memory(slots, 64);
    cx::ring_sender<> sender(memory.ring);
    cx::ring_receiver<> receiver(memory.ring);
    for (int i = 0; i < slots; ++i) {
      REQUIRE(sender.try_acquire(1) != nullptr);
      sender.commit(1, 0);
    }
    for (int i = 1; i <= batch; ++i) {
      CHECK(sender.try_acquire(1) == nullptr);
      REQUIRE(receiver.try_peek().data != nullptr);
      receiver.release();
    }
    CHECK(sender.try_acquire(1) != nullptr);
  }
}

TEST_CASE("asked again before commit or release, a channel gives the same") {
  shared_ring memory(4, 256);
  cx::ring_sender<> sender(memory.ring);
  cx::ring_receiver<> receiver(memory.ring);
  std::byte* const slot = sender.try_acquire(200);
  REQUIRE(slot != nullptr);
  CHECK(sender.try_acquire(200) == slot);
  CHECK(receiver.try_peek().data == nullptr);
  sender.commit(200, 9);
  cx::message const m = receiver.try_peek();
  CHECK(m.data == slot);
  CHECK(receiver.try_peek().data == slot);
  CHECK(receiver.try_peek().tag == 9);
  receiver.release();
  CHECK(receiver.try_peek().data == nullptr);
}

TEST_CASE("a slot acquired for more than is committed still carries what was written") {
  shared_ring memory(2, 256);
  cx::ring_sender<> sender(memory.ring);
  cx::ring_receiver<> receiver(memory.ring);
  for (std::size_t bytes : {std::size_t{0}, std::size_t{5}, std::size_t{48}, std::size_t{49}}) {
    std::byte* const slot = sender.try_acquire(256);
    REQUIRE(slot != nullptr);
    for (std::size_t i = 0; i < 256; ++i) slot[i] = byte_of(bytes, i);
    sender.commit(bytes, 0);
    cx::message const m = receiver.try_peek();
    REQUIRE(m.data != nullptr);
    CHECK(m.bytes == bytes);
    bool same = true;
    for (std::size_t i = 0; i < bytes; ++i) same = same && m.data[i] == byte_of(bytes, i);
    CHECK(same);
    receiver.release();
  }
}

TEST_CASE("a small message leaves the slot's data area untouched, and every payload is aligned") {
  shared_ring memory(5, 512);
  cx::ring_sender<> sender(memory.ring);
  std::size_t const bytes = 5 * cx::slot_ring::stride(512);
  std::memset(memory.ring.data, 0x77, bytes);
  for (int i = 0; i < 5; ++i) {
    std::size_t const size = i == 3 ? 49 : 48;
    std::byte* const slot = sender.try_acquire(size);
    REQUIRE(slot != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(slot) % (i == 3 ? 64 : 16) == 0);
    std::memset(slot, 1, size);
    sender.commit(size, 0);
  }
  std::size_t touched = 0;
  for (std::size_t i = 0; i < bytes; ++i) touched += memory.ring.data[i] != std::byte{0x77} ? 1 : 0;
  CHECK(touched == 49);
}

TEST_CASE("slots do not share cache sets: consecutive areas are an odd number of lines apart") {
  for (std::size_t slot_bytes : {std::size_t{128}, std::size_t{4096}, std::size_t{65536}}) {
    CHECK(cx::slot_ring::stride(slot_bytes) % 64 == 0);
    CHECK(cx::slot_ring::stride(slot_bytes) / 64 % 2 == 1);
  }
}

TEST_CASE("a closed end never gives anything") {
  shared_ring memory(2, 64);
  cx::ring_sender<> sender(memory.ring);
  cx::ring_receiver<> receiver(memory.ring);
  REQUIRE(sender.try_acquire(8) != nullptr);
  sender.commit(8, 0);
  receiver.close();
  CHECK(receiver.try_peek().data == nullptr);
  receiver.flush();
  sender.close();
  CHECK(sender.try_acquire(8) == nullptr);
}

#if TEST_THREAD_SANITIZER

namespace {

/// The fault a race detector has to see: the message may be published before it is written.
struct relaxed_store : cx::host_atomics {
  static void store_release(std::uint64_t& word, std::uint64_t value) noexcept {
    std::atomic_ref<std::uint64_t>(word).store(value, std::memory_order_relaxed);
  }
};

}  // namespace

TEST_CASE("planted fault: a relaxed store where a release belongs" * doctest::skip()) {
  shared_ring memory(4, 192);
  std::thread receiver([&] { receive_all<relaxed_store>(memory.ring, 2000, 0); });
  send_all<relaxed_store>(memory.ring, 2000, 0);
  receiver.join();
}

TEST_CASE("ThreadSanitizer reports the planted fault, so its silence elsewhere means something") {
  ::pid_t const child = ::fork();
  if (child == 0) {
    ::setenv("TSAN_OPTIONS", "exitcode=66 halt_on_error=1 log_path=/dev/null", 1);
    ::execl("/proc/self/exe", "slot_ring_test", "--test-case=planted fault*", "--no-skip", static_cast<char*>(nullptr));
    ::_exit(1);
  }
  int how = 0;
  REQUIRE(::waitpid(child, &how, 0) == child);
  REQUIRE(WIFEXITED(how));
  CHECK(WEXITSTATUS(how) == 66);
}

#endif
