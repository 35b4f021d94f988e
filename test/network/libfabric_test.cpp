// SPDX-License-Identifier: Apache-2.0
// compile: -O0
// timeout: 120
#include <collectx/libfabric.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "processes.hpp"
#include "support/on_processes.hpp"

namespace cx = collectx;

namespace {

std::vector<char const*> const providers{"net", "tcp;ofi_rxm", "shm"};

template <class C>
void by_each_provider(C const&) {
  for (char const* provider : providers) {
    CAPTURE(provider);
    cx::libfabric::options options;
    options.provider = provider;
    auto const run = [&](int n, auto& f) { return cx::libfabric::run(n, options, f); };
    for (int n : {2, 3, 4}) {
      CAPTURE(n);
      support::on_processes<C, std::int32_t>(run, n, {0, 1, 5, 1000, 65537}, cx::sum{});
      support::on_processes<C, support::affine>(run, n, {1, 7, 3000}, support::compose{});
    }
  }
}

}  // namespace

TEST_CASE("all_reduce over libfabric: every provider, algorithm, count and placement") { by_each_provider(cx::all_reduce{}); }
TEST_CASE("reduce_scatter over libfabric: every provider, algorithm, count and placement") { by_each_provider(cx::reduce_scatter{}); }
TEST_CASE("all_gather over libfabric: every provider, algorithm, count and placement") { by_each_provider(cx::all_gather{}); }
TEST_CASE("broadcast over libfabric: every provider, algorithm, count and root") { by_each_provider(cx::broadcast{}); }
TEST_CASE("reduce over libfabric: every provider, algorithm, count and root") { by_each_provider(cx::reduce{}); }
