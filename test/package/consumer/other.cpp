// SPDX-License-Identifier: Apache-2.0
#include <collectx/collectx.hpp>

#include <vector>

namespace cx = collectx;

bool doubled(int ranks) {
  return cx::loopback::run(ranks, [](auto& comm) -> cx::status {
           std::vector<float> data(1000, 1.0F);
           if (cx::status const failed = comm.all_reduce(cx::in_place(data), cx::sum{}); !failed) return failed;
           float const expected = static_cast<float>(comm.size());
           if (data.front() < expected || data.back() > expected) return cx::status::failure(cx::errc::mismatch, comm.rank(), "wrong sum");
           return {};
         }).ok();
}
