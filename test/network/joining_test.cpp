// SPDX-License-Identifier: Apache-2.0
// compile: -O0
// cores: 1
// timeout: 60
/// How ranks on a network come together, and who and what may come between.
#include <collectx/libfabric.hpp>
#include <collectx/rendezvous/file.hpp>
#include <collectx/rendezvous/tcp_store.hpp>

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "processes.hpp"

namespace cx = collectx;

namespace {
/// So many times more there is memory, and then not once; below 0 always.
int allocations_left = -1;
}  // namespace

void* operator new(std::size_t bytes) {
  if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

/// Two ranks, each of which libfabric offers only these providers; what each comes to, and by which provider.
struct outcome {
  processes::said said[2];
  char provider[2][32];
};
outcome join_with(char const* (&offered)[2]) {
  auto table = cx::in_process_rendezvous::create(2);
  outcome* const shared = processes::shared<outcome>();
  processes::group ranks(2);
  for (int r = 0; r < 2; ++r) {
    ranks.start([&, r]() -> cx::status {
      ::setenv("FI_PROVIDER", offered[r], 1);
      auto comm = cx::libfabric::join(table->of(r));
      if (!comm) return comm.error();
      std::snprintf(shared->provider[r], sizeof shared->provider[r], "%s", comm->transport().provider());
      std::vector<int> sum(1, r + 1);
      if (cx::status s = comm->all_reduce(cx::in_place(sum), cx::sum{}); !s) return s;
      return sum[0] == 3 ? cx::status{} : cx::status::failure(cx::errc::system, r, "the sum is %d", sum[0]);
    });
  }
  ranks.wait();
  outcome out = *shared;
  for (int r = 0; r < 2; ++r) out.said[r] = ranks[r];
  ::munmap(shared, sizeof *shared);
  return out;
}

/// Somebody who has found the door of rank 0, and says `bytes` there.
int knock(cx::in_process_rendezvous& table, std::string const& bytes) {
  auto value = table.of(1).get("mesh0", cx::detail::monotonic_now() + 10'000'000'000);
  if (!value) return -1;
  cx::detail::socket_place place;
  std::memcpy(static_cast<void*>(&place), value->data(), sizeof place);
  int const socket = ::socket(place.where()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(socket, place.where(), static_cast<::socklen_t>(place.length)) != 0) return ::close(socket), -1;
  return ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()) ? socket : -1;
}

}  // namespace

TEST_CASE("TOP-04: ranks take what both are offered") {
  char const* offered[] = {"net,shm", "net"};
  outcome const out = join_with(offered);
  for (int r : {0, 1}) {
    CHECK_MESSAGE(out.said[r].code == 0, std::string(out.said[r].text));
    CHECK(std::string(out.provider[r]) == "net");
  }
}

TEST_CASE("TOP-04: ranks that are offered nothing in common hear so, both") {
  char const* offered[] = {"net", "shm"};
  outcome const out = join_with(offered);
  for (int r : {0, 1}) {
    CHECK(out.said[r].code == static_cast<int>(cx::errc::not_supported));
    CHECK(out.said[r].names("no common transport"));
  }
}

TEST_CASE("NET-07: two processes that are one rank of a network are told so, and so are all others, long before their time is over") {
  struct {
    int size, claimed;
    char const* sentence;
  } const comers[] = {{4, 0, "rank 1 joined twice"}, {4, 1, "rank 1 joined twice"}, {4, 1, "rank 1 joined twice"},
                      {4, 3, "rank 1 joined twice"}, {3, 0, "rank 0 joined twice"}, {3, 0, "rank 0 joined twice"},
                      {3, 1, "rank 0 joined twice"}};  // rank 2 of neither group comes
  processes::scratch of_four, of_three;
  processes::group ranks(7);
  for (auto const& c : comers) {
    ranks.start([&]() -> cx::status {
      processes::scratch const& place = c.size == 4 ? of_four : of_three;
      auto meeting = cx::file_rendezvous::create(place.file().c_str(), c.claimed, c.size);
      if (!meeting) return meeting.error();
      cx::libfabric::options options;
      options.join_timeout = std::chrono::seconds(50);
      return cx::libfabric::join(*meeting, options).error();
    });
  }
  ranks.wait();
  for (int i = 0; i < 7; ++i) {
    CHECK_MESSAGE(ranks[i].names(comers[i].sentence), std::string(ranks[i].text));
    CHECK(ranks[i].code == static_cast<int>(cx::errc::invalid_argument));
    CHECK(ranks[i].seconds < 40);
  }
  for (processes::scratch const* place : {&of_four, &of_three}) CHECK(processes::count_in(place->folder().c_str()) == 2);
}

