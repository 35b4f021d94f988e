// SPDX-License-Identifier: Apache-2.0
// labels: sanitize
// timeout: 180
// compile: -O0
/// Going on without the dead: who is lost, how survivors agree, and what a group does that has failed.
#include <collectx/launch.hpp>

#include <doctest/doctest.h>

#include <sys/types.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "processes.hpp"
#include "support/ranks.hpp"

namespace cx = collectx;
using support::on_each_rank;
using support::says;
using support::text;
using support::wrong;

namespace {

using ints = std::vector<int>;
using processes_comm = cx::communicator<cx::shared_memory_transport>;

template <class Comm>
cx::status sum_is(Comm& comm, int mine, int expected) {
  ints both(100, mine);
  if (cx::status s = comm.all_reduce(cx::in_place(both), cx::sum{}); !s) return s;
  if (both == ints(100, expected)) return {};
  return cx::status::failure(cx::errc::system, comm.rank(), "sum %d instead of %d", both[0], expected);
}

/// A sum whose process is killed at its `at`-th addition.
struct fatal_sum {
  static constexpr bool is_commutative = true;
  std::atomic<int>* left;
  int operator()(int a, int b) const {
    if (left != nullptr && left->fetch_sub(1) == 1) ::kill(::getpid(), SIGKILL);
    return a + b;
  }
};

/// n processes run f(comm, rank); gives what each came to.
template <class F>
std::vector<processes::said> in_processes(int n, cx::transport_options const& options, F&& f) {
  auto table = cx::in_process_rendezvous::create(n);
  REQUIRE(table.has_value());
  processes::group g(n);
  for (int r = 0; r < n; ++r)
    g.start([&, r]() -> cx::status {
      auto comm = cx::shared_memory::join(table->of(r), options);
      return comm ? f(*comm, r) : comm.error();
    });
  g.wait();
  std::vector<processes::said> ends;
  for (int r = 0; r < n; ++r) ends.push_back(g[r]);
  return ends;
}
template <class F>
std::vector<processes::said> in_processes(int n, F&& f) {
  return in_processes(n, cx::transport_options{}, f);
}

/// What the survivors of a rank's death do: hear of it, go on without it, and be right.
template <class Comm>
cx::status goes_on(Comm& comm, int victim, cx::status const& heard) {
  int const me = comm.rank(), n = comm.size();
  if (heard.code() != cx::errc::peer_lost || heard.rank() != victim) return wrong(me, heard.what());
  if (comm.lost() != ints{victim}) return wrong(me, "somebody else is lost");
  auto rest = comm.shrink(comm.lost());
  if (!rest) return rest.error();
  if (rest->size() != n - 1 || rest->rank() != (me < victim ? me : me - 1)) return wrong(me, "wrong place among survivors");
  if (cx::status s = sum_is(*rest, me, n * (n - 1) / 2 - victim); !s) return s;
  if (comm.barrier().code() != cx::errc::peer_lost) return wrong(me, "the old group lives");
  return {};
}

cx::call_options const shortly{std::chrono::seconds(1)};

}  // namespace

TEST_CASE("DIE-02: a process killed at any addition of a collective call: the others hear of it and go on without it") {
  cx::transport_options o;
  o.slots = 2;
  o.slot_bytes = 256;
  for (int victim = 0; victim < 4; ++victim)
    for (int at : {1, 2, 50, 64, 65, 130, 257, 600}) {
      CAPTURE(victim);
      CAPTURE(at);
      auto const ends = in_processes(4, o, [&](auto& comm, int r) -> cx::status {
        std::atomic<int> left{at};
        fatal_sum const op{r == victim ? &left : nullptr};
        ints in(500, r), out(500);
        cx::status s;
        while (s.ok()) s = comm.all_reduce(in, out, op, cx::algo::ring{});
        return goes_on(comm, victim, s);
      });
      for (int r = 0; r < 4; ++r) {
        if (r == victim)
          CHECK(ends[static_cast<std::size_t>(r)].code == -1);
        else
          CHECK_MESSAGE(ends[static_cast<std::size_t>(r)].code == 0, std::string(ends[static_cast<std::size_t>(r)].text));
      }
    }
}

TEST_CASE("DIE-02: a process killed at any step of its messages and of calls under way: the same") {
  cx::transport_options o;
  o.slots = 2;
  o.slot_bytes = 256;
  for (int step = 0; step < 16; ++step) {
    CAPTURE(step);
    int const victim = step % 3;
    auto const ends = in_processes(3, o, [&](auto& comm, int r) -> cx::status {
      ints out(400, r), in(400), sums(400);
      auto around = comm.plan_send_recv(out, (r + 1) % 3, in, (r + 2) % 3);
      auto sum = comm.plan_all_reduce(out, sums, cx::sum{});
      if (cx::status s = around.start(); !s) return s;
      if (cx::status s = sum.start(); !s) return s;
      if (r == victim) {
        for (int k = 0; k < step; ++k)
          if (cx::result<bool> ended = sum.test(); !ended) return ended.error();
        ::kill(::getpid(), SIGKILL);
      }
      cx::status s = around.wait();
      if (s.ok()) s = sum.wait();
      while (s.ok()) s = comm.barrier();
      return goes_on(comm, victim, s);
    });
    for (int r = 0; r < 3; ++r)
      if (r != victim) CHECK_MESSAGE(ends[static_cast<std::size_t>(r)].code == 0, std::string(ends[static_cast<std::size_t>(r)].text));
  }
}

