// SPDX-License-Identifier: Apache-2.0
// labels: address
// cores: 1
// The fold of a block of threads gives the bits of kernel::fold, whatever the block's size. It has no synchronisation, so the threads of
// these blocks run one after the other.
#include "collectx/reduce/device.cuh"

#include "collectx/reduce/functors.hpp"
#include "collectx/reduce/premultiplied_sum.hpp"
#include "collectx/reduce/small_floats.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "support/folds.hpp"

namespace cx = collectx;

namespace {

/// One thread of a block.
struct lone_thread {
  int place, threads;
  int rank() const { return place; }
  int size() const { return threads; }
  int index() const { return 0; }
  int count() const { return 1; }
  bool any(bool yes) const { return yes; }
  std::byte* shared() const { return nullptr; }
  cx::nanoseconds now() const { return 0; }
  void sync() const {}
  void relax() const {}
};
static_assert(cx::device::Block<lone_thread>);

template <class T>
auto by_block_of(int threads) {
  return [threads](auto... arguments) {
    for (int place = 0; place < threads; ++place) {
      lone_thread block{place, threads};
      cx::device::fold<T>(block, arguments...);
    }
  };
}

template <class T, class Op>
int wrong_folds(Op const& op, std::vector<std::size_t> const& sizes = support::telling_sizes) {
  int wrong = 0;
  for (int const threads : {1, 3, 32}) wrong += support::wrong_folds<T>(op, sizes, by_block_of<T>(threads));
  return wrong;
}

/// All data equally far from a multiple of 16, so that most of it goes in accesses of 16 bytes.
template <class T, class Op>
int wrong_aligned_folds(Op const& op) {
  int wrong = 0;
  for (int offset = 0; offset < 16; ++offset)
    for (std::size_t const n : {std::size_t{5}, std::size_t{100}, std::size_t{1500}}) {
      support::guarded<T> a(n, offset), b(n, offset), c(n, offset), out(n, offset), out_too(n, offset), expected(n, offset),
          expected_too(n, offset);
      a.fill(n);
      b.fill(n + 1);
      c.fill(n + 2);
      cx::kernel::operand const sources[] = {{a.data(), false}, {b.data(), true}, {c.data(), false, true}};
      cx::kernel::sink const sinks[] = {{out.data(), false}, {out_too.data(), true}};
      cx::kernel::sink const expected_sinks[] = {{expected.data(), false}, {expected_too.data(), true}};
      by_block_of<T>(7)(sinks, 2, sources, 3, n, op, 3);
      cx::kernel::fold<T>(expected_sinks, 2, sources, 3, n, op, 3, false);
      bool const same = n == 0 || (std::memcmp(out.data(), expected.data(), n * sizeof(T)) == 0 &&
                                   std::memcmp(out_too.data(), expected_too.data(), n * sizeof(T)) == 0);
      wrong += same && out.intact() && out_too.intact() ? 0 : 1;
    }
  return wrong;
}

}  // namespace

TEST_CASE("a block's fold of any sources, sinks, sides, finishes and shared memory is the fold of each element") {
  CHECK(wrong_folds<float>(cx::sum{}) == 0);
  CHECK(wrong_folds<std::int8_t>(cx::avg{}) == 0);
  CHECK(wrong_folds<cx::bfloat16>(cx::sum{}) == 0);
  CHECK(wrong_folds<cx::float16>(cx::avg{}) == 0);
  CHECK(wrong_folds<cx::float8_e5m2>(cx::max{}) == 0);
  CHECK(wrong_folds<std::int64_t>(cx::premultiplied_sum{3}) == 0);
}

TEST_CASE("a block's fold keeps the sides of what does not commute, of any size") {
  CHECK(wrong_folds<support::affine>(support::compose{}) == 0);
  CHECK(wrong_folds<support::affine>(support::compose_and_mark{}) == 0);
  CHECK(wrong_folds<support::matrix<float, 3>>(support::multiply{}, {0, 1, 3, 9, 130}) == 0);
}

TEST_CASE("a block's fold in accesses of 16 bytes has the bits of the host's, with any head and tail") {
  CHECK(wrong_aligned_folds<float>(cx::sum{}) == 0);
  CHECK(wrong_aligned_folds<double>(cx::avg{}) == 0);
  CHECK(wrong_aligned_folds<std::uint8_t>(cx::prod{}) == 0);
  CHECK(wrong_aligned_folds<std::int16_t>(cx::min{}) == 0);
  CHECK(wrong_aligned_folds<cx::bfloat16>(cx::sum{}) == 0);
  CHECK(wrong_aligned_folds<cx::float16>(cx::avg{}) == 0);
  CHECK(wrong_aligned_folds<cx::float8_e4m3>(cx::sum{}) == 0);
  CHECK(wrong_aligned_folds<float>(cx::premultiplied_sum{0.1F}) == 0);
}
