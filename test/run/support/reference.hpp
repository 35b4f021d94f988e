// SPDX-License-Identifier: Apache-2.0
/// What each collective means, in the plainest way: all inputs in one place, folded in rank order.
#pragma once

#include <collectx/collective.hpp>

#include <cstddef>
#include <type_traits>
#include <vector>

#include "elements.hpp"

namespace support {

namespace cx = collectx;

/// One call: `count` elements per rank's share where ranks have shares, of the whole vector else.
struct call {
  std::size_t count = 0;
  std::uint64_t salt = 0;
  int root = 0;
};

template <class C>
inline constexpr bool has_shares = std::is_same_v<C, cx::reduce_scatter> || std::is_same_v<C, cx::all_gather>;

template <class T>
std::vector<T> input_of(int rank, std::size_t count, std::uint64_t salt) {
  std::vector<T> in(count);
  for (std::size_t i = 0; i < count; ++i) in[i] = element<T>(rank, i, salt);
  return in;
}

template <class T, class Op>
std::vector<T> fold_of_all(int n, std::size_t count, std::uint64_t salt, Op const& op) {
  std::vector<T> all = input_of<T>(0, count, salt);
  for (int r = 1; r < n; ++r)
    for (std::size_t i = 0; i < count; ++i) all[i] = static_cast<T>(op(all[i], element<T>(r, i, salt)));
  return all;
}

/// What the ranks end with, one behind the other where they end with different things. `reduce_scatter`: rank r has the r-th `count`.
template <class C, class T, class Op>
std::vector<T> reference(int n, call const& c, Op const& op) {
  std::size_t const size = static_cast<std::size_t>(n);
  if constexpr (std::is_same_v<C, cx::all_reduce> || std::is_same_v<C, cx::reduce>) {
    return fold_of_all<T>(n, c.count, c.salt, op);
  } else if constexpr (std::is_same_v<C, cx::reduce_scatter>) {
    return fold_of_all<T>(n, size * c.count, c.salt, op);
  } else if constexpr (std::is_same_v<C, cx::all_gather>) {
    std::vector<T> all;
    for (int r = 0; r < n; ++r)
      for (std::size_t i = 0; i < c.count; ++i) all.push_back(element<T>(r, i, c.salt));
    return all;
  } else {
    return input_of<T>(c.root, c.count, c.salt);
  }
}

}  // namespace support
