// SPDX-License-Identifier: Apache-2.0
// compile: -O0
// cores: 1
/// The protocols by which two parties share memory, under a model checker (Relacy): a load may give any value that C++ allows, in the
/// orders of threads that the checker tries. The sources are those that run; only the words are the checker's. Mutants have to be found.
#include <collectx/device/barrier.cuh>
#include <collectx/device/slots.cuh>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <ostream>
#include <streambuf>

// Last, since it gives meanings of its own to words of the language.
#include <relacy/relacy.hpp>

namespace cx = collectx;
using cx::device::word_pair;

namespace {

/// The words of one iteration, as the checker keeps them: each found by its address, zero at first.
class words {
 public:
  static inline words* now = nullptr;

  void begin() {
    now = this;
    used_ = 0;
    for (auto& word : words_) word($).store(0, rl::mo_relaxed);
  }
  rl::atomic<std::uint64_t>& of(void const* address) {
    int i = 0;
    while (i < used_ && addresses_[i] != address) ++i;
    RL_ASSERT(i < most);
    if (i == used_) addresses_[used_++] = address;
    return words_[i];
  }

 private:
  static constexpr int most = 24;
  rl::atomic<std::uint64_t> words_[most];
  void const* addresses_[most] = {};
  int used_ = 0;
};

/// A policy of atomics whose words are the checker's.
template <rl::memory_order Load = rl::mo_acquire, rl::memory_order Store = rl::mo_release>
struct checked {
  static std::uint64_t load_acquire(std::uint64_t& word) { return words::now->of(&word)($).load(Load); }
  static void store_release(std::uint64_t& word, std::uint64_t value) { words::now->of (&word)($).store(value, Store); }
  static word_pair load_pair(word_pair& from) {
    word_pair seen;
    seen.low = words::now->of(&from.low)($).load(rl::mo_relaxed);
    seen.high = words::now->of(&from.high)($).load(rl::mo_relaxed);
    return seen;
  }
  /// The checker goes through orders of threads and not of stores, so both orders are here, in turn.
  static void store_pair(word_pair& to, word_pair value) {
    static unsigned turn = 0;
    bool const high_first = ++turn % 2 == 0;
    words::now->of(high_first ? &to.high : &to.low)($).store(high_first ? value.high : value.low, rl::mo_relaxed);
    words::now->of(high_first ? &to.low : &to.high)($).store(high_first ? value.low : value.high, rl::mo_relaxed);
  }
};

/// A block of one thread, whose waiting lets the other one run.
class lone_block {
 public:
  int rank() const { return 0; }
  int size() const { return 1; }
  int index() const { return 0; }
  int count() const { return 1; }
  void sync() const {}
  bool any(bool yes) const { return yes; }
  std::byte* shared() const { return nullptr; }
  void relax() const { rl::yield(1, $); }
  cx::nanoseconds now() const { return 0; }
};

constexpr int slots = 2, messages = 5;

/// A ring from one thread to another. What lies in a slot is a variable that the checker watches for races.
template <class Sender, class Receiver>
struct ring_suite : rl::test_suite<ring_suite<Sender, Receiver>, 2> {
  words memory;
  rl::var<int> payload[slots];
  cx::slot_line lines[slots] = {};
  std::uint64_t released = 0;
  Sender sender;
  Receiver receiver;

  void before() {
    memory.begin();
    for (auto& p : payload) p($) = -1;
    cx::slot_ring const ring{lines, &released, nullptr, slots, 0};
    sender = Sender(ring);
    receiver = Receiver(ring);
  }
  void thread(unsigned index) { index == 0 ? send() : receive(); }
  rl::var<int>& in(std::byte const* slot) { return payload[(slot - reinterpret_cast<std::byte const*>(lines)) / 64]; }

