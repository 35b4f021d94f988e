// SPDX-License-Identifier: Apache-2.0
// labels: sanitize
#include <collectx/transport/board.hpp>

#include <doctest/doctest.h>

#include "processes.hpp"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace cx = collectx;
using cx::detail::board;
using cx::detail::board_memory;
using cx::detail::board_seat;

namespace {

/// A board of n ranks, all of them seated.
class table {
 public:
  explicit table(int size) : lines_(std::make_unique<line[]>(board_memory::bytes(size) / 64)) {
    board_memory& memory = *reinterpret_cast<board_memory*>(lines_.get());
    for (int r = 0; r < size; ++r) {
      seats_.emplace_back(memory, r, size);
      REQUIRE(seats_.back().sit_down({}));
    }
  }
  board& operator[](int rank) { return seats_[static_cast<std::size_t>(rank)]; }
  board_memory& memory() { return *reinterpret_cast<board_memory*>(lines_.get()); }

 private:
  struct alignas(64) line {
    std::byte bytes[64];
  };
  std::unique_ptr<line[]> lines_;
  std::vector<board> seats_;
};

cx::call_record record(std::uint64_t sequence, char const* what, std::uint64_t count, std::uint32_t tag, int root = -1) {
  cx::call_record r;
  r.sequence = sequence;
  r.count = count;
  r.tag = tag;
  r.root = root;
  std::strncpy(r.what, what, sizeof r.what - 1);
  return r;
}

}  // namespace

TEST_CASE("a seat is taken once") {
  table t(2);
  CHECK(!t[1].sit_down({}));
  t[1].leave();
  CHECK(!t[1].sit_down({}));
}

TEST_CASE("the first report wins, and everybody is told it word for word") {
  table t(3);
  CHECK(t[0].verdict().ok());
  cx::status const first = t[2].abort(cx::status::failure(cx::errc::timeout, 1, "rank 1 is late"));
  cx::status const second = t[0].abort(cx::status::failure(cx::errc::peer_lost, 2, "rank 2 is gone"));
  CHECK(std::string(first.what()) == "collectx: rank 1 is late (reported by rank 2)");
  CHECK(std::string(second.what()) == first.what());
  for (int r = 0; r < 3; ++r) {
    cx::status const s = t[r].verdict();
    CHECK(s.code() == cx::errc::timeout);
    CHECK(s.rank() == 1);
    CHECK(std::string(s.what()) == first.what());
  }
}

TEST_CASE("abort without a reason blames its caller; a reason that blames nobody stays so") {
  table t(2);
  cx::status const s = t[1].abort({});
  CHECK(s.code() == cx::errc::aborted);
  CHECK(s.rank() == 1);
  CHECK(std::string(s.what()) == "collectx: rank 1 called abort");
  table u(2);
  CHECK(u[0].abort(cx::status::failure(cx::errc::system, -1, "no luck")).rank() == -1);
}

TEST_CASE("a reason of full length survives the board") {
  table t(2);
  std::string const text(1000, 'x');
  cx::status const why = cx::status::failure(cx::errc::system, 0, "%s", text.c_str());
  CHECK(std::string(t[0].abort(why).what()) == why.what());
}

TEST_CASE("two threads of one rank and two of another report at once: one report comes out, whole") {
  for (int repeat = 0; repeat < 50; ++repeat) {
    table t(2);
    std::vector<std::thread> threads;
    std::vector<std::string> heard(4);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        board mine(t.memory(), i / 2, 2);
        heard[static_cast<std::size_t>(i)] = mine.abort(cx::status::failure(cx::errc::aborted, i / 2, "reason %d%d%d", i, i, i)).what();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::string const& h : heard) CHECK(h == heard[0]);
    bool known = false;
    for (int i = 0; i < 4; ++i) known |= heard[0] == "collectx: reason " + std::string(3, static_cast<char>('0' + i));
    CHECK(known);
  }
}

TEST_CASE("blame follows who waits for whom to the rank that waits for nobody; in a circle it is the neighbour") {
  table t(5);
  t[0].announce(1);
  t[1].announce(2);
  t[2].announce(4);
  CHECK(t[0].blame(1) == 4);
  CHECK(t[3].blame(3) == 3);
  t[4].announce(1);  // 1 -> 2 -> 4 -> 1
  CHECK(t[0].blame(1) == 1);
  CHECK(t[3].blame(0) == 0);
  t[4].announce(-1);
  CHECK(t[0].blame(1) == 4);
}

TEST_CASE("ranks in the same call that make different calls are named, the odd one first") {
  table t(3);
  t[0].begin(record(7, "all_reduce float sum ring", 4, 11));
  t[1].begin(record(7, "all_reduce float sum ring", 4, 11));
  t[2].begin(record(7, "all_gather float direct", 4, 12));
  for (int r : {1, 2, 0}) {
    cx::status const s = t[r].look_around((r + 1) % 3);
    CHECK(s.code() == cx::errc::mismatch);
    CHECK(s.rank() == 2);
    CHECK(std::strstr(s.what(), "rank 2 calls all_gather float direct of 4, rank 0 calls all_reduce float sum ring of 4") != nullptr);
  }
}