TEST_CASE("a group shrinks again and again, until one is left") {
  auto const ends = in_processes(5, [](auto& first, int r) -> cx::status {
    std::vector<processes_comm> groups;
    groups.push_back(std::move(first));
    for (int dead = 4; dead >= 1; --dead) {
      processes_comm& comm = groups.back();
      if (r == dead) ::kill(::getpid(), SIGKILL);
      cx::status s;
      while (s.ok()) s = comm.barrier();
      if (s.rank() != dead) return s;
      auto rest = comm.shrink(ints{dead});
      if (!rest) return rest.error();
      if (cx::status e = sum_is(*rest, r, dead * (dead - 1) / 2); !e) return e;
      groups.push_back(std::move(*rest));
    }
    return groups.back().size() == 1 ? cx::status{} : wrong(r, "not alone");
  });
  CHECK_MESSAGE(ends[0].code == 0, std::string(ends[0].text));
}

TEST_CASE("threads: ranks that have gone are lost, and the others go on") {
  std::vector<cx::status> const ends = on_each_rank(4, [](auto& comm) -> cx::status {
    int const me = comm.rank();
    if (me == 1 || me == 2) return {};
    cx::status s;
    while (s.ok()) s = comm.barrier();
    while (comm.lost().size() < 2) std::this_thread::yield();
    auto rest = comm.shrink(ints{2, 1});
    return rest ? sum_is(*rest, me, 3) : rest.error();
  });
  for (cx::status const& s : ends) CHECK_MESSAGE(s.ok(), text(s));
}

TEST_CASE("survivors that name different dead are told so, both lists, and may try again") {
  auto const differ = [](auto& comm) -> cx::status {
    int const me = comm.rank();
    cx::status const s = comm.shrink(me == 1 ? ints{2, 3} : ints{2}, shortly).error();
    if (s.code() == cx::errc::ok || s.code() == cx::errc::invalid_argument) return wrong(me, "no error");
    // Rank 3 is no longer waited for by rank 1, but hears of it.
    if (s.code() == cx::errc::mismatch && says(s, "shrinks the group without") && !(says(s, "without 2, 3") && says(s, "without 2,")))
      return wrong(me, s.what());
    return s;
  };
  std::vector<cx::status> const ends = on_each_rank(4, [&](auto& comm) -> cx::status {
    if (comm.rank() == 2) return {};
    while (comm.lost().empty()) std::this_thread::yield();
    return differ(comm);
  });
  for (int r : {0, 1, 3}) {
    cx::status const& s = ends[static_cast<std::size_t>(r)];
    CHECK_MESSAGE((s.code() == cx::errc::mismatch || s.code() == cx::errc::peer_lost), text(s));
  }
  CHECK_MESSAGE(says(ends[0], "rank 0 shrinks the group without 2, rank 1 without 2, 3: name the same ranks"), text(ends[0]));
}

TEST_CASE("after a disagreement the survivors agree in the next attempt") {
  auto const ends = in_processes(3, [](auto& comm, int r) -> cx::status {
    if (r == 2) ::kill(::getpid(), SIGKILL);
    cx::status s;
    while (s.ok()) s = comm.barrier();
    cx::status const first = comm.shrink(r == 0 ? ints{} : ints{2}, cx::call_options{std::chrono::seconds(20)}).error();
    if (first.code() == cx::errc::ok) return wrong(r, "agreed");
    auto rest = comm.shrink(ints{2});
    return rest ? sum_is(*rest, r, 1) : rest.error();
  });
  for (int r : {0, 1}) CHECK_MESSAGE(ends[static_cast<std::size_t>(r)].code == 0, std::string(ends[static_cast<std::size_t>(r)].text));
}

TEST_CASE("whom shrink cannot do without: a rank that is lost but not named, one that never comes, oneself") {
  std::vector<cx::status> const ends = on_each_rank(3, [](auto& comm) -> cx::status {
    if (comm.rank() == 2) return {};
    if (comm.rank() == 1) {
      cx::status const s = comm.shrink(ints{1}).error();
      while (comm.transport().verdict().ok()) std::this_thread::yield();
      return s;
    }
    while (comm.lost().empty()) std::this_thread::yield();
    cx::status const never = comm.shrink(ints{2}, cx::call_options{std::chrono::milliseconds(200)}).error();
    cx::status const unnamed = comm.shrink(ints{1}, shortly).error();
    (void)comm.abort();
    if (never.code() != cx::errc::timeout || never.rank() != 1 || !says(never, "for rank 1 to shrink the group")) return never;
    return unnamed;
  });
  CHECK(ends[0].code() == cx::errc::peer_lost);
  CHECK_MESSAGE(says(ends[0], "rank 2 is lost, too: shrink the group without it"), text(ends[0]));
  CHECK(ends[1].code() == cx::errc::invalid_argument);
  CHECK_MESSAGE(says(ends[1], "rank 1 names itself among the dead"), text(ends[1]));
}

