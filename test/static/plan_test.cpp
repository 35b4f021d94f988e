// SPDX-License-Identifier: Apache-2.0
#include "collectx/exec/plan.hpp"

#include "collectx/algo/direct.hpp"
#include "collectx/algo/ring.hpp"

namespace plan_test {

namespace cx = collectx;
using cx::exec::endpoint;
using cx::exec::operation;
using cx::exec::place;
using cx::exec::plan;

constexpr bool is_send(operation const& o, int step, int peer, cx::chunks run) {
  return o.step == step && o.in.empty() && o.out.size() == 1 && o.out[0] == endpoint{peer, 0} && o.segments.size() == 1 &&
         o.segments[0].run == run && o.segments[0].sources.size() == 1 && o.segments[0].sources[0].from == place::local &&
         o.segments[0].targets.size() == 1 && o.segments[0].targets[0].to == place::slot;
}
constexpr bool is_receive(operation const& o, int step, int peer, cx::chunks run, int sources) {
  return o.step == step && o.out.empty() && o.in.size() == 1 && o.in[0] == endpoint{peer, 0} && o.segments.size() == 1 &&
         o.segments[0].run == run && o.segments[0].sources.size() == sources && o.segments[0].targets.size() == 1 &&
         o.segments[0].targets[0].to == place::local;
}

// Of each step the sends, then the receives, also where the film runs backwards.
constexpr bool records_a_ring() {
  plan const p = cx::exec::record(cx::algo::ring_all_reduce{}, cx::all_reduce{}, 3, 1);
  if (p.rank != 1 || p.steps != 4 || p.operations.size() != 8 || p.form != cx::exec::shape{3, 1, 3, 1}) return false;
  return is_send(p.operations[0], 0, 2, {0, 1}) && is_receive(p.operations[1], 0, 0, {2, 1}, 2) && is_send(p.operations[2], 1, 2, {2, 1}) &&
         is_receive(p.operations[3], 1, 0, {1, 1}, 2) && is_send(p.operations[4], 2, 0, {1, 1}) &&
         is_receive(p.operations[5], 2, 2, {2, 1}, 1) && is_send(p.operations[6], 3, 0, {2, 1}) &&
         is_receive(p.operations[7], 3, 2, {0, 1}, 1);
}
static_assert(records_a_ring());

// What meets in a chunk is folded at once, in ascending rank, mine at my own place.
constexpr bool folds_in_order() {
  plan const p = cx::exec::record(cx::algo::one_shot_all_reduce{}, cx::all_reduce{}, 4, 2);
  if (p.operations.size() != 4) return false;
  operation const& fold = p.operations[3];
  if (fold.in.size() != 3 || fold.segments.size() != 1 || fold.segments[0].sources.size() != 4) return false;
  int const peers[] = {0, 1, -1, 3};
  for (int i = 0; i < 4; ++i) {
    auto const& source = fold.segments[0].sources[i];
    int const peer = source.from == place::local ? -1 : fold.in[source.in].peer;
    if (peer != peers[i] || source.left) return false;
  }
  return true;
}
static_assert(folds_in_order());

// Receives that do not meet stay apart; those that meet in some chunks share those and keep the rest.
struct overlapping {
  constexpr int steps(int) const { return 1; }
  constexpr int parts(int) const { return 2; }
  template <cx::RankContext Me>
  constexpr void step(int, Me& me) const {
    if (me.rank() == 0) {
      me.reduce(3, cx::chunk(7));
      me.reduce(1, cx::chunks{0, 3});
      me.reduce(2, cx::chunks{2, 2});
    }
  }
};
constexpr bool groups_what_meets() {
  plan const p = cx::exec::record(overlapping{}, cx::all_reduce{}, 4, 0);
  if (p.operations.size() != 2 || p.operations[0].in.size() != 1 || p.operations[0].segments[0].run != cx::chunk(7)) return false;
  operation const& both = p.operations[1];
  return both.in.size() == 2 && both.segments.size() == 3 && both.segments[0].run == cx::chunks{0, 2} &&
         both.segments[0].sources.size() == 2 && both.segments[1].run == cx::chunk(2) && both.segments[1].sources.size() == 3 &&
         both.segments[2].run == cx::chunk(3) && both.segments[2].sources[1].in == 1;
}
static_assert(groups_what_meets());

// A message of one channel is never taken before one that was sent before it, whatever is grouped.
struct twice_from_one {
  constexpr int steps(int) const { return 1; }
  constexpr int parts(int) const { return 1; }
  template <cx::RankContext Me>
  constexpr void step(int, Me& me) const {
    if (me.rank() == 0) {
      me.reduce(2, cx::chunk(1));
      me.reduce(1, cx::chunk(0));
      me.reduce(1, cx::chunk(1));
    }
  }
};
constexpr bool keeps_channels_in_order() {
  plan const p = cx::exec::record(twice_from_one{}, cx::all_reduce{}, 3, 0);
  return p.operations.size() == 2 && p.operations[0].in.size() == 1 && p.operations[0].in[0].peer == 1 &&
         p.operations[0].segments[0].run == cx::chunk(0) && p.operations[1].in.size() == 2;
}
static_assert(keeps_channels_in_order());

// A rank that takes no part has nothing to do.
static_assert(cx::exec::record(overlapping{}, cx::all_reduce{}, 4, 2).operations.empty());

// What a piece is cut by is the same on all ranks.
static_assert(cx::exec::largest_message(cx::algo::ring_all_reduce{}, cx::exec::shape{4, 1, 4, 1}) == 1);
static_assert(cx::exec::largest_message(cx::algo::one_shot_all_reduce{}, cx::exec::shape{4, 1, 4, 1}) == 4);
static_assert(cx::exec::largest_message(cx::algo::halving_reduce_scatter{}, cx::exec::shape{8, 1, 8, 8}) == 4);
static_assert(cx::exec::largest_message(cx::algo::ring_all_reduce{}, cx::exec::shape{1, 1, 1, 1}) == 1);

}  // namespace plan_test
