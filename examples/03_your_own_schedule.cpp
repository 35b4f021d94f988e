// SPDX-License-Identifier: Apache-2.0
/// A schedule of your own: ten lines, proved by the compiler, run at once.
#include <collectx/collectx.hpp>

#include <cstdio>
#include <numeric>
#include <vector>

namespace cx = collectx;

// [schedule]
/// In step k rank r gives chunk r-k-1 to the next rank, and adds what it gets to its own.
struct my_ring {
  constexpr int steps(int size) const { return size - 1; }
  constexpr int parts(int) const { return 1; }
  template <cx::RankContext Me>
  constexpr void step(int k, Me& me) const {
    me.send(next(me), cx::chunk(me.rank() - k - 1));
    me.reduce(prev(me), cx::chunk(me.rank() - k - 2));
  }
};
using my_all_reduce = cx::then<my_ring, cx::reversed<my_ring>>;  // the second half is the same film, backwards

static_assert(cx::proven(my_all_reduce{}, cx::all_reduce{}, 8));
static_assert(cx::cost_of(my_all_reduce{}, cx::all_reduce{}, 8) ==
              cx::cost{.steps = 14, .messages = 14, .chunks_sent = 14, .chunks = 8, .slots = 2});
// [schedule]

// [flaw]
/// The same with a slip: it waits for a chunk that the previous rank does not send.
struct my_slip : my_ring {
  template <cx::RankContext Me>
  constexpr void step(int k, Me& me) const {
    me.send(next(me), cx::chunk(me.rank() - k - 1));
    me.reduce(prev(me), cx::chunk(me.rank() - k - 1));
  }
};
static_assert(cx::examine(my_slip{}, cx::reduce_scatter{}, 8).what == cx::flaw::recv_without_matching_send);
// [flaw]

int main() {
  // [run]
  cx::status const s = cx::loopback::run(4, [](auto& comm) -> cx::status {
    std::vector<long> data(1000);
    std::iota(data.begin(), data.end(), comm.rank());
    if (cx::status called = comm.all_reduce(cx::in_place(data), cx::sum{}, my_all_reduce{}); !called) return called;

    for (std::size_t i = 0; i < data.size(); ++i)
      if (data[i] != 4 * static_cast<long>(i) + 6) return cx::status::failure(cx::errc::aborted, comm.rank(), "a sum is %ld", data[i]);
    return {};
  });
  // [run]
  if (!s) return std::fprintf(stderr, "%s\n", s.what()), 1;
  std::printf("a ring of ten lines: proved for 8 ranks, right on 4\n");
  return 0;
}
