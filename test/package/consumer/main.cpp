// SPDX-License-Identifier: Apache-2.0
#include <collectx/collectx.hpp>

#include <vector>

namespace cx = collectx;

bool doubled(int ranks);  // other.cpp uses the same templates

int main() {
  cx::status const s = cx::loopback::run(3, [](auto& comm) -> cx::status {
    std::vector<float> data(1000, static_cast<float>(comm.rank() + 1));
    if (cx::status const failed = comm.all_reduce(cx::in_place(data), cx::sum{}); !failed) return failed;
    for (float const x : data)
      if (x < 6 || x > 6) return cx::status::failure(cx::errc::mismatch, comm.rank(), "1 + 2 + 3 is 6");
    return {};
  });
  return s.ok() && doubled(2) ? 0 : 1;
}
