// SPDX-License-Identifier: Apache-2.0
// labels: address
// cores: 1
#include "collectx/reduce/small_floats.hpp"

#include "collectx/reduce/functors.hpp"
#include "collectx/reduce/host_kernels.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

namespace cx = collectx;

namespace {

template <class T>
inline constexpr unsigned patterns = 1U << (8 * sizeof(T));

template <class T>
T pattern(unsigned bits) {
  return T::from_bits(static_cast<decltype(T::bits)>(bits));
}

/// What a format is, said once more and in the plainest way.
struct description {
  int exponent_bits, mantissa_bits;
  bool has_infinity, saturates;
};
template <class T>
constexpr description described() {
  if (std::is_same_v<T, cx::bfloat16>) return {8, 7, true, false};
  if (std::is_same_v<T, cx::float16>) return {5, 10, true, false};
  if (std::is_same_v<T, cx::float8_e4m3>) return {4, 3, false, true};
  return {5, 2, true, true};
}

/// The value of a bit pattern, by its definition.
template <class T>
double value_of(unsigned bits) {
  constexpr description f = described<T>();
  int const mantissa = static_cast<int>(bits & ((1U << f.mantissa_bits) - 1));
  int const exponent = static_cast<int>(bits >> f.mantissa_bits & ((1U << f.exponent_bits) - 1));
  int const bias = (1 << (f.exponent_bits - 1)) - 1, all_ones = (1 << f.exponent_bits) - 1;
  double magnitude = 0;
  if (f.has_infinity && exponent == all_ones)
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  else if (!f.has_infinity && exponent == all_ones && mantissa == (1 << f.mantissa_bits) - 1)
    magnitude = std::numeric_limits<double>::quiet_NaN();
  else if (exponent == 0)
    magnitude = std::ldexp(mantissa, 1 - bias - f.mantissa_bits);
  else
    magnitude = std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - bias - f.mantissa_bits);
  return bits >> (8 * sizeof(T) - 1) != 0 ? -magnitude : magnitude;
}

/// The non-negative numbers of T, ascending: value i has the bits i.
template <class T>
std::vector<double> numbers() {
  std::vector<double> all;
  for (unsigned bits = 0; std::isfinite(value_of<T>(bits)); ++bits) all.push_back(value_of<T>(bits));
  return all;
}

/// The bits that `value` must become: the nearest number, found by looking at all of them.
template <class T>
unsigned nearest(std::vector<double> const& all, float value) {
  constexpr description f = described<T>();
  unsigned const sign = std::signbit(value) ? patterns<T> / 2 : 0, largest = static_cast<unsigned>(all.size() - 1);
  if (std::isnan(value)) return patterns<T> / 2 - 1;
  double const magnitude = std::fabs(static_cast<double>(value));
  if (std::isinf(value)) return sign | (f.has_infinity ? largest + 1 : largest);
  double const beyond = all.back() + (all.back() - all[all.size() - 2]) / 2;  // as if the numbers went on
  if (magnitude >= beyond) return sign | (f.saturates ? largest : largest + 1);
  if (magnitude >= all.back()) return sign | largest;
  auto const above = static_cast<unsigned>(std::upper_bound(all.begin(), all.end(), magnitude) - all.begin());
  double const to_below = magnitude - all[above - 1], to_above = all[above] - magnitude;
  bool const up = to_above < to_below || (!(to_below < to_above) && above % 2 == 0);
  return sign | (up ? above : above - 1);
}

/// Every number of T, halfway between each two, the floats next to these, and what lies beyond.
template <class T>
std::vector<float> telling_values(std::vector<double> const& all) {
  float const infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values{0.0F,
                            infinity,
                            std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::signaling_NaN(),
                            (std::numeric_limits<float>::max)(),
                            (std::numeric_limits<float>::min)(),
                            std::numeric_limits<float>::denorm_min()};
  for (std::size_t i = 0; i < all.size(); ++i) {
    double const next = i + 1 < all.size() ? all[i + 1] : 2 * all[i] - all[i - 1];
    for (double const v : {all[i], (all[i] + next) / 2}) {
      auto const middle = static_cast<float>(v);
      for (float const near : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, infinity)}) values.push_back(near);
    }
  }
  std::size_t const positive = values.size();
  for (std::size_t i = 0; i < positive; ++i) values.push_back(-values[i]);
  return values;
}

