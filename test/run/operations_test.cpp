// SPDX-License-Identifier: Apache-2.0
// labels: sanitize
// timeout: 120
// compile: -O0
/// Calls that are planned, started, tested, waited for and started again, many at once.
#include <collectx/hostile.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "processes.hpp"
#include "support/ranks.hpp"

namespace cx = collectx;
using support::all_succeed;
using support::on_each_rank;
using support::says;
using support::text;
using support::wrong;

namespace {

using ints = std::vector<int>;

std::uint64_t draw(std::uint64_t& seed) {  // splitmix64
  std::uint64_t z = seed += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

/// Waits by asking.
template <class Planned>
cx::status by_testing(Planned& call) {
  for (;;) {
    cx::result<bool> ended = call.test();
    if (!ended) return ended.error();
    if (*ended) return {};
  }
}

template <class Comm>
cx::status sum_is(Comm& comm) {
  ints both{comm.rank() + 1};
  if (cx::status s = comm.all_reduce(cx::in_place(both), cx::sum{}); !s) return s;
  return both[0] == comm.size() * (comm.size() + 1) / 2 ? cx::status{} : wrong(comm.rank(), "wrong sum");
}

/// One call of any kind, with its buffers and what they must hold.
template <class Comm>
struct work {
  using call = decltype(std::declval<Comm&>().plan_barrier());
  ints in, out, expected;
  std::optional<call> planned;

  /// `kind`, `count` and `salt` are the same on all ranks.
  void prepare(Comm& comm, std::uint64_t kind, std::size_t count, int salt) {
    int const n = comm.size(), me = comm.rank(), root = salt % n;
    int const sum = n * (n - 1) / 2 + n * salt;
    std::size_t const ranks = static_cast<std::size_t>(n);
    in.assign(count, me + salt);
    out.assign(count, -1);
    expected.assign(count, sum);
    switch (kind) {
      case 0: {
        auto const gone = std::make_unique<cx::sum>();  // the operation need not live as long as the call
        planned.emplace(comm.plan_all_reduce(in, out, *gone));
        break;
      }
      case 1:
        planned.emplace(comm.plan_all_reduce(in, out, cx::sum{}, cx::algo::ring{}));
        break;
      case 2:
        out.assign(count * ranks, -1);
        expected.clear();
        for (int r = 0; r < n; ++r) expected.insert(expected.end(), count, r + salt);
        planned.emplace(comm.plan_all_gather(in, out));
        break;
      case 3:
        in.assign(count * ranks, me + salt);
        planned.emplace(comm.plan_reduce_scatter(in, out, cx::sum{}));
        break;
      case 4:
        if (me == root) out = in;
        expected.assign(count, root + salt);
        planned.emplace(comm.plan_broadcast(out, root));
        break;
      case 5:
        if (me != root) expected = out;
        planned.emplace(comm.plan_reduce(in, out, cx::sum{}, root));
        break;
      case 6:
        expected = out;
        planned.emplace(comm.plan_barrier());
        break;
      default:
        expected.assign(count, (me + n - 1) % n + salt);
        planned.emplace(comm.plan_send_recv(in, (me + 1) % n, out, (me + n - 1) % n));
    }
  }
  bool right() const { return out == expected; }
};

/// Calls of all kinds under way on some communicators, ended in another order than they were started in.
template <class Comm>
cx::status many_at_once(std::span<Comm* const> comms, std::uint64_t seed, int rounds, int window) {
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::unique_ptr<work<Comm>>> open;
    for (int k = 0; k < window; ++k) {
      Comm& comm = *comms[draw(seed) % comms.size()];
      open.push_back(std::make_unique<work<Comm>>());
      std::uint64_t const kind = draw(seed) % 8;
      std::size_t const count = draw(seed) % 3 == 0 ? draw(seed) % 5 : draw(seed) % 700;
      open.back()->prepare(comm, kind, count, static_cast<int>(draw(seed) % 1000));
      if (cx::status s = open.back()->planned->start(); !s) return s;
      if (draw(seed) % 8 == 0)
        if (cx::status s = sum_is(comm); !s) return s;
    }
    while (!open.empty()) {
      std::size_t const at = draw(seed) % open.size();
      work<Comm>& w = *open[at];
      bool const polls = draw(seed) % 2 == 0;
      if (cx::status s = polls ? by_testing(*w.planned) : w.planned->wait(); !s) return s;
      if (!w.right()) return wrong(comms[0]->rank(), "wrong result of one of many");
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  return {};
}

}  // namespace

TEST_CASE("a planned call of each kind, started again and again with new contents") {
  for (int n : {1, 2, 3, 5})
    all_succeed(n, [](auto& comm) -> cx::status {
      using comm_type = std::remove_cvref_t<decltype(comm)>;
      for (std::uint64_t kind = 0; kind < 8; ++kind) {
        work<comm_type> w;
        w.prepare(comm, kind, 100, 3);
        ints const in = w.in, out = w.out;
        for (int again = 0; again < 5; ++again) {
          w.in = in;
          w.out = out;
          if (cx::status s = w.planned->start(); !s) return s;
          if (cx::status s = again % 2 == 0 ? w.planned->wait() : by_testing(*w.planned); !s) return s;
          if (!w.right()) return wrong(comm.rank(), "wrong result");
        }
      }
      return {};
    });
}

TEST_CASE("in place and with an algorithm of one's choice") {
  all_succeed(3, [](auto& comm) -> cx::status {
    ints both(10, comm.rank() + 1), third{comm.rank(), comm.rank(), comm.rank()};
    auto sum = comm.plan_all_reduce(cx::in_place(both), cx::sum{}, cx::algo::direct{});
    auto gather = comm.plan_all_gather(cx::in_place(third));
    if (cx::status s = sum.start(); !s) return s;
    if (cx::status s = gather.start(); !s) return s;
    if (cx::status s = gather.wait(); !s) return s;
    if (cx::status s = sum.wait(); !s) return s;
    return both == ints(10, 6) && third == ints{0, 1, 2} ? cx::status{} : wrong(comm.rank(), "wrong");
  });
}

TEST_CASE("ORD-06: threads: 20 calls of all kinds under way on four communicators, ended in random order, beside blocking ones") {
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    all_succeed(4, [seed](auto& comm) -> cx::status {
      using comm_type = std::remove_cvref_t<decltype(comm)>;
      auto a = comm.duplicate(), b = comm.duplicate(), c = comm.duplicate();
      if (!a || !b || !c) return wrong(comm.rank(), "no duplicate");
      comm_type* const comms[] = {&comm, &*a, &*b, &*c};
      return many_at_once<comm_type>(comms, seed, 25, 20);
    });
}

TEST_CASE("ORD-06: processes: the same") {
  cx::transport_options o;
  o.slots = 3;
  o.slot_bytes = 512;
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    cx::status const s = cx::shared_memory::run(3, o, [seed](auto& comm) -> cx::status {
      using comm_type = std::remove_cvref_t<decltype(comm)>;
      auto a = comm.duplicate();
      if (!a) return a.error();
      comm_type* const comms[] = {&comm, &*a};
      return many_at_once<comm_type>(comms, seed, 20, 20);
    });
    CHECK_MESSAGE(s.ok(), text(s));
  }
}

TEST_CASE("a hostile wire: many calls under way are right under every seed, and leave nothing in a channel") {
  cx::hostile::options o;
  o.slot_bytes = 256;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    o.slots = 2 + static_cast<int>(seed % 3);
    cx::status const s = cx::hostile::run(3, seed, o, [seed](auto& comm) -> cx::status {
      using comm_type = std::remove_cvref_t<decltype(comm)>;
      comm_type* const comms[] = {&comm};
      return many_at_once<comm_type>(comms, seed, 2, 8);
    });
    CHECK_MESSAGE(s.ok(), text(s));
  }
}

