// SPDX-License-Identifier: Apache-2.0
// labels: sanitize
// timeout: 180
// compile: -O0
/// Groups out of groups: split, subgroup, duplicate, over threads and processes.
#include <collectx/algo/hierarchical.hpp>
#include <collectx/launch.hpp>

#include <doctest/doctest.h>

#include <sys/resource.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "processes.hpp"
#include "support/ranks.hpp"
#include "support/sanitizers.hpp"

namespace cx = collectx;
using support::all_succeed;
using support::on_each_rank;
using support::says;
using support::text;
using support::wrong;

namespace {

using ints = std::vector<int>;

template <class Comm>
cx::status sum_is(Comm& comm, int mine, int expected) {
  ints both{mine};
  if (cx::status s = comm.all_reduce(cx::in_place(both), cx::sum{}); !s) return s;
  if (both[0] == expected) return {};
  return cx::status::failure(cx::errc::system, comm.rank(), "sum %d instead of %d", both[0], expected);
}

/// The same on threads and on processes.
template <class F>
void on_both(int n, F&& f) {
  cx::status s = cx::loopback::run(n, f);
  CHECK_MESSAGE(s.ok(), text(s));
  s = cx::shared_memory::run(n, f);
  CHECK_MESSAGE(s.ok(), text(s));
}

/// Takes part in a split as far as everybody hears of it, and does not come to the founding.
template <class Comm>
cx::status vote(Comm& comm) {
  struct voter : Comm {
    explicit voter(Comm&& c) : Comm(std::move(c)) {}
    cx::status operator()() {
      cx::detail::ballot const mine{0, 0, 0};
      std::vector<cx::detail::ballot> all(static_cast<std::size_t>(this->size()));
      return this->moving(cx::all_gather{}, std::span(&mine, 1), std::span(all), cx::algo::automatic{}, {}, "for split");
    }
  } one(std::move(comm));
  cx::status const s = one();
  comm = std::move(one);
  return s;
}

long resident_kib() {
  char text[2048];
  if (cx::detail::read_small_file("/proc/self/status", text, sizeof text) <= 0) return -1;
  char const* const line = std::strstr(text, "VmRSS:");
  return line == nullptr ? -1 : std::strtol(line + 6, nullptr, 10);
}

}  // namespace

TEST_CASE("ranks of one color, ordered by key, then by rank") {
  on_both(5, [](auto& comm) -> cx::status {
    int const me = comm.rank();
    auto odd = comm.split(me % 2, -me);
    if (!odd) return odd.error();
    int const size = me % 2 == 0 ? 3 : 2;
    if (odd->size() != size || odd->rank() != (4 - me) / 2) return wrong(me, "wrong place");
    if (cx::status s = sum_is(*odd, me, me % 2 == 0 ? 6 : 4); !s) return s;
    auto same = comm.split(7, me / 2);
    if (!same) return same.error();
    if (same->rank() != me || same->size() != 5) return wrong(me, "ties are not by rank");
    return sum_is(*same, 1, 5);
  });
}

TEST_CASE("SPL-01: any negative color is no group; colors have 63 bits, and one beyond is an error of its rank alone") {
  on_both(4, [](auto& comm) -> cx::status {
    int const me = comm.rank();
    std::int64_t const colors[] = {-1, INT_MIN, 2147483653, INT_MAX};
    auto mine = comm.split(colors[me]);
    if (!mine) return mine.error();
    if (mine->size() != (me < 2 ? 0 : 1)) return wrong(me, "wrong size");
    auto pair = comm.split(me < 2 ? -1 : 2147483653);
    if (!pair) return pair.error();
    if (me >= 2)
      if (cx::status s = sum_is(*pair, me, 5); !s) return s;
    auto beyond = me == 1 ? comm.split(~std::uint64_t{0}) : comm.split(std::uint64_t{3});
    if (me != 1) return beyond ? sum_is(*beyond, me, 5) : beyond.error();
    return beyond.error().code() == cx::errc::invalid_argument && says(beyond.error(), "a color beyond 63 bits") ? cx::status{}
                                                                                                                 : wrong(me, "accepted");
  });
}

