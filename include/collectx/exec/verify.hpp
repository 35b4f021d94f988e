// SPDX-License-Identifier: Apache-2.0
/// The proof of a schedule: every rank's step, one step after another, with sets of contributors in place of data.
///
/// The same function runs in a static_assert (up to 16 ranks in any compiler's default limits) and at run time for any number.
#pragma once

#include "collectx/exec/finding.hpp"
#include "collectx/exec/provenance.hpp"
#include "collectx/exec/visit.hpp"

namespace collectx {
inline namespace v0 {
namespace exec {

/// What a proof finds out.
struct report {
  collectx::finding finding;
  collectx::cost cost;
  bool rank_order = false;  ///< operands always stand in the order of ranks
  bool agreement = false;   ///< all ranks that end with a chunk compute it by the same expression
};

namespace detail {

/// Gives each rank its own contributions; all else is empty.
template <Collective C>
constexpr void begin_with_inputs(C const& collective, shape const& form, provenance& values) {
  for (int r = 0; r < form.size; ++r) {
    chunks const names = form.names(collective.input(form.size, r));
    for (int c = names.first; c < names.first + names.count; ++c) values.contribute(r * form.chunks + c, r);
  }
}

/// Whether each rank has what it was promised, in order, and by one expression.
template <Collective C>
constexpr void judge_outputs(C const& collective, shape const& form, provenance const& values, report& out) {
  out.rank_order = out.agreement = true;
  for (int c = 0; c < form.chunks; ++c) {
    bool first = true;
    std::uint64_t expression = 0;
    for (int r = 0; r < form.size; ++r) {
      chunks const names = form.names(collective.output(form.size, r));
      if (c < names.first || c >= names.first + names.count) continue;
      int const row = r * form.chunks + c;
      bool const right = C::reduces ? values.complete(row, form.size)
                                    : values.only(row, collective.source(form.size, c / form.per_block()));
      if (!right && out.finding.ok()) out.finding = {flaw::contribution_missing, form.size, r, -1, out.cost.steps, c};
      if (!values.ordered(row)) out.rank_order = false;
      if (!first && values.expression(row) != expression) out.agreement = false;
      expression = values.expression(row);
      first = false;
    }
  }
}

/// The lock-step machine: all sends of a step read the state before it, then every rank takes what it is sent.
class lock_step {
 public:
  constexpr lock_step(shape const& form, provenance& values)
      : form_(form), values_(values), wire_(form.size, 0), mine_(form.size, form.chunks), newest_(form.size, -1),
        sent_(form.size * form.chunks, -1), taken_(form.chunks, -1), waiting_(form.chunks, -1) {}

  constexpr void begin() {
    posts_.clear();
    wire_.resize(0);
    for (int& newest : newest_) newest = -1;
  }

  constexpr finding post(int step, int rank, move&& m) {
    int const first = m.runs[0].first;
    if (m.peer < 0 || m.peer >= form_.size || m.peer == rank || m.repeats)
      return {m.repeats ? flaw::contribution_counted_twice : flaw::send_nobody_receives, form_.size, rank, m.peer, step, first};
    int const row = wire_.rows();
    wire_.resize(row + m.chunk_count());
    int at = row;
    for (chunks run : m.runs)
      for (int c = run.first; c < run.first + run.count; ++c, ++at) {
        if (values_.empty(rank * form_.chunks + c)) return {flaw::contribution_missing, form_.size, rank, m.peer, step, c};
        wire_.copy(at, values_, rank * form_.chunks + c);
        sent_[rank * form_.chunks + c] = step;
      }
    int const to = m.peer;
    posts_.push({std::move(m), rank, row, newest_[to], false});
    newest_[to] = posts_.size() - 1;
    return {};
  }

  /// One rank takes all that it asks for in this step.
  constexpr finding take(int step, int rank, list<move> const& asked) {
    arrivals_.clear();
    for (move const& m : asked) {
      // The oldest post from that peer on that lane: the chain runs from the newest.
      int found = -1;
      if (m.peer >= 0 && m.peer < form_.size)
        for (int p = newest_[rank]; p >= 0; p = posts_[p].older)
          if (!posts_[p].taken && posts_[p].from == m.peer && posts_[p].what.lane == m.lane) found = p;
      if (found < 0) return {flaw::recv_without_matching_send, form_.size, rank, m.peer, step, m.runs[0].first};
      if (m.repeats) return {flaw::contribution_counted_twice, form_.size, rank, m.peer, step, m.runs[0].first};
      if (int const c = first_missing(m, posts_[found].what); c >= 0)
        return {flaw::recv_without_matching_send, form_.size, rank, m.peer, step, c};
      if (int const c = first_missing(posts_[found].what, m); c >= 0)
        return {flaw::send_nobody_receives, form_.size, m.peer, rank, step, c};
      posts_[found].taken = true;
      arrivals_.push({m.kind, found});
    }
    for (int i = 1; i < arrivals_.size(); ++i)
      for (int j = i; j > 0 && peer(j) < peer(j - 1); --j) std::swap(arrivals_[j], arrivals_[j - 1]);
    return apply(step, rank);
  }

  /// Whatever nobody took.
  constexpr finding leftover(int step) const {
    for (posted const& p : posts_)
      if (!p.taken) return {flaw::send_nobody_receives, form_.size, p.from, p.what.peer, step, p.what.runs[0].first};
    return {};
  }

 private:
  struct posted {
    move what;
    int from = 0, row = 0, older = -1;
    bool taken = false;
  };
  struct arrival {
    exec::kind kind = kind::recv;
    int post = 0;
  };

  constexpr int peer(int index) const { return posts_[arrivals_[index].post].from; }

  /// The first chunk of a that b does not have, or -1.
  static constexpr int first_missing(move const& a, move const& b) {
    bool same = a.runs.size() == b.runs.size();
    for (int i = 0; same && i < a.runs.size(); ++i) same = a.runs[i] == b.runs[i];
    if (same) return -1;
    for (chunks run : a.runs)
      for (int c = run.first; c < run.first + run.count; ++c) {
        bool found = false;
        for (chunks other : b.runs) found = found || (c >= other.first && c < other.first + other.count);
        if (!found) return c;
      }
    return -1;
  }

  /// Folds in ascending rank, mine at my own place: mine waits aside until the first higher rank's contribution, or the end.
  constexpr finding apply(int step, int rank) {
    for (arrival const& a : arrivals_) {
      posted const& p = posts_[a.post];
      int row = p.row;
      for (chunks run : p.what.runs)
        for (int c = run.first; c < run.first + run.count; ++c, ++row) {
          int const mine = rank * form_.chunks + c;
          int const stamp = step * form_.size + rank;
          bool const again = taken_[c] == stamp;
          if (a.kind == kind::recv) {
            if (again || sent_[mine] == step)
              return {flaw::chunk_read_and_written_in_one_step, form_.size, rank, p.from, step, c};
            values_.copy(mine, wire_, row);
            taken_[c] = stamp;
            waiting_[c] = -2 - stamp;  // replaced: nothing may be combined into it in this step
            continue;
          }
          if (waiting_[c] == -2 - stamp) return {flaw::chunk_read_and_written_in_one_step, form_.size, rank, p.from, step, c};
          if (!again && values_.empty(mine)) return {flaw::contribution_missing, form_.size, rank, p.from, step, c};
          taken_[c] = stamp;
          bool right = true;
          if (!again && p.from < rank) {
            mine_.copy(c, values_, mine);
            values_.copy(mine, wire_, row);
            waiting_[c] = stamp;
            continue;
          }
          if (waiting_[c] == stamp && p.from > rank) {
            right = values_.combine(mine, values_, mine, mine_, c);
            waiting_[c] = -1;
          }
          if (!right || !values_.combine(mine, values_, mine, wire_, row))
            return {flaw::contribution_counted_twice, form_.size, rank, p.from, step, c};
        }
    }
    for (arrival const& a : arrivals_)
      for (chunks run : posts_[a.post].what.runs)
        for (int c = run.first; c < run.first + run.count; ++c)
          if (waiting_[c] == step * form_.size + rank) {
            int const mine = rank * form_.chunks + c;
            waiting_[c] = -1;
            if (!values_.combine(mine, values_, mine, mine_, c))
              return {flaw::contribution_counted_twice, form_.size, rank, posts_[a.post].from, step, c};
          }
    return {};
  }

  shape const& form_;
  provenance& values_;
  provenance wire_;           // what is under way in this step
  provenance mine_;           // a rank's own operands while lower ranks' are folded
  list<int> newest_;          // per receiver, its newest post
  list<int> sent_;            // per rank and chunk, the step in which it was last sent
  list<int> taken_, waiting_; // per chunk of the rank at work
  list<posted> posts_;
  list<arrival> arrivals_;
};

}  // namespace detail

/// Walks through a schedule for n ranks and reports the first flaw, the costs, and whether order and agreement hold.
template <Schedule S, Collective C>
constexpr report verify_schedule(S const& schedule, C const& collective, int n) {
  report out;
  if (!admits(schedule, n)) {
    out.finding = {flaw::schedule_not_admitted_at_size, n, -1, -1, -1, -1};
    return out;
  }
  shape const form = shape_of(schedule, collective, n);
  out.cost.steps = schedule.steps(n);
  out.cost.chunks = form.chunks;
  provenance values(n, n * form.chunks);
  detail::begin_with_inputs(collective, form, values);
  detail::lock_step machine(form, values);
  list<int> messages(n), sent(n);
  list<move> asked;
  for (int k = 0; k < out.cost.steps && out.finding.ok(); ++k) {
    machine.begin();
    for (int r = 0; r < n && out.finding.ok(); ++r)
      visit_moves<side::sends>(schedule, form, r, k, [&](move&& m) {
        if (!out.finding.ok()) return;
        ++messages[r];
        sent[r] += m.chunk_count();
        out.finding = machine.post(k, r, std::move(m));
      });
    for (int r = 0; r < n && out.finding.ok(); ++r) {
      asked.clear();
      visit_moves<side::receives>(schedule, form, r, k, [&](move&& m) { asked.push(std::move(m)); });
      if (!asked.empty()) out.finding = machine.take(k, r, asked);
    }
    if (out.finding.ok()) out.finding = machine.leftover(k);
  }
  for (int r = 0; r < n; ++r) {
    out.cost.messages = collectx::detail::larger(out.cost.messages, messages[r]);
    out.cost.chunks_sent = collectx::detail::larger(out.cost.chunks_sent, sent[r]);
  }
  if (out.finding.ok()) detail::judge_outputs(collective, form, values, out);
  return out;
}

}  // namespace exec
}  // namespace v0
}  // namespace collectx
