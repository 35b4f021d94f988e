// SPDX-License-Identifier: Apache-2.0
// compile: -O0
#include <collectx/algo/hierarchical.hpp>
#include <collectx/launch.hpp>

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "support/algorithms.hpp"
#include "support/ranks.hpp"
#include "support/sanitizers.hpp"
#include "support/seed.hpp"

namespace cx = collectx;

namespace {

/// Before barrier k every rank raises its flag to k, sooner or later; after it no flag may be below k.
template <class A>
cx::status rounds_of(int n, int rounds, A const& algorithm) {
  std::array<std::atomic<int>, 16> flags{};
  return cx::loopback::run(n, [&](auto& comm) -> cx::status {
    std::size_t const me = static_cast<std::size_t>(comm.rank());
    support::random_stream random(support::seed() + me);
    for (int k = 1; k <= rounds; ++k) {
      std::size_t const nap = random.below(20);
      if (nap == 0) cx::detail::nap(static_cast<std::int64_t>(random.below(3'000'000)));
      for (std::size_t spin = nap * 50; spin > 0; --spin) cx::detail::relax();
      flags[me].store(k, std::memory_order_relaxed);
      if (cx::status s = comm.barrier(algorithm); !s) return s;
      for (std::size_t r = 0; r < static_cast<std::size_t>(comm.size()); ++r)
        if (flags[r].load(std::memory_order_relaxed) < k)
          return cx::status::failure(cx::errc::system, comm.rank(), "rank %d of %d passed barrier %d before rank %d came", comm.rank(), n,
                                     k, static_cast<int>(r));
    }
    return {};
  });
}

}  // namespace

TEST_CASE("BAR-01: nobody passes a barrier before everybody has come, by any algorithm") {
  constexpr int rounds = support::under_sanitizer ? 10 : 50;
  for (int n = 2; n <= 9; ++n) {
    cx::status const s = rounds_of(n, rounds, cx::algo::automatic{});
    CHECK_MESSAGE(s.ok(), support::text(s));
    for (support::algorithm const& a : support::algorithms_for<cx::all_reduce>()) {
      CAPTURE(a.name);
      cx::status const by_name = rounds_of(n, rounds, a.erased());
      CHECK_MESSAGE(by_name.ok(), support::text(by_name));
    }
  }
}

TEST_CASE("BAR-03: four nodes of two, each rank late in turn, the barrier being the first and the last call") {
  using nodes = cx::algo::sizes<2, 2, 2, 2>;
  using on_nodes = cx::algo::hierarchical<cx::algo::ring, cx::algo::double_binary_tree, nodes>;
  for (int late = 0; late < 8; ++late) {
    std::atomic<bool> came{false};
    support::all_succeed(8, [&](auto& comm) -> cx::status {
      if (comm.rank() == late) {
        cx::detail::nap(20'000'000);
        came = true;
      }
      if (cx::status s = comm.barrier(on_nodes{}); !s) return s;
      return came ? cx::status{} : support::wrong(comm.rank(), "passed before the late one came");
    });
  }
}

TEST_CASE("a barrier among one rank returns") {
  support::all_succeed(1, [](auto& comm) -> cx::status {
    if (cx::status s = comm.barrier(cx::algo::ring{}); !s) return s;
    return comm.barrier();
  });
}

TEST_CASE("what was written before a barrier is seen behind it") {
  std::vector<int> plain(4);
  support::all_succeed(4, [&](auto& comm) -> cx::status {
    for (int k = 1; k <= 100; ++k) {
      plain[static_cast<std::size_t>(comm.rank())] = k;
      if (cx::status s = comm.barrier(); !s) return s;
      for (int value : plain)
        if (value != k) return support::wrong(comm.rank(), "sees an old value");
      if (cx::status s = comm.barrier(); !s) return s;
    }
    return {};
  });
}