TEST_CASE("SPL-03: a rank that opted out has an empty communicator, whose calls say so") {
  on_both(4, [](auto& comm) -> cx::status {
    int const me = comm.rank();
    auto sub = comm.split(me % 2 == 0 ? 0 : -1);
    if (!sub) return sub.error();
    if (me % 2 == 0) return sub->size() == 2 ? sum_is(*sub, me + 1, 4) : wrong(me, "wrong size");
    if (sub->size() != 0 || sub->rank() != -1) return wrong(me, "not empty");
    ints a(2), b(2);
    cx::status const said[] = {sub->all_reduce(a, b, cx::sum{}),
                               sub->all_reduce(cx::in_place(a), cx::sum{}),
                               sub->all_gather(cx::in_place(a)),
                               sub->reduce_scatter(cx::in_place(a), cx::sum{}),
                               sub->broadcast(a, 0),
                               sub->reduce(a, b, cx::sum{}, 0),
                               sub->barrier(),
                               sub->send(a, 0),
                               sub->recv(a, 0),
                               sub->send_recv(a, 0, b, 0),
                               sub->plan_all_reduce(a, b, cx::sum{}).start(),
                               sub->plan_barrier().start(),
                               sub->plan_recv(a, 0).start(),
                               sub->abort(),
                               sub->split(0).error(),
                               sub->duplicate().error(),
                               sub->subgroup(ints{}).error(),
                               sub->shrink(ints{}).error()};
    for (cx::status const& s : said)
      if (s.code() != cx::errc::invalid_argument || !says(s, "this communicator is empty")) return wrong(me, "not refused");
    return sub->lost().empty() ? cx::status{} : wrong(me, "somebody is lost");
  });
}

TEST_CASE("SPL-04: nested splits that leave ranks out") {
  on_both(8, [](auto& comm) -> cx::status {
    int const me = comm.rank();
    auto half = comm.split(me / 4);
    if (!half) return half.error();
    if (cx::status s = sum_is(*half, me, me < 4 ? 6 : 22); !s) return s;
    auto rest = half->split(half->rank() == 0 ? -1 : 0);
    if (!rest) return rest.error();
    if (half->rank() == 0) return {};
    if (cx::status s = sum_is(*rest, me, me < 4 ? 6 : 18); !s) return s;
    auto parity = rest->split(me % 2);
    if (!parity) return parity.error();
    int const expected[] = {0, 4, 2, 4, 0, 12, 6, 12};
    return sum_is(*parity, me, expected[me]);
  });
}

TEST_CASE("ORD-09: three groups of two out of three ranks, used in different orders") {
  on_both(3, [](auto& comm) -> cx::status {
    int const me = comm.rank(), ten[] = {1, 10, 100};
    auto ab = comm.subgroup(ints{0, 1}), bc = comm.subgroup(ints{1, 2}), ac = comm.subgroup(ints{0, 2});
    if (!ab || !bc || !ac) return wrong(me, "no subgroup");
    auto& first = me == 2 ? bc : ab;
    auto& second = me == 1 ? bc : ac;
    for (int round = 0; round < 300; ++round) {
      if (cx::status s = sum_is(*first, ten[me], me == 2 ? 110 : 11); !s) return s;
      if (cx::status s = sum_is(*second, ten[me], me == 1 ? 110 : 101); !s) return s;
    }
    return {};
  });
}

TEST_CASE("a subgroup has the order of its list; lists that differ or cannot be are errors") {
  on_both(4, [](auto& comm) -> cx::status {
    int const me = comm.rank();
    auto some = comm.subgroup(ints{3, 0, 2});
    if (!some) return some.error();
    int const place[] = {1, -1, 2, 0};
    if (some->rank() != place[me]) return wrong(me, "wrong place");
    if (me != 1)
      if (cx::status s = sum_is(*some, me, 5); !s) return s;
    cx::status const differ = comm.subgroup(me == 2 ? ints{0, 1} : ints{1, 0}).error();
    if (differ.code() != cx::errc::mismatch || !says(differ, "call subgroup with different lists of ranks")) return wrong(me, "differ");
    if (!says(comm.subgroup(ints{0, 4}).error(), "rank 4 is not in a group of 4")) return wrong(me, "no such rank");
    if (!says(comm.subgroup(ints{2, 1, 2}).error(), "rank 2 is named twice")) return wrong(me, "twice");
    return sum_is(comm, 1, 4);
  });
}

