// SPDX-License-Identifier: Apache-2.0
// compile: -O0
// labels: address
/// Blocks and elements of other sizes, and operations that keep the order of ranks or finish their result.
#include <collectx/reduce/small_floats.hpp>

#include <doctest/doctest.h>

#include <cstdint>

#include "support/as_on_host.hpp"

namespace cx = collectx;

namespace {

template <class C, class T, class Protocol, class Op>
void compare(Op const& op) {
  for (int n : {2, 3, 4}) {
    CAPTURE(n);
    support::compare_with_host<C, T, Protocol>(n, 3, op);
  }
}

}  // namespace

TEST_CASE("24 bytes whose order counts") {
  compare<cx::all_reduce, support::affine, cx::device::flagged<>>(support::compose{});
  compare<cx::all_reduce, support::affine, cx::device::low_latency<>>(support::compose{});
}

TEST_CASE("single bytes, which end anywhere in a word") {
  compare<cx::all_reduce, std::int8_t, cx::device::low_latency<>>(cx::sum{});
}

TEST_CASE("results that are finished once") {
  compare<cx::reduce_scatter, double, cx::device::flagged<>>(cx::avg{});
}

TEST_CASE("16 bits that are prepared, folded in float and finished") {
  compare<cx::all_reduce, cx::float16, cx::device::flagged<>>(cx::avg{});
}