TEST_CASE("roots that differ are said; another call number is no mismatch") {
  table t(2);
  t[0].begin(record(1, "broadcast float ring", 9, 1, 0));
  t[1].begin(record(2, "broadcast float ring", 9, 2, 1));
  CHECK(t[0].look_around(1).ok());
  t[1].begin(record(1, "broadcast float ring", 9, 2, 1));
  cx::status const s = t[0].look_around(1);
  CHECK(std::strstr(s.what(), "rank 1 calls broadcast float ring of 9 with root 1, rank 0 calls broadcast float ring of 9 with root 0") !=
        nullptr);
}

TEST_CASE("a rank that left before its part of the call is lost; one that left after it is not") {
  table t(3);
  t[2].begin(record(1, "barrier", 0, 1));
  t[2].end();
  t[2].leave();
  t[0].begin(record(1, "barrier", 0, 1));
  CHECK(t[0].look_around(2).ok());
  t[0].end();
  CHECK(t[0].look_around(1).ok());  // in no call, nobody owes anything
  t[0].begin(record(2, "barrier", 0, 1));
  cx::status const s = t[0].look_around(1);
  CHECK(s.code() == cx::errc::peer_lost);
  CHECK(s.rank() == 2);
  CHECK(std::strstr(s.what(), "rank 2 has left") != nullptr);
}

TEST_CASE("who waits for a rank that has left is told so at the second look: what was sent before is read in between") {
  table t(2);
  t[1].leave();
  CHECK(t[0].lost(1));
  CHECK(!t[1].lost(0));
  CHECK(t[0].look_around(1).ok());
  cx::status const s = t[0].look_around(1);
  CHECK(s.code() == cx::errc::peer_lost);
  CHECK(s.rank() == 1);
  CHECK(std::strstr(s.what(), "rank 1 has left, rank 0 waits for it") != nullptr);
}

TEST_CASE("a rank that has not come yet is not lost") {
  std::unique_ptr<board_seat[]> memory = std::make_unique<board_seat[]>(3);
  board mine(*reinterpret_cast<board_memory*>(memory.get()), 0, 2);
  REQUIRE(mine.sit_down({}));
  CHECK(mine.seated(0));
  CHECK(!mine.seated(1));
  CHECK(!mine.lost(1));
}

TEST_CASE("values are shown under keys, four at once, also after the group has failed") {
  table t(2);
  auto const value = [](int n) { return cx::rendezvous_value(&n, sizeof n); };
  auto const shown = [&](char const* key) {
    cx::rendezvous_value seen;
    int n = -1;
    if (t[0].posted(1, key, seen) && seen.size() == sizeof n) std::memcpy(&n, seen.data(), sizeof n);
    return n;
  };
  CHECK(shown("a") == -1);
  for (char const* key : {"a", "b", "c", "d"}) REQUIRE(t[1].post(key, value(*key)).ok());
  CHECK(shown("a") == 'a');
  CHECK(shown("d") == 'd');
  CHECK(shown("aa") == -1);
  REQUIRE(t[1].post("b", value(7)).ok());
  CHECK(shown("b") == 7);
  cx::status const full = t[1].post("e", value(1));
  CHECK(full.code() == cx::errc::out_of_memory);
  CHECK(std::strstr(full.what(), "rank 1 shows 4 values already and has no room for e") != nullptr);
  CHECK(!t[0].abort({}).ok());
  t[1].withdraw("a");
  t[1].withdraw("nothing");
  CHECK(shown("a") == -1);
  REQUIRE(t[1].post("e", value(9)).ok());
  CHECK(shown("e") == 9);
  std::byte most[cx::rendezvous_value::capacity];
  std::memset(most, 0x5a, sizeof most);
  REQUIRE(t[1].post("e", cx::rendezvous_value(most, sizeof most)).ok());
  cx::rendezvous_value seen;
  REQUIRE(t[0].posted(1, "e", seen));
  CHECK(seen.size() == sizeof most);
  CHECK(std::memcmp(seen.data(), most, sizeof most) == 0);
}

TEST_CASE("a value is never read torn while its owner keeps changing it") {
  table t(2);
  std::atomic<bool> done{false};
  std::thread writer([&] {
    std::byte bytes[200];
    for (int i = 1; i <= 100000; ++i) {
      std::memset(bytes, i, sizeof bytes);
      t[1].withdraw(i % 2 == 0 ? "odd" : "even");
      (void)t[1].post(i % 2 == 0 ? "even" : "odd", cx::rendezvous_value(bytes, sizeof bytes));
    }
    done = true;
  });
  int torn = 0, wrong_key = 0;
  while (!done) {
    cx::rendezvous_value seen;
    if (!t[0].posted(1, "even", seen)) continue;
    wrong_key += static_cast<int>(seen.data()[0]) % 2;
    for (std::size_t i = 0; i < seen.size(); ++i) torn += seen.data()[i] == seen.data()[0] ? 0 : 1;
  }
  writer.join();
  CHECK(torn == 0);
  CHECK(wrong_key == 0);
}