TEST_CASE("a group made alike: slots, lanes, and the time to come together") {
  cx::transport_options o;
  o.slots = 5;
  o.slot_bytes = 512;
  o.lanes = 2;
  o.join_timeout = std::chrono::seconds(33);
  auto const alike = [](auto& comm) -> cx::status {
    auto other = comm.duplicate();
    if (!other) return other.error();
    cx::transport_options const seen = other->transport().options();
    bool const same = seen.slots == 5 && seen.slot_bytes == 512 && seen.lanes == 2 && seen.join_timeout == std::chrono::seconds(33);
    return same ? cx::status{} : wrong(comm.rank(), "other options");
  };
  cx::status s = cx::loopback::run(2, o, alike);
  CHECK_MESSAGE(s.ok(), text(s));
  s = cx::shared_memory::run(2, o, alike);
  CHECK_MESSAGE(s.ok(), text(s));
}

TEST_CASE("many communicators of the same ranks at once: no message goes astray, whoever is destroyed first") {
  on_both(3, [](auto& comm) -> cx::status {
    using comm_type = std::remove_cvref_t<decltype(comm)>;
    int const me = comm.rank(), n = comm.size();
    std::vector<std::optional<comm_type>> all;
    for (int k = 0; k < 12; ++k) {
      auto made = k % 3 == 2 ? all.back()->duplicate() : comm.split(0, k % 2 == 0 ? me : -me);
      if (!made) return made.error();
      all.emplace_back(std::move(*made));
    }
    for (int round = 0; round < 20; ++round)
      for (int k = 0; k < 12; ++k) {  // messages of all are under way before any is received
        auto& c = *all[static_cast<std::size_t>(k)];
        if (cx::status s = c.send(ints{1000 * k + 10 * round + c.rank()}, (c.rank() + 1) % n); !s) return s;
        if (round % 3 == k % 3)
          if (cx::status s = sum_is(c, k, 3 * k); !s) return s;
      }
    for (int k = 11; k >= 0; --k) {
      auto& c = *all[static_cast<std::size_t>(k)];
      for (int round = 0; round < 20; ++round) {
        ints in(1);
        int const from = (c.rank() + n - 1) % n;
        if (cx::status s = c.recv(in, from); !s) return s;
        if (in[0] != 1000 * k + 10 * round + from) return wrong(me, "a message of another communicator");
      }
    }
    for (int k = 0; k < 12; ++k) {  // parents before children, in another order on each rank
      all[static_cast<std::size_t>((5 * k + me) % 12)].reset();
      if (cx::status s = sum_is(comm, 1, n); !s) return s;
    }
    return {};
  });
}

TEST_CASE("a child outlives its parent") {
  auto table = cx::in_process_rendezvous::create(3);
  REQUIRE(table.has_value());
  processes::group g(3);
  for (int r = 0; r < 3; ++r)
    g.start([&, r]() -> cx::status {
      using comm_type = cx::communicator<cx::shared_memory_transport>;
      std::optional<comm_type> child;
      {
        auto parent = cx::shared_memory::join(table->of(r));
        if (!parent) return parent.error();
        auto made = parent->split(0, -r);
        if (!made) return made.error();
        child.emplace(std::move(*made));
      }
      for (int k = 0; k < 100; ++k)
        if (cx::status s = sum_is(*child, r + k, 3 + 3 * k); !s) return s;
      return {};
    });
  g.wait();
  for (int r = 0; r < 3; ++r) CHECK_MESSAGE(g[r].code == 0, std::string(g[r].text));
}

