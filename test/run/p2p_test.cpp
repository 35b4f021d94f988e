// SPDX-License-Identifier: Apache-2.0
// compile: -O1
// labels: sanitize
// timeout: 120
/// Messages between two ranks: over threads, processes and a hostile wire.
#include <collectx/hostile.hpp>

#include <doctest/doctest.h>

#include <sys/types.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <numeric>
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

/// What rank r sends as its message k: different everywhere.
ints letter(int r, int k, std::size_t count) {
  ints v(count);
  std::iota(v.begin(), v.end(), 1000003 * r + 7919 * k);
  return v;
}

/// Numbers of elements around those at which something changes: nothing, one line, one slot, several, more than the ring holds.
std::vector<std::size_t> counts_for(std::size_t slot_bytes, int slots) {
  std::size_t const slot = slot_bytes / sizeof(int);
  return {0, 1, 7, 8, 9, 12, slot - 5, slot - 4, slot - 3, slot, 2 * slot - 4, 3 * slot + 1, static_cast<std::size_t>(slots) * slot + 3};
}

/// Everybody sends to everybody in turn, in both orders; then around the ring.
template <class Comm>
cx::status exchange(Comm& comm) {
  int const n = comm.size(), me = comm.rank();
  int k = 0;
  for (std::size_t count : counts_for(comm.transport().slot_bytes(), comm.transport().slots())) {
    for (int from = 0; from < n; ++from)
      for (int to = 0; to < n; ++to) {
        ++k;
        if (from == to) continue;
        if (me == from)
          if (cx::status s = comm.send(letter(from, k, count), to); !s) return s;
        ints in(count, -1);
        if (me == to) {
          if (cx::status s = comm.recv(in, from); !s) return s;
          if (in != letter(from, k, count)) return wrong(me, "wrong message");
        }
      }
    ints in(count, -1);
    if (cx::status s = comm.send_recv(letter(me, k, count), (me + 1) % n, in, (me + n - 1) % n); !s) return s;
    if (in != letter((me + n - 1) % n, k, count)) return wrong(me, "wrong exchange");
  }
  return {};
}

template <class Comm>
cx::status sum_is(Comm& comm) {
  ints both{comm.rank() + 1};
  if (cx::status s = comm.all_reduce(cx::in_place(both), cx::sum{}); !s) return s;
  return both[0] == comm.size() * (comm.size() + 1) / 2 ? cx::status{} : wrong(comm.rank(), "wrong sum");
}

cx::loopback::options with(int slots, std::size_t slot_bytes) {
  cx::loopback::options o;
  o.slots = slots;
  o.slot_bytes = slot_bytes;
  return o;
}

cx::call_options const in_a_second{std::chrono::seconds(1)};

}  // namespace

TEST_CASE("threads: messages of all sizes, to everybody and to oneself") {
  for (int n : {1, 2, 3, 5})
    for (auto const& o : {with(64, 65536), with(4, 256), with(1, 64), with(2, 128)}) {
      CAPTURE(n);
      CAPTURE(o.slots);
      all_succeed(n, o, [](auto& comm) -> cx::status { return exchange(comm); });
    }
}

TEST_CASE("processes: messages of all sizes, to everybody and to oneself") {
  for (int n : {2, 3})
    for (auto const& o : {with(64, 65536), with(2, 128)}) {
      cx::status const s = cx::shared_memory::run(n, o, [](auto& comm) -> cx::status { return exchange(comm); });
      CHECK_MESSAGE(s.ok(), text(s));
    }
}

TEST_CASE("a hostile wire: messages are right under every seed, beside collective calls") {
  cx::hostile::options o;
  for (int slots : {1, 2, 5})
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      o.slots = slots;
      o.slot_bytes = seed % 2 == 0 ? 64 : 192;
      CAPTURE(seed);
      CAPTURE(slots);
      cx::status const s = cx::hostile::run(3, seed, o, [](auto& comm) -> cx::status {
        if (cx::status failed = exchange(comm); !failed) return failed;
        return sum_is(comm);
      });
      CHECK_MESSAGE(s.ok(), text(s));
    }
}