TEST_CASE("messages to one rank match in the order of their start, whichever is waited for first") {
  all_succeed(2, [](auto& comm) -> cx::status {
    int const peer = 1 - comm.rank();
    constexpr int many = 30;
    std::vector<ints> out, in(many, ints(50));
    std::vector<decltype(comm.plan_send(in[0], 0))> sends, receives;
    for (int k = 0; k < many; ++k) out.push_back(ints(50, 100 * comm.rank() + k));
    for (int k = 0; k < many; ++k) {
      sends.push_back(comm.plan_send(out[static_cast<std::size_t>(k)], peer));
      receives.push_back(comm.plan_recv(in[static_cast<std::size_t>(k)], peer));
    }
    for (int k = 0; k < many; ++k) {
      if (cx::status s = receives[static_cast<std::size_t>(k)].start(); !s) return s;
      if (k % 3 == 0)
        if (cx::status s = sum_is(comm); !s) return s;
    }
    for (auto& s : sends)
      if (cx::status e = s.start(); !e) return e;
    for (int k = many - 1; k >= 0; --k)
      if (cx::status s = receives[static_cast<std::size_t>(k)].wait(); !s) return s;
    for (auto& s : sends)
      if (cx::status e = s.wait(); !e) return e;
    for (int k = 0; k < many; ++k)
      if (in[static_cast<std::size_t>(k)] != ints(50, 100 * peer + k)) return wrong(comm.rank(), "wrong order");
    return {};
  });
}

