// SPDX-License-Identifier: Apache-2.0
/// The word that travels with each message of a call, by which ranks notice that they make different calls.
#pragma once

#include "collectx/config.hpp"

#include <cstdint>

namespace collectx {
inline namespace v0 {
namespace detail {

/// Differs where collective, algorithm, type, operation, root, count or number of the call do. Never 0.
constexpr std::uint32_t tag_of(std::uint64_t identity, std::uint64_t count, std::uint64_t sequence) {
  std::uint64_t x = (identity ^ (count * 0x9e3779b97f4a7c15u)) + sequence * 0xbf58476d1ce4e5b9u;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  return static_cast<std::uint32_t>(x >> 32) | 1u;
}

}  // namespace detail
}  // namespace v0
}  // namespace collectx