TEST_CASE("LEK-01: 200 rounds of split and destroy leave no descriptor, no thread, and no memory") {
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  processes::group g(2);
  for (int r = 0; r < 2; ++r)
    g.start([&, r]() -> cx::status {
      ::rlimit const few{64, 64};
      ::setrlimit(RLIMIT_NOFILE, &few);
      auto comm = cx::shared_memory::join(table->of(r));
      if (!comm) return comm.error();
      std::size_t descriptors = 0, threads = 0;
      long resident = 0;
      for (int round = 0; round < 200; ++round) {
        auto sub = comm->split(round % 5 == 4 && r == 1 ? -1 : round, round % 2 == 0 ? r : -r);
        if (!sub) return sub.error();
        if (sub->size() == 2) {
          ints both(3000, r + 1);
          if (cx::status s = sub->all_reduce(cx::in_place(both), cx::sum{}); !s) return s;
          if (both != ints(3000, 3)) return wrong(r, "wrong sum");
          ints in(3000);
          if (cx::status s = sub->send_recv(both, 1 - r, in, 1 - r); !s) return s;
        }
        if (round != 20) continue;
        descriptors = processes::count_in("/proc/self/fd");
        threads = processes::count_in("/proc/self/task");
        resident = resident_kib();
      }
      if (processes::count_in("/proc/self/fd") != descriptors) return wrong(r, "descriptors are left");
      if (processes::count_in("/proc/self/task") != threads) return wrong(r, "threads are left");
      long const grown = resident_kib() - resident;
      if (!support::under_sanitizer && grown > 2048) return cx::status::failure(cx::errc::system, r, "grown by %ld KiB", grown);
      return {};
    });
  g.wait();
  for (int r = 0; r < 2; ++r) CHECK_MESSAGE(g[r].code == 0, std::string(g[r].text));
}

TEST_CASE("LEK-01: 300 groups of four threads, one after the other, leave no descriptor and no thread") {
  std::size_t descriptors = 0, threads = 0;
  int const cycles = support::under_sanitizer ? 50 : 300;
  for (int cycle = 0; cycle < cycles; ++cycle) {
    all_succeed(4, [](auto& comm) -> cx::status { return sum_is(comm, comm.rank(), 6); });
    if (cycle == 3) descriptors = processes::count_in("/proc/self/fd"), threads = processes::count_in("/proc/self/task");
  }
  CHECK(processes::count_in("/proc/self/fd") == descriptors);
  CHECK(processes::count_in("/proc/self/task") == threads);
}

TEST_CASE("threads of two processes split at once, each its own communicator") {
  constexpr int threads = 4;
  std::vector<cx::in_process_rendezvous> tables;
  for (int t = 0; t < threads; ++t) {
    auto table = cx::in_process_rendezvous::create(2);
    REQUIRE(table.has_value());
    tables.push_back(std::move(*table));
  }
  processes::group g(2);
  for (int r = 0; r < 2; ++r)
    g.start([&, r]() -> cx::status {
      std::vector<cx::status> ends(threads);
      std::vector<std::thread> all;
      for (int t = 0; t < threads; ++t)
        all.emplace_back([&, t] {
          cx::status& end = ends[static_cast<std::size_t>(t)];
          auto comm = cx::shared_memory::join(tables[static_cast<std::size_t>(t)].of(r));
          if (!comm) {
            end = comm.error();
            return;
          }
          for (int round = 0; round < 20 && end.ok(); ++round) {
            auto sub = comm->duplicate();
            end = sub ? sum_is(*sub, 100 * t + r, 200 * t + 1) : sub.error();
          }
        });
      for (std::thread& t : all) t.join();
      for (cx::status const& s : ends)
        if (!s.ok()) return s;
      return {};
    });
  g.wait();
  for (int r = 0; r < 2; ++r) CHECK_MESSAGE(g[r].code == 0, std::string(g[r].text));
}

TEST_CASE("a rank that makes another call instead of a split is named") {
  std::vector<cx::status> const ends = on_each_rank(3, [](auto& comm) -> cx::status {
    if (comm.rank() == 1) return comm.barrier();
    return comm.split(0).error();
  });
  for (cx::status const& s : ends) {
    CHECK_MESSAGE(s.code() == cx::errc::mismatch, text(s));
    CHECK_MESSAGE(says(s, "for split"), text(s));
  }
}

