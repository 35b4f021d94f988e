// SPDX-License-Identifier: Apache-2.0
// compile: -O0
// timeout: 120
#include <collectx/libfabric.hpp>

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
