// SPDX-License-Identifier: Apache-2.0
// timeout: 300
#include <collectx/rendezvous/file.hpp>
#include <collectx/rendezvous/in_process.hpp>
#include <collectx/transport/shared_memory.hpp>

#include <doctest/doctest.h>

#include "processes.hpp"

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace cx = collectx;
using processes::group;
using processes::pass_round;
using processes::shared;

namespace {

cx::transport_options patience(std::chrono::milliseconds timeout) {
  cx::transport_options o;
  o.join_timeout = timeout;
  return o;
}

/// Joins and passes messages of several sizes on all lanes.
template <class R>
cx::status join_and_pass(R& rendezvous, cx::transport_options const& options, int rounds) {
  auto t = cx::shared_memory_transport::join(rendezvous, options);
  if (!t) return t.error();
  std::uint64_t sequence = 0;
  for (int i = 0; i < rounds; ++i) {
    for (std::size_t bytes : {std::size_t{0}, std::size_t{8}, std::size_t{48}, std::size_t{49}, t->slot_bytes()}) {
      for (int lane = 0; lane < t->lanes(); ++lane) {
        if (cx::status s = pass_round(*t, ++sequence, bytes, lane); !s) return s;
      }
    }
  }
  return {};
}

/// A guest that sleeps with a socket in its hands has said hello, and waits for rank 0 to answer.
bool waits_at_a_socket(::pid_t pid) {
  std::string const process = "/proc/" + std::to_string(pid);
  char stat[512] = {};
  bool socket = false;
  for (std::string const& name : processes::names_in((process + "/fd").c_str())) {
    char target[64] = {};
    socket |= ::readlink((process + "/fd/" + name).c_str(), target, sizeof target - 1) > 0 && std::strncmp(target, "socket:", 7) == 0;
  }
  if (!socket || cx::detail::read_small_file((process + "/stat").c_str(), stat, sizeof stat) <= 0) return false;
  char const* const state = std::strrchr(stat, ')');
  return state != nullptr && state[2] == 'S';
}

int codes(group const& g, int count, cx::errc code) {
  int same = 0;
  for (int i = 0; i < count; ++i) same += g[i].code == static_cast<int>(code) ? 1 : 0;
  return same;
}

}  // namespace

TEST_CASE("1, 2, 3 and 4 processes join and pass messages of all sizes on all lanes") {
  for (int n : {1, 2, 3, 4}) {
    auto table = cx::in_process_rendezvous::create(n);
    REQUIRE(table.has_value());
    group g(n);
    for (int r = 0; r < n; ++r) {
      g.start([&, r] {
        auto rendezvous = table->of(r);
        return join_and_pass(rendezvous, {}, 20);
      });
    }
    g.wait();
    for (int r = 0; r < n; ++r) CHECK_MESSAGE(g[r].code == 0, g[r].text);
  }
}

TEST_CASE("slots, slot_bytes and lanes are the least over all ranks") {
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  group g(2);
  for (int r = 0; r < 2; ++r) {
    g.start([&, r]() -> cx::status {
      auto rendezvous = table->of(r);
      cx::transport_options o;
      o.slots = r == 0 ? 3 : 5;
      o.slot_bytes = r == 0 ? 4096 : 128;
      o.lanes = r == 0 ? 2 : 1;
      auto t = cx::shared_memory_transport::join(rendezvous, o);
      if (!t) return t.error();
      return cx::status::failure(cx::errc::aborted, r, "%d slots of %zu, %d lanes", t->slots(), t->slot_bytes(), t->lanes());
    });
  }
  g.wait();
  CHECK(std::string(g[0].text) == "collectx: 3 slots of 128, 1 lanes");
  CHECK(std::string(g[1].text) == "collectx: 3 slots of 128, 1 lanes");
}

