// SPDX-License-Identifier: Apache-2.0
/// Two binary trees, each on half of the vector, so that nearly every rank is a leaf in one and inside in the other.
///
/// Both trees are numbered in order (left subtree, node, right subtree) below rank 0, which keeps operands in rank order. Parent and
/// children follow from the lowest set bit of a rank: a node 2^h (2 j + 1) stands h levels above the leaves.
#pragma once

#include "collectx/collective.hpp"

#include <initializer_list>

namespace collectx {
inline namespace v0 {
namespace algo {

namespace detail {

/// The first tree on `size` ranks: -1 where there is no such relative.
struct in_order_tree {
  int size;
  constexpr int level_bit(int rank) const { return rank & -rank; }
  constexpr int parent(int rank) const {
    if (rank == 0) return -1;
    int const bit = level_bit(rank), up = (rank & ~bit) | (bit << 1);
    return up < size ? up : rank & ~bit;
  }
  constexpr int left(int rank) const {
    int const half = rank == 0 ? 0 : level_bit(rank) >> 1;
    return half == 0 ? -1 : rank - half;
  }
  constexpr int right(int rank) const {
    int half = rank == 0 ? 1 << collectx::detail::log2_ceil(size) : level_bit(rank);
    do half >>= 1;
    while (half > 0 && rank + half >= size);
    return half == 0 ? -1 : rank + half;
  }
  /// The step in which a rank gives its subtree's sum to its parent: all of its children have given before.
  constexpr int turn(int rank) const { return collectx::detail::log2_ceil(level_bit(rank)); }
};

}  // namespace detail

/// Which numbering a tree uses. Both second ones turn the leaves of the first into inner ranks and keep the order of ranks.
enum class numbering {
  first,   ///< inner ranks are even
  mirror,  ///< n - 1 - r (even n), n - r with 0 in its place (odd n): inner ranks are odd; its root is not always rank 0
  below,   ///< as mirror for odd n; for even n the tree of ranks 1 .. n-1 below rank 0: one step longer, rooted at 0
};

/// Reduce along one tree to its root (pipelined over pieces: Sanders, Speck, Träff 2009).
/// steps ceil(log2 n), one more for `below` at even n > 2 | messages per rank 1 | bytes per rank B | slots 1 | any n | keeps rank order
template <numbering Which>
struct tree_reduce {
  static constexpr bool keeps_rank_order = true;
  static constexpr bool agrees_bitwise = true;
  constexpr int steps(int size) const {
    int const inner = numbered(size);
    return collectx::detail::log2_ceil(inner) + (size - inner);
  }
  constexpr int parts(int) const { return 1; }
  template <RankContext Me>
  constexpr void step(int k, Me& me) const {
    int const n = me.size(), inner = numbered(n), extra = n - inner, last = steps(n) - 1;
    detail::in_order_tree const tree{inner};
    if (extra == 1 && k == last) {
      if (me.rank() == 1) me.send(0, everything(me));
      if (me.rank() == 0) me.reduce(1, everything(me));
      return;
    }
    if (me.rank() < extra) return;
    int const mine = to_tree(me.rank(), n);
    if (int const up = tree.parent(mine); up >= 0 && tree.turn(mine) == k) me.send(to_rank(up, n), everything(me));
    for (int child : {tree.left(mine), tree.right(mine)})
      if (child >= 0 && tree.turn(child) == k) me.reduce(to_rank(child, n), everything(me));
  }
  friend constexpr bool operator==(tree_reduce, tree_reduce) = default;

 private:
  static constexpr int numbered(int n) { return Which == numbering::below && n % 2 == 0 && n > 1 ? n - 1 : n; }
  static constexpr int mirrored(int name, int n) { return n % 2 == 0 ? n - 1 - name : name == 0 ? 0 : n - name; }
  static constexpr bool is_below(int n) { return Which == numbering::below && n % 2 == 0; }
  static constexpr int to_tree(int rank, int n) { return Which == numbering::first ? rank : is_below(n) ? rank - 1 : mirrored(rank, n); }
  static constexpr int to_rank(int name, int n) { return Which == numbering::first ? name : is_below(n) ? name + 1 : mirrored(name, n); }
};

/// Both trees at once.
/// reduce, broadcast: steps <= ceil(log2 n) + 1 | messages per rank <= 2 | bytes per rank B | slots 1 | any n | keeps rank order
/// all_reduce: steps 2 ceil(log2 n) | messages per rank <= 4 | bytes per rank <= 2 B | slots 1 | any n | keeps rank order
struct double_binary_tree {
  static constexpr char const* name = "double_binary_tree";
  template <numbering Second>
  using both = beside<tree_reduce<numbering::first>, tree_reduce<Second>>;
  constexpr auto all_reduce() const { return then<both<numbering::mirror>, reversed<both<numbering::mirror>>>{}; }
  constexpr auto reduce(int root) const { return renumbered<both<numbering::below>>{{}, root}; }
  constexpr auto broadcast(int root) const { return renumbered<reversed<both<numbering::below>>>{{}, root}; }
  friend constexpr bool operator==(double_binary_tree, double_binary_tree) = default;
};

}  // namespace algo
}  // namespace v0
}  // namespace collectx
