// SPDX-License-Identifier: Apache-2.0
/// A schedule is a function from (rank, step) to a set of moves. Everything else is a way of looking at one.
///
/// | executor | `me.send(p, c)`                       | `me.reduce(p, c)`                     | order                                    |
/// |----------|---------------------------------------|---------------------------------------|------------------------------------------|
/// | verify   | copy c's contributors to p's mailbox  | union with the mailbox, common: flaw  | all ranks step by step; then the plans   |
/// | plan     | record; fuse with what made c         | record; fuse with those beside it     | of each step the sends, then the receives |
/// | run      | combine into p's slot, publish        | combine from the slot, release        | as the plan says                         |
///
/// A step is a *set*: all sends of a step read the state before it, all receives take effect after it. In program order the film run
/// backwards ("receive, then send") would deadlock every ring. An executor asks for the sends of a step first, then for its receives,
/// so `step` is called several times for one step and must be a pure function. Contributions to one chunk in one step combine in
/// ascending rank, mine at my own place (the lower rank is the left operand): the order of operands is defined, never accidental.
#pragma once

#include "collectx/chunk.hpp"

#include <concepts>
#include <type_traits>

namespace collectx {
inline namespace v0 {

/// Looks at runs of chunks. Not a lambda in the concept: nvcc 13 would then find no type that satisfies it.
struct run_visitor_archetype {
  constexpr void operator()(chunks) const {}
};

/// A list of runs of chunks, made on the fly: `for_each(f)` calls `f(chunks)` for each run, the same list at both ends of a move.
template <class R>
concept Runs = requires(R const& runs, run_visitor_archetype const& f) {
  runs.for_each(f);
};

/// A RankContext is the rank a step is asked about, and takes the moves of that rank.
///
/// 1. `rank()` of `size()`; `chunks()` names exist, 0 .. chunks()-1; they divide `blocks()` blocks evenly. Blocks have owners where a
///    collective gives each rank its own (blocks() == size()); where every rank ends with everything there is one block.
/// 2. `send(p, runs)` gives p these chunks as they are before the step; `recv(p, runs)` takes p's in place of mine;
///    `reduce(p, runs)` combines p's with mine. A move without chunks is no move, at both ends.
/// 3. All chunks of one move are one message. Moves between one pair of ranks match in order, on each lane by itself.
///
/// Not required: that anything happens, now or ever.
template <class M>
concept RankContext = requires(M& me, int peer, collectx::chunks runs, int lane) {
  { me.rank() } -> std::convertible_to<int>;
  { me.size() } -> std::convertible_to<int>;
  { me.chunks() } -> std::convertible_to<int>;
  { me.blocks() } -> std::convertible_to<int>;
  me.send(peer, runs);
  me.recv(peer, runs);
  me.reduce(peer, runs);
  me.send(peer, runs, lane);
  me.recv(peer, runs, lane);
  me.reduce(peer, runs, lane);
};

/// The smallest RankContext.
struct rank_context_archetype {
  constexpr int rank() const { return 0; }
  constexpr int size() const { return 1; }
  constexpr int chunks() const { return 1; }
  constexpr int blocks() const { return 1; }
  template <Runs R>
  constexpr void send(int, R const&, int = 0) {}
  template <Runs R>
  constexpr void recv(int, R const&, int = 0) {}
  template <Runs R>
  constexpr void reduce(int, R const&, int = 0) {}
};

/// A Schedule says for each rank and step which chunks go where.
///
/// 1. `steps(n)` steps among n ranks; `parts(n)`: into how many chunks it cuts each share of the collective; chunk = share * parts + part.
/// 2. `step(k, me)` is pure, for k in 0 .. steps(n)-1.
/// 3. It may declare `admits(n)` (default: any n >= 1), `lanes()` (default 1), `keeps_rank_order` and `agrees_bitwise` (static
///    constexpr bool, proved by tests), `first_ready(n)` for `staggered`, and `name`.
///
/// Not required: knowledge of element types, buffers, roots, counts, or of who executes it. A schedule with state has `==`.
template <class S>
concept Schedule = requires(S const& schedule, int n, rank_context_archetype& me) {
  { schedule.steps(n) } -> std::convertible_to<int>;
  { schedule.parts(n) } -> std::convertible_to<int>;
  schedule.step(n, me);
};

/// A context that derives from this lets a step say `next(me)` in any namespace.
struct context_base {};

template <RankContext M>
constexpr int next(M const& me) {
  return (me.rank() + 1) % me.size();
}
template <RankContext M>
constexpr int prev(M const& me) {
  return (me.rank() + me.size() - 1) % me.size();
}
template <RankContext M>
constexpr chunks everything(M const& me) {
  return {0, me.chunks()};
}

/// At which sizes a schedule is defined.
template <class S>
constexpr bool admits(S const& schedule, int n) {
  if constexpr (requires { schedule.admits(n); })
    return n >= 1 && schedule.admits(n);
  else
    return n >= 1;
}

/// How many lanes a schedule speaks on.
template <class S>
constexpr int lanes_of(S const& schedule) {
  if constexpr (requires { schedule.lanes(); })
    return schedule.lanes();
  else
    return 1;
}

template <class S>
concept declares_order = requires {
  { S::keeps_rank_order } -> std::convertible_to<bool>;
};
template <class S>
concept declares_agreement = requires {
  { S::agrees_bitwise } -> std::convertible_to<bool>;
};

/// The declarations of a schedule; one that declares nothing promises nothing.
template <class S>
constexpr bool keeps_rank_order() {
  if constexpr (declares_order<S>)
    return S::keeps_rank_order;
  else
    return false;
}
template <class S>
constexpr bool agrees_bitwise() {
  if constexpr (declares_agreement<S>)
    return S::agrees_bitwise;
  else
    return false;
}

/// Whether two schedules of one type are the same: those without state are, the others say so by ==.
template <class S>
concept comparable_schedule = std::is_empty_v<S> || std::equality_comparable<S>;
template <comparable_schedule S>
constexpr bool same_schedule([[maybe_unused]] S const& a, [[maybe_unused]] S const& b) {
  if constexpr (std::is_empty_v<S>)
    return true;
  else
    return a == b;
}

namespace detail {

/// floor(a mod n) for any sign of a.
constexpr int modulo(int a, int n) { return a >= 0 && a < n ? a : (a % n + n) % n; }
constexpr int gcd(int a, int b) { return b == 0 ? a : gcd(b, a % b); }
constexpr int lcm(int a, int b) { return a / gcd(a, b) * b; }
constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

/// The parts of a cyclic run that do not wrap: one, or two.
template <class F>
constexpr void unwrap(chunks run, int total, F&& f) {
  if (run.count <= 0 || total <= 0) return;
  int const first = modulo(run.first, total), room = total - first;
  if (run.count <= room) {
    f(chunks{first, run.count});
  } else {
    f(chunks{first, room});
    f(chunks{0, run.count - room});
  }
}

}  // namespace detail

}  // namespace v0
}  // namespace collectx
