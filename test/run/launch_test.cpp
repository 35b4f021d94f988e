// SPDX-License-Identifier: Apache-2.0
// compile: -O0
// labels: sanitize
// timeout: 60
#include "collectx/collectx.hpp"
#include "collectx/hostile.hpp"

#include <doctest/doctest.h>
#include <sys/types.h>
#include <unistd.h>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace cx = collectx;

namespace {

template <class Comm>
cx::status sum_of_ranks(Comm& comm) {
  std::vector<int> value(3, comm.rank() + 1);
  if (cx::status s = comm.all_reduce(cx::in_place(value), cx::sum{}); !s) return s;
  int const n = comm.size();
  if (value != std::vector<int>(3, n * (n + 1) / 2)) return cx::status::failure(cx::errc::system, comm.rank(), "wrong sum");
  return {};
}

cx::status refuse(int rank) { return cx::status::failure(cx::errc::invalid_argument, rank, "rank %d does not want to", rank); }

}  // namespace

TEST_CASE("threads: all ranks run, and their sum is right") {
  for (int n : {1, 2, 5}) CHECK(cx::loopback::run(n, [](auto& comm) -> cx::status { return sum_of_ranks(comm); }).ok());
}

TEST_CASE("threads: the first failure comes back, and ends the others, which wait for that rank") {
  cx::status const s = cx::loopback::run(4, [](auto& comm) -> cx::status {
    if (comm.rank() == 2) return refuse(2);
    return comm.barrier();
  });
  CHECK(s.code() == cx::errc::invalid_argument);
  CHECK(s.rank() == 2);
  CHECK(std::string(s.what()).find("rank 2 does not want to") != std::string::npos);
}

TEST_CASE("threads: what a rank throws becomes the failure of the group") {
  cx::status const s = cx::loopback::run(3, [](auto& comm) -> cx::status {
    if (comm.rank() == 1) throw std::runtime_error("no luck");
    return comm.barrier();
  });
  CHECK(s.rank() == 1);
  CHECK(std::string(s.what()).find("no luck") != std::string::npos);
}

TEST_CASE("threads: options that cannot work are an error before anybody starts") {
  cx::loopback::options options;
  options.slots = 0;
  bool started = false;
  cx::status const s = cx::loopback::run(2, options, [&](auto&) -> cx::status {
    started = true;
    return {};
  });
  CHECK(s.code() == cx::errc::invalid_configuration);
  CHECK(!started);
}

TEST_CASE("processes: all ranks run, and their sum is right") {
  for (int n : {1, 2, 4}) CHECK(cx::shared_memory::run(n, [](auto& comm) -> cx::status { return sum_of_ranks(comm); }).ok());
}

TEST_CASE("processes: a failure and a sudden exit come back with their rank") {
  cx::status s = cx::shared_memory::run(3, [](auto& comm) -> cx::status { return comm.rank() == 1 ? refuse(1) : comm.barrier(); });
  CHECK(s.code() == cx::errc::invalid_argument);
  CHECK(s.rank() == 1);
  s = cx::shared_memory::run(2, [](auto& comm) -> cx::status {
    if (comm.rank() == 1) ::_exit(7);
    return comm.barrier();
  });
  CHECK(s.code() == cx::errc::peer_lost);
  CHECK(s.rank() == 1);
  s = cx::shared_memory::run(2, [](auto& comm) -> cx::status {
    if (comm.rank() == 0) ::kill(::getpid(), SIGKILL);
    return comm.barrier();
  });
  CHECK(s.code() == cx::errc::peer_lost);
  CHECK(s.rank() == 0);
}

TEST_CASE("hostile threads: blocking code is right under every seed, and the same seed is the same run") {
  cx::hostile::options options;
  options.slots = 2;
  options.slot_bytes = 64;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    std::vector<int> order, again;
    for (std::vector<int>* seen : {&order, &again}) {
      cx::status const s = cx::hostile::run(4, seed, options, [&](auto& comm) -> cx::status {
        for (int k = 0; k < 3; ++k) {
          if (cx::status e = sum_of_ranks(comm); !e) return e;
          seen->push_back(comm.rank());  // one rank at a time: no race
        }
        return {};
      });
      CHECK(s.ok());
    }
    CHECK(order == again);
  }
}

TEST_CASE("hostile threads: wherever a rank dies, the others are told which") {
  cx::hostile::options options;
  options.kill_rank = 1;
  int told = 0;
  for (std::int64_t at = 1; at <= 40; ++at) {
    CAPTURE(at);
    options.kill_at = at;
    cx::status const s = cx::hostile::run(3, 7, options, [](auto& comm) -> cx::status {
      for (int k = 0; k < 4; ++k)
        if (cx::status e = sum_of_ranks(comm); !e) return e;
      return {};
    });
    if (s.ok()) continue;  // it died when its work was done
    CHECK(s.code() == cx::errc::peer_lost);
    CHECK(s.rank() == 1);
    ++told;
  }
  CHECK(told > 10);
}
