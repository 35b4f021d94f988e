// SPDX-License-Identifier: Apache-2.0
/// bfloat16, float16, float8_e4m3 and float8_e5m2: floating-point numbers to store and to send. Arithmetic is done in float.
///
/// Bits as IEEE 754 (2019), Kalamkar et al. 2019 and Micikevicius et al. 2022 have them, so arrays of the vendors' types of the same names
/// may be looked at as arrays of these. To float is exact. From float rounds to the nearest, of two equally near ones to the even one,
/// into subnormal numbers too. Any NaN becomes the one NaN whose bits below the sign are all ones. Beyond the largest number bfloat16 and
/// float16 become infinite; the 8-bit types saturate, since few of their sums would be numbers otherwise. An infinity stays one in
/// float8_e5m2, and becomes the largest number in float8_e4m3, which has none.
#pragma once

#include "collectx/config.hpp"

#include <bit>
#include <cstdint>

namespace collectx {
inline namespace v0 {
namespace detail {

/// `mantissa`: bits of it; `beyond`: what a number too large becomes; `infinity`: what an infinity becomes.
struct bfloat16_format {
  using bits = std::uint16_t;
  static constexpr std::uint32_t mantissa = 7, bias = 127, infinity = 0x7f80, beyond = 0x7f80, nan = 0x7fff;
};
struct float16_format {
  using bits = std::uint16_t;
  static constexpr std::uint32_t mantissa = 10, bias = 15, infinity = 0x7c00, beyond = 0x7c00, nan = 0x7fff;
};
struct float8_e4m3_format {
  using bits = std::uint8_t;
  static constexpr std::uint32_t mantissa = 3, bias = 7, infinity = 0x7e, beyond = 0x7e, nan = 0x7f;
};
struct float8_e5m2_format {
  using bits = std::uint8_t;
  static constexpr std::uint32_t mantissa = 2, bias = 15, infinity = 0x7c, beyond = 0x7b, nan = 0x7f;
};

inline constexpr std::uint32_t float_infinity = 0x7f800000;

/// condition ? yes : no, by a mask: of a condition compilers make a branch round a floating-point operation, and no vector instructions
/// then.
constexpr std::uint32_t pick(bool condition, std::uint32_t yes, std::uint32_t no) {
  return no ^ ((yes ^ no) & (0U - static_cast<std::uint32_t>(condition)));
}

template <class F>
constexpr typename F::bits narrowed(float value) {
  constexpr std::uint32_t dropped = 23 - F::mantissa, rebias = (127 - F::bias) << 23, half = (1U << (dropped - 1)) - 1;
  std::uint32_t const all = std::bit_cast<std::uint32_t>(value), magnitude = all & 0x7fffffff;
  std::uint32_t number;
  if constexpr (F::bias == 127) {
    number = (all + half + ((all >> dropped) & 1)) >> dropped;
  } else {
    std::uint32_t const shifted = magnitude - rebias;
    std::uint32_t const normal = (shifted + half + ((shifted >> dropped) & 1)) >> dropped;
    // Next to `anchor` floats are as far apart as the subnormal numbers of F, so that the addition rounds to one of them.
    constexpr std::uint32_t anchor = (127 + 24 - F::bias - F::mantissa) << 23, least_normal = rebias + (1U << 23);
    std::uint32_t const subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(anchor)) - anchor;
    std::uint32_t const excess = F::infinity == F::beyond ? F::beyond : pick(magnitude == float_infinity, F::infinity, F::beyond);
    // The subnormal one last, since what is below the normal numbers has wrapped around to far above them.
    number = pick(magnitude < least_normal, subnormal, pick(normal > F::beyond, excess, normal));
    number |= all >> 31 << (8 * sizeof(typename F::bits) - 1);
  }
  return static_cast<typename F::bits>(pick(magnitude > float_infinity, F::nan, number));
}

/// NaN keeps its sign and payload, as in any conversion to a wider type.
template <class F>
constexpr float widened(typename F::bits stored) {
  constexpr std::uint32_t dropped = 23 - F::mantissa, width = 8 * sizeof(typename F::bits);
  std::uint32_t const all = stored;
  if constexpr (F::bias == 127) {
    return std::bit_cast<float>(all << dropped);
  } else {
    std::uint32_t const sign = all >> (width - 1) << 31, magnitude = (all & ((1U << (width - 1)) - 1)) << dropped;
    constexpr std::uint32_t rebias = (127 - F::bias) << 23, least = rebias + (1U << 23);
    // A subnormal number is its mantissa in units of the least normal number: that number with the mantissa, less that number.
    std::uint32_t const subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude + least) - std::bit_cast<float>(least));
    std::uint32_t const number = pick(magnitude < (1U << 23), subnormal, magnitude + rebias);
    constexpr std::uint32_t first_special = (F::infinity == F::nan - 1 ? F::nan : F::infinity) << dropped;
    return std::bit_cast<float>(sign | pick(magnitude >= first_special, magnitude | float_infinity, number));
  }
}

}  // namespace detail

/// A number of format F. Trivially copyable, as large and as aligned as its bits.
template <class F>
struct small_float {
  using accumulator = float;                               ///< see reduction.hpp
  static constexpr bool is_narrow_range = F::bias != 127;  ///< sums of few large numbers leave it

  small_float() = default;
  constexpr small_float(float value) : bits(detail::narrowed<F>(value)) {}  // implicit, so that what works on floats works on these
  constexpr operator float() const { return detail::widened<F>(bits); }
  static constexpr small_float from_bits(typename F::bits bits) {
    small_float made{};
    made.bits = bits;
    return made;
  }

  typename F::bits bits;
};

using bfloat16 = small_float<detail::bfloat16_format>;        ///< 8 bits of exponent, 7 of mantissa: the range of float
using float16 = small_float<detail::float16_format>;          ///< 5 and 10: up to 65504
using float8_e4m3 = small_float<detail::float8_e4m3_format>;  ///< 4 and 3: up to 448, no infinity
using float8_e5m2 = small_float<detail::float8_e5m2_format>;  ///< 5 and 2: up to 57344

}  // namespace v0
}  // namespace collectx