TEST_CASE("a rank that dies while ranks split is named, and nobody waits for the deadline") {
  auto table = cx::in_process_rendezvous::create(3);
  REQUIRE(table.has_value());
  for (int victim : {0, 1, 2}) {
    CAPTURE(victim);
    processes::group g(3);
    for (int r = 0; r < 3; ++r)
      g.start([&, r]() -> cx::status {
        auto comm = cx::shared_memory::join(table->of(r));
        if (!comm) return comm.error();
        if (cx::status s = comm->barrier(); !s) return s;
        if (r == victim) {
          cx::status const s = vote(*comm);
          ::kill(::getpid(), SIGKILL);
          return s;
        }
        return comm->split(0).error();
      });
    g.wait();
    for (int r = 0; r < 3; ++r) {
      if (r == victim) continue;
      CHECK_MESSAGE(g[r].code == static_cast<int>(cx::errc::peer_lost), std::string(g[r].text));
      CHECK_MESSAGE(g[r].rank == victim, std::string(g[r].text));
      CHECK(g[r].seconds < 30);
    }
  }
}

TEST_CASE("abort ends a founding that would wait for a rank that does not come") {
  for (int absent : {0, 1})
    for (bool threads : {true, false}) {
      CAPTURE(absent);
      CAPTURE(threads);
      auto const f = [absent](auto& comm) -> cx::status {
        if (comm.rank() == absent) {
          if (cx::status s = vote(comm); !s) return s;
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          (void)comm.abort(cx::status::failure(cx::errc::aborted, absent, "no group today"));
          return {};
        }
        auto const begun = std::chrono::steady_clock::now();
        cx::status const s = comm.split(0).error();
        if (s.code() != cx::errc::aborted || !says(s, "no group today")) return wrong(comm.rank(), s.what());
        bool const soon = std::chrono::steady_clock::now() - begun < std::chrono::seconds(20);
        return soon ? cx::status{} : wrong(comm.rank(), "it took as long as the deadline");
      };
      cx::status const s = threads ? cx::loopback::run(3, f) : cx::shared_memory::run(3, f);
      CHECK_MESSAGE(s.ok(), text(s));
    }
}

TEST_CASE("LEK-03: foundings that fail half way leave no descriptor, and the next one succeeds") {
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  processes::group g(2);
  for (int r = 0; r < 2; ++r)
    g.start([&, r]() -> cx::status {
      auto comm = cx::shared_memory::join(table->of(r));
      if (!comm) return comm.error();
      std::size_t descriptors = 0;
      for (int round = 0; round < 12; ++round) {
        ::rlimit limit{};
        ::getrlimit(RLIMIT_FSIZE, &limit);
        ::rlimit const small{1 << 16, limit.rlim_max};
        if (r == 0 && round % 2 == 0) ::setrlimit(RLIMIT_FSIZE, &small);
        auto made = comm->duplicate();
        ::setrlimit(RLIMIT_FSIZE, &limit);
        if (round % 2 == 0 && made.error().code() != cx::errc::out_of_memory) return wrong(r, "no error, or another");
        if (round % 2 == 1)
          if (cx::status s = made ? sum_is(*made, 1, 2) : made.error(); !s) return s;
        if (round == 2) descriptors = processes::count_in("/proc/self/fd");
      }
      return processes::count_in("/proc/self/fd") == descriptors ? cx::status{} : wrong(r, "descriptors are left");
    });
  g.wait();
  for (int r = 0; r < 2; ++r) CHECK_MESSAGE(g[r].code == 0, std::string(g[r].text));
}

TEST_CASE("FRK-03: processes that end without destroying, in any order, by a static, or by exit in a thread, all end well") {
  std::size_t const before = processes::count_in("/dev/shm");
  for (int way = 0; way <= processes::ways_to_exit; ++way) {
    CAPTURE(way);
    auto table = cx::in_process_rendezvous::create(3);
    REQUIRE(table.has_value());
    std::vector<::pid_t> children;
    std::fflush(nullptr);  // a child that ends by exit would print what is pending here
    std::cout.flush();
    for (int r = 0; r < 3; ++r) {
      ::pid_t const child = ::fork();
      if (child != 0) {
        children.push_back(child);
        continue;
      }
      ::alarm(60);
      auto comm = cx::shared_memory::join(table->of(r));
      if (!comm) ::_exit(1);
      auto child_group = comm->duplicate();
      if (!child_group || !sum_is(*child_group, 1, 3)) ::_exit(2);
      processes::end(way, r == 1, *comm, *child_group);
    }
    CHECK(processes::all_ended_well(children));
  }
  CHECK(processes::count_in("/dev/shm") == before);
}

