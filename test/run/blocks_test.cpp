// SPDX-License-Identifier: Apache-2.0
// compile: -O0 everywhere
// labels: threads
/// Every collective by every algorithm, run by blocks of threads as a device would, gives the bits that the host gives.
#include <doctest/doctest.h>

#include "support/as_on_host.hpp"
#include "support/sanitizers.hpp"

namespace cx = collectx;
using support::add_rough;
using support::rough;

namespace {

constexpr std::size_t rounds = support::under_sanitizer ? 2 : 5;

template <class Protocol>
void compare() {
  support::for_each_collective([]<class C>() {
    for (int n : {1, 2, 3, 4}) {
      CAPTURE(n);
      support::compare_with_host<C, rough, Protocol>(n, rounds, add_rough{});
    }
  });
}

}  // namespace

TEST_CASE("blocks with flagged slots: every collective and algorithm, bit for bit as on the host") { compare<cx::device::flagged<>>(); }

TEST_CASE("blocks with low-latency slots: every collective and algorithm, bit for bit as on the host") {
  compare<cx::device::low_latency<>>();
}
