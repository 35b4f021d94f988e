// SPDX-License-Identifier: Apache-2.0
/// Calls that go on while their ranks do something else, over whatever wire.
#pragma once

#include <collectx/background_progress.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "ranks.hpp"

namespace support {

/// Rank 0 starts a call that is longer than any ring, and touches nothing of it until all others are through. `through` is shared by all.
template <class Comm>
cx::status computes_meanwhile(Comm& comm, std::atomic<int>& through) {
  std::size_t const count = std::size_t{3} << 20;
  std::vector<std::int32_t> in(count, comm.rank() + 1), out(count);
  cx::call_options options;
  options.timeout = std::chrono::seconds(40);
  auto sum = comm.plan_all_reduce(in, out, cx::sum{}, cx::algo::ring{}, options);
  cx::background_progress helper(comm);
  if (cx::status s = sum.start(); !s) return s;
  for (int looks = 0; comm.rank() == 0 && through < comm.size() - 1; ++looks) {
    if (looks == 60'000) return wrong(comm.rank(), "the others still wait for it");
    cx::detail::nap(1'000'000);
  }
  if (cx::status s = sum.wait(); !s) return s;
  ++through;
  std::int32_t const right = comm.size() * (comm.size() + 1) / 2;
  return std::count(out.begin(), out.end(), right) == static_cast<std::ptrdiff_t>(count) ? cx::status{} : wrong(comm.rank(), "wrong sum");
}

/// Blocking calls, planned ones and messages, while a helper looks in all the time.
template <class Comm>
cx::status calls_beside_a_helper(Comm& comm, int rounds) {
  cx::background_progress helper(comm, std::chrono::nanoseconds(1));
  int const n = comm.size(), me = comm.rank(), next = (me + 1) % n, previous = (me + n - 1) % n;
  std::vector<std::int32_t> in(5000), sums(5000), few(3), letter(700), answer(700);
  auto sum = comm.plan_all_reduce(in, sums, cx::sum{});
  for (int round = 0; round < rounds; ++round) {
    std::fill(in.begin(), in.end(), me + round);
    std::fill(few.begin(), few.end(), me);
    std::iota(letter.begin(), letter.end(), 1000 * me + round);
    if (cx::status s = sum.start(); !s) return s;
    if (cx::status s = comm.all_reduce(cx::in_place(few), cx::max{}); !s) return s;
    if (cx::status s = comm.send_recv(letter, next, answer, previous); !s) return s;
    if (cx::status s = sum.wait(); !s) return s;
    std::int32_t const right = n * round + n * (n - 1) / 2;
    bool const good = few[2] == n - 1 && answer[699] == 1000 * previous + round + 699 && sums[0] == right && sums[4999] == right;
    if (!good) return wrong(me, "something else came of it");
  }
  return comm.barrier();
}

}  // namespace support
