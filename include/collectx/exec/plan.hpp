// SPDX-License-Identifier: Apache-2.0
/// What one rank does for a schedule, as a list of operations. Does not depend on counts, buffers, element types or operations.
///
/// An operation takes a message from each of its `in` channels, folds, and fills a message on each of its `out` channels. Each segment is
/// a run of chunks with its sources and targets. A message holds its chunks in ascending order, so going through the segments in order
/// goes through every message in order: a place in a slot is the sum of what came before.
#pragma once

#include "collectx/exec/visit.hpp"

namespace collectx {
inline namespace v0 {
namespace exec {

/// Where a chunk is. `local` stands for all memory of the rank until the pass `place` decides.
enum class place : unsigned char { local, input, output, scratch, slot };

/// One operand of a fold, in order. `left`: it stands on the left of what was folded before it.
struct source {
  exec::place from = place::local;
  bool left = false;
  int in = 0;  ///< which of the operation's in channels, for slots
};
/// One destination. `finish`: this is the rank's result, so what an operation does at the end (avg divides) is due.
struct target {
  exec::place to = place::local;
  bool finish = false;
  int out = 0;
};

struct segment {
  chunks run;
  list<source> sources;
  list<target> targets;
};

struct endpoint {
  int peer = 0;
  int lane = 0;
  friend constexpr bool operator==(endpoint, endpoint) = default;
};

/// Whether a message may be sent from the memory that it repeats: if this rank does not write there again in the same call, or if only
/// its result goes there, which is another memory out of place.
enum class lending : unsigned char { never, out_of_place, always };

struct operation {
  int step = 0;
  list<endpoint> in;
  list<endpoint> out;
  list<segment> segments;
  int strand = 0;   ///< operations of a strand run in order; strands run pieces ahead of one another
  list<int> after;  ///< operations of other strands that must have done the same piece before
  lending lends = lending::never;
};

struct plan {
  int rank = 0;
  shape form;
  int steps = 0;
  int strands = 1;
  int largest_message = 1;  ///< chunks of the largest message of any rank
  bool uses_scratch = false;
  list<operation> operations;
};

namespace detail {

constexpr bool overlap(chunks a, chunks b) { return a.first < b.first + b.count && b.first < a.first + a.count; }
constexpr bool overlap(list<chunks> const& a, list<chunks> const& b) {
  for (chunks x : a)
    for (chunks y : b)
      if (overlap(x, y)) return true;
  return false;
}
constexpr bool contains(list<chunks> const& runs, int name) {
  for (chunks run : runs)
    if (name >= run.first && name < run.first + run.count) return true;
  return false;
}
constexpr bool contains(list<endpoint> const& ends, endpoint end) {
  for (endpoint e : ends)
    if (e == end) return true;
  return false;
}

/// Where any of the runs begins or ends, ascending.
constexpr void add_cuts(list<int>& cuts, list<chunks> const& runs) {
  for (chunks run : runs)
    for (int cut : {run.first, run.first + run.count}) {
      int at = 0;
      while (at < cuts.size() && cuts[at] < cut) ++at;
      if (at < cuts.size() && cuts[at] == cut) continue;
      cuts.push(cut);
      for (int i = cuts.size() - 1; i > at; --i) std::swap(cuts[i], cuts[i - 1]);
    }
}

/// Receives of one step that meet in a chunk are one operation, since they fold in the order of ranks.
constexpr operation take(list<move> const& moves, int rank, int step) {
  operation o;
  o.step = step;
  list<int> cuts;
  for (move const& m : moves) {
    o.in.push({m.peer, m.lane});
    add_cuts(cuts, m.runs);
  }
  for (int i = 0; i + 1 < cuts.size(); ++i) {
    segment s{{cuts[i], cuts[i + 1] - cuts[i]}, {}, {}};
    bool mine = false;
    auto const add_mine = [&] {
      if (!mine) s.sources.push({place::local, false, 0});
      mine = true;
    };
    for (int m = 0; m < moves.size(); ++m) {
      if (!contains(moves[m].runs, cuts[i])) continue;
      if (moves[m].kind == kind::recv) mine = true;
      if (moves[m].peer > rank) add_mine();
      s.sources.push({place::slot, false, m});
    }
    if (s.sources.empty()) continue;
    add_mine();
    s.targets.push({place::local, false, 0});
    o.segments.push(std::move(s));
  }
  return o;
}

/// Receives that fold together, in an order in which every channel gives its messages as they were sent.
constexpr list<list<move>> groups_of(list<move>&& moves) {
  list<int> group(moves.size());
  for (int i = 0; i < moves.size(); ++i) {
    group[i] = i;
    for (int j = 0; j < i; ++j) {
      if (moves[i].kind != kind::reduce || moves[j].kind != kind::reduce || group[j] == group[i]) continue;
      if (!overlap(moves[i].runs, moves[j].runs)) continue;
      int const old = group[i], joined = group[j];
      for (int& g : group)
        if (g == old) g = joined;
    }
  }
  auto const before = [&](int a, int b) {  // some channel gives a message of group a before one of group b
    for (int i = 0; i < moves.size(); ++i)
      for (int j = i + 1; j < moves.size(); ++j)
        if (group[i] == a && group[j] == b && moves[i].peer == moves[j].peer && moves[i].lane == moves[j].lane) return true;
    return false;
  };
  list<list<move>> out;
  list<int> left;
  for (int i = 0; i < moves.size(); ++i)
    if (group[i] == i) left.push(i);
  bool const reordered = left.size() < moves.size();
  while (!left.empty()) {
    int chosen = 0;
    for (int i = 0; i < left.size(); ++i) {
      bool free = true;
      for (int j = 0; j < left.size() && reordered; ++j)
        if (i != j && before(left[j], left[i]) && !before(left[i], left[j])) free = false;
      if (free) {
        chosen = i;
        break;
      }
    }
    list<move> together;
    for (int i = 0; i < moves.size(); ++i) {
      if (group[i] != left[chosen]) continue;
      int at = together.size();
      together.push(moves[i]);
      for (; at > 0 && together[at].peer < together[at - 1].peer; --at) std::swap(together[at], together[at - 1]);
    }
    out.push(std::move(together));
    left.erase(chosen);
  }
  return out;
}

/// Writes down what it hears as operations.
class recorder final : public listener {
 public:
  constexpr explicit recorder(plan& p) : plan_(p) {}
  constexpr void begin_step(int k) { step_ = k; }
  constexpr void hear(move&& m) override {
    if (m.kind != kind::send) {
      receives_.push(std::move(m));
      return;
    }
    operation o;
    o.step = step_;
    o.out.push({m.peer, m.lane});
    for (chunks run : m.runs) {
      segment s{run, {}, {}};
      s.sources.push({place::local, false, 0});
      s.targets.push({place::slot, false, 0});
      o.segments.push(std::move(s));
    }
    plan_.operations.push(std::move(o));
  }
  constexpr void end_step() {
    if (receives_.size() == 1) {
      plan_.operations.push(take(receives_, plan_.rank, step_));
    } else if (!receives_.empty()) {
      for (list<move> const& together : groups_of(std::move(receives_))) plan_.operations.push(take(together, plan_.rank, step_));
    }
    receives_.clear();
  }

 private:
  plan& plan_;
  int step_ = 0;
  list<move> receives_;
};

/// Measures what it hears of.
class sizer final : public listener {
 public:
  constexpr void hear(move&& m) override { largest = collectx::detail::larger(largest, m.chunk_count()); }
  int largest = 1;
};

}  // namespace detail

/// The moves of one rank, unfused, in memory not yet placed: of each step its sends, then its receives.
template <Schedule S, Collective C>
constexpr plan record(S const& schedule, C const& collective, int n, int rank) {
  plan p;
  p.rank = rank;
  p.form = shape_of(schedule, collective, n);
  p.steps = schedule.steps(n);
  detail::recorder all(p);
  for (int k = 0; k < p.steps; ++k) {
    all.begin_step(k);
    for (side wanted : {side::sends, side::receives}) visit_moves(schedule, p.form, rank, k, wanted, all);
    all.end_step();
  }
  return p;
}

/// The chunks of the largest message of any rank: what a piece is cut by, so all ranks must find the same.
template <Schedule S>
constexpr int largest_message(S const& schedule, shape const& form) {
  detail::sizer all;
  for (int k = 0; k < schedule.steps(form.size); ++k)
    for (int r = 0; r < form.size; ++r) visit_moves(schedule, form, r, k, side::sends, all);
  return all.largest;
}

}  // namespace exec
}  // namespace v0
}  // namespace collectx
