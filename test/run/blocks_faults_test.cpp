// SPDX-License-Identifier: Apache-2.0
// compile: -O0
// labels: threads
// timeout: 240
/// What the tests of blocks would find: faults planted in synchronisation, atomics and protocols, of which each has to be reported by the
/// race detector or to give a wrong result. Each runs as a process of its own, since it may end it.
#include <collectx/algo/direct.hpp>
#include <collectx/algo/ring.hpp>
#include <collectx/exec/passes.hpp>
#include <collectx/reduce/functors.hpp>

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/on_blocks.hpp"
#include "support/sanitizers.hpp"
#include "support/seed.hpp"

namespace cx = collectx;
using cx::device::cpu_block;
using cx::device::flagged;
using cx::device::low_latency;
using cx::device::system_atomics;

namespace {

constexpr int n = 3;
constexpr std::size_t count = 300;
cx::nanoseconds patience = 20'000'000'000;
constexpr std::uint64_t identity = 5;

std::uint32_t element(int rank, std::size_t i, int call) {
  return static_cast<std::uint32_t>(rank + 1) * 1000003u + static_cast<std::uint32_t>(i) * 31u + static_cast<std::uint32_t>(call) * 7919u;
}

cx::device::layout narrow(int slots) {
  cx::device::layout l;
  l.ranks = n;
  l.slots = l.low_latency = {slots, 128};
  return l;
}

/// Calls one after the other, and a look at their results: how many elements are wrong, or -1 where a call fails. In a ring ranks wait for
/// one another soon; down a chain the root runs ahead for as long as there are credits.
template <class Protocol, class C, class Block>
int wrong_elements(int calls, int threads, int slots, Block const& of_block) {
  cx::exec::list<cx::exec::plan> plans = support::plans_of(cx::schedule_of(cx::algo::ring{}, C{}), C{}, n);
  support::block_group<Protocol> group(narrow(slots));
  group.timeout = patience;
  support::call_on_blocks<Protocol, std::uint32_t> call(group, plans, count, 1);
  int wrong = 0;
  for (int k = 0; k < calls && wrong == 0; ++k) {
    std::vector<std::vector<std::uint32_t>> in(n, std::vector<std::uint32_t>(count)), out = in;
    for (int r = 0; r < n; ++r) {
      std::size_t const at = static_cast<std::size_t>(r);
      for (std::size_t i = 0; i < count; ++i) in[at][i] = element(r, i, k);
      call.of(r).memory.input = in[at].data();
      call.of(r).memory.output = C::reduces || r > 0 ? out[at].data() : in[at].data();
      call.of(r).identity = identity;
    }
    for (cx::device::outcome how : call.run(threads, cx::sum{}, of_block))
      if (how != cx::device::outcome::done) return -1;
    for (std::size_t r = C::reduces ? 0 : 1; r < n; ++r)
      for (std::size_t i = 0; i < count; ++i)
        if (out[r][i] != element(0, i, k) + (C::reduces ? element(1, i, k) + element(2, i, k) : 0)) ++wrong;
  }
  return wrong;
}

/// Now and then a thread falls behind the others, as the seed says.
class hesitant : public cpu_block {
 public:
  explicit hesitant(cpu_block block)
      : cpu_block(block),
        random_(support::seed() + static_cast<std::uint64_t>(block.rank()) + reinterpret_cast<std::uintptr_t>(block.shared())) {}
  void sync() {
    cpu_block::sync();
    if (random_.below(16) == 0)
      for (int i = 0; i < 20; ++i) ::sched_yield();
  }

 private:
  support::random_stream random_;
};

template <class Protocol, class C = cx::all_reduce>
int wrong_elements(int slots = 4) {
  return wrong_elements<Protocol, C>(support::under_thread_sanitizer ? 6 : 20, 2, slots, [](cpu_block block) { return hesitant(block); });
}

/// Synchronises but every other time.
template <int Forgotten>
class forgetful : public cpu_block {
 public:
  explicit forgetful(cpu_block block) : cpu_block(block) {}
  void sync() {
    if (turn_++ % 2 != Forgotten) cpu_block::sync();
  }

