// SPDX-License-Identifier: Apache-2.0
/// The unit a schedule moves, and where it lies. Names are ints, places are 64-bit: count times size never overflows.
#pragma once

#include "collectx/config.hpp"

#include <cstddef>

namespace collectx {
inline namespace v0 {

/// A run of consecutive chunk names. Cyclic: names are taken modulo the number of chunks, so a run may start below 0 and may wrap.
struct chunks {
  int first = 0;
  int count = 1;

  template <class F>
  constexpr void for_each(F&& f) const {
    if (count > 0) f(*this);
  }
  friend constexpr bool operator==(chunks, chunks) = default;
};

constexpr chunks chunk(int name) { return {name, 1}; }

/// A range of elements: `count` of them from index `first`.
struct extent {
  std::size_t first = 0;
  std::size_t count = 0;
  friend constexpr bool operator==(extent, extent) = default;
};

/// The index-th of `parts` shares of `total` elements: contiguous, no gap, sizes differ by at most one, the longer ones in front.
/// @post share(t, p, 0).first == 0, share(t, p, i).first + share(t, p, i).count == share(t, p, i + 1).first
constexpr extent share(std::size_t total, int parts, int index) {
  std::size_t const p = static_cast<std::size_t>(parts), i = static_cast<std::size_t>(index);
  std::size_t const quotient = total / p, remainder = total % p;
  return {i * quotient + (i < remainder ? i : remainder), quotient + (i < remainder ? 1 : 0)};
}

}  // namespace v0
}  // namespace collectx