TEST_CASE("ranks that ask for different providers hear of both") {
  auto table = cx::in_process_rendezvous::create(2);
  processes::group ranks(2);
  for (int r = 0; r < 2; ++r) {
    ranks.start([&, r]() -> cx::status {
      cx::libfabric::options options;
      options.provider = r == 0 ? "net" : "tcp;ofi_rxm";
      return cx::libfabric::join(table->of(r), options).error();
    });
  }
  ranks.wait();
  for (int r : {0, 1}) {
    CHECK(ranks[r].code == static_cast<int>(cx::errc::invalid_configuration));
    CHECK(ranks[r].names("rank 1 asks for provider tcp;ofi_rxm, rank 0 for net"));
  }
}

TEST_CASE("NET: strangers at the door with garbage, with nothing, or with a part of a greeting do not disturb") {
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  processes::group ranks(2);
  auto const rank = [&](int r) {
    return [&table, r]() -> cx::status {
      auto comm = cx::libfabric::join(table->of(r));
      return comm ? comm->barrier() : comm.error();
    };
  };
  ranks.start(rank(0));
  cx::detail::frame greeting;
  greeting.kind = cx::detail::frame::greeting;
  std::string const whole(reinterpret_cast<char const*>(&greeting), sizeof greeting);
  std::vector<int> strangers;
  for (std::string const& said : {std::string(600, 'x'), std::string(), whole.substr(0, 100), whole})
    strangers.push_back(knock(*table, said));
  for (int i = 0; i < 80; ++i) strangers.push_back(knock(*table, ""));  // more than are kept waiting
  ranks.start(rank(1));
  ranks.wait();
  for (int r : {0, 1}) CHECK_MESSAGE(ranks[r].code == 0, std::string(ranks[r].text));
  for (int socket : strangers) {
    CHECK(socket >= 0);
    ::close(socket);
  }
}

