// SPDX-License-Identifier: Apache-2.0
/// Asking a schedule for the moves of one rank in one step: what every way of looking at a schedule begins with.
#pragma once

#include "collectx/collective.hpp"
#include "collectx/exec/list.hpp"

namespace collectx {
inline namespace v0 {
namespace exec {

enum class kind : unsigned char { send, recv, reduce };

/// Which of a step's moves are asked for: a step is a set, so its sends come first, then its receives.
enum class side : unsigned char { sends, receives };

/// The shape of one collective among n ranks under one schedule: how many chunks there are and whose they are.
struct shape {
  int size = 0;
  int parts = 1;
  int chunks = 0;
  int blocks = 1;

  constexpr int per_block() const { return chunks / blocks; }
  /// The names of the chunks of a run of blocks.
  constexpr collectx::chunks names(collectx::chunks of_blocks) const {
    return {of_blocks.first * per_block(), of_blocks.count * per_block()};
  }
  friend constexpr bool operator==(shape, shape) = default;
};

template <Schedule S, Collective C>
constexpr shape shape_of(S const& schedule, C const& collective, int n) {
  int const parts = schedule.parts(n);
  return {n, parts, collective.shares(n) * parts, collective.blocks(n)};
}

/// A move as the executors see it: its runs flat, in ascending order, neighbours joined. Both ends name the same set, so both ends lay
/// out the message alike, whatever order the schedule named it in.
struct move {
  exec::kind kind = kind::send;
  int peer = 0;
  int lane = 0;
  list<chunks> runs;
  bool repeats = false;  ///< names a chunk twice

  constexpr int chunk_count() const {
    int sum = 0;
    for (chunks run : runs) sum += run.count;
    return sum;
  }
};

namespace detail {

constexpr void sort_and_join(move& m) {
  for (int i = 1; i < m.runs.size(); ++i)
    for (int j = i; j > 0 && m.runs[j].first < m.runs[j - 1].first; --j) std::swap(m.runs[j], m.runs[j - 1]);
  int kept = 0;
  for (int i = 1; i < m.runs.size(); ++i) {
    chunks& last = m.runs[kept];
    if (m.runs[i].first < last.first + last.count) m.repeats = true;
    if (m.runs[i].first == last.first + last.count)
      last.count += m.runs[i].count;
    else
      m.runs[++kept] = m.runs[i];
  }
  m.runs.truncate(kept + 1);
}

}  // namespace detail

/// Who hears of moves.
class listener {
 public:
  virtual constexpr void hear(move&& m) = 0;

 protected:
  constexpr ~listener() = default;
};

/// The context in which executors look at a schedule: one type for all of them, so that a step is compiled once.
class visiting_context : public context_base {
 public:
  constexpr visiting_context(shape const& form, int rank, side wanted, listener& to)
      : form_(form), rank_(rank), wanted_(wanted), listener_(to) {}
  constexpr int rank() const { return rank_; }
  constexpr int size() const { return form_.size; }
  constexpr int chunks() const { return form_.chunks; }
  constexpr int blocks() const { return form_.blocks; }
  template <Runs R>
  constexpr void send(int peer, R const& runs, int lane = 0) {
    if (wanted_ == side::sends) tell(kind::send, peer, runs, lane);
  }
  template <Runs R>
  constexpr void recv(int peer, R const& runs, int lane = 0) {
    if (wanted_ == side::receives) tell(kind::recv, peer, runs, lane);
  }
  template <Runs R>
  constexpr void reduce(int peer, R const& runs, int lane = 0) {
    if (wanted_ == side::receives) tell(kind::reduce, peer, runs, lane);
  }

 private:
  template <class R>
  constexpr void tell(kind what, int peer, R const& runs, int lane) {
    move_ = {what, peer, lane, {}, false};
    runs.for_each([&](collectx::chunks run) { add(run); });
    if (move_.runs.size() > 1) detail::sort_and_join(move_);
    if (!move_.runs.empty()) listener_.hear(std::move(move_));
  }
  constexpr void add(collectx::chunks run) {
    collectx::detail::unwrap(run, form_.chunks, [&](collectx::chunks flat) { move_.runs.push(flat); });
  }

  shape const& form_;
  int rank_;
  side wanted_;
  listener& listener_;
  move move_;
};

/// Tells `to` of each send (or each receive) of `rank` in step k that is not empty, in the schedule's order.
template <Schedule S>
constexpr void visit_moves(S const& schedule, shape const& form, int rank, int k, side wanted, listener& to) {
  visiting_context me(form, rank, wanted, to);
  schedule.step(k, me);
}

namespace detail {
template <class F>
class calling final : public listener {
 public:
  constexpr explicit calling(F& f) : f_(f) {}
  constexpr void hear(move&& m) override { f_(std::move(m)); }

 private:
  F& f_;
};
}  // namespace detail

/// The same, calling `visit(move&&)`.
template <side Side, Schedule S, class F>
constexpr void visit_moves(S const& schedule, shape const& form, int rank, int k, F&& visit) {
  detail::calling<F> to(visit);
  visit_moves(schedule, form, rank, k, Side, to);
}

}  // namespace exec
}  // namespace v0
}  // namespace collectx
