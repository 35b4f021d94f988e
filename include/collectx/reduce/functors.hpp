// SPDX-License-Identifier: Apache-2.0
/// sum, prod, min, max and avg for every arithmetic type, with their corner cases decided.
///
/// Integers wrap around (also signed ones, where the language would leave it undefined); unsigned types compare as unsigned.
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
template <bool Smaller, arithmetic T>
constexpr T extreme(T left, T right) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
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

template <arithmetic T>
constexpr T add(T left, T right) {
  if constexpr (std::is_same_v<T, bool>)
    return static_cast<bool>(left | right);
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<wrapping<T>>(left) + static_cast<wrapping<T>>(right));
  else
    return left + right;
}
}  // namespace detail

/// left + right. bool: or.
struct sum {
  static constexpr bool is_commutative = true;
  static constexpr char const* name = "sum";
  /// Of floating-point numbers -0, since +0 would turn a -0 into +0.
  template <detail::arithmetic T>
  static constexpr T identity() {
    if constexpr (std::is_floating_point_v<T>)
      return -T{};
    else
      return T{};
  }
  template <detail::arithmetic T>
  constexpr T operator()(T left, T right) const {
    return detail::add(left, right);
  }
};

/// left * right. bool: and.
struct prod {
  static constexpr bool is_commutative = true;
  static constexpr char const* name = "prod";
  template <detail::arithmetic T>
  static constexpr T identity() {
    return static_cast<T>(1);
  }
  template <detail::arithmetic T>
  constexpr T operator()(T left, T right) const {
    if constexpr (std::is_same_v<T, bool>)
      return static_cast<bool>(left & right);
    else if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<detail::wrapping<T>>(left) * static_cast<detail::wrapping<T>>(right));
    else
      return left * right;
  }
};

/// The smaller one. NaN wins over every number, wherever it stands; -0 is smaller than +0.
struct min {
  static constexpr bool is_commutative = true;
  static constexpr char const* name = "min";
  template <detail::arithmetic T>
  static constexpr T identity() {
    if constexpr (std::is_floating_point_v<T>)
      return std::numeric_limits<T>::infinity();
    else
      return (std::numeric_limits<T>::max)();
  }
  template <detail::arithmetic T>
  constexpr T operator()(T left, T right) const {
    return detail::extreme<true>(left, right);
  }
};

/// The larger one. NaN wins over every number, wherever it stands; +0 is larger than -0.
struct max {
  static constexpr bool is_commutative = true;
  static constexpr char const* name = "max";
  template <detail::arithmetic T>
  static constexpr T identity() {
    if constexpr (std::is_floating_point_v<T>)
      return -std::numeric_limits<T>::infinity();
    else
      return (std::numeric_limits<T>::lowest)();
  }
  template <detail::arithmetic T>
  constexpr T operator()(T left, T right) const {
    return detail::extreme<false>(left, right);
  }
};

/// The sum over all ranks, divided once at the end by their number. The sum is formed in T: of integers it is exact as long as it fits
/// T and wraps where it does not, of floating-point numbers it may overflow although the average would not. The quotient of integers is
/// truncated toward zero.
struct avg {
  static constexpr bool is_commutative = true;
  static constexpr char const* name = "avg";
  template <detail::arithmetic T>
    requires(!std::same_as<T, bool>)
  constexpr T operator()(T left, T right) const {
    return detail::add(left, right);
  }
  template <detail::arithmetic T>
    requires(!std::same_as<T, bool>)
  constexpr T finish(T value, int ranks) const {
    if constexpr (std::is_floating_point_v<T>) {
      return value / static_cast<T>(ranks);
    } else {
      // Not narrower than int: 200 ranks do not fit an int8.
      using wide = std::conditional_t<std::is_signed_v<T>, std::common_type_t<T, int>, detail::wrapping<T>>;
      return static_cast<T>(static_cast<wide>(value) / static_cast<wide>(ranks));
    }
  }
};

}  // namespace v0
}  // namespace collectx