TEST_CASE("a blocking call goes behind the collective calls that are under way, and makes a receive beside it move on") {
  cx::loopback::options o;
  o.slots = 2;
  o.slot_bytes = 64;
  all_succeed(2, o, [](auto& comm) -> cx::status {
    ints big(1000, comm.rank() + 1), in(1000), small{comm.rank()}, max(1);
    auto sum = comm.plan_all_reduce(cx::in_place(big), cx::sum{});
    auto receive = comm.plan_recv(in, 0);
    if (comm.rank() == 1)
      if (cx::status s = receive.start(); !s) return s;
    if (cx::status s = sum.start(); !s) return s;
    if (comm.rank() == 0) {
      ints const out(1000, 5);
      if (cx::status s = comm.send(out, 1); !s) return s;  // needs rank 1 to receive inside its all_reduce
    }
    if (cx::status s = comm.all_reduce(small, max, cx::max{}); !s) return s;
    if (big != ints(1000, 3) || max[0] != 1) return wrong(comm.rank(), "wrong results");  // it has ended before the blocking one
    if (cx::result<bool> ended = sum.test(); !ended || !*ended) return wrong(comm.rank(), "the sum has not ended");
    if (comm.rank() == 0) return {};
    if (cx::status s = receive.wait(); !s) return s;
    return in == ints(1000, 5) ? cx::status{} : wrong(1, "wrong message");
  });
}

TEST_CASE("start, test and wait at the wrong time are errors that change nothing") {
  all_succeed(2, [](auto& comm) -> cx::status {
    int const me = comm.rank();
    ints in(4, me), out(4);
    auto sum = comm.plan_all_reduce(in, out, cx::sum{});
    if (sum.wait().code() != cx::errc::invalid_argument || !says(sum.wait(), "asks for the end of a call that it has not started"))
      return wrong(me, "wait before start");
    if (sum.test().error().code() != cx::errc::invalid_argument) return wrong(me, "test before start");
    auto receive = comm.plan_recv(out, 1 - me);
    if (cx::status s = receive.start(); !s) return s;
    cx::status const twice = receive.start();
    if (twice.code() != cx::errc::busy || !says(twice, "starts a call again that has not ended")) return wrong(me, "start twice");
    if (cx::status s = comm.barrier(); !s) return s;  // nobody sends before both have asked
    if (cx::status s = comm.send(in, 1 - me); !s) return s;
    for (int k = 0; k < 3; ++k) {
      if (cx::status s = receive.wait(); !s) return s;
      cx::result<bool> const ended = receive.test();
      if (!ended) return ended.error();
    }
    if (out != ints(4, 1 - me)) return wrong(me, "wrong message");
    auto moved = std::move(receive);
    if (receive.start().code() != cx::errc::invalid_argument || !says(receive.wait(), "moved from")) return wrong(me, "moved from");
    if (cx::status s = moved.wait(); !s) return s;
    return sum_is(comm);
  });
}

