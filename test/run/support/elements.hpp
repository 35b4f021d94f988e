// SPDX-License-Identifier: Apache-2.0
/// Elements and operations whose results are exact in any order that is legal, and wrong in every other; and one whose bits tell the order.
#pragma once

#include <collectx/reduce/functors.hpp>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace support {

namespace cx = collectx;

/// x -> a x + b, with a third word that makes it 24 bytes: the largest of the types under test, and no power of two.
struct affine {
  std::uint64_t a = 1, b = 0, c = 0;
  friend bool operator==(affine const&, affine const&) = default;
};

/// First the left map, then the right one. Associative, not commutative.
struct compose {
  static constexpr bool is_commutative = false;
  static constexpr char const* name = "compose";
  constexpr affine operator()(affine const& l, affine const& r) const { return {l.a * r.a, r.a * l.b + r.b, l.c + r.c}; }
};

/// Word by word.
struct add_words {
  static constexpr bool is_commutative = true;
  static constexpr char const* name = "add_words";
  constexpr affine operator()(affine const& l, affine const& r) const { return {l.a + r.a, l.b + r.b, l.c + r.c}; }
};

/// A number whose sums depend on their order.
struct rough {
  float value = 0;
  rough() = default;
  explicit rough(std::uint64_t x) : value(static_cast<float>(x % 1000003) * (x % 7 == 0 ? 1e4f : 0.37f)) {}
  friend bool operator==(rough a, rough b) { return std::memcmp(&a, &b, sizeof a) == 0; }
};
struct add_rough {
  static constexpr bool is_commutative = true;
  static constexpr char const* name = "add_rough";
  rough operator()(rough l, rough r) const {
    rough sum;
    sum.value = l.value + r.value;
    return sum;
  }
};

/// A value that says whose it is, at which place and of which call.
template <class T>
constexpr T element(int rank, std::size_t i, std::uint64_t salt) {
  std::uint64_t x =
      (i + 1) * 0x9e3779b97f4a7c15u + (static_cast<std::uint64_t>(rank) + 1) * 0xd6e8feb86659fd93u + salt * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 29)) * 0x94d049bb133111ebu;
  x ^= x >> 32;
  if constexpr (std::is_same_v<T, affine>)
    return {x | 1, x >> 7, x * 3};  // an odd factor never makes what came before vanish
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(static_cast<int>(x % 4001) - 2000);  // of 64 of these every partial sum is exact
  else if constexpr (!std::is_same_v<cx::accumulator_t<T>, T>)
    return static_cast<T>(static_cast<float>(static_cast<int>(x % 3) - 1));  // of 16 of these every partial sum is exact in 3 bits
  else
    return static_cast<T>(x);
}

}  // namespace support