 private:
  int turn_ = 0;
};
template <class Protocol, int Forgotten>
int forgets() {
  return wrong_elements<Protocol, cx::all_reduce>(200, 2, 4, [](cpu_block block) { return forgetful<Forgotten>(block); });
}

struct relaxed_release : system_atomics {
  static void store_release(std::uint64_t& word, std::uint64_t value) noexcept { __atomic_store_n(&word, value, __ATOMIC_RELAXED); }
};
struct relaxed_acquire : system_atomics {
  static std::uint64_t load_acquire(std::uint64_t& word) noexcept { return __atomic_load_n(&word, __ATOMIC_RELAXED); }
};

/// Stores halves of 16 bytes one after the other, in an order that the seed gives, with time between them.
struct torn : system_atomics {
  static void store_pair(cx::device::word_pair& to, cx::device::word_pair value) noexcept {
    thread_local support::random_stream random(support::seed() + reinterpret_cast<std::uintptr_t>(&to));
    bool const high_first = random.below(2) == 0, pause = random.below(8) == 0;
    __atomic_store_n(high_first ? &to.high : &to.low, high_first ? value.high : value.low, __ATOMIC_RELAXED);
    if (pause) ::sched_yield();
    __atomic_store_n(high_first ? &to.low : &to.high, high_first ? value.low : value.high, __ATOMIC_RELAXED);
  }
};
/// A cell that would carry half as much again, if 16 bytes were stored whole.
struct one_flag_for_all {
  static constexpr int payload_words = 3;
  static cx::device::word_pair pack(std::uint32_t const* payload, std::uint32_t flag) {
    return {payload[0] | std::uint64_t{payload[1]} << 32, payload[2] | std::uint64_t{flag} << 32};
  }
  static bool unpack(cx::device::word_pair cell, std::uint32_t flag, std::uint32_t* payload) {
    payload[0] = static_cast<std::uint32_t>(cell.low);
    payload[1] = static_cast<std::uint32_t>(cell.low >> 32);
    payload[2] = static_cast<std::uint32_t>(cell.high);
    return cell.high >> 32 == flag;
  }
};

/// Tells of a message when its slot is free, before it is filled.
struct early_flag : flagged<> {
  class sender : public cx::ring_sender<system_atomics> {
   public:
    sender() = default;
    explicit sender(cx::ring_sender<system_atomics> const& other) : cx::ring_sender<system_atomics>(other) {}
    std::byte* try_acquire(std::size_t bytes) {
      std::byte* const slot = ring_sender::try_acquire(bytes);
      if (slot != nullptr) ring_sender::commit(bytes, cx::detail::tag_of(identity, count, ++messages_ / messages_per_call + 1));
      return slot;
    }
    void commit(std::size_t, std::uint32_t) {}

   private:
    static constexpr std::uint64_t messages_per_call = 1u << 20;  // one call is enough
    std::uint64_t messages_ = 0;
  };
  template <class... Where>
  static sender make_sender(Where const&... where) {
    return sender(flagged<>::make_sender(where...));
  }
};

/// Gives a slot back before it has been read.
struct early_credit : flagged<> {
  class receiver : public cx::ring_receiver<system_atomics> {
   public:
    receiver() = default;
    explicit receiver(cx::ring_receiver<system_atomics> const& other) : cx::ring_receiver<system_atomics>(other) {}
    cx::message try_peek() {
      cx::message const m = ring_receiver::try_peek();
      if (m.data != nullptr) ring_receiver::release(), ring_receiver::flush();
      return m;
    }
    void release() {}
  };
  template <class... Where>
  static receiver make_receiver(Where const&... where) {
    return receiver(flagged<>::make_receiver(where...));
  }
};

/// Thinks there is one slot more than there is.
struct one_credit_too_many : low_latency<> {
  class sender : public low_latency<>::sender {
   public:
    sender() = default;
    explicit sender(low_latency<>::sender const& other) : low_latency<>::sender(other) {}
    std::byte* try_acquire(std::size_t bytes) {
      std::byte* const slot = low_latency<>::sender::try_acquire(bytes);
      if (slot != nullptr || overdrawn_ == number) return slot;
      overdrawn_ = number + 1;
      return staging;
    }

