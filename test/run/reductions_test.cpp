// SPDX-License-Identifier: Apache-2.0
// labels: address
// cores: 1
// The reductions beside sum, prod, min, max and avg, by themselves and through the kernels.
#include "collectx/reduce/bitwise.hpp"
#include "collectx/reduce/host_kernels.hpp"
#include "collectx/reduce/located.hpp"
#include "collectx/reduce/premultiplied_sum.hpp"
#include "collectx/reduce/small_floats.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace cx = collectx;

namespace {

/// The fold of one value per rank, n times side by side, the value of rank `own` being prepared on the way.
template <class T, class Op>
T folded(std::vector<T> const& values, Op const& op, std::size_t n, int own = -1) {
  std::vector<std::vector<T>> rows;
  for (T const& v : values) rows.emplace_back(n, v);
  std::vector<cx::kernel::operand> sources;
  for (std::size_t r = 0; r < rows.size(); ++r) sources.push_back({rows[r].data(), false, static_cast<int>(r) == own});
  std::vector<T> out(n), unfinished(n);
  cx::kernel::sink const sinks[] = {{out.data(), true}, {unfinished.data(), false}};
  cx::kernel::fold<T>(sinks, 2, sources.data(), static_cast<int>(sources.size()), n, op, static_cast<int>(values.size()), false);
  for (std::size_t i = 1; i < n; ++i)
    if (!(out[i] == out[0])) return T{};
  return out[n - 1];
}

template <class T>
void truth_tables() {
  for (T const left : {T(0), T(1), T(2), T(4)})
    for (T const right : {T(0), T(1), T(2), T(4)}) {
      for (std::size_t const n : {std::size_t{1}, std::size_t{41}}) {
        CHECK(folded<T>({left, right}, cx::land{}, n) == T(left != 0 && right != 0));
        CHECK(folded<T>({left, right}, cx::lor{}, n) == T(left != 0 || right != 0));
        CHECK(folded<T>({left, right}, cx::lxor{}, n) == T((left != 0) != (right != 0)));
        CHECK(folded<T>({left, right}, cx::band{}, n) == T(left & right));
        CHECK(folded<T>({left, right}, cx::bor{}, n) == T(left | right));
        CHECK(folded<T>({left, right}, cx::bxor{}, n) == T(left ^ right));
      }
      CHECK(cx::land{}.finish(left, 1) == T(left != 0));
    }
}

using place = cx::located<double>;

}  // namespace

TEST_CASE("bits and truth values of integers, also where there is but one rank (INT-04)") {
  truth_tables<std::int8_t>();
  truth_tables<std::uint16_t>();
  truth_tables<std::int32_t>();
  truth_tables<std::uint64_t>();
  for (std::size_t const n : {std::size_t{1}, std::size_t{41}}) {
    CHECK(folded<std::int32_t>({6}, cx::land{}, n) == 1);
    CHECK(folded<std::int32_t>({6}, cx::lxor{}, n) == 1);
    CHECK(folded<std::int32_t>({6, 3, 0}, cx::lxor{}, n) == 0);
  }
  for (bool const left : {false, true})
    for (bool const right : {false, true}) {
      CHECK(cx::land{}(left, right) == (left && right));
      CHECK(cx::lxor{}(left, right) == (left != right));
      CHECK(cx::band{}(left, cx::band::identity<bool>()) == left);
    }
  CHECK(cx::band{}(std::int8_t{-3}, cx::band::identity<std::int8_t>()) == -3);
  CHECK(cx::bxor{}(std::uint64_t{9}, cx::bxor::identity<std::uint64_t>()) == 9);
}

TEST_CASE("the extreme with its place: the lowest place wins among equals (INT-05)") {
  std::vector<place> equal, rising;
  for (int rank = 0; rank < 5; ++rank) {
    equal.push_back({1.0, rank});
    rising.push_back({static_cast<double>(rank), rank});
  }
  for (std::size_t const n : {std::size_t{1}, std::size_t{41}}) {
    CHECK(folded(equal, cx::max_located{}, n) == place{1.0, 0});
    CHECK(folded(equal, cx::min_located{}, n) == place{1.0, 0});
    CHECK(folded(rising, cx::max_located{}, n) == place{4.0, 4});
    CHECK(folded(rising, cx::min_located{}, n) == place{0.0, 0});
  }
  CHECK(cx::max_located{}(place{1, 3}, place{1, 2}) == place{1, 2});
  CHECK(cx::max_located{}(cx::located<int, long>{-1, 3}, cx::located<int, long>{-2, 1}) == cx::located<int, long>{-1, 3});
}

TEST_CASE("the extreme with its place: NaN and zeros as in min and max, from either side") {
  double const nan = std::numeric_limits<double>::quiet_NaN();
  for (double const n : {nan, -nan, std::numeric_limits<double>::signaling_NaN()}) {
    CHECK(cx::max_located{}(place{n, 7}, place{5, 1}).index == 7);
    CHECK(cx::min_located{}(place{5, 1}, place{n, 7}).index == 7);
    CHECK(std::isnan(cx::min_located{}(place{5, 1}, place{n, 7}).value));
    CHECK(cx::max_located{}(place{n, 7}, place{-nan, 2}).index == 2);
  }
  CHECK(cx::min_located{}(place{0.0, 0}, place{-0.0, 1}).index == 1);
  CHECK(cx::max_located{}(place{-0.0, 0}, place{0.0, 1}).index == 1);
  CHECK(cx::max_located{}(place{-0.0, 5}, place{-0.0, 1}).index == 1);
  using small = cx::located<cx::float16>;
  CHECK(cx::max_located{}(small{cx::float16(2.0F), 4}, small{cx::float16(2.0F), 3}).index == 3);
  CHECK(cx::min_located{}(small{cx::float16(1.0F), 4}, small{cx::float16(2.0F), 3}).index == 4);
  using large = cx::located<long double>;
  CHECK(cx::max_located{}(large{1.0L, 4}, large{static_cast<long double>(nan), 5}).index == 5);
  CHECK(cx::min_located{}(large{0.0L, 4}, large{-0.0L, 5}).index == 5);
}

TEST_CASE("a premultiplied sum multiplies what a rank contributes, once, and rounds it before it is added") {
  for (std::size_t const n : {std::size_t{1}, std::size_t{8}, std::size_t{41}, std::size_t{5000}}) {
    for (int own = 0; own < 3; ++own) {
      std::vector<double> values{10, 20, 30};
      double const factor = 3;
      CHECK(folded(values, cx::premultiplied_sum{factor}, n, own) == 60 + 2 * values[static_cast<std::size_t>(own)]);
    }
    CHECK(folded<int>({5}, cx::premultiplied_sum{4}, n, 0) == 20);
    CHECK(folded<int>({5, 7}, cx::premultiplied_sum{4}, n) == 12);
    CHECK(folded<cx::float16>({cx::float16(60000.0F), cx::float16(30000.0F)}, cx::premultiplied_sum{0.5F}, n, 0) == 60000.0F);
    // 0.1 * 3 rounded to float, and only then less 0.3: with a fused multiply-add the difference would not vanish.
    float const tenth = 0.1F, three_tenths = tenth * 3.0F;
    CHECK(folded<float>({3.0F, -three_tenths}, cx::premultiplied_sum{tenth}, n, 0) == 0.0F);
  }
}
