// SPDX-License-Identifier: Apache-2.0
/// Two levels: Inner inside each group, Outer between groups, over any two families.
///
/// The vector is cut into as many shards as the largest group has ranks; in a group of g of S, member floor(s g / S) owns shard s. Inner
/// reduce-scatters the shards inside each group, every shard runs Outer among its owners, and Inner gathers. An Inner without a
/// reduce-scatter works through the leaders of the groups instead.
#pragma once

#include "collectx/algo/groups.hpp"
#include "collectx/collective.hpp"

#include <type_traits>

namespace collectx {
inline namespace v0 {
namespace algo {

namespace detail {

/// Some ranks as an inner or outer schedule sees them: `to_rank(p)` is the rank that it calls p, `names` maps its chunk names.
template <class ToRank, class Names>
struct some_ranks {
  int me, count;
  ToRank to_rank;
  Names names;
  constexpr int rank() const { return me; }
  constexpr int size() const { return count; }
  constexpr int peer(int p) const { return to_rank(p); }
  constexpr int lane() const { return 0; }
  constexpr int chunks() const { return names.chunks; }
  constexpr int blocks() const { return names.blocks; }
  template <class F>
  constexpr void for_each(collectx::chunks run, F&& f) const {
    names.for_each(run, f);
  }
};

/// Group `group` of `groups`, and in it the rank with index `me`.
template <class G, class Names>
constexpr auto inside(G const& groups, int n, int group, int me, Names const& names) {
  auto const to_rank = [&groups, n, group](int p) { return groups.rank_of(group, p, n); };
  return some_ranks<decltype(to_rank), Names>{me, groups.size(group, n), to_rank, names};
}
/// One rank of each group, member(group) its index there, seen from that of group `group`.
template <class G, class Member, class Names>
constexpr auto across(G const& groups, int n, int group, Member const& member, Names const& names) {
  auto const to_rank = [&groups, n, member](int p) { return groups.rank_of(p, member(p), n); };
  return some_ranks<decltype(to_rank), Names>{group, groups.count(n), to_rank, names};
}

/// Names that lie side by side: inner name i is outer names [start + i * scale, + scale).
struct adjacent {
  int chunks, blocks, start, scale;
  template <class F>
  constexpr void for_each(collectx::chunks run, F&& f) const {
    f(collectx::chunks{start + run.first * scale, run.count * scale});
  }
};

/// Every size that a group has; at least once. Schedules ask often, so runs of one width do not go through all groups.
template <class G, class F>
constexpr void for_each_size(G const& groups, int n, F&& f) {
  if constexpr (requires { G::width(n); }) {
    f(groups.size(0, n));
    f(groups.size(groups.count(n) - 1, n));
  } else {
    for (int j = 0; j < groups.count(n); ++j) f(groups.size(j, n));
  }
}
template <class G>
constexpr int largest_group(G const& groups, int n) {
  int largest = 0;
  for_each_size(groups, n, [&](int size) { largest = collectx::detail::larger(largest, size); });
  return largest;
}
/// The steps of the longest inner schedule.
template <class S, class G>
constexpr int longest(S const& inner, G const& groups, int n) {
  int longest = 0;
  for_each_size(groups, n, [&](int size) { longest = collectx::detail::larger(longest, inner.steps(size)); });
  return longest;
}
/// A number of parts that every inner schedule can live with.
template <class S, class G>
constexpr int common_parts(S const& inner, G const& groups, int n) {
  int common = 1;
  for_each_size(groups, n, [&](int size) { common = collectx::detail::lcm(common, inner.parts(size)); });
  return common;
}
template <class Inner, class Outer, class G>
constexpr bool both_admit(Inner const& inner, Outer const& outer, G const& groups, int n) {
  if (!groups.admits(n) || !admits(outer, groups.count(n))) return false;
  bool all = true;
  for_each_size(groups, n, [&](int size) { all = all && admits(inner, size); });
  return all;
}

/// Which member of a group owns which shard.
struct ownership {
  int shards;
  constexpr int owner(int shard, int size) const { return shard * size / shards; }
  constexpr int first_shard(int member, int size) const { return collectx::detail::ceil_div(member * shards, size); }
};

/// What the shared parts of both kinds of phases declare.
template <class Inner, class Outer, class G>
struct two_levels {
  static constexpr bool keeps_rank_order = collectx::keeps_rank_order<Inner>() && collectx::keeps_rank_order<Outer>() && G::contiguous;
  static constexpr bool agrees_bitwise = collectx::agrees_bitwise<Inner>() && collectx::agrees_bitwise<Outer>();
  Inner inner{};
  Outer outer{};
  G groups{};
  constexpr bool admits(int n) const { return both_admit(inner, outer, groups, n); }
  constexpr int lanes() const { return collectx::detail::larger(lanes_of(inner), lanes_of(outer)); }
  friend constexpr bool operator==(two_levels const& x, two_levels const& y) requires comparable_schedule<Inner> &&
      comparable_schedule<Outer> && comparable_schedule<G> {
    return same_schedule(x.inner, y.inner) && same_schedule(x.outer, y.outer) && same_schedule(x.groups, y.groups);
  }
};

}  // namespace detail

/// Inner reduce-scatter, Outer all-reduce of each shard among its owners; followed by the first half backwards it is an all-reduce.
/// With WithOuter false only the Inner half.
template <class Inner, class Outer, Groups G, bool WithOuter>
struct hierarchical_shards : detail::two_levels<Inner, Outer, G> {
  using detail::two_levels<Inner, Outer, G>::inner;
  using detail::two_levels<Inner, Outer, G>::outer;
  using detail::two_levels<Inner, Outer, G>::groups;
  constexpr int steps(int n) const { return detail::longest(inner, groups, n) + (WithOuter ? outer.steps(groups.count(n)) : 0); }
  /// The outer all-reduce counts its chunks per rank, so a shard has count * parts of them.
  constexpr int parts(int n) const {
    int const shards = detail::largest_group(groups, n), outers = groups.count(n) * outer.parts(groups.count(n));
    return collectx::detail::lcm(n, shards * collectx::detail::lcm(outers, detail::common_parts(inner, groups, n))) / n;
  }
  template <RankContext Me>
  constexpr void step(int k, Me& me) const {
    int const n = me.size(), group = groups.of(me.rank(), n), index = groups.index(me.rank(), n), size = groups.size(group, n);
    detail::ownership const own{detail::largest_group(groups, n)};
    int const shard = me.chunks() / own.shards, inner_steps = detail::longest(inner, groups, n);
    if (k < inner_steps) {
      if (k >= inner.steps(size)) return;
      shards_of_members names{size * inner.parts(size), size, own, inner.parts(size), shard};
      auto map = detail::inside(groups, n, group, index, names);
      collectx::detail::mapped<Me, decltype(map)> view{me, map};
      return inner.step(k, view);
    }
    if constexpr (WithOuter) {
      int const count = groups.count(n), names = count * outer.parts(count);
      for (int s = own.first_shard(index, size); s < own.shards && own.owner(s, size) == index; ++s) {
        auto const owner = [this, own, s, n](int j) { return own.owner(s, groups.size(j, n)); };
        auto map = detail::across(groups, n, group, owner, detail::adjacent{names, 1, s * shard, shard / names});
        collectx::detail::mapped<Me, decltype(map)> view{me, map};
        outer.step(k - inner_steps, view);
      }
    }
  }
  friend constexpr bool operator==(hierarchical_shards const&, hierarchical_shards const&) = default;

 private:
  /// Inner block i is the shards that member i owns, cut into the inner schedule's parts.
  struct shards_of_members {
    int chunks, blocks;
    detail::ownership own;
    int parts, shard;
    constexpr int start(int name) const {
      int const member = name / parts, part = name % parts;
      int const low = own.first_shard(member, blocks) * shard, high = own.first_shard(member + 1, blocks) * shard;
      return low + (high - low) / parts * part;
    }
    template <class F>
    constexpr void for_each(collectx::chunks run, F&& f) const {
      f(collectx::chunks{start(run.first), start(run.first + run.count) - start(run.first)});
    }
  };
};

/// Inner reduce-scatter, then Outer reduce-scatter of each shard among its owners. Rank r ends with its own block r: a shard holds
/// one block of each group, that of the member whose first shard it is (none where the group's members own several).
template <class Inner, class Outer, Groups G>
struct hierarchical_reduce_scatter : detail::two_levels<Inner, Outer, G> {
  using detail::two_levels<Inner, Outer, G>::inner;
  using detail::two_levels<Inner, Outer, G>::outer;
  using detail::two_levels<Inner, Outer, G>::groups;
  constexpr int steps(int n) const { return detail::longest(inner, groups, n) + outer.steps(groups.count(n)); }
  constexpr int parts(int n) const { return collectx::detail::lcm(detail::common_parts(inner, groups, n), outer.parts(groups.count(n))); }
  template <RankContext Me>
  constexpr void step(int k, Me& me) const {
    int const n = me.size(), group = groups.of(me.rank(), n), index = groups.index(me.rank(), n), size = groups.size(group, n);
    detail::ownership const own{detail::largest_group(groups, n)};
    int const parts = me.chunks() / n, inner_steps = detail::longest(inner, groups, n), count = groups.count(n);
    blocks_of_shards const blocks{groups, n, own, parts};
    if (k < inner_steps) {
      if (k >= inner.steps(size)) return;
      names_of_members names{size * inner.parts(size), size, blocks, inner.parts(size)};
      auto map = detail::inside(groups, n, group, index, names);
      collectx::detail::mapped<Me, decltype(map)> view{me, map};
      return inner.step(k, view);
    }
    for (int s = own.first_shard(index, size); s < own.shards && own.owner(s, size) == index; ++s) {
      auto const owner = [this, own, s, n](int j) { return own.owner(s, groups.size(j, n)); };
      names_of_groups names{count * outer.parts(count), count, blocks, s, outer.parts(count)};
      auto map = detail::across(groups, n, group, owner, names);
      collectx::detail::mapped<Me, decltype(map)> view{me, map};
      outer.step(k - inner_steps, view);
    }
  }
  friend constexpr bool operator==(hierarchical_reduce_scatter const&, hierarchical_reduce_scatter const&) = default;

 private:
  struct blocks_of_shards {
    G const& groups;
    int ranks;
    detail::ownership own;
    int parts;
    /// Part `part` of `cut` of the block that group j has in shard s, if it has one.
    template <class F>
    constexpr void block(int s, int j, int part, int cut, F&& f) const {
      int const size = groups.size(j, ranks), member = own.owner(s, size);
      if (own.first_shard(member, size) == s)
        f(collectx::chunks{groups.rank_of(j, member, ranks) * parts + part * (parts / cut), parts / cut});
    }
  };
  struct names_of_members {
    int chunks, blocks;
    blocks_of_shards all;
    int cut;
    template <class F>
    constexpr void for_each(collectx::chunks run, F&& f) const {
      for (int name = run.first; name < run.first + run.count; ++name)
        for (int s = all.own.first_shard(name / cut, blocks); s < all.own.first_shard(name / cut + 1, blocks); ++s)
          for (int j = 0; j < all.groups.count(all.ranks); ++j) all.block(s, j, name % cut, cut, f);
    }
  };
  struct names_of_groups {
    int chunks, blocks;
    blocks_of_shards all;
    int shard, cut;
    template <class F>
    constexpr void for_each(collectx::chunks run, F&& f) const {
      for (int name = run.first; name < run.first + run.count; ++name) all.block(shard, name / cut, name % cut, cut, f);
    }
  };
};

/// Through leaders: Inner reduces to one rank of each group, Outer (all-)reduces among those. In the root's group the root leads.
template <class Inner, class Outer, Groups G, bool ToRoot>
struct hierarchical_leaders : detail::two_levels<Inner, Outer, G> {
  using detail::two_levels<Inner, Outer, G>::inner;
  using detail::two_levels<Inner, Outer, G>::outer;
  using detail::two_levels<Inner, Outer, G>::groups;
  int root = 0;
  constexpr int steps(int n) const { return detail::longest(inner, groups, n) + outer.steps(groups.count(n)); }
  constexpr int parts(int n) const {
    int const count = groups.count(n), outers = outer.parts(count), inners = detail::common_parts(inner, groups, n);
    return ToRoot ? collectx::detail::lcm(outers, inners) : collectx::detail::lcm(n, collectx::detail::lcm(count * outers, inners)) / n;
  }
  template <RankContext Me>
  constexpr void step(int k, Me& me) const {
    int const n = me.size(), group = groups.of(me.rank(), n), size = groups.size(group, n), inner_steps = detail::longest(inner, groups, n);
    auto const leader = [this, n](int j) { return ToRoot && j == groups.of(root, n) ? groups.index(root, n) : 0; };
    if (k < inner_steps) {
      if (k >= inner.steps(size)) return;
      int const names = inner.parts(size), lead = leader(group);
      // The leader is the inner schedule's rank 0.
      auto map = detail::inside(groups, n, group, groups.index(me.rank(), n), detail::adjacent{names, 1, 0, me.chunks() / names});
      collectx::detail::mapped<Me, decltype(map)> members{me, map};
      collectx::detail::mapped<decltype(members), collectx::detail::shifted> view{members, {members.rank(), size, names, 1, lead}};
      return inner.step(k, view);
    }
    if (groups.index(me.rank(), n) != leader(group)) return;
    int const count = groups.count(n), names = (ToRoot ? 1 : count) * outer.parts(count);
    auto map = detail::across(groups, n, group, leader, detail::adjacent{names, 1, 0, me.chunks() / names});
    collectx::detail::mapped<Me, decltype(map)> leaders{me, map};
    int const to = ToRoot ? groups.of(root, n) : 0;
    collectx::detail::mapped<decltype(leaders), collectx::detail::shifted> view{leaders, {group, count, names, 1, to}};
    outer.step(k - inner_steps, view);
  }
  friend constexpr bool operator==(hierarchical_leaders const&, hierarchical_leaders const&) = default;
};

/// Two families in two levels: n ranks in groups of g. I and i are the steps and bytes of Inner for the same collective in a group, O and o
/// those of Outer between groups.
/// all_reduce: steps 2 I + O | bytes per rank i + i' + o / g, with i of Inner's reduce_scatter, i' of its all_gather
/// all_reduce through leaders: steps 2 I + O | bytes per rank <= i + i' + o, with i of Inner's reduce, i' of its broadcast
/// reduce_scatter, all_gather: steps I + O | bytes per rank i + o / g
/// reduce, broadcast: steps I + O | bytes per rank <= i + o
/// All keep rank order where both families do, and the groups are runs of ranks.
/// A communicator that knows its ranks' hosts takes those for groups where none are named.
template <class Inner, class Outer, Groups G = default_groups>
struct hierarchical {
  static constexpr char const* name = "hierarchical";
  Inner inner{};
  Outer outer{};
  G groups{};

  constexpr auto all_reduce() const requires offers<Outer, collectx::all_reduce> &&
      (offers<Inner, collectx::reduce_scatter> || offers<Inner, collectx::reduce>) {
    auto const between = outer.all_reduce();
    if constexpr (offers<Inner, collectx::reduce_scatter>) {
      auto const within_group = inner.reduce_scatter();
      using up = hierarchical_shards<decltype(inner.reduce_scatter()), decltype(outer.all_reduce()), G, true>;
      using down = reversed<hierarchical_shards<decltype(inner.reduce_scatter()), decltype(outer.all_reduce()), G, false>>;
      return then<up, down>{{up{{within_group, between, groups}}, down{{{within_group, between, groups}}}}};
    } else {
      return through_leaders(inner.reduce(0), between);
    }
  }
  constexpr auto reduce_scatter() const requires offers<Inner, collectx::reduce_scatter> && offers<Outer, collectx::reduce_scatter> {
    return hierarchical_reduce_scatter<decltype(inner.reduce_scatter()), decltype(outer.reduce_scatter()), G>{
        {inner.reduce_scatter(), outer.reduce_scatter(), groups}};
  }
  constexpr auto all_gather() const requires offers<Inner, collectx::reduce_scatter> && offers<Outer, collectx::reduce_scatter> {
    return reversed<decltype(reduce_scatter())>{reduce_scatter()};
  }
  constexpr auto reduce(int root) const requires offers<Inner, collectx::reduce> && offers<Outer, collectx::reduce> {
    return hierarchical_leaders<decltype(inner.reduce(0)), decltype(outer.reduce(0)), G, true>{{inner.reduce(0), outer.reduce(0), groups},
                                                                                               root};
  }
  constexpr auto broadcast(int root) const requires offers<Inner, collectx::reduce> && offers<Outer, collectx::reduce> {
    return reversed<decltype(reduce(0))>{reduce(root)};
  }
  friend constexpr bool operator==(hierarchical const&, hierarchical const&) = default;

  /// The same over these groups, where the author has named none.
  template <Groups H>
  constexpr auto over(H const& others) const requires std::is_same_v<G, default_groups> {
    return hierarchical<Inner, Outer, H>{inner, outer, others};
  }

 private:
  /// Inner reduce to the leaders, Outer all-reduce among them, and Inner backwards.
  template <class Inside, class Between>
  constexpr auto through_leaders(Inside const& within_group, Between const& between) const {
    using up = hierarchical_leaders<Inside, Between, G, false>;
    using down = reversed<hierarchical_leaders<Inside, idle, G, false>>;
    return then<up, down>{{up{{within_group, between, groups}, 0}, down{{{within_group, idle{}, groups}, 0}}}};
  }
  /// A schedule in which nothing happens.
  struct idle {
    static constexpr bool keeps_rank_order = true;
    static constexpr bool agrees_bitwise = true;
    constexpr int steps(int) const { return 0; }
    constexpr int parts(int) const { return 1; }
    template <RankContext Me>
    constexpr void step(int, Me&) const {}
    friend constexpr bool operator==(idle, idle) = default;
  };
};

}  // namespace algo
}  // namespace v0
}  // namespace collectx
