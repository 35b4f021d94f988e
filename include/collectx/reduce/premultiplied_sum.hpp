// SPDX-License-Identifier: Apache-2.0
/// The sum of what ranks contribute, each multiplied by a factor of its rank before.
#pragma once

#include "collectx/reduce/functors.hpp"

#include <type_traits>

namespace collectx {
inline namespace v0 {

/// factor * left + ...: every contribution is multiplied once, where it is read, and rounded to T before it is sent or added. The factor is
/// each rank's own and may differ between ranks. With 1 / size() this is an average whose partial sums do not overflow, less exact than
/// `avg`. Integers wrap around; T with an accumulator is multiplied there.
template <detail::number F>
struct premultiplied_sum {
  static constexpr bool is_commutative = true;
  static constexpr char const* name = "premultiplied_sum";
  template <detail::number T>
  constexpr T prepare(T value, int) const {
    using wide = accumulator_t<T>;
    return static_cast<T>(detail::multiply(static_cast<wide>(value), static_cast<wide>(factor)));
  }
  template <detail::number T>
  constexpr T operator()(T left, T right) const {
    return detail::add(left, right);
  }

  F factor;
};
template <class F>
premultiplied_sum(F) -> premultiplied_sum<F>;

}  // namespace v0
}  // namespace collectx
