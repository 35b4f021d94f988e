// SPDX-License-Identifier: Apache-2.0
/// The proof of plans: every rank's operations in order, each rank as far as it gets, with channels of a bounded number of slots.
///
/// Operations of a rank run in order here, which is harder than the strands of the real thing: channels between sequential processes
/// reach the same end in whatever order the ranks are advanced, so one run decides.
#pragma once

#include "collectx/exec/passes.hpp"
#include "collectx/exec/verify.hpp"

namespace collectx {
inline namespace v0 {
namespace exec {

namespace detail {

/// All ranks' memory, all messages under way, and how far each rank is.
template <Collective C>
class plan_machine {
 public:
  constexpr plan_machine(C const& collective, list<plan> const& plans, int slots, bool in_place)
      : collective_(collective), plans_(plans), form_(plans[0].form), slots_(slots), in_place_(in_place),
        memory_(form_.size, form_.size * areas * form_.chunks), wire_(form_.size, 0), fold_(form_.size, 1), next_(form_.size, 0) {
    for (plan const& p : plans)
      for (operation const& o : p.operations)
        for (endpoint e : o.out) lanes_ = collectx::detail::larger(lanes_, e.lane + 1);
    channels_ = list<channel>(form_.size * form_.size * lanes_);
    for (int r = 0; r < form_.size; ++r) {
      chunks const names = form_.names(collective.input(form_.size, r));
      for (int c = names.first; c < names.first + names.count; ++c) {
        memory_.contribute(row(r, place::local, c), r);
        memory_.contribute(row(r, place::input, c), r);
      }
    }
  }

  constexpr finding run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int r = 0; r < form_.size; ++r)
        while (next_[r] < plans_[r].operations.size() && ready(r)) {
          if (finding const f = perform(r); !f.ok()) return f;
          ++next_[r];
          moved = true;
        }
    }
    for (int r = 0; r < form_.size; ++r)
      if (next_[r] < plans_[r].operations.size()) {
        operation const& o = plans_[r].operations[next_[r]];
        return {flaw::deadlock_with_slots, form_.size, r, waits_for(r), o.step, o.segments[0].run.first};
      }
    return {};
  }

  /// Judges the memory `where` that results are to be in.
  constexpr void judge(place where, report& out) const {
    provenance ends(form_.size, form_.size * form_.chunks);
    for (int r = 0; r < form_.size; ++r)
      for (int c = 0; c < form_.chunks; ++c) ends.copy(r * form_.chunks + c, memory_, row(r, where, c));
    judge_outputs(collective_, form_, ends, out);
  }

 private:
  static constexpr int areas = 4;  // local, input, output, scratch
  /// Messages as rows of the wire, [begin, end) each.
  struct channel {
    list<int> bounds;
    int taken = 0;
    constexpr int messages() const { return (bounds.size() - taken) / 2; }
    constexpr int head() const { return bounds[taken]; }
    constexpr int tail() const { return bounds[taken + 1]; }
    constexpr void push(int begin, int end) {
      bounds.push(begin);
      bounds.push(end);
    }
  };

  constexpr int row(int rank, place where, int c) const {
    if (in_place_ && where == place::output) where = place::input;
    return (rank * areas + static_cast<int>(where)) * form_.chunks + c;
  }
  constexpr channel& between(int from, int to, int lane) { return channels_[(from * form_.size + to) * lanes_ + lane]; }

  constexpr bool ready(int r) {
    operation const& o = plans_[r].operations[next_[r]];
    for (endpoint e : o.in)
      if (channel const& c = between(e.peer, r, e.lane); c.messages() == 0) return false;
    for (endpoint e : o.out)
      if (channel const& c = between(r, e.peer, e.lane); c.messages() >= slots_) return false;
    return true;
  }
  constexpr int waits_for(int r) {
    operation const& o = plans_[r].operations[next_[r]];
    for (endpoint e : o.in)
      if (channel const& c = between(e.peer, r, e.lane); c.messages() == 0) return e.peer;
    for (endpoint e : o.out)
      if (channel const& c = between(r, e.peer, e.lane); c.messages() >= slots_) return e.peer;
    return -1;
  }

  constexpr finding perform(int r) {
    operation const& o = plans_[r].operations[next_[r]];
    in_.clear();
    out_.clear();
    for (endpoint e : o.in) in_.push(between(e.peer, r, e.lane).head());
    for (endpoint e : o.out) {
      out_.push(names_.size());
      int length = 0;
      int const index = out_.size() - 1;
      for (segment const& s : o.segments)
        for (target const& x : s.targets)
          if (x.to == place::slot && x.out == index) length += s.run.count;
      names_.resize(names_.size() + length, -1);
      wire_.resize(names_.size());
      between(r, e.peer, e.lane).push(out_.back(), names_.size());
    }
    for (segment const& s : o.segments)
      for (int c = s.run.first; c < s.run.first + s.run.count; ++c)
        if (finding const f = fold(r, o, s, c); !f.ok()) return f;
    for (int i = 0; i < o.in.size(); ++i) {
      channel& c = between(o.in[i].peer, r, o.in[i].lane);
      if (in_[i] != c.tail()) return {flaw::plan_differs_from_schedule, form_.size, r, o.in[i].peer, o.step, o.segments[0].run.first};
      c.taken += 2;
    }
    return {};
  }

  constexpr finding fold(int r, operation const& o, segment const& s, int c) {
    bool first = true;
    for (source const& x : s.sources) {
      bool const slot = x.from == place::slot;
      provenance const& from = slot ? wire_ : memory_;
      if (slot && (in_[x.in] >= names_.size() || names_[in_[x.in]] != c))
        return {flaw::plan_differs_from_schedule, form_.size, r, o.in[x.in].peer, o.step, c};
      int const at = slot ? in_[x.in]++ : row(r, x.from, c);
      if (from.empty(at)) return {flaw::contribution_missing, form_.size, r, -1, o.step, c};
      if (first)
        fold_.copy(0, from, at);
      else if (!(x.left ? fold_.combine(0, from, at, fold_, 0) : fold_.combine(0, fold_, 0, from, at)))
        return {flaw::contribution_counted_twice, form_.size, r, -1, o.step, c};
      first = false;
    }
    if (first) return {flaw::contribution_missing, form_.size, r, -1, o.step, c};
    for (target const& x : s.targets) {
      if (x.to != place::slot) {
        memory_.copy(row(r, x.to, c), fold_, 0);
        continue;
      }
      names_[out_[x.out]] = c;
      wire_.copy(out_[x.out]++, fold_, 0);
    }
    return {};
  }

  C const& collective_;
  list<plan> const& plans_;
  shape form_;
  int slots_;
  int lanes_ = 1;
  bool in_place_;
  provenance memory_;
  provenance wire_;
  provenance fold_;
  list<int> names_;     // of each row of the wire
  list<int> in_, out_;  // rows that the operation at work has reached
  list<int> next_;
  list<channel> channels_;
};

}  // namespace detail

/// Runs the plans of all ranks with `slots` slots per channel. `results` is where they are: local before `place_chunks`, output after it.
template <Collective C>
constexpr report verify_plans(C const& collective, list<plan> const& plans, int slots, place results = place::output,
                              bool in_place = false) {
  report out;
  detail::plan_machine<C> machine(collective, plans, slots, in_place);
  out.finding = machine.run();
  if (out.finding.ok()) machine.judge(results, out);
  return out;
}

template <Schedule S, Collective C>
constexpr list<plan> make_plans(S const& schedule, C const& collective, int n) {
  list<plan> plans;
  for (int r = 0; r < n; ++r) plans.push(make_plan(schedule, collective, n, r));
  return plans;
}

/// The pass `bound`: the same with the fewest slots that do not stop the plans for ever (with `most` where no number up to it helps).
template <Collective C>
constexpr report verify_bounded(C const& collective, list<plan> const& plans, int most = 64) {
  for (int slots = 1;; ++slots) {
    report out = verify_plans(collective, plans, slots);
    out.cost.slots = slots;
    if (out.finding.what != flaw::deadlock_with_slots || slots == most) return out;
  }
}

}  // namespace exec
}  // namespace v0
}  // namespace collectx