TEST_CASE("an option that cannot work is named on every rank, with the rank that asked for it") {
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  group g(2);
  for (int r = 0; r < 2; ++r) {
    g.start([&, r] {
      auto rendezvous = table->of(r);
      cx::transport_options o;
      if (r == 1) o.slot_bytes = 100;
      return join_and_pass(rendezvous, o, 1);
    });
  }
  g.wait();
  CHECK(codes(g, 2, cx::errc::invalid_configuration) == 2);
  for (int r = 0; r < 2; ++r) CHECK_MESSAGE(g[r].names("rank 1: option slot_bytes is 100"), g[r].text);
}

TEST_CASE("DIE-05: a rank that never joins is named on all others at the timeout, and nobody gets a transport") {
  auto table = cx::in_process_rendezvous::create(3);
  REQUIRE(table.has_value());
  group g(2);
  for (int r = 0; r < 2; ++r) {
    g.start([&, r] {
      auto rendezvous = table->of(r);
      return join_and_pass(rendezvous, patience(std::chrono::seconds(1)), 1);
    });
  }
  g.wait();
  for (int r = 0; r < 2; ++r) {
    CHECK(g[r].code == static_cast<int>(cx::errc::timeout));
    CHECK_MESSAGE(g[r].names("2 of 3 ranks joined, missing: 2"), g[r].text);
    CHECK(g[r].rank == 2);
    CHECK(g[r].seconds > 0.9);
    CHECK(g[r].seconds < 30);
  }
}

TEST_CASE("rank 0 that never joins is named at the timeout") {
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  auto rendezvous = table->of(1);
  auto t = cx::shared_memory_transport::join(rendezvous, patience(std::chrono::milliseconds(200)));
  REQUIRE(!t.has_value());
  CHECK(t.error().code() == cx::errc::timeout);
  CHECK(t.error().rank() == 0);
}

TEST_CASE("NET-07: ranks 0, 1, 1, 3 of 4 all learn that rank 1 came twice, before their timeout") {
  processes::scratch place;
  group g(4);
  int const claimed[] = {0, 1, 1, 3};
  for (int rank : claimed) {
    g.start([&, rank]() -> cx::status {
      auto rendezvous = cx::file_rendezvous::create(place.file().c_str(), rank, 4);
      if (!rendezvous) return rendezvous.error();
      return join_and_pass(*rendezvous, patience(std::chrono::seconds(50)), 1);
    });
  }
  g.wait();
  for (int i = 0; i < 4; ++i) {
    CHECK(g[i].code == static_cast<int>(cx::errc::invalid_argument));
    CHECK_MESSAGE(g[i].names("rank 1 joined twice"), g[i].text);
    CHECK(g[i].rank == 1);
    CHECK(g[i].seconds < 40);
  }
  CHECK(processes::count_in(place.folder().c_str()) == 2);
}

TEST_CASE("NET-07: two processes that are both rank 0 are told so, and so is rank 1") {
  processes::scratch place;
  group g(3);
  for (int rank : {0, 0, 1}) {
    g.start([&, rank]() -> cx::status {
      auto rendezvous = cx::file_rendezvous::create(place.file().c_str(), rank, 3);
      if (!rendezvous) return rendezvous.error();
      return join_and_pass(*rendezvous, patience(std::chrono::seconds(50)), 1);
    });
  }
  g.wait();
  for (int i = 0; i < 3; ++i) CHECK_MESSAGE(g[i].names("rank 0 joined twice"), g[i].text);
}

TEST_CASE("NET-07: a rank outside of the group is refused at once") {
  processes::scratch place;
  auto rendezvous = cx::file_rendezvous::create(place.file().c_str(), 7, 4);
  REQUIRE(rendezvous.has_value());
  auto t = cx::shared_memory_transport::join(*rendezvous);
  REQUIRE(!t.has_value());
  CHECK(t.error().code() == cx::errc::invalid_argument);
  CHECK(std::string(t.error().what()) == "collectx: rank 7 is not in a group of 4");
  CHECK(processes::count_in(place.folder().c_str()) == 2);
}