TEST_CASE("elements of any type that is trivially copyable") {
  struct odd {
    char c[3];
    bool operator==(odd const&) const = default;
  };
  all_succeed(2, [](auto& comm) -> cx::status {
    int const peer = 1 - comm.rank();
    std::vector<odd> out(5, odd{{'a', 'b', static_cast<char>(comm.rank())}}), in(5);
    if (cx::status s = comm.send_recv(out, peer, in, peer); !s) return s;
    if (in[4] != odd{{'a', 'b', static_cast<char>(peer)}}) return wrong(comm.rank(), "wrong odd");
    std::array<bool, 2> flags{true, comm.rank() == 0}, seen{};
    if (cx::status s = comm.send_recv(flags, peer, seen, peer); !s) return s;
    if (seen[1] == flags[1]) return wrong(comm.rank(), "wrong flags");
    std::vector<double> number{0.5};  // both halves of an exchange have types of their own
    std::vector<std::uint8_t> byte{static_cast<std::uint8_t>(7)}, got_byte(1);
    std::vector<double> got_number(1);
    cx::status const s = comm.rank() == 0 ? comm.send_recv(number, 1, got_byte, 1) : comm.send_recv(byte, 0, got_number, 0);
    if (!s) return s;
    return comm.rank() == 0 ? (got_byte[0] == 7 ? cx::status{} : wrong(0, "wrong byte"))
                            : (got_number[0] == 0.5 ? cx::status{} : wrong(1, "wrong number"));
  });
}

TEST_CASE("a short send does not wait for its receiver; a long one does, and pieces run ahead of one another") {
  all_succeed(2, with(4, 4096), [](auto& comm) -> cx::status {
    int const peer = 1 - comm.rank();
    ints const out = letter(comm.rank(), 0, 1000);
    if (cx::status s = comm.send(out, peer, in_a_second); !s) return s;  // both at once: each fits into the ring
    ints in(1000);
    if (cx::status s = comm.recv(in, peer); !s) return s;
    return in == letter(peer, 0, 1000) ? cx::status{} : wrong(comm.rank(), "wrong");
  });
  std::vector<cx::status> const ends = on_each_rank(2, with(4, 4096), [](auto& comm) -> cx::status {
    ints const out(20000);
    return comm.send(out, 1 - comm.rank(), in_a_second);  // nobody receives
  });
  for (cx::status const& s : ends) {
    CHECK(s.code() == cx::errc::timeout);
    CHECK_MESSAGE(says(s, "80000 bytes (20000 int32)"), text(s));
    CHECK_MESSAGE(says(s, "16368 bytes have gone"), text(s));
  }
}

TEST_CASE("ORD-02: two messages between the same ranks match in order, also beside collective calls") {
  for (int repeat = 0; repeat < 20; ++repeat)
    all_succeed(2, [](auto& comm) -> cx::status {
      for (int k = 0; k < 50; ++k) {
        ints a(8, 1), b(4, 2);
        if (comm.rank() == 0) {
          if (cx::status s = comm.send(a, 1); !s) return s;
          if (cx::status s = comm.send(b, 1); !s) return s;
          if (cx::status s = sum_is(comm); !s) return s;
          continue;
        }
        if (cx::status s = sum_is(comm); !s) return s;
        ints first(8), second(4);
        if (cx::status s = comm.recv(first, 0); !s) return s;
        if (cx::status s = comm.recv(second, 0); !s) return s;
        if (first != a || second != b) return wrong(1, "wrong order");
      }
      return {};
    });
}