   private:
    std::uint64_t overdrawn_ = 0;
  };
  template <class... Where>
  static sender make_sender(Where const&... where) {
    return sender(low_latency<>::make_sender(where...));
  }
};

struct planted {
  char const* name;
  int (*run)();
  bool seen_by_results;  ///< else by the race detector only
};

constexpr planted sound[] = {
    {"nothing, flags", [] { return wrong_elements<flagged<>>(); }, true},
    {"nothing, down a chain", [] { return wrong_elements<flagged<>, cx::broadcast>(2); }, true},
    {"nothing, low latency, down a chain", [] { return wrong_elements<low_latency<>, cx::broadcast>(2); }, true},
    {"nothing, 16 bytes torn in halves", [] { return wrong_elements<low_latency<torn>>(); }, true},
};
constexpr planted faults[] = {
    {"no sync before the folds", [] { return forgets<flagged<>, 0>(); }, false},
    {"no sync behind the folds", [] { return forgets<flagged<>, 1>(); }, false},
    {"no sync before the folds, low latency", [] { return forgets<low_latency<>, 0>(); }, false},
    {"relaxed store where a release belongs", [] { return wrong_elements<flagged<relaxed_release>>(); }, false},
    {"relaxed load where an acquire belongs", [] { return wrong_elements<flagged<relaxed_acquire>>(); }, false},
    {"flag before data", [] { return wrong_elements<early_flag>(); }, true},
    {"slot given back before it is read", [] { return wrong_elements<early_credit, cx::broadcast>(2); }, true},
    {"one credit too many", [] { return wrong_elements<one_credit_too_many, cx::broadcast>(2); }, true},
    {"one flag for 16 bytes, torn in halves", [] { return wrong_elements<low_latency<torn, one_flag_for_all>>(); }, true},
};

constexpr int race = 66, mistake = 67, nothing = 0;

/// The exit code of a process that runs one of them: what it has found. Whatever hangs ends by itself.
int in_a_process(planted const& p) {
  ::pid_t const child = ::fork();
  if (child == 0) {
    ::setenv("TSAN_OPTIONS", "exitcode=66 halt_on_error=1 log_path=/dev/null", 1);
    ::setenv("COLLECTX_PLANTED", p.name, 1);
    ::alarm(100);
    ::execl("/proc/self/exe", "blocks_faults_test", "--test-case=one planted fault", "--no-skip", static_cast<char*>(nullptr));
    ::_exit(1);
  }
  int how = 0;
  if (::waitpid(child, &how, 0) != child || !WIFEXITED(how)) return -1;
  return WEXITSTATUS(how);
}

}  // namespace

TEST_CASE("one planted fault" * doctest::skip()) {
  char const* const wanted = std::getenv("COLLECTX_PLANTED");
  REQUIRE(wanted != nullptr);
  for (planted const* list : {sound, faults})
    for (planted const* p = list; p != list + (list == sound ? std::size(sound) : std::size(faults)); ++p)
      if (std::string(p->name) == wanted) {
        if (list == faults) patience = 1'000'000'000;  // a message that was overwritten is waited for in vain
        ::_exit(p->run() == 0 ? nothing : mistake);
      }
  REQUIRE(false);
}

TEST_CASE("sound protocols are not reported") {
  for (planted const& p : sound) {
    CAPTURE(p.name);
    CHECK(in_a_process(p) == nothing);
  }
}

TEST_CASE("planted faults are reported") {
  for (planted const& p : faults) {
    if (!p.seen_by_results && !support::under_thread_sanitizer) continue;
    CAPTURE(p.name);
    int const found = in_a_process(p);
    std::printf("%s: %s\n", p.name, found == race ? "a race" : found == mistake ? "a wrong result" : "not found");
    CHECK((found == race || found == mistake));
  }
}