template <class T>
void converts_as_defined() {
  std::vector<double> const all = numbers<T>();
  unsigned wrong = 0;
  for (unsigned bits = 0; bits < patterns<T>; ++bits) {
    double const value = value_of<T>(bits);
    float const widened = pattern<T>(bits);
    bool const same =
        std::isnan(value) ? std::isnan(widened) : static_cast<float>(value) == widened && std::signbit(value) == std::signbit(widened);
    bool const returns = std::isnan(value) || T(widened).bits == bits;
    wrong += same && returns ? 0U : 1U;
  }
  CHECK(wrong == 0);
  std::vector<float> const values = telling_values<T>(all);
  for (float const v : values) wrong += T(v).bits == nearest<T>(all, v) ? 0U : 1U;
  CHECK(wrong == 0);
  // The loops give the same bits, the last elements by another path than the first ones.
  std::vector<T> narrowed(values.size());
  cx::detail::kernels::convert(narrowed.data(), values.data(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) wrong += narrowed[i].bits == T(values[i]).bits ? 0U : 1U;
  CHECK(wrong == 0);
  std::vector<T> every;
  for (unsigned bits = 0; bits < patterns<T>; ++bits) every.push_back(pattern<T>(bits));
  every.push_back(T(1.5F));
  std::vector<float> widened(every.size());
  cx::detail::kernels::convert(widened.data(), every.data(), every.size());
  for (std::size_t i = 0; i < every.size(); ++i) {
    float const one = every[i];
    wrong += std::bit_cast<std::uint32_t>(widened[i]) == std::bit_cast<std::uint32_t>(one) || (std::isnan(widened[i]) && std::isnan(one))
                 ? 0U
                 : 1U;
  }
  CHECK(wrong == 0);
}

template <class T>
T pair_at(cx::kernel::operand const* sources, T* out, std::size_t n, std::size_t at, auto op) {
  cx::kernel::sink const sink{out, false};
  cx::kernel::fold<T>(&sink, 1, sources, 2, n, op, 2, false);
  return out[at];
}

/// All pairs of bytes at an even place, an odd one, and the last of an odd number.
template <class T, class Op>
unsigned pairs_that_depend_on_their_place(Op op) {
  constexpr std::size_t n = 35;
  std::vector<T> left(n, T(1.0F)), right(n, T(2.0F)), out(n);
  cx::kernel::operand const sources[] = {{left.data(), false}, {right.data(), false}};
  unsigned wrong = 0;
  for (unsigned pair = 0; pair < 65536; ++pair) {
    T const l = pattern<T>(pair & 255), r = pattern<T>(pair >> 8);
    for (std::size_t const at : {std::size_t{4}, std::size_t{7}, n - 1}) left[at] = l, right[at] = r;
    T const first = pair_at(sources, out.data(), n, 4, op);
    wrong += first.bits == op(l, r).bits && out[7].bits == first.bits && out[n - 1].bits == first.bits ? 0U : 1U;
  }
  return wrong;
}

template <class T>
T folded(std::vector<float> const& values, auto op) {
  std::vector<T> stored;
  for (float const v : values) stored.push_back(T(v));
  std::vector<cx::kernel::operand> sources;
  for (T const& v : stored) sources.push_back({&v, false, true});
  T out;
  cx::kernel::sink const sink{&out, true};
  cx::kernel::fold<T>(&sink, 1, sources.data(), static_cast<int>(sources.size()), 1, op, static_cast<int>(values.size()), false);
  return out;
}

}  // namespace