TEST_CASE("a group that is well may shrink, too, and lives on") {
  support::all_succeed(3, [](auto& comm) -> cx::status {
    int const me = comm.rank();
    if (me != 1) {
      auto rest = comm.shrink(ints{1});
      if (!rest) return rest.error();
      if (cx::status s = sum_is(*rest, me, 2); !s) return s;
    }
    return sum_is(comm, me, 3);
  });
}

TEST_CASE("a second death while survivors shrink is named, and the third attempt succeeds") {
  auto const ends = in_processes(4, [](auto& comm, int r) -> cx::status {
    if (r == 3) ::kill(::getpid(), SIGKILL);
    cx::status s;
    while (s.ok()) s = comm.barrier();
    if (r == 2) {
      // It agrees, and is gone when the group comes together.
      ints const dead{3};
      (void)cx::detail::agree_on_dead(comm.transport(), dead, 1, 10'000'000'000);
      ::kill(::getpid(), SIGKILL);
    }
    cx::status const second = comm.shrink(ints{3}).error();
    if (second.code() != cx::errc::peer_lost || second.rank() != 2) return second.ok() ? wrong(r, "no error") : second;
    auto rest = comm.shrink(ints{2, 3});
    return rest ? sum_is(*rest, r, 1) : rest.error();
  });
  for (int r : {0, 1}) CHECK_MESSAGE(ends[static_cast<std::size_t>(r)].code == 0, std::string(ends[static_cast<std::size_t>(r)].text));
}

TEST_CASE("DIE-04: after a timeout no rank passes, not even one for which all messages are there") {
  std::atomic<int> arrived{0}, failed{0};
  std::vector<cx::status> const ends = on_each_rank(5, [&](auto& comm) -> cx::status {
    if (comm.rank() % 2 == 0) {
      for (++arrived; arrived < 3;) std::this_thread::yield();
      cx::status const s = comm.barrier(cx::algo::direct{}, {std::chrono::seconds(1)});
      ++failed;
      return s;
    }
    while (failed < 3) std::this_thread::yield();
    return comm.barrier(cx::algo::direct{});
  });
  for (cx::status const& s : ends) {
    CHECK_MESSAGE(s.code() == cx::errc::timeout, text(s));
    CHECK((s.rank() == 1 || s.rank() == 3));
    CHECK_MESSAGE(says(s, "not yet in this call: 1, 3"), text(s));
  }
}

TEST_CASE("a stopped process is lost to the call at its deadline, and to shrink by name; it hears of it when it goes on") {
  auto *stage = processes::shared<std::atomic<int>>(), *arrived = processes::shared<std::atomic<int>>();
  auto table = cx::in_process_rendezvous::create(3);
  REQUIRE(table.has_value());
  processes::group g(3);
  for (int r = 0; r < 3; ++r)
    g.start([&, r]() -> cx::status {
      auto comm = cx::shared_memory::join(table->of(r));
      if (!comm) return comm.error();
      if (r == 1) {
        *stage = 1;
        while (*stage < 2) cx::detail::nap(1'000'000);
        return comm->barrier();
      }
      for (++*arrived; *arrived < 2 || *stage < 1;) cx::detail::nap(1'000'000);
      cx::status const s = comm->barrier({}, {std::chrono::seconds(1)});
      if (s.code() != cx::errc::timeout || s.rank() != 1) return wrong(r, s.what());
      auto rest = comm->shrink(ints{1});
      if (!rest) return rest.error();
      cx::status const sum = sum_is(*rest, r, 2);
      *stage = 2;
      return sum;
    });
  while (*stage < 1) cx::detail::nap(1'000'000);
  ::kill(g.pid(1), SIGSTOP);
  while (*stage < 2) cx::detail::nap(1'000'000);
  ::kill(g.pid(1), SIGCONT);
  g.wait();
  for (int r : {0, 2}) CHECK_MESSAGE(g[r].code == 0, std::string(g[r].text));
  CHECK_MESSAGE(g[1].code == static_cast<int>(cx::errc::timeout), std::string(g[1].text));
}

TEST_CASE("FRK-01: a forked child cannot shrink its parent's group, and does it no harm") {
  auto const ends = in_processes(2, [](auto& comm, int r) -> cx::status {
    if (r == 0) {
      processes::group child(1);
      child.start([&]() -> cx::status { return comm.shrink(ints{1}).error(); });
      child.wait();
      if (child[0].code != static_cast<int>(cx::errc::invalid_argument) || !child[0].names("a forked child has to join anew"))
        return wrong(0, child[0].text);
    }
    for (int k = 0; k < 100; ++k)
      if (cx::status s = sum_is(comm, r + 1, 3); !s) return s;
    return {};
  });
  for (int r = 0; r < 2; ++r)
    CHECK_MESSAGE(ends[static_cast<std::size_t>(r)].code == 0, std::string(ends[static_cast<std::size_t>(r)].text));
}