TEST_CASE("LEK-07: 20000 calls of mixed sizes and 500 groups made and gone take no more memory than the first few") {
  auto table = cx::in_process_rendezvous::create(4);
  REQUIRE(table.has_value());
  int const calls = support::under_sanitizer ? 2000 : 20000, groups = support::under_sanitizer ? 50 : 500;
  processes::group g(4);
  for (int r = 0; r < 4; ++r)
    g.start([&, r]() -> cx::status {
      auto comm = cx::shared_memory::join(table->of(r));
      if (!comm) return comm.error();
      long before = 0;
      auto const grown = [&] { return resident_kib() - before; };
      using two_level = cx::algo::hierarchical<cx::algo::ring, cx::algo::double_binary_tree>;
      ints in(16384, r), out(16384);
      for (int k = 0; k < calls; ++k) {
        std::size_t const count = std::size_t{2} << k % 14;
        std::span<int> const mine = std::span(in).first(count), sums = std::span(out).first(count);
        bool const by_levels = k % 3 == 0;
        cx::status const s = by_levels ? comm->all_reduce(mine, sums, cx::sum{}, two_level{}) : comm->all_reduce(mine, sums, cx::sum{});
        if (!s) return s;
        if (k == calls / 10) before = resident_kib();
      }
      if (!support::under_sanitizer && grown() > 1024) return cx::status::failure(cx::errc::system, r, "calls: %ld KiB more", grown());
      std::fflush(stdout);
      for (int k = 0; k < groups; ++k) {
        auto sub = comm->duplicate();
        if (cx::status s = sub ? sum_is(*sub, r, 6) : sub.error(); !s) return s;
        if (k == groups / 10) before = resident_kib();
      }
      if (!support::under_sanitizer && grown() > 1024) return cx::status::failure(cx::errc::system, r, "groups: %ld KiB more", grown());
      return {};
    });
  g.wait();
  for (int r = 0; r < 4; ++r) CHECK_MESSAGE(g[r].code == 0, std::string(g[r].text));
}

TEST_CASE("LEK-05: 1000 calls and 1000 planned ones, each on buffers of its own, keep nothing of them") {
  support::all_succeed(2, [](auto& comm) -> cx::status {
    std::vector<std::unique_ptr<ints>> kept;  // so that the next has another address
    long before = 0;
    for (int k = 0; k < 2000; ++k) {
      kept.push_back(std::make_unique<ints>(16384, comm.rank() + k));
      if (kept.size() > 8) kept.erase(kept.begin());
      ints& both = *kept.back();
      if (k % 2 == 0) {
        if (cx::status s = comm.all_reduce(cx::in_place(both), cx::sum{}); !s) return s;
      } else {
        auto planned = comm.plan_all_reduce(cx::in_place(both), cx::sum{});
        if (cx::status s = planned.start(); !s) return s;
        if (cx::status s = planned.wait(); !s) return s;
      }
      if (both.front() != 2 * k + 1 || both.back() != 2 * k + 1) return wrong(comm.rank(), "a wrong sum");
      if (k == 200) before = resident_kib();
    }
    // 112 MiB have come and gone; some pages are the allocator's business.
    return support::under_sanitizer || resident_kib() - before < 4096 ? cx::status{} : wrong(comm.rank(), "memory has grown");
  });
}

