// SPDX-License-Identifier: Apache-2.0
/// The first call: four ranks, here threads, add up their vectors.
#include <collectx/collectx.hpp>

#include <cstdio>
#include <vector>

int main() {
  // [all_reduce]
  namespace cx = collectx;
  cx::status const s = cx::loopback::run(4, [](auto& comm) -> cx::status {
    std::vector<float> const mine(1000, static_cast<float>(comm.rank() + 1));
    std::vector<float> sums(1000);
    if (cx::status called = comm.all_reduce(mine, sums, cx::sum{}); !called) return called;

    for (float sum : sums)
      if (sum != 1 + 2 + 3 + 4) return cx::status::failure(cx::errc::aborted, comm.rank(), "a sum is %g", static_cast<double>(sum));
    return {};
  });
  // [all_reduce]
  if (!s) return std::fprintf(stderr, "%s\n", s.what()), 1;
  std::printf("four ranks have 1 + 2 + 3 + 4 = 10 in all 1000 places\n");
  return 0;
}