static_assert(std::is_trivially_copyable_v<cx::bfloat16> && sizeof(cx::bfloat16) == 2 && alignof(cx::bfloat16) == 2);
static_assert(std::is_trivially_copyable_v<cx::float8_e4m3> && sizeof(cx::float8_e4m3) == 1);
static_assert(cx::float16(65504.0F).bits == 0x7bff && cx::float16(1.0F / 3).bits == 0x3555 && cx::bfloat16(-2.0F).bits == 0xc000);
static_assert(cx::sum{}(cx::float8_e4m3(1.5F), cx::float8_e4m3(2.0F)) == 3.5F);
static_assert(std::is_same_v<cx::folded_in<cx::sum, cx::bfloat16>, float> && std::is_same_v<cx::folded_in<cx::sum, double>, double>);

TEST_CASE("every bit pattern and every rounding is what the definition says, one by one and in loops") {
  converts_as_defined<cx::bfloat16>();
  converts_as_defined<cx::float16>();
  converts_as_defined<cx::float8_e4m3>();
  converts_as_defined<cx::float8_e5m2>();
}

TEST_CASE("LPA-03: sums of finite 8-bit numbers saturate, and infinities stay") {
  CHECK(folded<cx::float8_e4m3>({448, 18}, cx::sum{}).bits == 0x7e);
  CHECK(folded<cx::float8_e4m3>({-448, -18}, cx::sum{}).bits == 0xfe);
  CHECK(folded<cx::float8_e5m2>({57344, 4096}, cx::sum{}).bits == 0x7b);
  float const infinity = std::numeric_limits<float>::infinity();
  CHECK(folded<cx::float8_e5m2>({infinity, 1}, cx::sum{}).bits == 0x7c);
  CHECK(folded<cx::float8_e5m2>({1, -infinity}, cx::min{}).bits == 0xfc);
}

TEST_CASE("LPA-04: a pair of bytes has one result, wherever it stands") {
  CHECK(pairs_that_depend_on_their_place<cx::float8_e4m3>(cx::sum{}) == 0);
  CHECK(pairs_that_depend_on_their_place<cx::float8_e5m2>(cx::sum{}) == 0);
  CHECK(pairs_that_depend_on_their_place<cx::float8_e4m3>(cx::max{}) == 0);
  CHECK(pairs_that_depend_on_their_place<cx::float8_e5m2>(cx::min{}) == 0);
}

TEST_CASE("a fold rounds once, however many operands it has (LPA-01, LPA-05, AVG-02)") {
  std::vector<float> many(9, 1.0F);
  for (std::size_t place = 0; place < 9; ++place) {
    std::vector<float> values = many;
    values[place] = 256;
    CHECK(folded<cx::bfloat16>(values, cx::sum{}) == 264.0F);
  }
  CHECK(folded<cx::float16>({2048, 1, 1, 1, 1, 1, 1}, cx::sum{}).bits == 0x6803);
  CHECK(folded<cx::float16>({65504, 65504}, cx::avg{}).bits == 0x7bff);
  CHECK(folded<cx::float16>({60000, 60000, 60000}, cx::avg{}).bits == 0x7b53);
}

TEST_CASE("NaN wins over numbers and -0 lies below +0 in small types as well") {
  auto const nan = cx::bfloat16::from_bits(0xffc1);
  CHECK(cx::min{}(nan, cx::bfloat16(1.0F)).bits == 0x7fff);
  CHECK(cx::max{}(cx::bfloat16(1.0F), nan).bits == 0x7fff);
  CHECK(cx::min{}(cx::float16(0.0F), cx::float16(-0.0F)).bits == 0x8000);
  CHECK(cx::max{}(cx::float8_e4m3(-0.0F), cx::float8_e4m3(0.0F)).bits == 0);
  CHECK(cx::sum::identity<cx::bfloat16>().bits == 0x8000);
  CHECK(cx::min::identity<cx::float8_e4m3>().bits == 0x7e);
}