TEST_CASE("NET-07: a name that was used works again, and again at once") {
  processes::scratch place;
  group g(2);
  for (int r = 0; r < 2; ++r) {
    g.start([&, r]() -> cx::status {
      for (int i = 0; i < 20; ++i) {
        auto rendezvous = cx::file_rendezvous::create(place.file().c_str(), r, 2);
        if (!rendezvous) return rendezvous.error();
        if (cx::status s = join_and_pass(*rendezvous, {}, 1); !s) return s;
      }
      return {};
    });
  }
  g.wait();
  for (int r = 0; r < 2; ++r) CHECK_MESSAGE(g[r].code == 0, g[r].text);
  CHECK(processes::count_in(place.folder().c_str()) == 2);
}

TEST_CASE("two builds that differ are told which fact differs and both values, on both sides") {
  for (int fact = 0; fact < cx::detail::build_facts::count; ++fact) {
    auto table = cx::in_process_rendezvous::create(2);
    REQUIRE(table.has_value());
    group g(2);
    for (int r = 0; r < 2; ++r) {
      g.start([&, r, fact]() -> cx::status {
        auto rendezvous = table->of(r);
        cx::detail::hello mine;
        mine.rank = r;
        mine.size = 2;
        mine.slots = mine.lanes = 1;
        mine.slot_bytes = 64;
        mine.patience = 50'000'000'000;
        if (r == 1) mine.facts.values[fact] = 77;
        auto t = cx::shared_memory_transport::join_as(rendezvous, mine);
        return t ? cx::status{} : t.error();
      });
    }
    g.wait();
    std::string const expected = std::string(cx::detail::build_facts::names[fact]) + " is 77 on rank 1 and " +
                                 std::to_string(cx::detail::build_facts{}.values[fact]) + " on rank 0";
    for (int r = 0; r < 2; ++r) {
      CHECK(g[r].code == static_cast<int>(cx::errc::invalid_configuration));
      CHECK_MESSAGE(g[r].names(expected.c_str()), g[r].text);
    }
  }
}

