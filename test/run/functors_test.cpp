// SPDX-License-Identifier: Apache-2.0
#include "collectx/reduce/functors.hpp"

#include "collectx/reduce/host_kernels.hpp"

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace cx = collectx;

namespace {

template <class T>
bool same_bits(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

template <class T, class Op>
T over(std::vector<T> const& values, Op op) {
  T folded = values[0];
  for (std::size_t i = 1; i < values.size(); ++i) folded = op(folded, values[i]);
  return folded;
}

/// op of two constant vectors, through the kernel, is `expected` at every count up to 67: vectorised part and tail.
template <class T, class Op>
bool everywhere(T left, T right, T expected, Op op) {
  for (std::size_t n = 1; n <= 67; ++n) {
    std::array<T, 67> l{}, r{}, out{};
    l.fill(left);
    r.fill(right);
    cx::kernel::combine(out.data(), l.data(), r.data(), n, op);
    for (std::size_t i = 0; i < n; ++i)
      if (!same_bits(out[i], expected)) return false;
  }
  return true;
}

template <class T>
void floating_point_extremes() {
  T const nan = std::numeric_limits<T>::quiet_NaN(), infinity = std::numeric_limits<T>::infinity();
  T const smallest = std::numeric_limits<T>::denorm_min(), largest = (std::numeric_limits<T>::max)();
  std::vector<T> const ascending{-infinity, -largest, T(-2), T(-1), -smallest, -T(0), T(0), smallest, T(1), T(2), largest, infinity};
  for (std::size_t i = 0; i < ascending.size(); ++i)
    for (std::size_t k = 0; k < ascending.size(); ++k) {
      T const lower = ascending[i < k ? i : k], upper = ascending[i < k ? k : i];
      CHECK(everywhere(ascending[i], ascending[k], lower, cx::min{}));
      CHECK(everywhere(ascending[i], ascending[k], upper, cx::max{}));
    }
  for (T const value : ascending)
    for (T const strange : {nan, -nan, std::numeric_limits<T>::signaling_NaN()}) {
      CHECK(everywhere(value, strange, nan, cx::min{}));
      CHECK(everywhere(strange, value, nan, cx::min{}));
      CHECK(everywhere(value, strange, nan, cx::max{}));
      CHECK(everywhere(strange, value, nan, cx::max{}));
    }
  CHECK(everywhere(nan, -nan, nan, cx::min{}));
  CHECK(everywhere(-nan, nan, nan, cx::max{}));
}

template <class T>
void unsigned_extremes() {
  T const largest = (std::numeric_limits<T>::max)(), half = static_cast<T>(largest / 2), above_half = static_cast<T>(half + 1);
  CHECK(everywhere(T{0}, largest, T{0}, cx::min{}));
  CHECK(everywhere(largest, T{0}, T{0}, cx::min{}));
  CHECK(everywhere(T{0}, largest, largest, cx::max{}));
  CHECK(everywhere(half, above_half, half, cx::min{}));
  CHECK(everywhere(half, above_half, above_half, cx::max{}));
  CHECK(everywhere(largest, T{1}, T{0}, cx::sum{}));
  CHECK(everywhere(largest, largest, T{1}, cx::prod{}));
}

template <class T>
void signed_wrap_around() {
  T const smallest = (std::numeric_limits<T>::min)(), largest = (std::numeric_limits<T>::max)();
  CHECK(everywhere(largest, T{1}, smallest, cx::sum{}));
  CHECK(everywhere(smallest, T{-1}, largest, cx::sum{}));
  CHECK(everywhere(largest, T{2}, T{-2}, cx::prod{}));
  CHECK(everywhere(smallest, T{-1}, smallest, cx::prod{}));
  CHECK(everywhere(smallest, largest, smallest, cx::min{}));
  CHECK(everywhere(smallest, T{-1}, T{-1}, cx::max{}));
  CHECK(everywhere(smallest, smallest, smallest, cx::max{}));
}

template <class T, class Op>
bool identity_is_neutral(std::vector<T> const& values) {
  bool neutral = true;
  for (T const value : values)
    neutral =
        neutral && same_bits(Op{}(value, Op::template identity<T>()), value) && same_bits(Op{}(Op::template identity<T>(), value), value);
  return neutral;
}

template <class T>
void identities() {
  std::vector<T> values{T(0), T(1), T(2), (std::numeric_limits<T>::max)(), std::numeric_limits<T>::lowest()};
  if constexpr (std::is_floating_point_v<T>) {
    values.push_back(-T(0));
    values.push_back(std::numeric_limits<T>::infinity());
    values.push_back(-std::numeric_limits<T>::infinity());
  }
  CHECK(identity_is_neutral<T, cx::sum>(values));
  CHECK(identity_is_neutral<T, cx::prod>(values));
  CHECK(identity_is_neutral<T, cx::min>(values));
  CHECK(identity_is_neutral<T, cx::max>(values));
}

}  // namespace

TEST_CASE("min and max of floating-point numbers: NaN wins from either side, -0 lies below +0, infinities are ordinary") {
  floating_point_extremes<float>();
  floating_point_extremes<double>();
}

TEST_CASE("min and max of long double follow the same rules") {
  using T = long double;
  T const nan = std::numeric_limits<T>::quiet_NaN();
  CHECK(std::isnan(cx::min{}(nan, T(1))));
  CHECK(std::isnan(cx::min{}(T(1), nan)));
  CHECK(std::isnan(cx::max{}(nan, T(1))));
  CHECK(std::isnan(cx::max{}(T(1), nan)));
  CHECK(std::signbit(cx::min{}(T(0), -T(0))));
  CHECK(std::signbit(cx::min{}(-T(0), T(0))));
  CHECK(!std::signbit(cx::max{}(T(0), -T(0))));
  CHECK(!std::signbit(cx::max{}(-T(0), T(0))));
  CHECK(cx::min{}(T(-3), T(2)) == T(-3));
  CHECK(cx::max{}(T(-3), T(2)) == T(2));
}

TEST_CASE("a NaN on any one of four ranks makes the maximum NaN (NAN-01)") {
  for (std::size_t p = 0; p < 4; ++p) {
    std::vector<float> values{1, 4, 3, 2};
    values[p] = std::numeric_limits<float>::quiet_NaN();
    CHECK(same_bits(over(values, cx::max{}), std::numeric_limits<float>::quiet_NaN()));
    CHECK(same_bits(over(values, cx::min{}), std::numeric_limits<float>::quiet_NaN()));
  }
}

TEST_CASE("the sign of a zero does not depend on which rank holds it (NAN-03)") {
  for (unsigned negative = 0; negative < 16; ++negative) {
    std::vector<double> values;
    for (unsigned r = 0; r < 4; ++r) values.push_back((negative >> r & 1U) != 0 ? -0.0 : 0.0);
    CHECK(std::signbit(over(values, cx::min{})) == (negative != 0));
    CHECK(std::signbit(over(values, cx::max{})) == (negative == 15));
  }
}

TEST_CASE("no starting value leaks into an extreme (NAN-04)") {
  float const nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  CHECK(std::isnan(cx::min{}(nan, nan)));
  CHECK(cx::max{}(-infinity, -infinity) == -infinity);
  CHECK(cx::min{}(infinity, infinity) == infinity);
  int const int_min = (std::numeric_limits<int>::min)();
  CHECK(cx::max{}(int_min, int_min) == int_min);
  CHECK(cx::min{}(std::uint8_t{255}, std::uint8_t{255}) == 255);
}

TEST_CASE("unsigned integers compare as unsigned and wrap, at every count (INT-01)") {
  unsigned_extremes<std::uint8_t>();
  unsigned_extremes<std::uint16_t>();
  unsigned_extremes<std::uint32_t>();
  unsigned_extremes<std::uint64_t>();
}

TEST_CASE("signed integers wrap around without undefined behaviour") {
  signed_wrap_around<std::int8_t>();
  signed_wrap_around<std::int16_t>();
  signed_wrap_around<std::int32_t>();
  signed_wrap_around<std::int64_t>();
}

TEST_CASE("integer averages: an exact sum, truncated toward zero (INT-03)") {
  auto average = [](auto values) { return cx::avg{}.finish(over(values, cx::avg{}), static_cast<int>(values.size())); };
  CHECK(average(std::vector<int>{1, 2, 3, 5}) == 2);
  CHECK(average(std::vector<int>{-1, -2, -3, -5}) == -2);
  CHECK(average(std::vector<int>{4, 8, 4, 8}) == 6);
  std::int64_t const odd = (std::int64_t{1} << 53) + 1;
  CHECK(average(std::vector<std::int64_t>(4, odd)) == odd);
  CHECK(average(std::vector<std::uint64_t>{std::uint64_t{1} << 63, 0}) == std::uint64_t{1} << 62);
  CHECK(average(std::vector<std::int8_t>(200, std::int8_t{0})) == 0);
  // 200 ranks do not fit an int8 nor 300 a uint8: narrowed, the first would be a division by -56.
  CHECK(cx::avg{}.finish(std::int8_t{100}, 200) == 0);
  CHECK(cx::avg{}.finish(std::int8_t{-128}, 128) == -1);
  CHECK(cx::avg{}.finish(std::uint8_t{255}, 300) == 0);
  CHECK(cx::avg{}.finish(std::uint8_t{255}, 2) == 127);
}

TEST_CASE("floating-point averages divide the sum once (NP2-03, AVG-01)") {
  for (int ranks : {1, 2, 15, 28}) {
    std::vector<float> values;
    for (int r = 0; r < ranks; ++r) values.push_back(static_cast<float>(r + 1));
    CHECK(cx::avg{}.finish(over(values, cx::avg{}), ranks) == static_cast<float>(ranks + 1) / 2);
  }
  CHECK(cx::avg{}.finish(1.0, 3) == 1.0 / 3.0);
}

TEST_CASE("bool: sum and max are or, prod and min are and, and results are 0 or 1 (INT-04)") {
  for (bool left : {false, true})
    for (bool right : {false, true}) {
      CHECK(everywhere(left, right, left || right, cx::sum{}));
      CHECK(everywhere(left, right, left || right, cx::max{}));
      CHECK(everywhere(left, right, left && right, cx::prod{}));
      CHECK(everywhere(left, right, left && right, cx::min{}));
    }
}

TEST_CASE("identities are neutral on both sides, to the bit") {
  identities<std::int8_t>();
  identities<std::uint8_t>();
  identities<std::int32_t>();
  identities<std::uint64_t>();
  identities<float>();
  identities<double>();
  CHECK(identity_is_neutral<bool, cx::sum>({false, true}));
  CHECK(identity_is_neutral<bool, cx::prod>({false, true}));
  CHECK(identity_is_neutral<bool, cx::min>({false, true}));
  CHECK(identity_is_neutral<bool, cx::max>({false, true}));
}
