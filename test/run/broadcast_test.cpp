// SPDX-License-Identifier: Apache-2.0
// compile: -O1
// timeout: 240
#include <collectx/communicator.hpp>

#include <doctest/doctest.h>

#include <cstdint>

#include "support/sweep.hpp"

namespace cx = collectx;

TEST_CASE("broadcast: every algorithm, count and placement, up to 8 ranks") {
  for (int n : support::all_sizes) {
    CAPTURE(n);
    support::sweep_all<cx::broadcast, std::int32_t, true>(n);
  }
  for (int n : support::some_sizes) {
    CAPTURE(n);
    support::sweep_all<cx::broadcast, std::int8_t>(n);
    support::sweep_all<cx::broadcast, support::affine>(n, support::add_words{});
  }
}

TEST_CASE("broadcast: what the seed draws, at 12 to 64 ranks") {
  for (int n : support::larger_sizes) {
    CAPTURE(n);
    support::sweep_some<cx::broadcast, std::int32_t, true>(n, n < 20 ? 5 : 3);
  }
}

TEST_CASE("broadcast: as few slots as the proof says") {
  for (int n : {2, 3, 5, 8, 12}) {
    CAPTURE(n);
    support::sweep_with_least_slots<cx::broadcast, std::int32_t>(n);
  }
}