TEST_CASE("ORD-02: counts that differ are an error of the receiver that names both, writes nothing beyond, and ends the group") {
  std::vector<cx::status> const ends = on_each_rank(2, [](auto& comm) -> cx::status {
    if (comm.rank() == 0) {
      std::vector<float> const out(100);
      if (cx::status s = comm.send(out, 1); !s) return s;
      return comm.barrier();
    }
    std::vector<float> in(60, 7.0f);
    cx::status const s = comm.recv(std::span(in).first(50), 0);
    for (float x : in)
      if (x != 7.0f) return wrong(1, "it has written");
    if (comm.barrier().code() != s.code()) return wrong(1, "not poisoned");
    return s;
  });
  for (cx::status const& s : ends) {
    CHECK(s.code() == cx::errc::mismatch);
    CHECK(s.rank() == 0);
    CHECK_MESSAGE(says(s, "rank 0 sends 400 bytes (100 float32), rank 1 expects 200 bytes (50 float32), as message 1"), text(s));
  }
}

TEST_CASE("types that differ are an error that names both, also where the bytes are as many") {
  std::vector<cx::status> const ends = on_each_rank(2, [](auto& comm) -> cx::status {
    std::vector<float> number(3);
    ints whole(3);
    return comm.rank() == 0 ? comm.send(number, 1) : comm.recv(whole, 0);
  });
  CHECK(ends[0].ok());
  CHECK(ends[1].code() == cx::errc::mismatch);
  CHECK_MESSAGE(says(ends[1], "rank 0 sends 12 bytes (3 float32), rank 1 expects 12 bytes (3 int32)"), text(ends[1]));
}

TEST_CASE("an empty message for a full one, and the other way round") {
  for (std::size_t sent : {std::size_t{0}, std::size_t{3}}) {
    std::vector<cx::status> const ends = on_each_rank(2, [sent](auto& comm) -> cx::status {
      ints out(sent), in(3 - sent);
      return comm.rank() == 0 ? comm.send(out, 1) : comm.recv(in, 0);
    });
    CHECK(ends[1].code() == cx::errc::mismatch);
  }
}

TEST_CASE("what cannot be sent is refused at once, and the communicator is as good as before") {
  all_succeed(2, [](auto& comm) -> cx::status {
    ints a(4), b(4), c(3);
    int const me = comm.rank();
    struct {
      cx::status s;
      char const* part;
    } const refused[] = {{comm.send(a, 2), "exchanges messages with rank 2, which is not in a group of 2"},
                         {comm.recv(a, -1), "exchanges messages with rank -1"},
                         {comm.send(a, me), "sends to itself, but does not receive from itself: only send_recv does both at once"},
                         {comm.recv(a, me), "receives from itself, but does not send to itself"},
                         {comm.send_recv(a, me, b, 1 - me), "sends to itself"},
                         {comm.send_recv(a, me, c, me), "sends itself 16 bytes and receives 12"},
                         {comm.send_recv(a, 1 - me, a, 1 - me), "what is sent and what is received overlap"}};
    for (auto const& r : refused)
      if (r.s.code() != cx::errc::invalid_argument || !says(r.s, r.part)) return wrong(me, r.part);
    a = letter(me, 1, 4);
    if (cx::status s = comm.send_recv(a, me, b, me); !s) return s;
    if (b != a) return wrong(me, "wrong copy");
    if (cx::status s = comm.send_recv(a, me, a, me); !s) return s;  // in place
    return sum_is(comm);
  });
}