  void send() {
    for (int i = 0; i < messages; ++i) {
      std::byte* slot = nullptr;
      while ((slot = sender.try_acquire(8)) == nullptr) rl::yield(1, $);
      in(slot)($) = i;
      sender.commit(8, static_cast<std::uint32_t>(i));
    }
  }
  void receive() {
    for (int i = 0; i < messages; ++i) {
      cx::message m;
      while ((m = receiver.try_peek()).data == nullptr) rl::yield(1, $);
      RL_ASSERT(in(m.data)($) == i && m.tag == static_cast<std::uint32_t>(i));
      receiver.release();
      receiver.flush();
    }
  }
};

template <class SendAtomics, class ReceiveAtomics = SendAtomics>
using ring_with = ring_suite<cx::ring_sender<SendAtomics>, cx::ring_receiver<ReceiveAtomics>>;

/// Publishes before what it publishes is written.
struct hasty_sender : cx::ring_sender<checked<>> {
  using cx::ring_sender<checked<>>::ring_sender;
  std::byte* try_acquire(std::size_t bytes) {
    std::byte* const slot = ring_sender::try_acquire(bytes);
    if (slot != nullptr) ring_sender::commit(bytes, sent_++);
    return slot;
  }
  void commit(std::size_t, std::uint32_t) {}

 private:
  std::uint32_t sent_ = 0;
};
/// Gives a slot back before it is read.
struct hasty_receiver : cx::ring_receiver<checked<>> {
  using cx::ring_receiver<checked<>>::ring_receiver;
  cx::message try_peek() {
    cx::message const m = ring_receiver::try_peek();
    if (m.data != nullptr) ring_receiver::release(), ring_receiver::flush();
    return m;
  }
  void release() {}
};

/// Low-latency messages of 8 bytes from one thread to another.
template <class Cell>
struct cells_suite : rl::test_suite<cells_suite<Cell>, 2> {
  using protocol = cx::device::low_latency<checked<>, Cell>;
  static constexpr std::uint32_t per_slot = 3;
  words memory;
  word_pair cells[slots * per_slot];
  std::uint64_t credit = 0, abort = 0;
  std::uint32_t staging[2][8] = {};
  typename protocol::sender sender;
  typename protocol::receiver receiver;
  cx::device::world world;
  std::byte* window = nullptr;

  void before() {
    memory.begin();
    sender = {};
    receiver = {};
    prepare(sender, 0);
    prepare(receiver, 1);
    window = reinterpret_cast<std::byte*>(&abort);
    world.windows = &window;
    world.layout.ranks = 1;
  }
  template <class End>
  void prepare(End& end, int index) {
    end.cells = cells;
    end.credit = &credit;
    end.staging = reinterpret_cast<std::byte*>(staging[index]);
    end.slots = slots;
    end.cells_per_slot = per_slot;
  }
  void thread(unsigned index) { index == 0 ? send() : receive(); }

  void send() {
    lone_block block;
    for (std::uint32_t i = 0; i < messages; ++i) {
      while (sender.try_acquire(8) == nullptr) rl::yield(1, $);
      staging[0][0] = 10 + i;
      staging[0][1] = 20 + i;
      sender.put(block, 8, i);
      sender.commit(8, i);
    }
  }
  void receive() {
    lone_block block;
    for (std::uint32_t i = 0; i < messages; ++i) {
      cx::message m;
      while ((m = receiver.try_peek()).data == nullptr) rl::yield(1, $);
      cx::device::patience<checked<>, lone_block> waiting(block, world);
      RL_ASSERT(m.tag == i && m.bytes == 8);
      RL_ASSERT(receiver.fetch(block, 8, waiting) == cx::device::outcome::done);
      RL_ASSERT(staging[1][0] == 10 + i && staging[1][1] == 20 + i);
      receiver.release();
      receiver.flush();
    }
  }
};

/// Carries half as much again, and believes that 16 bytes arrive at once.
struct one_flag_for_all {
  static constexpr int payload_words = 3;
  static word_pair pack(std::uint32_t const* payload, std::uint32_t flag) {
    return {payload[0] | std::uint64_t{payload[1]} << 32, payload[2] | std::uint64_t{flag} << 32};
  }
  static bool unpack(word_pair cell, std::uint32_t flag, std::uint32_t* payload) {
    payload[0] = static_cast<std::uint32_t>(cell.low);
    payload[1] = static_cast<std::uint32_t>(cell.low >> 32);
    payload[2] = static_cast<std::uint32_t>(cell.high);
    return cell.high >> 32 == flag;
  }
};

/// Two ranks that read one another's variable between two meetings, call after call. `Meetings` 1: they forget the second.
template <class Atomics, int Meetings = 2>
struct barrier_suite : rl::test_suite<barrier_suite<Atomics, Meetings>, 2> {
  static constexpr int calls = 3;
  words memory;
  rl::var<int> registered[2];
  alignas(64) std::byte windows[2][1024];
  std::byte* bases[2] = {};
  cx::device::world world;

