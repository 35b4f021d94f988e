// SPDX-License-Identifier: Apache-2.0
// compile: -O0 everywhere
// labels: threads
/// Calls of blocks that cannot end well end on every rank, say why, and are the last of their group.
#include <collectx/algo/direct.hpp>
#include <collectx/algo/double_binary_tree.hpp>
#include <collectx/algo/ring.hpp>
#include <collectx/exec/passes.hpp>
#include <collectx/reduce/functors.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "support/on_blocks.hpp"

namespace cx = collectx;
using cx::device::flagged;
using cx::device::low_latency;
using cx::device::outcome;

namespace {

constexpr int n = 4;
constexpr cx::nanoseconds timeout = 1000;

/// A clock that stands still until somebody moves it.
class still_clock {
 public:
  class block : public cx::device::cpu_block {
   public:
    block(cx::device::cpu_block given, std::atomic<cx::nanoseconds>& time) : cpu_block(given), time_(&time) {}
    cx::nanoseconds now() const { return time_->load(); }

   private:
    std::atomic<cx::nanoseconds>* time_;
  };
  block of(cx::device::cpu_block given) { return {given, time_}; }
  void pass(cx::nanoseconds time) { time_ += time; }

 private:
  std::atomic<cx::nanoseconds> time_{1};
};

/// A group of four that makes one call after the other.
template <class Protocol>
class four {
 public:
  template <class Family, class C = cx::all_reduce>
  explicit four(Family const& family, C const& collective = {}, int blocks = 1)
      : group_(layout(blocks)),
        call_(group_, support::plans_of(cx::schedule_of(family, collective), collective, n), count, blocks),
        blocks_(blocks) {
    group_.timeout = timeout;
    for (int r = 0; r < n; ++r) {
      memory_.emplace_back(count, r + 1);
      results_.emplace_back(count);
    }
    for (std::size_t r = 0; r < n; ++r) {
      call_.of(static_cast<int>(r)).memory.input = memory_[r].data();
      call_.of(static_cast<int>(r)).memory.output = results_[r].data();
    }
  }

  support::block_group<Protocol>& group() { return group_; }
  cx::exec::device_call<int>& of(int rank) { return call_.of(rank); }

  std::vector<outcome> run(int absent = -1) {
    return call_.run(
        2, cx::sum{}, [&](cx::device::cpu_block block) { return clock_.of(block); }, absent);
  }
  /// Runs, and meanwhile, as soon as all ranks but `absent` have said whom they wait for, does something.
  template <class F>
  std::vector<outcome> run_until_stuck(int absent, F const& then) {
    std::vector<outcome> ends;
    std::thread calls([&] { ends = run(absent); });
    for (int r = 0; r < n; ++r)
      for (int b = 0; b < blocks_ && r != absent;) {
        if ((load(group_.world(r).word(r, group_.layout().waiting_word(b))) & 0xffffu) != 0)
          ++b;
        else
          std::this_thread::yield();
      }
    then();
    calls.join();
    return ends;
  }
  void time_passes() { clock_.pass(2 * timeout); }
  std::string text(int rank, int block = 0) {
    return cx::device::describe(group_.reports(rank)[static_cast<std::size_t>(block)], rank, "all_reduce").what();
  }
  cx::device::report const& report(int rank, int block = 0) { return group_.reports(rank)[static_cast<std::size_t>(block)]; }
  bool right() const {
    for (auto const& r : results_)
      for (int x : r)
        if (x != 1 + 2 + 3 + 4) return false;
    return true;
  }

 private:
  static constexpr std::size_t count = 100;
  static cx::device::layout layout(int blocks) {
    cx::device::layout l;
    l.ranks = n;
    l.blocks = blocks;
    l.slots = l.low_latency = {4, 64};
    return l;
  }
  static std::uint64_t load(std::uint64_t& word) { return cx::device::system_atomics::load_acquire(word); }

