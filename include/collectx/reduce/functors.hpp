// SPDX-License-Identifier: Apache-2.0
/// sum, prod, min, max and avg for every arithmetic type, and for types with an arithmetic accumulator, with their corner cases decided.
///
/// Integers wrap around (also signed ones, where the language would leave it undefined); unsigned types compare as unsigned.
/// Of a type with an accumulator, two values are combined there and the result is rounded; kernel::fold rounds once for all its operands.
/// bool: sum and max are "or", prod and min are "and"; avg is not offered, since an average of truth values is none.
/// All five are bitwise commutative except where the hardware picks among the payloads of two NaNs (sum, prod, avg).
#pragma once

#include "collectx/reduction.hpp"

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace collectx {
inline namespace v0 {

namespace detail {
template <class T>
concept arithmetic = std::is_arithmetic_v<T>;
template <class T>
concept number = arithmetic<accumulator_t<T>>;

/// Where T's sums and products wrap without undefined behaviour: unsigned, and not narrower than unsigned int, or uint16 * uint16
/// would be promoted to int and overflow.
template <class T>
using wrapping = std::common_type_t<std::make_unsigned_t<T>, unsigned>;

/// l < r for floats and doubles that are no NaN, with -0 below +0, decided on their bits: sign and magnitude, so between two negative
/// numbers the order is the other way round. This keeps NaN and signed zero right under -ffast-math as well, and vectorises.
template <class T>
constexpr bool below(T left, T right) {
  using bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  bits const l = std::bit_cast<bits>(left), r = std::bit_cast<bits>(right);
  return (l < r) != ((l & r) < 0);
}

template <class T>
constexpr bool any_nan(T left, T right) {
  using bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  constexpr bits infinity = std::bit_cast<bits>(std::numeric_limits<T>::infinity());
  bits const l = std::bit_cast<bits>(left) & (std::numeric_limits<bits>::max)();
  bits const r = std::bit_cast<bits>(right) & (std::numeric_limits<bits>::max)();
  return (l < r ? r : l) > infinity;
}

/// The smaller (Smaller) or larger of two values. Any NaN gives the one quiet NaN, whatever the operands' order and payloads.
template <bool Smaller, number T>
constexpr T extreme(T left, T right) {
  if constexpr (!arithmetic<T>) {
    return static_cast<T>(extreme<Smaller>(static_cast<accumulator_t<T>>(left), static_cast<accumulator_t<T>>(right)));
  } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    T const chosen = below(left, right) == Smaller ? left : right;
    return any_nan(left, right) ? std::numeric_limits<T>::quiet_NaN() : chosen;
  } else if constexpr (std::is_floating_point_v<T>) {
    if (__builtin_isnan(left) || __builtin_isnan(right)) return std::numeric_limits<T>::quiet_NaN();
    if (left == right) return (__builtin_signbit(left) != 0) == Smaller ? left : right;
    return (left < right) == Smaller ? left : right;
  } else {
    return (Smaller ? left < right : right < left) ? left : right;
  }
}

template <number T>
constexpr T add(T left, T right) {
  if constexpr (!arithmetic<T>)
    return static_cast<T>(static_cast<accumulator_t<T>>(left) + static_cast<accumulator_t<T>>(right));
  else if constexpr (std::is_same_v<T, bool>)
    return static_cast<bool>(left | right);
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<wrapping<T>>(left) + static_cast<wrapping<T>>(right));
  else
    return left + right;
}

/// 2^exponent, exact and without a division. @pre -127 < exponent < 128
constexpr float power_of_two(int exponent) { return std::bit_cast<float>(static_cast<std::uint32_t>(127 + exponent) << 23); }
/// Of the smallest power of two that is not less. @pre number >= 1
constexpr int exponent_from(int number) { return static_cast<int>(std::bit_width(static_cast<unsigned>(number) - 1)); }

template <number T>
constexpr T multiply(T left, T right) {
  if constexpr (!arithmetic<T>)
    return static_cast<T>(static_cast<accumulator_t<T>>(left) * static_cast<accumulator_t<T>>(right));
  else if constexpr (std::is_same_v<T, bool>)
    return static_cast<bool>(left & right);
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<wrapping<T>>(left) * static_cast<wrapping<T>>(right));
  else
    return left * right;
}
}  // namespace detail