  void before() {
    memory.begin();
    for (auto& r : registered) r($) = -1;
    for (int r = 0; r < 2; ++r) bases[r] = windows[r];
    world.windows = bases;
    world.layout.ranks = 2;
  }
  void thread(unsigned index) {
    int const me = static_cast<int>(index);
    cx::device::world mine = world;
    mine.rank = me;
    lone_block block;
    for (int call = 1; call <= calls; ++call) {
      registered[me]($) = 10 * call + me;
      cx::device::barrier<Atomics, lone_block> all(block, mine, static_cast<std::uint64_t>(call), 7);
      RL_ASSERT(all.meet());
      RL_ASSERT(registered[1 - me]($) == 10 * call + 1 - me);
      if (Meetings == 2) RL_ASSERT(all.meet());
    }
  }
};

/// Takes no memory, for the checker has operators new and delete of its own.
class silence : public std::streambuf {
  int overflow(int c) override { return c; }
};

/// What the checker finds wrong, or null.
template <class Suite>
char const* flaw(rl::scheduler_type_e how) {
  silence nothing;
  std::ostream said(&nothing);
  rl::test_params p;
  p.search_type = how;
  p.iteration_count = 10000;
  p.context_bound = 2;
  p.output_stream = p.progress_stream = &said;
  p.progress_output_period = 1000;
  return rl::simulate<Suite>(p) ? nullptr : rl::test_result_str(p.test_result);
}

template <class Suite>
void is_sound() {
  CHECK(flaw<Suite>(rl::random_scheduler_type) == nullptr);
}
template <class Suite>
void is_wrong(char const* what) {
  char const* const found = flaw<Suite>(rl::random_scheduler_type);
  std::printf("%s: %s\n", what, found == nullptr ? "not found" : found);
  CHECK(found != nullptr);
}

using relaxed_load = checked<rl::mo_relaxed, rl::mo_release>;
using relaxed_store = checked<rl::mo_acquire, rl::mo_relaxed>;

}  // namespace

TEST_CASE("slot rings are sound, and their mutants are found") {
  is_sound<ring_with<checked<>>>();
  CHECK(flaw<ring_with<checked<>>>(rl::fair_context_bound_scheduler_type) == nullptr);
  is_wrong<ring_with<relaxed_store, checked<>>>("messages published relaxed");
  is_wrong<ring_with<checked<>, relaxed_load>>("messages looked for relaxed");
  is_wrong<ring_with<checked<>, relaxed_store>>("credits published relaxed");
  is_wrong<ring_with<relaxed_load, checked<>>>("credits looked for relaxed");
  is_wrong<ring_suite<hasty_sender, cx::ring_receiver<checked<>>>>("published before it is written");
  is_wrong<ring_suite<cx::ring_sender<checked<>>, hasty_receiver>>("given back before it is read");
}

TEST_CASE("cells with a flag in each half are sound, and one flag for 16 bytes is found") {
  is_sound<cells_suite<cx::device::halves_with_flags>>();
  is_wrong<cells_suite<one_flag_for_all>>("one flag for 16 bytes");
}

TEST_CASE("meetings of ranks are sound, and their mutants are found") {
  is_sound<barrier_suite<checked<>>>();
  is_wrong<barrier_suite<relaxed_store>>("phases published relaxed");
  is_wrong<barrier_suite<relaxed_load>>("phases looked for relaxed");
  is_wrong<barrier_suite<checked<>, 1>>("only one meeting");
}
