// SPDX-License-Identifier: Apache-2.0
/// Which algorithm where the caller names none: a function of collective, ranks, bytes and whether order matters, and of nothing else,
/// so that all ranks choose alike.
#pragma once

#include "collectx/algo/direct.hpp"
#include "collectx/algo/double_binary_tree.hpp"
#include "collectx/algo/recursive_halving.hpp"
#include "collectx/algo/ring.hpp"

#include <cstddef>

namespace collectx {
inline namespace v0 {
namespace algo {

/// The default algorithm of every collective.
struct automatic {
  static constexpr char const* name = "automatic";
  friend constexpr bool operator==(automatic, automatic) = default;
};

enum class choice { direct, two_shot, recursive_halving, double_binary_tree, ring };

/// `bytes` of the whole vector. Direct while latency is all, two-shot while n messages at once are no burden, trees for many ranks.
/// Everything but halving and the ring keeps the order of ranks.
constexpr choice choose(bool gathers, int n, std::size_t bytes) {
  if (n <= 2) return choice::direct;
  std::size_t const small = std::size_t{1} << 15;
  if (n <= 16) return gathers || bytes <= small ? choice::direct : choice::two_shot;
  if (gathers) return bytes <= small ? choice::recursive_halving : choice::ring;
  return bytes <= small * 32 ? choice::double_binary_tree : choice::two_shot;
}

/// Calls `use(family)` with the family chosen for the collective.
template <Collective C, class F>
constexpr auto with_choice(C const& collective, int n, std::size_t bytes, F&& use) {
  // With owners of blocks every family but the trees is there, and all reduce-scatters in one step keep order.
  bool const owners = collective.blocks(2) > 1;
  switch (choose(owners, n, bytes)) {
    case choice::two_shot: return use(two_shot{});
    case choice::recursive_halving:
      if constexpr (!C::reduces) return use(recursive_halving{});
      break;
    case choice::ring:
      if constexpr (!C::reduces) return use(ring{});
      break;
    case choice::double_binary_tree:
      if constexpr (offers<double_binary_tree, C>) return use(double_binary_tree{});
      break;
    case choice::direct: break;
  }
  return use(direct{});
}

}  // namespace algo
}  // namespace v0
}  // namespace collectx