/// left + right. bool: or.
struct sum {
  static constexpr bool is_commutative = true;
  static constexpr char const* name = "sum";
  /// Of floating-point numbers -0, since +0 would turn a -0 into +0.
  template <detail::number T>
  static constexpr T identity() {
    if constexpr (!detail::arithmetic<T>)
      return static_cast<T>(identity<accumulator_t<T>>());
    else if constexpr (std::is_floating_point_v<T>)
      return -T{};
    else
      return T{};
  }
  template <detail::number T>
  constexpr T operator()(T left, T right) const {
    return detail::add(left, right);
  }
};

/// left * right. bool: and.
struct prod {
  static constexpr bool is_commutative = true;
  static constexpr char const* name = "prod";
  template <detail::number T>
  static constexpr T identity() {
    return static_cast<T>(1);
  }
  template <detail::number T>
  constexpr T operator()(T left, T right) const {
    return detail::multiply(left, right);
  }
};

/// The smaller one. NaN wins over every number, wherever it stands; -0 is smaller than +0.
struct min {
  static constexpr bool is_commutative = true;
  static constexpr char const* name = "min";
  template <detail::number T>
  static constexpr T identity() {
    if constexpr (!detail::arithmetic<T>)
      return static_cast<T>(identity<accumulator_t<T>>());
    else if constexpr (std::is_floating_point_v<T>)
      return std::numeric_limits<T>::infinity();
    else
      return (std::numeric_limits<T>::max)();
  }
  template <detail::number T>
  constexpr T operator()(T left, T right) const {
    return detail::extreme<true>(left, right);
  }
};

/// The larger one. NaN wins over every number, wherever it stands; +0 is larger than -0.
struct max {
  static constexpr bool is_commutative = true;
  static constexpr char const* name = "max";
  template <detail::number T>
  static constexpr T identity() {
    if constexpr (!detail::arithmetic<T>)
      return static_cast<T>(identity<accumulator_t<T>>());
    else if constexpr (std::is_floating_point_v<T>)
      return -std::numeric_limits<T>::infinity();
    else
      return (std::numeric_limits<T>::lowest)();
  }
  template <detail::number T>
  constexpr T operator()(T left, T right) const {
    return detail::extreme<false>(left, right);
  }
};

/// The sum over all ranks, divided once at the end by their number. The sum is formed in T: of integers it is exact as long as it fits
/// T and wraps where it does not, of floating-point numbers it may overflow although the average would not. The quotient of integers is
/// truncated toward zero. Where T says `is_narrow_range` (float16, the 8-bit types), each contribution is divided by a power of two first,
/// so that no sum overflows; that is exact but for numbers so small that they become subnormal by it.
struct avg {
  static constexpr bool is_commutative = true;
  static constexpr char const* name = "avg";
  template <detail::number T>
  requires(!std::same_as<T, bool>) constexpr T operator()(T left, T right) const { return detail::add(left, right); }
  template <detail::number T>
  requires T::is_narrow_range constexpr T prepare(T value, int ranks) const {
    return static_cast<T>(static_cast<accumulator_t<T>>(value) * detail::power_of_two(-detail::exponent_from(ranks)));
  }
  template <detail::number T>
  requires(!std::same_as<T, bool>) constexpr T finish(T value, int ranks) const {
    if constexpr (!detail::arithmetic<T>) {
      return static_cast<T>(detail::finish_fold<T>(*this, static_cast<accumulator_t<T>>(value), ranks));
    } else if constexpr (std::is_floating_point_v<T>) {
      return value / static_cast<T>(ranks);
    } else {
      // Not narrower than int: 200 ranks do not fit an int8.
      using wide = std::conditional_t<std::is_signed_v<T>, std::common_type_t<T, int>, detail::wrapping<T>>;
      return static_cast<T>(static_cast<wide>(value) / static_cast<wide>(ranks));
    }
  }
  template <class T>
  requires T::is_narrow_range constexpr accumulator_t<T> finish_as(accumulator_t<T> value, int ranks) const {
    return value * detail::power_of_two(detail::exponent_from(ranks)) / static_cast<accumulator_t<T>>(ranks);
  }
};

}  // namespace v0
}  // namespace collectx