TEST_CASE("what is wrong with the arguments is said by start, each time") {
  all_succeed(2, [](auto& comm) -> cx::status {
    ints in(3), out(4);
    auto sum = comm.plan_all_reduce(in, out, cx::sum{});
    auto send = comm.plan_send(in, 7);
    auto root = comm.plan_broadcast(in, 9);
    for (int k = 0; k < 2; ++k) {
      if (!says(sum.start(), "do not fit together")) return wrong(comm.rank(), "counts");
      if (!says(send.start(), "rank 7, which is not in a group of 2")) return wrong(comm.rank(), "peer");
      if (!says(root.start(), "root 9")) return wrong(comm.rank(), "root");
    }
    if (!says(sum.wait(), "do not fit together")) return wrong(comm.rank(), "wait");
    return sum_is(comm);
  });
}

TEST_CASE("calls in another order than on the other ranks are named, as with blocking ones") {
  std::vector<cx::status> const ends = on_each_rank(2, [](auto& comm) -> cx::status {
    ints in(2), out(2);
    auto sum = comm.plan_all_reduce(in, out, cx::sum{});
    auto barrier = comm.plan_barrier();
    auto& first = comm.rank() == 0 ? sum : barrier;
    auto& second = comm.rank() == 0 ? barrier : sum;
    if (cx::status s = first.start(); !s) return s;
    if (cx::status s = second.start(); !s) return s;
    if (cx::status s = second.wait(); !s) return s;
    return first.wait();
  });
  for (cx::status const& s : ends) CHECK_MESSAGE(s.code() == cx::errc::mismatch, text(s));
}

TEST_CASE("when one call fails, all that are under way end with it, and none can be started any more") {
  std::vector<cx::status> const ends = on_each_rank(2, [](auto& comm) -> cx::status {
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      (void)comm.abort(cx::status::failure(cx::errc::aborted, 1, "no more"));
      return {};
    }
    ints in(2), out(2), got(2);
    auto sum = comm.plan_all_reduce(in, out, cx::sum{});
    auto receive = comm.plan_recv(got, 1);
    if (cx::status s = sum.start(); !s) return s;
    if (cx::status s = receive.start(); !s) return s;
    cx::status const failed = by_testing(receive);
    if (sum.wait().code() != failed.code() || sum.test().error().code() != failed.code()) return wrong(0, "the sum lives on");
    if (sum.start().code() != failed.code()) return wrong(0, "it starts again");
    return failed;
  });
  CHECK(ends[0].code() == cx::errc::aborted);
  CHECK_MESSAGE(says(ends[0], "no more"), text(ends[0]));
}

TEST_CASE("destroyed while under way, a call is waited for: its result is there, and the others have it, too") {
  all_succeed(3, [](auto& comm) -> cx::status {
    ints both(5000, comm.rank() + 1), in(5000), out(5000, comm.rank());
    int const n = comm.size();
    {
      auto sum = comm.plan_all_reduce(cx::in_place(both), cx::sum{});
      auto around = comm.plan_send_recv(out, (comm.rank() + 1) % n, in, (comm.rank() + n - 1) % n);
      if (cx::status s = sum.start(); !s) return s;
      if (cx::status s = around.start(); !s) return s;
    }
    if (both != ints(5000, 6) || in != ints(5000, (comm.rank() + n - 1) % n)) return wrong(comm.rank(), "not waited for");
    return sum_is(comm);
  });
}