TEST_CASE("a receive from a rank that never sends ends at the deadline, and blames the end of the chain of waits") {
  std::vector<cx::status> const ends = on_each_rank(3, [](auto& comm) -> cx::status {
    ints in(2);
    if (comm.rank() == 2) {
      while (comm.transport().verdict().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return {};
    }
    cx::call_options patience{std::chrono::milliseconds(comm.rank() == 0 ? 500 : 30000)};
    return comm.recv(in, comm.rank() + 1, patience);
  });
  CHECK(ends[0].code() == cx::errc::timeout);
  CHECK(ends[0].rank() == 2);
  CHECK_MESSAGE(says(ends[0], "to receive from rank 1 8 bytes (2 int32) as message 1, of which 0 bytes have come; the waits end at rank 2"),
                text(ends[0]));
  CHECK(ends[1].code() == cx::errc::timeout);
}

TEST_CASE("a rank that has gone is an error for who waits for it, but what it has sent before still arrives") {
  std::vector<cx::status> const ends = on_each_rank(2, [](auto& comm) -> cx::status {
    ints const out = letter(0, 3, 100);
    if (comm.rank() == 0) return comm.send(out, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ints in(100);
    if (cx::status s = comm.recv(in, 0); !s) return wrong(1, s.what());
    if (in != out) return wrong(1, "wrong message");
    return comm.recv(in, 0);
  });
  CHECK(ends[0].ok());
  CHECK(ends[1].code() == cx::errc::peer_lost);
  CHECK(ends[1].rank() == 0);
  CHECK_MESSAGE(says(ends[1], "rank 0 has left, rank 1 waits for it"), text(ends[1]));
}

TEST_CASE("abort ends sends and receives, from any thread, with its reason") {
  std::vector<cx::status> const ends = on_each_rank(3, [](auto& comm) -> cx::status {
    ints in(2), out(1 << 22);
    if (comm.rank() == 0) {
      std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        (void)comm.abort(cx::status::failure(cx::errc::aborted, 0, "enough"));
      });
      cx::status const s = comm.recv(in, 1);
      other.join();
      return s;
    }
    return comm.rank() == 1 ? comm.recv(in, 2) : comm.send(out, 0);
  });
  for (cx::status const& s : ends) {
    CHECK(s.code() == cx::errc::aborted);
    CHECK_MESSAGE(says(s, "enough"), text(s));
  }
}

TEST_CASE("after an abort a call fails even where its message has come before") {
  std::atomic<bool> over{false};
  std::vector<cx::status> const ends = on_each_rank(2, [&](auto& comm) -> cx::status {
    ints both(2);
    if (comm.rank() == 0) {
      cx::status const sent = comm.send(both, 1);
      (void)comm.abort();
      over = true;
      return sent;
    }
    while (!over) std::this_thread::yield();
    return comm.recv(both, 0);
  });
  CHECK(ends[0].ok());
  CHECK(ends[1].code() == cx::errc::aborted);
}

