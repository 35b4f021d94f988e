// SPDX-License-Identifier: Apache-2.0
/// Which algorithm where the caller names none: a function of collective, ranks, bytes, whether order matters, whether messages are dear,
/// and of nothing else, so that all ranks choose alike.
#pragma once

#include "collectx/algo/direct.hpp"
#include "collectx/algo/double_binary_tree.hpp"
#include "collectx/algo/hierarchical.hpp"
#include "collectx/algo/recursive_doubling.hpp"
#include "collectx/algo/recursive_halving.hpp"
#include "collectx/algo/ring.hpp"
#include "collectx/algo/striped.hpp"

#include <cstddef>

namespace collectx {
inline namespace v0 {
namespace algo {

/// The default algorithm of every collective.
struct automatic {
  static constexpr char const* name = "automatic";
  friend constexpr bool operator==(automatic, automatic) = default;
};

/// What goes between hosts in long vectors: each shard of the vector once, in stripes that fill the wire.
using by_hosts = striped<hierarchical<ring, ring>>;

enum class choice { direct, two_shot, recursive_doubling, recursive_halving, double_binary_tree, ring };

/// What decides: whether blocks have owners, whether it combines, whether it has a root, whether order must be kept.
struct situation {
  bool owners = false;
  bool reduces = false;
  bool rooted = false;
  bool ordered = false;
  bool dear = false;  ///< a message costs system calls: better few of them
};

/// `bytes` of the whole vector. Direct while latency is all; then what moves least, and the ring (for a root: the chain) where pieces
/// pipeline; trees where a ring would be too long. Thresholds are bytes, the same for every type.
constexpr choice choose(situation const& s, int n, std::size_t bytes) {
  constexpr std::size_t small = std::size_t{1} << 15, large = std::size_t{1} << 17;
  bool const few = n <= 16, power_of_two = (n & (n - 1)) == 0;
  if (s.dear && s.reduces && !s.owners && !s.rooted) {
    if (n > 2 && n <= 4 && bytes <= small / 2) return choice::direct;
    if (n > 2 && bytes <= 2 * small) return choice::recursive_doubling;
    if (n > 2 && !s.ordered) return power_of_two || bytes <= 8 * large ? choice::recursive_halving : choice::ring;
    if (!s.ordered && bytes > 4 * large) return choice::recursive_halving;
  }
  if (n <= 2) return choice::direct;
  if (s.owners) {
    if (!s.reduces) return few ? choice::direct : bytes <= small ? choice::recursive_halving : choice::ring;
    return s.ordered || few || bytes <= small ? choice::direct : choice::ring;
  }
  if (bytes <= small) return few ? choice::direct : choice::double_binary_tree;
  if (s.rooted) return few && bytes > large ? choice::ring : choice::double_binary_tree;
  if (bytes <= large) return few ? choice::two_shot : choice::double_binary_tree;
  return s.ordered || !few ? choice::double_binary_tree : choice::ring;
}

/// Whether an all-reduce of `bytes` goes by hosts first: where some rank has a neighbour, and another has not got it for one.
constexpr bool two_levels_pay(placed const& hosts, int n, std::size_t bytes) {
  return bytes > (std::size_t{1} << 16) && hosts.count(n) > 1 && hosts.count(n) < n;
}

/// Calls `use(family)` with the family chosen for the collective; `Ordered` where operands must stay in rank order.
template <bool Ordered, Collective C, class F>
constexpr auto with_choice(C const& collective, int n, std::size_t bytes, F&& use, bool dear = false) {
  constexpr bool one_block = C{}.blocks(2) == 1;
  constexpr bool rooted = requires(C const& c) { c.root; };
  switch (choose({collective.blocks(2) > 1, C::reduces, rooted, Ordered, dear}, n, bytes)) {
    case choice::two_shot:
      if constexpr (one_block && !rooted) return use(two_shot{});
      break;
    case choice::recursive_doubling:
      if constexpr (C::reduces && one_block && !rooted) return use(recursive_doubling{});
      break;
    case choice::recursive_halving:
      if constexpr (!C::reduces && !one_block) return use(recursive_halving{});
      if constexpr (C::reduces && one_block && !rooted && !Ordered) return use(recursive_halving{});
      break;
    case choice::ring:
      if constexpr (!Ordered || rooted) return use(ring{});
      break;
    case choice::double_binary_tree:
      if constexpr (one_block) return use(double_binary_tree{});
      break;
    case choice::direct:
      break;
  }
  return use(direct{});
}

}  // namespace algo
}  // namespace v0
}  // namespace collectx