TEST_CASE("whoever has the address but not the proof of having read it here is sent away, and disturbs nobody") {
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  group g(2);
  g.start([&] {
    auto rendezvous = table->of(0);
    return join_and_pass(rendezvous, {}, 1);
  });
  auto mine = table->of(1);
  auto value = mine.get("collectx", cx::detail::monotonic_now() + 30'000'000'000);
  REQUIRE(value.has_value());
  cx::detail::meeting_point place;
  std::memcpy(&place, value->data(), sizeof place);
  place.nonce[7] ^= 1;
  cx::detail::hello stranger;
  stranger.rank = 1;
  stranger.size = 2;
  for (int i = 0; i < 40; ++i) {
    cx::detail::join_guest guest;
    cx::detail::verdict decided;
    cx::detail::descriptor memory;
    auto const answer = guest.knock(place, stranger, cx::detail::monotonic_now() + 30'000'000'000, decided, memory);
    CHECK(answer == cx::detail::join_guest::answer::none);
    CHECK(!memory);
  }
  g.start([&] {
    auto rendezvous = table->of(1);
    return join_and_pass(rendezvous, {}, 1);
  });
  g.wait();
  for (int r = 0; r < 2; ++r) CHECK_MESSAGE(g[r].code == 0, g[r].text);
}

TEST_CASE("a join_timeout beyond all clocks does not overflow") {
  auto table = cx::in_process_rendezvous::create(1);
  REQUIRE(table.has_value());
  auto rendezvous = table->of(0);
  cx::transport_options o;
  o.join_timeout = (std::chrono::nanoseconds::max)();
  CHECK(cx::shared_memory_transport::join(rendezvous, o).has_value());
}

TEST_CASE("SHM-01: after SIGKILL in the middle of a run the same name works, 20 times, and nothing is left in /dev/shm") {
  std::size_t const before = processes::count_in("/dev/shm");
  processes::scratch place;
  auto* running = shared<std::atomic<int>>();
  for (int repeat = 0; repeat < 20; ++repeat) {
    *running = 0;
    group g(2);
    for (int r = 0; r < 2; ++r) {
      g.start([&, r]() -> cx::status {
        auto rendezvous = cx::file_rendezvous::create(place.file().c_str(), r, 2);
        if (!rendezvous) return rendezvous.error();
        auto t = cx::shared_memory_transport::join(*rendezvous);
        if (!t) return t.error();
        ++*running;
        for (std::uint64_t i = 1;; ++i) {
          if (cx::status s = pass_round(*t, i, 64); !s) return s;
        }
      });
    }
    while (*running < 2) cx::detail::nap(1'000'000);
    g.kill(0);
    g.kill(1);
    g.wait();
  }
  // Killed while joining, too: now the file itself stays behind, with the record of a dead process.
  {
    group g(1);
    g.start([&]() -> cx::status {
      auto rendezvous = cx::file_rendezvous::create(place.file().c_str(), 0, 2);
      if (!rendezvous) return rendezvous.error();
      return join_and_pass(*rendezvous, {}, 1);
    });
    struct ::stat facts {};
    while (::stat(place.file().c_str(), &facts) != 0 || facts.st_size == 0) cx::detail::nap(1'000'000);
    g.kill(0);
    g.wait();
    CHECK(processes::count_in(place.folder().c_str()) == 3);
  }
  group g(2);
  for (int r = 1; r >= 0; --r) {
    g.start([&, r]() -> cx::status {
      auto rendezvous = cx::file_rendezvous::create(place.file().c_str(), r, 2);
      if (!rendezvous) return rendezvous.error();
      return join_and_pass(*rendezvous, {}, 5);
    });
  }
  g.wait();
  for (int r = 0; r < 2; ++r) CHECK_MESSAGE(g[r].code == 0, g[r].text);
  CHECK(processes::count_in(place.folder().c_str()) == 2);
  CHECK(processes::count_in("/dev/shm") == before);
}

TEST_CASE("SHM-03: 8 groups made at once by 8 threads of the same 2 processes do not share memory") {
  constexpr int groups = 8;
  std::vector<cx::in_process_rendezvous> tables;
  for (int c = 0; c < groups; ++c) {
    auto table = cx::in_process_rendezvous::create(2);
    REQUIRE(table.has_value());
    tables.push_back(std::move(*table));
  }
  group g(2);
  for (int r = 0; r < 2; ++r) {
    g.start([&, r]() -> cx::status {
      std::vector<std::thread> threads;
      std::atomic<int> wrong{0};
      for (int c = 0; c < groups; ++c) {
        threads.emplace_back([&, c] {
          auto rendezvous = tables[static_cast<std::size_t>(c)].of(r);
          auto t = cx::shared_memory_transport::join(rendezvous);
          if (!t) {
            ++wrong;
            return;
          }
          // The sequence number goes into every byte, so a message of another group is seen.
          for (std::uint64_t i = 1; i <= 100; ++i) {
            if (!pass_round(*t, i + 1000 * static_cast<std::uint64_t>(c), 40)) ++wrong;
          }
        });
      }
      for (std::thread& t : threads) t.join();
      if (wrong != 0) return cx::status::failure(cx::errc::system, r, "%d wrong", wrong.load());
      return {};
    });
  }
  g.wait();
  for (int r = 0; r < 2; ++r) CHECK_MESSAGE(g[r].code == 0, g[r].text);
}

TEST_CASE("SHM-04: too little space is an error on all ranks that says how many bytes it takes, never a signal") {
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  group g(2);
  for (int r = 0; r < 2; ++r) {
    g.start([&, r] {
      ::rlimit const limit{1 << 20, 1 << 20};
      if (r == 0) ::setrlimit(RLIMIT_FSIZE, &limit);
      auto rendezvous = table->of(r);
      return join_and_pass(rendezvous, {}, 1);
    });
  }
  g.wait();
  CHECK(codes(g, 2, cx::errc::out_of_memory) == 2);
  for (int r = 0; r < 2; ++r) CHECK_MESSAGE(g[r].names("no space for shared memory, needs "), g[r].text);
}

TEST_CASE("SHM-04: address space that is too small for one rank is an error on all") {
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  group g(2);
  for (int r = 0; r < 2; ++r) {
    g.start([&, r] {
      cx::transport_options o;
      o.slots = 1 << 16;
      o.slot_bytes = std::size_t{1} << 26;  // 32 TiB
      ::rlimit const limit{std::size_t{1} << 40, std::size_t{1} << 40};
      if (r == 1) ::setrlimit(RLIMIT_AS, &limit);
      auto rendezvous = table->of(r);
      return join_and_pass(rendezvous, o, 0);
    });
  }
  g.wait();
  for (int r = 0; r < 2; ++r) {
    CHECK(g[r].code == static_cast<int>(cx::errc::out_of_memory));
    CHECK_MESSAGE(g[r].names("no space for shared memory, needs "), g[r].text);
  }
}

TEST_CASE("SHM-04: where there is no memfd, a tmpfs of 1 MiB gives an error that names the folder, and leaves no file") {
  processes::scratch place;
  group g(1);
  g.start([&]() -> cx::status {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("collectx", place.folder().c_str(), "tmpfs", 0, "size=1m") != 0) {
      return cx::status::system(errno, "no private mount");
    }
    auto fits = cx::detail::unnamed_file(place.folder().c_str(), 1 << 18);
    if (!fits) return fits.error();
    if (processes::count_in(place.folder().c_str()) != 2) return cx::status::failure(cx::errc::system, -1, "it has a name");
    auto file = cx::detail::unnamed_file(place.folder().c_str(), 8 << 20);
    return file ? cx::status{} : file.error();
  });
  g.wait();
  if (g[0].names("no private mount")) {
    MESSAGE("skipped: ", g[0].text);
    return;
  }
  CHECK(g[0].code == static_cast<int>(cx::errc::out_of_memory));
  CHECK_MESSAGE(g[0].names(("needs 8388608 bytes in " + place.folder()).c_str()), g[0].text);
}

TEST_CASE("SHM-05: ranks may come late, by up to 50 ms in 50 rounds, and once by 3 s") {
  for (int repeat = 0; repeat < 51; ++repeat) {
    processes::scratch place;
    group g(2);
    for (int r = 0; r < 2; ++r) {
      g.start([&, r]() -> cx::status {
        int const late = repeat % 2;
        if (r == late) cx::detail::nap(repeat == 50 ? 3'000'000'000 : (repeat * 7919 % 50) * 1'000'000);
        auto rendezvous = cx::file_rendezvous::create(place.file().c_str(), r, 2);
        if (!rendezvous) return rendezvous.error();
        return join_and_pass(*rendezvous, {}, 1);
      });
    }
    g.wait();
    for (int r = 0; r < 2; ++r) CHECK_MESSAGE(g[r].code == 0, g[r].text);
  }
}

TEST_CASE("survivors of SIGKILL in the middle of a call are told which rank died") {
  for (int victim = 0; victim < 3; ++victim) {
    auto table = cx::in_process_rendezvous::create(3);
    REQUIRE(table.has_value());
    auto* running = shared<std::atomic<int>>();
    group g(3);
    for (int r = 0; r < 3; ++r) {
      g.start([&, r]() -> cx::status {
        auto rendezvous = table->of(r);
        auto t = cx::shared_memory_transport::join(rendezvous);
        if (!t) return t.error();
        ++*running;
        for (std::uint64_t i = 1;; ++i) {
          if (cx::status s = pass_round(*t, i, 64); !s) return s;
        }
      });
    }
    while (*running < 3) cx::detail::nap(1'000'000);
    cx::detail::nap(5'000'000);
    g.kill(victim);
    g.wait();
    for (int r = 0; r < 3; ++r) {
      if (r == victim) continue;
      CHECK(g[r].code == static_cast<int>(cx::errc::peer_lost));
      CHECK(g[r].rank == victim);
      CHECK_MESSAGE(g[r].names("is dead"), g[r].text);
    }
  }
}

TEST_CASE("SIGKILL while joining: rank 0 names the dead guest, guests name the dead rank 0") {
  for (int victim : {0, 1}) {
    auto table = cx::in_process_rendezvous::create(4);
    REQUIRE(table.has_value());
    group g(3);  // rank 3 never comes
    for (int r = 0; r < 3; ++r) {
      g.start([&, r] {
        auto rendezvous = table->of(r);
        return join_and_pass(rendezvous, patience(std::chrono::seconds(50)), 1);
      });
    }
    for (int r = 0; r < 3; ++r) {
      while (!waits_at_a_socket(g.pid(r))) cx::detail::nap(1'000'000);
    }
    g.kill(victim);
    g.wait();
    for (int r = 0; r < 3; ++r) {
      if (r == victim) continue;
      CHECK(g[r].code == static_cast<int>(cx::errc::peer_lost));
      CHECK(g[r].rank == victim);
      CHECK_MESSAGE(g[r].names("died while joining"), g[r].text);
      CHECK(g[r].seconds < 40);
    }
  }
}

TEST_CASE("100 groups made and gone leave no descriptor and no mapping") {
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  group g(2);
  for (int r = 0; r < 2; ++r) {
    g.start([&, r]() -> cx::status {
      auto lines = [] {
        std::FILE* f = std::fopen("/proc/self/maps", "r");
        int count = 0;
        for (int c; f != nullptr && (c = std::fgetc(f)) != EOF;) count += c == '\n' ? 1 : 0;
        if (f != nullptr) std::fclose(f);
        return count;
      };
      std::size_t descriptors = 0;
      int mappings = 0;
      for (int i = 0; i < 101; ++i) {
        auto rendezvous = table->of(r);
        if (cx::status s = join_and_pass(rendezvous, {}, 1); !s) return s;
        if (i == 0) descriptors = processes::count_in("/proc/self/fd"), mappings = lines();
      }
      if (processes::count_in("/proc/self/fd") != descriptors) return cx::status::failure(cx::errc::system, r, "descriptors");
      if (lines() > mappings + 4) return cx::status::failure(cx::errc::system, r, "mappings: %d, then %d", mappings, lines());
      return {};
    });
  }
  g.wait();
  for (int r = 0; r < 2; ++r) CHECK_MESSAGE(g[r].code == 0, g[r].text);
}

TEST_CASE("a joined transport keeps no descriptor") {
  auto table = cx::in_process_rendezvous::create(1);
  REQUIRE(table.has_value());
  auto rendezvous = table->of(0);
  std::size_t const before = processes::count_in("/proc/self/fd");
  auto t = cx::shared_memory_transport::join(rendezvous);
  REQUIRE(t.has_value());
  CHECK(processes::count_in("/proc/self/fd") == before);
}

TEST_CASE("a forked child that uses its parent's transport gets an error and does the group no harm") {
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  group g(2);
  for (int r = 0; r < 2; ++r) {
    g.start([&, r]() -> cx::status {
      auto rendezvous = table->of(r);
      auto t = cx::shared_memory_transport::join(rendezvous);
      if (!t) return t.error();
      if (cx::status s = pass_round(*t, 1, 8); !s) return s;
      if (r == 0) {
        group child(1);
        child.start([&] {
          cx::status const s = pass_round(*t, 2, 8);
          if (t->abort(s).ok()) return cx::status{};
          auto gone = std::move(t);
          return s;
        });
        child.wait();
        if (child[0].code != static_cast<int>(cx::errc::invalid_argument) || !child[0].names("a forked child has to join anew")) {
          return cx::status::failure(cx::errc::system, r, "the child says: %.200s", child[0].text);
        }
      }
      return pass_round(*t, 2, 8);
    });
  }
  g.wait();
  for (int r = 0; r < 2; ++r) CHECK_MESSAGE(g[r].code == 0, g[r].text);
}