TEST_CASE("DIE-02: wherever a process is killed while it sends, who waits for it is told") {
  for (int step = 0; step < 12; ++step) {
    CAPTURE(step);
    auto table = cx::in_process_rendezvous::create(2);
    REQUIRE(table.has_value());
    processes::group g(2);
    for (int r = 0; r < 2; ++r)
      g.start([&, r]() -> cx::status {
        auto rendezvous = table->of(r);
        auto comm = cx::shared_memory::join(rendezvous, with(2, 256));
        if (!comm) return comm.error();
        ints out = letter(0, step, 600), in(600);
        if (r == 1) {
          if (cx::status s = comm->recv(in, 0); s.ok())
            return comm->recv(in, 0);
          else
            return s;
        }
        auto sending = comm->plan_send(out, 1);
        if (cx::status s = sending.start(); !s) return s;
        for (int k = 0; k < step; ++k) {
          cx::result<bool> const done = sending.test();
          if (!done) return done.error();
          cx::detail::nap(100'000);
        }
        ::kill(::getpid(), SIGKILL);
        return {};
      });
    g.wait();
    CHECK(g[1].code == static_cast<int>(cx::errc::peer_lost));
    CHECK(g[1].rank == 0);
    CHECK_MESSAGE(g[1].names("rank 0 is dead, rank 1 waits for it"), std::string(g[1].text));
  }
}

TEST_CASE("a hostile wire: wherever a rank dies, who waits for it is told") {
  cx::hostile::options o;
  o.kill_rank = 1;
  o.slot_bytes = 64;
  int told = 0;
  for (std::int64_t at = 1; at <= 60; ++at) {
    CAPTURE(at);
    o.kill_at = at;
    cx::status const s = cx::hostile::run(3, static_cast<std::uint64_t>(at), o, [](auto& comm) -> cx::status {
      int const n = comm.size(), me = comm.rank();
      for (int k = 0; k < 5; ++k) {
        ints in(50);
        if (cx::status failed = comm.send_recv(letter(me, k, 50), (me + 1) % n, in, (me + n - 1) % n); !failed) return failed;
        if (in != letter((me + n - 1) % n, k, 50)) return wrong(me, "wrong message");
      }
      return {};
    });
    if (s.ok()) continue;  // it died when its work was done
    CHECK_MESSAGE(s.code() == cx::errc::peer_lost, text(s));
    CHECK(s.rank() == 1);
    ++told;
  }
  CHECK(told > 20);
}

TEST_CASE("a stopped process is an error at the deadline that names it; when it goes on it is told, too") {
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  auto* ready = processes::shared<std::atomic<int>>();
  processes::group g(2);
  for (int r = 0; r < 2; ++r)
    g.start([&, r]() -> cx::status {
      auto rendezvous = table->of(r);
      auto comm = cx::shared_memory::join(rendezvous);
      if (!comm) return comm.error();
      ints in(4), out(4);
      if (r == 1) {
        *ready = 1;
        while (*ready < 2) cx::detail::nap(1'000'000);
        return comm->send(out, 0);
      }
      while (*ready == 0) cx::detail::nap(1'000'000);
      cx::status const s = comm->recv(in, 1, {std::chrono::milliseconds(300)});
      *ready = 2;
      return s;
    });
  while (*ready == 0) cx::detail::nap(1'000'000);
  ::kill(g.pid(1), SIGSTOP);
  while (*ready < 2) cx::detail::nap(1'000'000);
  ::kill(g.pid(1), SIGCONT);
  g.wait();
  for (int r = 0; r < 2; ++r) {
    CHECK_MESSAGE(g[r].code == static_cast<int>(cx::errc::timeout), std::string(g[r].text));
    CHECK(g[r].rank == 1);
  }
}

TEST_CASE("FRK-01: a forked child that sends, receives or plans is told so, and its parent's group goes on") {
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  processes::group g(2);
  for (int r = 0; r < 2; ++r)
    g.start([&, r]() -> cx::status {
      auto rendezvous = table->of(r);
      auto comm = cx::shared_memory::join(rendezvous);
      if (!comm) return comm.error();
      ints in(4), out(4, r);
      auto receiving = comm->plan_recv(in, 1 - r);
      if (r == 0) {
        if (cx::status s = receiving.start(); !s) return s;
        processes::group child(1);
        child.start([&]() -> cx::status {
          cx::status const s = comm->send(out, 1);
          auto planned = comm->plan_send(out, 1);
          if (planned.start().code() != s.code() || comm->barrier().code() != s.code()) return wrong(0, "not refused");
          if (comm->split(0).error().code() != s.code()) return wrong(0, "split is not refused");
          if (comm->abort().code() != s.code()) return wrong(0, "abort is not refused");
          auto gone = std::move(receiving);  // under way in the parent
          return s;
        });
        child.wait();
        if (child[0].code != static_cast<int>(cx::errc::invalid_argument) || !child[0].names("a forked child has to join anew"))
          return wrong(0, child[0].text);
      }
      if (r == 1)
        if (cx::status s = comm->send(out, 0); !s) return s;
      if (r == 0) {
        if (cx::status s = receiving.wait(); !s) return s;
        if (in != ints(4, 1)) return wrong(0, "wrong message");
      }
      return sum_is(*comm);
    });
  g.wait();
  for (int r = 0; r < 2; ++r) CHECK_MESSAGE(g[r].code == 0, std::string(g[r].text));
}
