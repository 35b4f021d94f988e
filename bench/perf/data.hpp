// SPDX-License-Identifier: Apache-2.0
/// What ranks begin with, chosen so that every result is exact in every type whatever the order of combining, and what must come out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <collectx/reduce/functors.hpp>
#include <collectx/reduction.hpp>

namespace perf {

/// A number in [0, 2^16) that tells rank, element and call apart.
constexpr std::uint32_t scatter(int rank, std::size_t element, int call) {
  std::uint64_t x = element * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank) * 0xd1b54a32d192ed03u +
                    static_cast<std::uint64_t>(call) * 0x8cb92ba72f3d8dd7u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  return static_cast<std::uint32_t>(x >> 48);
}

/// Rank `rank`'s element. Sums of 1 .. 7 stay far below 2^24, and up to 36 ranks below 2^8, which bfloat16 still holds; products are of 1
/// and 3 where they wrap, which loses nothing (odd factors have inverses), and of 1 and 2 in floating point, which is exact until it is
/// infinite. No rank can be left out unseen: not of a sum, and not of the others over a few elements.
template <class Op, class T>
constexpr T value_of(int rank, std::size_t element, int call) {
  std::uint32_t const x = scatter(rank, element, call);
  if constexpr (std::is_same_v<Op, collectx::prod>)
    return static_cast<T>(static_cast<short>(x % 2 == 0 ? 1 : !std::is_integral_v<T> ? 2 : 3));
  else if constexpr (std::is_same_v<Op, collectx::min> || std::is_same_v<Op, collectx::max>)
    return static_cast<T>(static_cast<short>(x % 128));
  else
    return static_cast<T>(static_cast<short>(1 + x % 7));
}

/// The element of the result.
template <class Op, class T>
constexpr T result_of(int ranks, std::size_t element, int call) {
  Op const op{};
  auto const contribution = [&](int rank) {
    T const value = value_of<Op, T>(rank, element, call);
    if constexpr (collectx::has_prepare<Op, T>)
      return op.prepare(value, ranks);
    else
      return value;
  };
  T all = contribution(0);
  for (int r = 1; r < ranks; ++r) all = op(all, contribution(r));
  if constexpr (collectx::has_finish<Op, T>) all = op.finish(all, ranks);
  return all;
}

/// No result looks like this: a value that is not written is seen.
template <class T>
void poison(T* first, std::size_t count) {
  std::memset(static_cast<void*>(first), 0xa5, count * sizeof(T));
}

template <class T>
bool same_bits(T const& a, T const& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

}  // namespace perf