TEST_CASE("who never came is named") {
  auto table = cx::in_process_rendezvous::create(4);
  processes::group ranks(2);
  auto const rank = [&](int r, int seconds) {
    return [&table, r, seconds]() -> cx::status {
      cx::libfabric::options options;
      options.join_timeout = std::chrono::seconds(seconds);
      return cx::libfabric::join(table->of(r), options).error();
    };
  };
  ranks.start(rank(2, 60));
  REQUIRE(table->of(1).get("mesh2", cx::detail::monotonic_now() + 60'000'000'000));  // it stands at the door of rank 0
  ranks.start(rank(0, 3));
  ranks.wait();
  for (int i : {0, 1}) CHECK(ranks[i].code == static_cast<int>(cx::errc::timeout));
  for (int i : {0, 1}) CHECK_MESSAGE(ranks[i].names("joined rank 0, missing: 1, 3"), std::string(ranks[i].text));
}

TEST_CASE("COLLECTX_JOIN_TIMEOUT is how long ranks on a network wait for each other") {
  auto const alone = [](char const* seconds) {
    ::setenv("COLLECTX_JOIN_TIMEOUT", seconds, 1);
    auto table = cx::in_process_rendezvous::create(2);
    std::vector<cx::status> const ends{cx::libfabric::join(table->of(0)).error(), cx::composite::join(table->of(1)).error()};
    ::unsetenv("COLLECTX_JOIN_TIMEOUT");
    return ends;
  };
  for (cx::status const& end : alone("0.1")) {
    CHECK_MESSAGE(end.code() == cx::errc::timeout, std::string(end.what()));
    CHECK_MESSAGE(std::strstr(end.what(), "missing: ") != nullptr, std::string(end.what()));
  }
  for (cx::status const& end : alone("tomorrow")) {
    CHECK(end.code() == cx::errc::invalid_configuration);
    CHECK_MESSAGE(std::strstr(end.what(), "COLLECTX_JOIN_TIMEOUT is \"tomorrow\"") != nullptr, std::string(end.what()));
  }
}

TEST_CASE("who never came to the store is named by it, long before the time for joining is over") {
  std::atomic<int>* const port = processes::shared<std::atomic<int>>();
  processes::group ranks(2);
  for (int r : {0, 1}) {
    ranks.start([port, r]() -> cx::status {
      cx::tcp_store_options there;
      there.timeout = std::chrono::seconds(2);
      for (int looks = 0; r == 1 && *port == 0 && looks < 30'000; ++looks) cx::detail::nap(1'000'000);
      there.port = *port;
      auto store = cx::tcp_store_rendezvous::create(r, 3, there);
      if (!store) return store.error();
      *port = store->port();
      cx::libfabric::options options;
      options.join_timeout = std::chrono::hours(1);
      return cx::libfabric::join(*store, options).error();
    });
  }
  ranks.wait();
  for (int i : {0, 1}) CHECK(ranks[i].code == static_cast<int>(cx::errc::timeout));
  for (int i : {0, 1}) CHECK_MESSAGE(ranks[i].names("rank 2 of 3 never came to 127.0.0.1:"), std::string(ranks[i].text));
  ::munmap(port, sizeof *port);
}

TEST_CASE("whatever memory cannot be had while joining, that rank says so, and the others do not wait for it") {
  constexpr int before_it_comes = 3;                            // nobody knows of it yet
  static_cast<void>(cx::detail::fabric_endpoint::offered({}));  // libfabric gets ready once, and not in every child
  int told = 0;
  for (int given = before_it_comes, joined = 0; joined == 0; ++given) {
    REQUIRE(given < 1000);
    CAPTURE(given);
    auto table = cx::in_process_rendezvous::create(2);
    processes::group ranks(2);
    for (int r : {0, 1}) {
      ranks.start([&, r]() -> cx::status {
        auto rendezvous = table->of(r);
        if (r == 1) allocations_left = given;
        auto comm = cx::composite::join(rendezvous);
        allocations_left = -1;
        return comm ? comm->barrier() : comm.error();
      });
    }
    ranks.wait();
    joined = ranks[1].code == 0;
    if (joined != 0) continue;
    CHECK_MESSAGE(ranks[1].code == static_cast<int>(cx::errc::out_of_memory), std::string(ranks[1].text));
    bool const heard = ranks[0].code == static_cast<int>(cx::errc::out_of_memory);
    CHECK_MESSAGE((heard || ranks[0].code == static_cast<int>(cx::errc::peer_lost)), std::string(ranks[0].text));
    for (int r : {0, 1}) CHECK(ranks[r].rank == 1);
    told += heard;
  }
  CHECK(told > 0);
}

TEST_CASE(
    "LEK-01, LEK-03: cycles of joining, adding up and parting, also such that fail half way, leave no descriptor, thread or mapping") {
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  processes::group ranks(2);
  for (int r : {0, 1}) {
    ranks.start([&table, r]() -> cx::status {
      ::rlimit const few{64, 64};
      ::setrlimit(RLIMIT_NOFILE, &few);
      std::size_t descriptors = 0, threads = 0, mappings = 0;
      constexpr int cycles = 40;
      for (int cycle = 0; cycle < cycles; ++cycle) {
        cx::libfabric::options options;
        options.slots = 4;
        options.slot_bytes = 4096;
        bool const fails = cycle % 4 == 2;
        if (fails && r == 1) options.memory = 1;  // it says so when all are connected
        {
          auto comm = cx::libfabric::join(table->of(r), options);
          if (fails && comm.error().code() != cx::errc::invalid_configuration) return comm.error();
          for (int i = 0; i < 5 && !fails; ++i) {
            if (!comm) return comm.error();
            std::vector<int> sum(100, r + i);
            if (cx::status s = comm->all_reduce(cx::in_place(sum), cx::sum{}); !s) return s;
            if (sum[99] != 1 + 2 * i) return cx::status::failure(cx::errc::system, r, "the sum is %d", sum[99]);
          }
        }
        std::size_t const now[] = {processes::count_in("/proc/self/fd"), processes::count_in("/proc/self/task"),
                                   processes::count_in("/proc/self/map_files")};
        if (cycle == 6) descriptors = now[0], threads = now[1], mappings = now[2];
        if (cycle == cycles - 1 && (now[0] != descriptors || now[1] != threads || now[2] > mappings + 2))
          return cx::status::failure(cx::errc::system, r, "descriptors %zu, then %zu; threads %zu, %zu; mappings %zu, %zu", descriptors,
                                     now[0], threads, now[1], mappings, now[2]);
      }
      return {};
    });
  }
  ranks.wait();
  for (int r : {0, 1}) CHECK_MESSAGE(ranks[r].code == 0, std::string(ranks[r].text));
}

TEST_CASE("ORD-04, SHM-03: two processes of four threads, each with a communicator of its own, join and call at once") {
  constexpr int threads = 4;
  std::vector<cx::in_process_rendezvous> tables;
  for (int t = 0; t < threads; ++t) {
    auto table = cx::in_process_rendezvous::create(2);
    REQUIRE(table.has_value());
    tables.push_back(std::move(*table));
  }
  auto const one_thread = [](cx::in_process_rendezvous meeting, int t) -> cx::status {
    cx::libfabric::options options;
    options.provider = t % 2 == 0 ? "net" : "shm";
    auto comm = cx::libfabric::join(meeting, options);
    if (!comm) return comm.error();
    constexpr std::size_t counts[] = {1, 17, 4096};
    std::vector<int> in(4096, 100 * t + comm->rank()), out(4096);
    for (int round = 0; round < 150; ++round) {
      std::size_t const count = counts[round % 3];
      std::fill(out.begin(), out.end(), -1);
      if (cx::status s = comm->all_reduce(std::span(in).first(count), std::span(out).first(count), cx::sum{}); !s) return s;
      if (out[0] != 200 * t + 1 || out[count - 1] != 200 * t + 1)
        return cx::status::failure(cx::errc::system, comm->rank(), "thread %d has a sum of %d", t, out[count - 1]);
    }
    return {};
  };
  processes::group ranks(2);
  for (int r : {0, 1}) {
    ranks.start([&, r]() -> cx::status {
      return processes::by_threads(threads, [&](int t) { return one_thread(tables[static_cast<std::size_t>(t)].of(r), t); });
    });
  }
  ranks.wait();
  for (int r : {0, 1}) CHECK_MESSAGE(ranks[r].code == 0, std::string(ranks[r].text));
}

TEST_CASE("FRK-03: processes that end without destroying, in any order, by a static, or by exit in a thread, all end well") {
  std::size_t const before = processes::count_in("/dev/shm");
  std::fflush(nullptr);  // a child that ends by exit would print what is pending here
  std::cout.flush();
  for (char const* provider : {"net", "tcp;ofi_rxm", "shm"}) {
    for (int way = 0; way < processes::ways_to_exit; ++way) {
      CAPTURE(std::string(provider));
      CAPTURE(way);
      auto table = cx::in_process_rendezvous::create(2);
      REQUIRE(table.has_value());
      std::vector<::pid_t> children;
      for (int r : {0, 1}) {
        ::pid_t const child = ::fork();
        if (child != 0) {
          children.push_back(child);
          continue;
        }
        ::alarm(30);
        cx::libfabric::options options;
        options.provider = provider;
        options.slots = 4;
        options.slot_bytes = 4096;
        auto comm = cx::libfabric::join(table->of(r), options);
        if (!comm) ::_exit(1);
        auto twin = comm->duplicate();
        std::vector<int> sum(1, r + 1);
        if (!twin || !twin->all_reduce(cx::in_place(sum), cx::sum{}) || sum[0] != 3) ::_exit(2);
        processes::end(way, r == 1, *comm, *twin);
      }
      CHECK(processes::all_ended_well(children));
    }
  }
  CHECK(processes::count_in("/dev/shm") == before);
}