TEST_CASE("destroyed while nobody serves it, a call ends at its deadline, and the communicator says why") {
  std::vector<cx::status> const ends = on_each_rank(2, [](auto& comm) -> cx::status {
    if (comm.rank() == 1) {
      while (comm.transport().verdict().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return {};
    }
    ints in(2);
    {
      auto receive = comm.plan_recv(in, 1, cx::call_options{std::chrono::milliseconds(100)});
      if (cx::status s = receive.start(); !s) return s;
    }
    return comm.barrier();
  });
  CHECK(ends[0].code() == cx::errc::timeout);
  CHECK_MESSAGE(says(ends[0], "to receive from rank 1 8 bytes (2 int32)"), text(ends[0]));
}

TEST_CASE("a deadline that passes in a wait is that of the call in front") {
  std::vector<cx::status> const ends = on_each_rank(2, [](auto& comm) -> cx::status {
    if (comm.rank() == 1) {
      while (comm.transport().verdict().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return {};
    }
    ints in(2), out(2);
    auto first = comm.plan_all_reduce(in, out, cx::sum{});
    auto second = comm.plan_barrier();
    if (cx::status s = first.start(); !s) return s;
    if (cx::status s = second.start(); !s) return s;
    return second.wait({std::chrono::milliseconds(100)});
  });
  CHECK(ends[0].code() == cx::errc::timeout);
  CHECK(ends[0].rank() == 1);
  CHECK_MESSAGE(says(ends[0], "for rank 1 in all_reduce int32 sum direct, call 1"), text(ends[0]));
  CHECK_MESSAGE(says(ends[0], "not yet in this call: 1"), text(ends[0]));
}

TEST_CASE("DIE-07: a short send that was started has left, even if its rank ends without waiting") {
  for (int repeat = 0; repeat < 50; ++repeat) {
    auto table = cx::in_process_rendezvous::create(2);
    REQUIRE(table.has_value());
    processes::group g(2);
    for (int r = 0; r < 2; ++r)
      g.start([&, r]() -> cx::status {
        auto rendezvous = table->of(r);
        std::vector<float> data(16, 3.0f), in(16);
        auto comm = cx::shared_memory::join(rendezvous);
        if (!comm) return comm.error();
        if (r == 0) {
          auto send = comm->plan_send(data, 1);
          cx::status const s = send.start();
          auto gone = std::move(*comm);
          return s;
        }
        cx::detail::nap(repeat % 5 * 2'000'000);
        if (cx::status s = comm->recv(in, 0); !s) return s;
        return in == data ? cx::status{} : wrong(1, "wrong message");
      });
    g.wait();
    for (int r = 0; r < 2; ++r) CHECK_MESSAGE(g[r].code == 0, std::string(g[r].text));
  }
}

TEST_CASE("a call outlives its communicator") {
  all_succeed(2, [](auto& comm) -> cx::status {
    using comm_type = std::remove_cvref_t<decltype(comm)>;
    ints both(3, comm.rank());
    auto made = comm.duplicate();
    if (!made) return made.error();
    std::optional<comm_type> other(std::move(*made));
    auto sum = other->plan_all_reduce(cx::in_place(both), cx::sum{});
    other.reset();
    if (cx::status s = sum.start(); !s) return s;
    if (cx::status s = sum.wait(); !s) return s;
    return both == ints(3, 1) ? cx::status{} : wrong(comm.rank(), "wrong sum");
  });
}

TEST_CASE("a second thread inside of the same communicator is told that it is busy") {
  std::atomic<bool> told{false};
  all_succeed(2, [&](auto& comm) -> cx::status {
    ints in(2), out(2, 4);
    if (comm.rank() == 1) {
      while (!told) std::this_thread::yield();
      return comm.send(out, 0);
    }
    auto receive = comm.plan_recv(in, 1);
    if (cx::status s = receive.start(); !s) return s;
    cx::errc code = cx::errc::ok;
    std::thread second([&] {
      cx::status s;  // it is under way: busy in any case, at last because the other thread waits
      do s = receive.start();
      while (!says(s, "another call is under way on this communicator of rank 0"));
      code = s.code();
      told = true;
    });
    cx::status s;
    do s = receive.wait();  // at times it is the other thread that is inside
    while (s.code() == cx::errc::busy);
    second.join();
    if (!s) return s;
    return code == cx::errc::busy && in == out ? cx::status{} : wrong(0, "not busy, or wrong");
  });
}