TEST_CASE("FRK-01: a forked child that ends, by exit or by destroying its copies, leaves its parent's groups alone") {
  std::fflush(nullptr);  // a child that ends by exit would print what is pending here
  std::cout.flush();
  for (bool destroys : {false, true}) {
    auto table = cx::in_process_rendezvous::create(2);
    REQUIRE(table.has_value());
    processes::group g(2);
    for (int r = 0; r < 2; ++r)
      g.start([&, r]() -> cx::status {
        using comm_type = cx::communicator<cx::shared_memory_transport>;
        static std::vector<comm_type> all;  // which a child that ends by exit destroys
        auto comm = cx::shared_memory::join(table->of(r));
        if (!comm) return comm.error();
        all.push_back(std::move(*comm));
        auto sub = all[0].split(0, -r);
        if (!sub) return sub.error();
        all.push_back(std::move(*sub));
        processes::group child(1);
        child.start([&]() -> cx::status {
          if (!destroys) std::exit(0);
          auto gone = std::move(all);
          return {};
        });
        child.wait();
        for (int k = 0; k < 100; ++k)
          for (comm_type& c : all)
            if (cx::status s = sum_is(c, r + 1, 3); !s) return s;
        return {};
      });
    g.wait();
    for (int r = 0; r < 2; ++r) CHECK_MESSAGE(g[r].code == 0, std::string(g[r].text));
  }
}

TEST_CASE("ranks of a group meet on its board: keys are found, refused twice, few at once, and gone when it is over") {
  auto group = cx::loopback::group::create(3);
  REQUIRE(group.has_value());
  auto a = group->transport(0), b = group->transport(1), c = group->transport(2);
  REQUIRE((a && b && c));
  int const members[] = {2, 0};
  auto const value = [](char const* text) { return cx::rendezvous_value(text, std::strlen(text)); };
  auto const soon = [] { return cx::detail::monotonic_now() + 20'000'000; };
  cx::board_rendezvous<cx::loopback_transport> first(*c, members, 0, "s1", false), second(*a, members, 1, "s1", false);
  CHECK((first.rank() == 0 && second.rank() == 1 && first.size() == 2));
  REQUIRE(first.put("place", value("here")).ok());
  auto got = second.get("place", soon());
  REQUIRE(got.has_value());
  CHECK(got->size() == 4);
  CHECK(std::memcmp(got->data(), "here", 4) == 0);
  cx::status const twice = second.put("place", value("there"));
  CHECK(twice.code() == cx::errc::busy);
  CHECK_MESSAGE(says(twice, "rank 2 has put s1.place"), text(twice));
  cx::status const nobody = second.get("other", soon()).error();
  CHECK(nobody.code() == cx::errc::timeout);
  CHECK_MESSAGE(says(nobody, "nobody has put s1.other"), text(nobody));
  // Another founding does not see it, nor what a rank outside has put.
  cx::board_rendezvous<cx::loopback_transport> later(*a, members, 1, "s2", false);
  CHECK(!later.get("place", soon()).has_value());
  REQUIRE(b->post("s1.outside", value("x")).ok());
  CHECK(!second.get("outside", soon()).has_value());
  REQUIRE(first.put("two", value("2")).ok());
  REQUIRE(first.put("three", value("3")).ok());
  CHECK(first.put("four", value("4")).code() == cx::errc::out_of_memory);
  first.conclude();
  CHECK(!second.get("place", soon()).has_value());
  REQUIRE(first.put("place", value("again")).ok());
  CHECK(second.get("place", soon()).has_value());
}

TEST_CASE("who waits on the board for one that has gone is told so; a failed group ends the wait, but not that of survivors") {
  auto group = cx::loopback::group::create(2);
  REQUIRE(group.has_value());
  int const members[] = {0, 1};
  auto a = group->transport(0);
  REQUIRE(a.has_value());
  cx::board_rendezvous<cx::loopback_transport> meeting(*a, members, 0, "s1", false), survivors(*a, members, 0, "k1", true);
  CHECK(meeting.trouble().ok());
  {
    auto b = group->transport(1);
    REQUIRE(b.has_value());
    CHECK(!b->abort({}).ok());
    CHECK(meeting.trouble().code() == cx::errc::aborted);
    CHECK(survivors.trouble().ok());
  }
  cx::status const s = survivors.get("place", cx::detail::monotonic_now() + 60'000'000'000).error();
  CHECK(s.code() == cx::errc::peer_lost);
  CHECK(s.rank() == 1);
  CHECK(meeting.get("place", cx::detail::monotonic_now() + 60'000'000'000).error().code() == cx::errc::aborted);
}
