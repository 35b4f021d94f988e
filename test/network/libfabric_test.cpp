// SPDX-License-Identifier: Apache-2.0
// compile: -O0
// timeout: 120
#include <collectx/libfabric.hpp>
#include <collectx/reduce/premultiplied_sum.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "network/ready.hpp"
#include "processes.hpp"
#include "support/on_processes.hpp"

namespace cx = collectx;

TEST_CASE("every collective over libfabric: every provider, algorithm, count, placement and root") {
  for (char const* provider : {"net", "tcp;ofi_rxm", "shm"}) {
    CAPTURE(std::string(provider));
    cx::libfabric::options options;
    options.provider = provider;
    auto const run = [&](int n, auto& f) { return cx::libfabric::run(n, options, f); };
    for (int n : {2, 3, 4}) {
      CAPTURE(n);
      support::every_collective(run, n, {0, 1, 5, 1000, 65537}, {1, 7, 3000});
    }
  }
}

TEST_CASE("what has to be prepared is not sent from where it lies") {
  cx::status const s = cx::libfabric::run(3, cx::libfabric::options{}, [](auto& comm) -> cx::status {
    cx::premultiplied_sum const op{comm.rank() + 2};
    std::vector<int> const in(65537, comm.rank() + 1);
    std::vector<int> out(in.size());
    if (cx::status failed = comm.all_reduce(in, out, op, cx::algo::ring{}); !failed) return failed;
    if (out == std::vector<int>(in.size(), 2 * 1 + 3 * 2 + 4 * 3)) return {};
    return cx::status::failure(cx::errc::system, comm.rank(), "rank %d: a wrong sum", comm.rank());
  });
  CHECK_MESSAGE(s.ok(), std::string(s.what()));
}
