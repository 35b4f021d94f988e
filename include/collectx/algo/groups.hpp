// SPDX-License-Identifier: Apache-2.0
/// How ranks fall into groups (nodes, sockets): what `hierarchical` is built on.
#pragma once

#include "collectx/schedule.hpp"

namespace collectx {
inline namespace v0 {
namespace algo {

/// Groups divide n ranks.
///
/// 1. `count(n)` groups, group j of `size(j, n)` >= 1; `of(rank, n)` is a rank's group, `index(rank, n)` its place there, and
///    `rank_of(j, i, n)` the inverse of both. Within a group, ranks ascend.
/// 2. `admits(n)`: whether n ranks can be divided so. `contiguous`: groups are runs of ranks, in order.
template <class G>
concept Groups = requires(G const& groups, int n, int rank) {
  { groups.count(n) } -> std::same_as<int>;
  { groups.size(rank, n) } -> std::same_as<int>;
  { groups.of(rank, n) } -> std::same_as<int>;
  { groups.index(rank, n) } -> std::same_as<int>;
  { groups.rank_of(rank, rank, n) } -> std::same_as<int>;
  { groups.admits(n) } -> std::same_as<bool>;
  { G::contiguous } -> std::convertible_to<bool>;
};

namespace detail {
/// Runs of `width(n)` ranks; the last may be shorter.
template <class Width>
struct runs_of_ranks {
  static constexpr bool contiguous = true;
  constexpr bool admits(int n) const { return n >= 1; }
  constexpr int count(int n) const { return collectx::detail::ceil_div(n, Width::width(n)); }
  constexpr int size(int group, int n) const {
    int const left = n - group * Width::width(n);
    return left < Width::width(n) ? left : Width::width(n);
  }
  constexpr int of(int rank, int n) const { return rank / Width::width(n); }
  constexpr int index(int rank, int n) const { return rank % Width::width(n); }
  constexpr int rank_of(int group, int index, int n) const { return group * Width::width(n) + index; }
  friend constexpr bool operator==(runs_of_ranks, runs_of_ranks) = default;
};
}  // namespace detail

/// Groups of G consecutive ranks; the last is shorter where G does not divide n.
template <int G>
struct uniform : detail::runs_of_ranks<uniform<G>> {
  static_assert(G >= 1, "collectx: groups have at least one rank");
  static constexpr int width(int) { return G; }
  friend constexpr bool operator==(uniform, uniform) = default;
};

/// Without a node map: uniform groups, their size the largest divisor of n that is at most sqrt(n).
struct default_groups : detail::runs_of_ranks<default_groups> {
  static constexpr int width(int n) {
    int best = 1;
    for (int d = 2; d * d <= n; ++d)
      if (n % d == 0) best = d;
    return best;
  }
  friend constexpr bool operator==(default_groups, default_groups) = default;
};

/// Groups of the given sizes, of consecutive ranks.
template <int... Sizes>
struct sizes {
  static_assert(sizeof...(Sizes) > 0 && ((Sizes >= 1) && ...), "collectx: groups have at least one rank");
  static constexpr bool contiguous = true;
  static constexpr int table[sizeof...(Sizes)] = {Sizes...};
  constexpr bool admits(int n) const { return n == (Sizes + ...); }
  constexpr int count(int) const { return static_cast<int>(sizeof...(Sizes)); }
  constexpr int size(int group, int) const { return table[group]; }
  constexpr int of(int rank, int n) const {
    int group = 0;
    while (group + 1 < count(n) && rank >= table[group]) rank -= table[group++];
    return group;
  }
  constexpr int index(int rank, int n) const { return rank - rank_of(of(rank, n), 0, n); }
  constexpr int rank_of(int group, int index, int) const {
    for (int g = 0; g < group; ++g) index += table[g];
    return index;
  }
  friend constexpr bool operator==(sizes, sizes) = default;
};

/// Groups out of a table that somebody else keeps, in any placement: the hosts of a communicator's ranks.
struct placed {
  static constexpr bool contiguous = false;

  /// `of` and `index` have an entry for each rank, `first` one for each group and one more; the ranks of group j are
  /// member[first[j]] .. member[first[j + 1] - 1], ascending.
  struct table {
    int ranks = 0, count = 0;
    int const* of = nullptr;
    int const* index = nullptr;
    int const* first = nullptr;
    int const* member = nullptr;
    friend constexpr bool operator==(table const&, table const&) = default;
  };
  table groups{};

  constexpr bool admits(int n) const { return n == groups.ranks; }
  constexpr int count(int) const { return groups.count; }
  constexpr int size(int group, int) const { return groups.first[group + 1] - groups.first[group]; }
  constexpr int of(int rank, int) const { return groups.of[rank]; }
  constexpr int index(int rank, int) const { return groups.index[rank]; }
  constexpr int rank_of(int group, int index, int) const { return groups.member[groups.first[group] + index]; }
  friend constexpr bool operator==(placed const&, placed const&) = default;
};

}  // namespace algo
}  // namespace v0
}  // namespace collectx
