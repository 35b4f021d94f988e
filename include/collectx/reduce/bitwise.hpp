// SPDX-License-Identifier: Apache-2.0
/// band, bor, bxor on the bits, land, lor, lxor on the truth of integers: for every integral type and bool.
///
/// The logical three take anything but zero for true, and their result is 0 or 1, also where there is but one rank. All six are exact
/// and commutative, and keep bools 0 or 1.
#pragma once

#include "collectx/config.hpp"

#include <concepts>

namespace collectx {
inline namespace v0 {

namespace detail {
struct neutral_zero {
  static constexpr bool is_commutative = true;
  template <std::integral T>
  static constexpr T identity() {
    return T{};
  }
};
struct truth_of_result {
  template <std::integral T>
  constexpr T finish(T value, int) const {
    return static_cast<T>(value != T{});
  }
};
}  // namespace detail

/// left & right.
struct band {
  static constexpr bool is_commutative = true;
  static constexpr char const* name = "band";
  template <std::integral T>
  static constexpr T identity() {
    if constexpr (std::same_as<T, bool>)
      return true;
    else
      return static_cast<T>(~T{});
  }
  template <std::integral T>
  constexpr T operator()(T left, T right) const {
    return static_cast<T>(left & right);
  }
};

/// left | right.
struct bor : detail::neutral_zero {
  static constexpr char const* name = "bor";
  template <std::integral T>
  constexpr T operator()(T left, T right) const {
    return static_cast<T>(left | right);
  }
};

/// left ^ right.
struct bxor : detail::neutral_zero {
  static constexpr char const* name = "bxor";
  template <std::integral T>
  constexpr T operator()(T left, T right) const {
    return static_cast<T>(left ^ right);
  }
};

/// 1 where both are not zero. Its identity is neutral to truth values, as those of lor and lxor are.
struct land : detail::truth_of_result {
  static constexpr bool is_commutative = true;
  static constexpr char const* name = "land";
  template <std::integral T>
  static constexpr T identity() {
    return T{1};
  }
  template <std::integral T>
  constexpr T operator()(T left, T right) const {
    return static_cast<T>((left != T{}) & (right != T{}));
  }
};

/// 1 where any is not zero.
struct lor : detail::neutral_zero, detail::truth_of_result {
  static constexpr char const* name = "lor";
  template <std::integral T>
  constexpr T operator()(T left, T right) const {
    return static_cast<T>((left != T{}) | (right != T{}));
  }
};

/// 1 where an odd number is not zero.
struct lxor : detail::neutral_zero, detail::truth_of_result {
  static constexpr char const* name = "lxor";
  template <std::integral T>
  constexpr T operator()(T left, T right) const {
    return static_cast<T>((left != T{}) != (right != T{}));
  }
};

}  // namespace v0
}  // namespace collectx
