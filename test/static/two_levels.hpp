// SPDX-License-Identifier: Apache-2.0
// What the cost lines of algo/hierarchical.hpp say, as predicates.
#pragma once

#include "collectx/algo/hierarchical.hpp"

#include "collectx/algo/direct.hpp"
#include "collectx/algo/double_binary_tree.hpp"
#include "collectx/algo/ring.hpp"

#include "cells.hpp"

namespace two_levels {

namespace cx = collectx;
using namespace cx::algo;

/// The cost of a family's schedule among n ranks.
template <class F, class Collective>
constexpr cx::cost cost_in(int n) {
  return cx::exec::verify_schedule(cx::schedule_of(F{}, Collective{}), Collective{}, n).cost;
}
constexpr int group_size(int n) { return default_groups{}.size(0, n); }
constexpr int group_count(int n) { return default_groups{}.count(n); }

/// Bytes per rank as a fraction of B.
struct fraction {
  long long part, whole;
  constexpr explicit fraction(cx::cost const& cost) : part(cost.chunks_sent), whole(cost.chunks) {}
  constexpr fraction(long long p, long long w) : part(p), whole(w) {}
  constexpr fraction operator+(fraction b) const { return {part * b.whole + b.part * whole, whole * b.whole}; }
  constexpr fraction operator/(int divisor) const { return {part, whole * divisor}; }
  constexpr bool operator==(fraction b) const { return part * b.whole == b.part * whole; }
  constexpr bool operator<=(fraction b) const { return part * b.whole <= b.part * whole; }
};

/// steps 2 I + O | bytes per rank i + i' + o / g
template <class Inner, class Outer>
constexpr auto all_reduce_by_shards = [](int n, cx::cost const& cost) {
  int const g = group_size(n);
  cx::cost const up = cost_in<Inner, cx::reduce_scatter>(g), down = cost_in<Inner, cx::all_gather>(g);
  cx::cost const across = cost_in<Outer, cx::all_reduce>(group_count(n));
  return cost.steps == 2 * up.steps + across.steps && fraction(cost) == fraction(up) + fraction(down) + fraction(across) / g;
};
/// steps 2 I + O | bytes per rank <= i + i' + o
template <class Inner, class Outer>
constexpr auto all_reduce_by_leaders = [](int n, cx::cost const& cost) {
  int const g = group_size(n);
  cx::cost const up = cost_in<Inner, cx::reduce>(g), down = cost_in<Inner, cx::broadcast>(g);
  cx::cost const across = cost_in<Outer, cx::all_reduce>(group_count(n));
  return cost.steps == 2 * up.steps + across.steps && fraction(cost) <= fraction(up) + fraction(down) + fraction(across);
};
/// steps I + O | bytes per rank i + o / g
template <class Inner, class Outer, class Collective>
constexpr auto blocks = [](int n, cx::cost const& cost) {
  int const g = group_size(n);
  cx::cost const inside = cost_in<Inner, Collective>(g), across = cost_in<Outer, Collective>(group_count(n));
  return cost.steps == inside.steps + across.steps && fraction(cost) == fraction(inside) + fraction(across) / g;
};
/// steps I + O | bytes per rank <= i + o
template <class Inner, class Outer, class Collective>
constexpr auto rooted = [](int n, cx::cost const& cost) {
  cx::cost const inside = cost_in<Inner, Collective>(group_size(n)), across = cost_in<Outer, Collective>(group_count(n));
  return cost.steps == inside.steps + across.steps && fraction(cost) <= fraction(inside) + fraction(across);
};

}  // namespace two_levels