  support::block_group<Protocol> group_;
  support::call_on_blocks<Protocol, int> call_;
  int blocks_;
  std::vector<std::vector<int>> memory_, results_;
  still_clock clock_;
};

bool says(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

template <class Protocol, class Family>
void nobody_waits_for_ever(Family const& family) {
  for (int absent = 0; absent < n; ++absent) {
    CAPTURE(absent);
    four<Protocol> group(family, cx::all_reduce{}, 2);
    std::vector<outcome> const ends = group.run_until_stuck(absent, [&] { group.time_passes(); });
    for (int r = 0; r < n; ++r) {
      if (r == absent) continue;
      CAPTURE(group.text(r));
      CHECK(ends[static_cast<std::size_t>(r)] != outcome::done);
      for (int b = 0; b < 2; ++b) {
        CHECK(group.report(r, b).call == 1);
        CHECK(group.report(r, b).verdict.culprit == absent);
      }
      CHECK(says(group.text(r), "rank " + std::to_string(absent)));
    }
  }
}

}  // namespace

TEST_CASE("a rank that never comes is named by all others at the deadline, however far away it is") {
  nobody_waits_for_ever<flagged<>>(cx::algo::ring{});
  nobody_waits_for_ever<low_latency<>>(cx::algo::ring{});
  nobody_waits_for_ever<flagged<>>(cx::algo::double_binary_tree{});
  nobody_waits_for_ever<low_latency<>>(cx::algo::direct{});
}

TEST_CASE("a late rank says how long it waited for whom, in which call, step, chunk and block") {
  four<flagged<>> group(cx::algo::ring{});
  REQUIRE(group.run() == std::vector<outcome>(n, outcome::done));
  CHECK(group.right());
  static_cast<void>(group.run_until_stuck(2, [&] { group.time_passes(); }));
  int tellers = 0;
  for (int r : {0, 1, 3}) {
    if (group.report(r).verdict.reporter != r) continue;
    ++tellers;
    std::string const text = group.text(r);
    CAPTURE(text);
    CHECK(says(
        text, "timeout: rank " + std::to_string(r) + " waited 0.000 s for rank " + std::to_string((r + 3) % n) + " in all_reduce, call 2"));
    CHECK(says(text, "block 0; the waits end at rank 2"));
  }
  CHECK(tellers > 0);
}

TEST_CASE("a host may look for reports while the call still runs") {
  four<flagged<>> group(cx::algo::ring{});
  bool seen = false;
  static_cast<void>(group.run_until_stuck(2, [&] {
    group.time_passes();
    cx::device::report& report = group.group().world(3).reports[0];
    while (cx::device::system_atomics::load_acquire(report.call) == 0) std::this_thread::yield();
    seen = says(group.text(3), "rank 2");
  }));
  CHECK(seen);
}

TEST_CASE("ranks that make different calls are named on both sides, and the others stop too") {
  four<flagged<>> group(cx::algo::ring{});
  for (int r = 0; r < n; ++r) group.of(r).identity = r == 1 ? 8 : 7;
  std::vector<outcome> const ends = group.run();
  bool named = false;
  for (int r = 0; r < n; ++r) {
    CHECK(ends[static_cast<std::size_t>(r)] != outcome::done);
    named = named || says(group.text(r), "ranks 1 and 0 make different calls") || says(group.text(r), "ranks 2 and 1 make different calls");
  }
  CHECK(named);
}

TEST_CASE("a message of another length is a call of another kind, with low latency too") {
  four<low_latency<>> group(cx::algo::ring{});
  group.of(3).memory.count = 60;
  for (outcome end : group.run()) CHECK(end != outcome::done);
}

TEST_CASE("whoever sets the abort word ends the calls of all ranks, and what comes after them") {
  four<flagged<>> group(cx::algo::ring{});
  cx::device::verdict const by_host{outcome::aborted, 2, -1};
  std::vector<outcome> const ends = group.run_until_stuck(2, [&] {
    for (int r = 0; r < n; ++r)
      cx::device::system_atomics::store_release(group.group().world(r).word(r, group.group().layout().abort_word()), by_host.word());
  });
  for (int r : {0, 1, 3}) {
    CHECK(ends[static_cast<std::size_t>(r)] == outcome::aborted);
    CHECK(says(group.text(r), "rank 2 aborts, so rank " + std::to_string(r) + " stops"));
  }
  for (outcome end : group.run()) CHECK(end == outcome::aborted);
  for (int r : {0, 1, 3}) CHECK(group.report(r).call == 1);  // the first failure is what is told
}

TEST_CASE("a verdict and its word") {
  for (outcome what : {outcome::aborted, outcome::late, outcome::conflict})
    for (int reporter : {0, 1, 77, 100'000})
      for (int culprit : {-1, 0, 5, 70'000}) {
        cx::device::verdict const v = cx::device::verdict::of(cx::device::verdict{what, reporter, culprit}.word());
        CHECK(v.what == what);
        CHECK(v.reporter == reporter);
        CHECK(v.culprit == culprit);
      }
  CHECK(cx::device::verdict{}.word() != cx::device::verdict{outcome::aborted, 0, 0}.word());
  CHECK(cx::device::describe({}, 0, "").ok());
}
