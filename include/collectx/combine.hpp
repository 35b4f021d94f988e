// SPDX-License-Identifier: Apache-2.0
/// Schedules from schedules: then, reversed, staggered, beside, rotated (renumbered), within.
///
/// Each is a schedule that shows its parts a changed context: other ranks, other names of chunks, the film backwards.
#pragma once

#include "collectx/schedule.hpp"

namespace collectx {
inline namespace v0 {

namespace detail {

/// Runs of an inner schedule, in the names of the outer one.
template <class R, class Map>
struct mapped_runs {
  R const& runs;
  Map const& map;
  template <class F>
  constexpr void for_each(F&& f) const {
    runs.for_each([&](chunks run) { unwrap(run, map.chunks(), [&](chunks flat) { map.for_each(flat, f); }); });
  }
};

/// What an inner schedule sees through a map: rank(), size(), chunks(), blocks(), lane(), peer(p) and for_each(run, f).
template <class Me, class Map>
struct mapped {
  Me& outer;
  Map map;
  constexpr int rank() const { return map.rank(); }
  constexpr int size() const { return map.size(); }
  constexpr int chunks() const { return map.chunks(); }
  constexpr int blocks() const { return map.blocks(); }
  template <Runs R>
  constexpr void send(int peer, R const& runs, int lane = 0) {
    outer.send(map.peer(peer), mapped_runs<R, Map>{runs, map}, map.lane() + lane);
  }
  template <Runs R>
  constexpr void recv(int peer, R const& runs, int lane = 0) {
    outer.recv(map.peer(peer), mapped_runs<R, Map>{runs, map}, map.lane() + lane);
  }
  template <Runs R>
  constexpr void reduce(int peer, R const& runs, int lane = 0) {
    outer.reduce(map.peer(peer), mapped_runs<R, Map>{runs, map}, map.lane() + lane);
  }
};
template <class Me, class Map>
mapped(Me&, Map) -> mapped<Me, Map>;

/// The identity on ranks and lanes; maps change what they need.
struct same_ranks {
  int my_rank, ranks;
  constexpr int rank() const { return my_rank; }
  constexpr int size() const { return ranks; }
  constexpr int peer(int p) const { return p; }
  constexpr int lane() const { return 0; }
};

/// Chunks `factor` times as coarse as the outer ones.
struct coarser : same_ranks {
  int total, owned, factor;
  constexpr int chunks() const { return total; }
  constexpr int blocks() const { return owned; }
  template <class F>
  constexpr void for_each(collectx::chunks run, F&& f) const {
    f(collectx::chunks{run.first * factor, run.count * factor});
  }
};
template <RankContext M>
constexpr auto coarsen(M& me, int factor) {
  return mapped<M, coarser>{me, {{me.rank(), me.size()}, me.chunks() / factor, me.blocks(), factor}};
}

/// `mine` of every `all` parts, from part `first` on. Where blocks have owners the parts of each block are shared out, else the whole.
struct lane_of : same_ranks {
  int total, owned, first, mine, all, lane_;
  constexpr int lane() const { return lane_; }
  constexpr int chunks() const { return total; }
  constexpr int blocks() const { return owned; }
  template <class F>
  constexpr void for_each(collectx::chunks run, F&& f) const {
    if (owned == 1) return f(collectx::chunks{total / mine * first + run.first, run.count});
    for (int at = run.first, left = run.count; left > 0;) {
      int const part = at % mine, length = left < mine - part ? left : mine - part;
      f(collectx::chunks{at / mine * all + first + part, length});
      at += length;
      left -= length;
    }
  }
};

/// Rank r is called r - by; where blocks have owners they go with their owners.
struct shifted {
  int my_rank, ranks, total, owned, by;
  constexpr int rank() const { return modulo(my_rank - by, ranks); }
  constexpr int size() const { return ranks; }
  constexpr int peer(int p) const { return modulo(p + by, ranks); }
  constexpr int lane() const { return 0; }
  constexpr int chunks() const { return total; }
  constexpr int blocks() const { return owned; }
  template <class F>
  constexpr void for_each(collectx::chunks run, F&& f) const {
    f(owned == ranks && ranks > 1 ? collectx::chunks{run.first + by * (total / ranks), run.count} : run);
  }
};

/// The film backwards: who sent receives, who received (or reduced) sends.
template <class Me>
struct backwards {
  Me& outer;
  constexpr int rank() const { return outer.rank(); }
  constexpr int size() const { return outer.size(); }
  constexpr int chunks() const { return outer.chunks(); }
  constexpr int blocks() const { return outer.blocks(); }
  template <Runs R>
  constexpr void send(int peer, R const& runs, int lane = 0) {
    outer.recv(peer, runs, lane);
  }
  template <Runs R>
  constexpr void recv(int peer, R const& runs, int lane = 0) {
    outer.send(peer, runs, lane);
  }
  template <Runs R>
  constexpr void reduce(int peer, R const& runs, int lane = 0) {
    outer.send(peer, runs, lane);
  }
};

constexpr int larger(int a, int b) { return a > b ? a : b; }

/// What all schedules of two schedules have in common.
template <class A, class B>
struct both {
  static constexpr bool keeps_rank_order = collectx::keeps_rank_order<A>() && collectx::keeps_rank_order<B>();
  static constexpr bool agrees_bitwise = collectx::agrees_bitwise<A>() && collectx::agrees_bitwise<B>();
  A a{};
  B b{};
  constexpr bool admits(int n) const { return collectx::admits(a, n) && collectx::admits(b, n); }
  friend constexpr bool operator==(both const& x, both const& y) requires comparable_schedule<A> && comparable_schedule<B> {
    return same_schedule(x.a, y.a) && same_schedule(x.b, y.b);
  }
};

}  // namespace detail

/// A, then B.
template <class A, class B>
struct then : detail::both<A, B> {
  using detail::both<A, B>::a;
  using detail::both<A, B>::b;
  constexpr int lanes() const { return detail::larger(lanes_of(a), lanes_of(b)); }
  constexpr int steps(int n) const { return a.steps(n) + b.steps(n); }
  constexpr int parts(int n) const { return detail::lcm(a.parts(n), b.parts(n)); }
  template <RankContext M>
  constexpr void step(int k, M& me) const {
    int const n = me.size(), first = a.steps(n);
    auto view = detail::coarsen(me, parts(n) / (k < first ? a.parts(n) : b.parts(n)));
    if (k < first)
      a.step(k, view);
    else
      b.step(k - first, view);
  }
  friend constexpr bool operator==(then const&, then const&) = default;
};

/// The film of S backwards: an all-gather is a reversed reduce-scatter, a broadcast a reversed reduce. Nothing is combined.
template <class S>
struct reversed {
  static constexpr bool keeps_rank_order = true;
  static constexpr bool agrees_bitwise = true;
  S forwards{};

  constexpr bool admits(int n) const { return collectx::admits(forwards, n); }
  constexpr int lanes() const { return lanes_of(forwards); }
  constexpr int steps(int n) const { return forwards.steps(n); }
  constexpr int parts(int n) const { return forwards.parts(n); }
  template <RankContext M>
  constexpr void step(int k, M& me) const {
    detail::backwards<M> view{me};
    forwards.step(steps(me.size()) - 1 - k, view);
  }
  friend constexpr bool operator==(reversed const& x, reversed const& y) requires comparable_schedule<S> {
    return same_schedule(x.forwards, y.forwards);
  }
};

/// B starts when A's first chunk is ready: A declares `first_ready(n)`, the first step at which B may begin; the proof checks it.
template <class A, class B>
struct staggered : detail::both<A, B> {
  static_assert(
      requires(A const& a) { a.first_ready(2); },
      "collectx: staggered<A, B> needs A to say when its first chunk is ready: constexpr int first_ready(int n) const");
  using detail::both<A, B>::a;
  using detail::both<A, B>::b;
  constexpr int lanes() const { return lanes_of(a) + lanes_of(b); }
  constexpr int steps(int n) const { return detail::larger(a.steps(n), a.first_ready(n) + b.steps(n)); }
  constexpr int parts(int n) const { return detail::lcm(a.parts(n), b.parts(n)); }
  template <RankContext M>
  constexpr void step(int k, M& me) const {
    int const n = me.size(), start = a.first_ready(n), whole = me.chunks();
    if (k < a.steps(n)) {
      auto view = detail::coarsen(me, parts(n) / a.parts(n));
      a.step(k, view);
    }
    if (k >= start && k - start < b.steps(n)) {
      detail::mapped<M, on_lane> view{me,
                                      {{{me.rank(), n}, whole / (parts(n) / b.parts(n)), me.blocks(), parts(n) / b.parts(n)}, lanes_of(a)}};
      b.step(k - start, view);
    }
  }
  friend constexpr bool operator==(staggered const&, staggered const&) = default;

 private:
  struct on_lane : detail::coarser {
    int lane_;
    constexpr int lane() const { return lane_; }
  };
};

/// A and B at the same time on disjoint chunks, each on lanes of its own: double trees, rings both ways.
template <class A, class B>
struct beside : detail::both<A, B> {
  using detail::both<A, B>::a;
  using detail::both<A, B>::b;
  constexpr int lanes() const { return lanes_of(a) + lanes_of(b); }
  constexpr int steps(int n) const { return detail::larger(a.steps(n), b.steps(n)); }
  constexpr int parts(int n) const { return a.parts(n) + b.parts(n); }
  template <RankContext M>
  constexpr void step(int k, M& me) const {
    int const n = me.size(), all = parts(n);
    if (k < a.steps(n)) one(a, k, me, 0, a.parts(n), all, 0);
    if (k < b.steps(n)) one(b, k, me, a.parts(n), b.parts(n), all, lanes_of(a));
  }
  friend constexpr bool operator==(beside const&, beside const&) = default;

 private:
  template <class S, class M>
  static constexpr void one(S const& s, int k, M& me, int first, int mine, int all, int lane) {
    // With one block the names lie one lane behind the other, so first counts in parts of the whole.
    detail::mapped<M, detail::lane_of> view{me, {{me.rank(), me.size()}, me.chunks() / all * mine, me.blocks(), first, mine, all, lane}};
    s.step(k, view);
  }
};

/// S among ranks that are called rank - by: its rank 0 is rank `by`.
template <class S>
struct renumbered {
  static constexpr bool keeps_rank_order = collectx::keeps_rank_order<S>();  // at by == 0; elsewhere operands wrap around
  static constexpr bool agrees_bitwise = collectx::agrees_bitwise<S>();
  S original{};
  int by = 0;

  constexpr bool admits(int n) const { return collectx::admits(original, n); }
  constexpr int lanes() const { return lanes_of(original); }
  constexpr int steps(int n) const { return original.steps(n); }
  constexpr int parts(int n) const { return original.parts(n); }
  template <RankContext M>
  constexpr void step(int k, M& me) const {
    detail::mapped<M, detail::shifted> view{me, {me.rank(), me.size(), me.chunks(), me.blocks(), by}};
    original.step(k, view);
  }
  friend constexpr bool operator==(renumbered const& x, renumbered const& y) requires comparable_schedule<S> {
    return same_schedule(x.original, y.original) && x.by == y.by;
  }
};

/// `renumbered` with the shift in the type.
template <class S, int By>
struct rotated : renumbered<S> {
  constexpr rotated() : renumbered<S>{S{}, By} {}
  static constexpr bool keeps_rank_order = By == 0 && collectx::keeps_rank_order<S>();
  friend constexpr bool operator==(rotated const&, rotated const&) = default;
};

/// S inside a subgroup, on some of the chunks. `Part` says which: size(n) members, index(rank, n) or -1 outside, rank(index, n),
/// chunks(total, n) names inside, and for_each(run, total, n, f) the outer runs of an inner one.
template <class S, class Part>
struct within {
  static constexpr bool keeps_rank_order = collectx::keeps_rank_order<S>();
  static constexpr bool agrees_bitwise = collectx::agrees_bitwise<S>();
  S inner{};
  Part part{};

  constexpr bool admits(int n) const { return collectx::admits(inner, part.size(n)); }
  constexpr int lanes() const { return lanes_of(inner); }
  constexpr int steps(int n) const { return inner.steps(part.size(n)); }
  constexpr int parts(int n) const { return inner.parts(part.size(n)); }
  template <RankContext M>
  constexpr void step(int k, M& me) const {
    int const index = part.index(me.rank(), me.size());
    if (index < 0) return;
    detail::mapped<M, members> view{me, {part, index, me.size(), me.chunks()}};
    inner.step(k, view);
  }
  friend constexpr bool operator==(within const& x, within const& y) requires comparable_schedule<S> && comparable_schedule<Part> {
    return same_schedule(x.inner, y.inner) && same_schedule(x.part, y.part);
  }

 private:
  struct members {
    Part const& part;
    int index, ranks, total;
    constexpr int rank() const { return index; }
    constexpr int size() const { return part.size(ranks); }
    constexpr int peer(int p) const { return part.rank(p, ranks); }
    constexpr int lane() const { return 0; }
    constexpr int chunks() const { return part.chunks(total, ranks); }
    constexpr int blocks() const { return 1; }
    template <class F>
    constexpr void for_each(collectx::chunks run, F&& f) const {
      part.for_each(run, total, ranks, f);
    }
  };
};

}  // namespace v0
}  // namespace collectx