TEST_CASE("a dead process is found by its number and start time; a number that somebody else has now counts as dead") {
  cx::process_identity const me = cx::this_process();
  REQUIRE(me.start != 0);
  CHECK(!cx::is_dead(me, me.space));
  ::pid_t const child = ::fork();
  if (child == 0) ::_exit(0);
  cx::process_identity gone{static_cast<std::uint64_t>(child), 1, me.space};
  siginfo_t info;
  ::waitid(P_PID, static_cast<::id_t>(child), &info, WEXITED | WNOWAIT);
  gone.start = cx::detail::look_at_process(gone.pid).start;
  CHECK(cx::is_dead(gone, me.space));  // a zombie
  ::waitpid(child, nullptr, 0);
  CHECK(cx::is_dead(gone, me.space));  // nobody
  cx::process_identity reused = me;
  --reused.start;
  CHECK(cx::is_dead(reused, me.space));
  CHECK(!cx::is_dead(reused, me.space + 1));  // numbers of another namespace say nothing here
  reused.start = 0;
  CHECK(!cx::is_dead(reused, me.space));

  std::unique_ptr<board_seat[]> memory = std::make_unique<board_seat[]>(4);
  board mine(*reinterpret_cast<board_memory*>(memory.get()), 0, 2), other(*reinterpret_cast<board_memory*>(memory.get()), 1, 2);
  REQUIRE(mine.sit_down(me));
  REQUIRE(other.sit_down(gone));
  mine.begin(record(1, "barrier", 0, 1));
  cx::status const s = mine.look_around(1);
  CHECK(s.code() == cx::errc::peer_lost);
  CHECK(s.rank() == 1);
  CHECK(std::strstr(s.what(), "is dead") != nullptr);
}

TEST_CASE("a process whose main thread has ended while others go on is alive") {
  auto* seen = processes::shared<std::atomic<int>>();
  ::pid_t const child = ::fork();
  if (child == 0) {
    ::alarm(60);
    std::thread([&] {
      while (*seen == 0) cx::detail::nap(1'000'000);
      ::_exit(0);
    }).detach();
    ::syscall(SYS_exit, 0);  // this thread only
  }
  char stat[512] = {}, path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", child);
  do cx::detail::read_small_file(path, stat, sizeof stat);
  while (std::strstr(stat, ") Z") == nullptr);
  cx::detail::process_look const look = cx::detail::look_at_process(static_cast<std::uint64_t>(child));
  CHECK(look.readable);
  CHECK(!look.gone);
  *seen = 1;
  ::waitpid(child, nullptr, 0);
  CHECK(cx::detail::look_at_process(static_cast<std::uint64_t>(child)).gone);
}

TEST_CASE("a record is never read torn while its owner keeps changing it") {
  table t(2);
  std::thread writer([&] {
    for (std::uint64_t i = 1; i <= 1000000; ++i) {
      // The tag follows from the rest; call 5 differs from ours, so a torn record would look like a mismatch in call 4.
      bool const ours = i % 2 == 0;
      t[1].begin(record(ours ? 4 : 5, ours ? "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" : "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", i, ours ? 10 : 11));
    }
  });
  t[0].begin(record(4, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 1, 10));
  int failures = 0;
  for (int i = 0; i < 1000000; ++i) failures += t[0].look_around(1).ok() ? 0 : 1;
  writer.join();
  CHECK(failures == 0);

  // Caught in the middle of a writing: call 4, but no longer ours.
  board_seat& seat = t.memory().seat(1);
  t[1].begin(record(4, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 1, 11));
  ++seat.stamp;
  CHECK(t[0].look_around(1).ok());
  ++seat.stamp;
  CHECK(t[0].look_around(1).code() == cx::errc::mismatch);
}

TEST_CASE("the group's CPUs are those of all ranks together") {
  table t(2);
  cpu_set_t before, one;
  ::sched_getaffinity(0, sizeof before, &before);
  CHECK(t[0].cpus() == CPU_COUNT(&before));
  std::size_t first = CPU_SETSIZE, last = 0;
  for (std::size_t c = 0; c < CPU_SETSIZE; ++c) {
    if (!CPU_ISSET(c, &before)) continue;
    if (first == CPU_SETSIZE) first = c;
    last = c;
  }
  for (int r = 0; r < 2; ++r) {
    CPU_ZERO(&one);
    CPU_SET(r == 0 ? first : last, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    t[r].publish_cpus();
  }
  ::sched_setaffinity(0, sizeof before, &before);
  CHECK(t[1].cpus() == (first == last ? 1 : 2));
}
