// SPDX-License-Identifier: Apache-2.0
/// The smallest or largest value together with where it is.
#pragma once

#include "collectx/reduce/functors.hpp"

#include <concepts>
#include <type_traits>

namespace collectx {
inline namespace v0 {

/// A value and a number that goes with it: a rank, an index into something.
template <class T, std::integral Index = int>
struct located {
  T value;
  Index index;
  friend constexpr bool operator==(located const&, located const&) = default;
};

namespace detail {
/// Whether `extreme` treats both alike: equal and of one sign, or both NaN.
template <number T>
constexpr bool alike(T left, T right) {
  if constexpr (!arithmetic<T>)
    return alike(static_cast<accumulator_t<T>>(left), static_cast<accumulator_t<T>>(right));
  else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
    return any_nan(left, left) ? any_nan(right, right) : !any_nan(right, right) && !below(left, right) && !below(right, left);
  else if constexpr (std::is_floating_point_v<T>)
    return __builtin_isnan(left) || __builtin_isnan(right) ? __builtin_isnan(left) && __builtin_isnan(right)
                                                           : left == right && __builtin_signbit(left) == __builtin_signbit(right);
  else
    return left == right;
}

template <bool Smaller, number T, std::integral Index>
constexpr located<T, Index> located_extreme(located<T, Index> const& left, located<T, Index> const& right) {
  T const value = extreme<Smaller>(left.value, right.value);
  bool const is_left = alike(value, left.value), is_both = is_left && alike(value, right.value);
  return {value, is_both ? (left.index < right.index ? left.index : right.index) : is_left ? left.index : right.index};
}
}  // namespace detail

/// The smaller value and its index; of equal values the lowest index. As with `min`, NaN wins over every number and -0 is smaller than
/// +0; of several NaNs the lowest index.
struct min_located {
  static constexpr bool is_commutative = true;
  static constexpr char const* name = "min_located";
  template <detail::number T, std::integral Index>
  constexpr located<T, Index> operator()(located<T, Index> const& left, located<T, Index> const& right) const {
    return detail::located_extreme<true>(left, right);
  }
};

/// The larger value and its index; of equal values the lowest index. NaN and zeros as with `max`.
struct max_located {
  static constexpr bool is_commutative = true;
  static constexpr char const* name = "max_located";
  template <detail::number T, std::integral Index>
  constexpr located<T, Index> operator()(located<T, Index> const& left, located<T, Index> const& right) const {
    return detail::located_extreme<false>(left, right);
  }
};

}  // namespace v0
}  // namespace collectx
