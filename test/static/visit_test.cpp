// SPDX-License-Identifier: Apache-2.0
#include "collectx/exec/visit.hpp"

#include "collectx/algo/ring.hpp"

namespace visit_test {

namespace cx = collectx;
using cx::exec::kind;
using cx::exec::side;

static_assert(cx::exec::shape_of(cx::algo::ring_reduce_scatter{}, cx::reduce_scatter{}, 5) == cx::exec::shape{5, 1, 5, 5});
static_assert(cx::exec::shape_of(cx::algo::ring_all_reduce{}, cx::all_reduce{}, 5) == cx::exec::shape{5, 1, 5, 1});
static_assert(cx::exec::shape_of(cx::algo::chain_reduce{}, cx::reduce{}, 5) == cx::exec::shape{5, 1, 1, 1});
static_assert(cx::exec::shape{4, 3, 12, 4}.per_block() == 3 && cx::exec::shape{4, 3, 12, 4}.names({2, 1}) == cx::chunks{6, 3});

/// The given runs, as a move names them.
struct runs {
  cx::chunks first, second;
  template <class F>
  constexpr void for_each(F&& f) const {
    f(first);
    f(second);
  }
};
template <class R>
struct names_them {
  R what;
  constexpr int steps(int) const { return 1; }
  constexpr int parts(int) const { return 4; }
  template <cx::RankContext Me>
  constexpr void step(int, Me& me) const {
    me.recv(1, what, 2);
    me.send(1, what, 2);
    me.reduce(0, what);
  }
};
template <side Side, class R>
constexpr cx::exec::list<cx::exec::move> moves(R const& what) {
  cx::exec::list<cx::exec::move> all;
  names_them<R> const schedule{what};
  auto const form = cx::exec::shape_of(schedule, cx::all_reduce{}, 2);
  cx::exec::visit_moves<Side>(schedule, form, 0, 0, [&](cx::exec::move&& m) { all.push(std::move(m)); });
  return all;
}

// Sends and receives are asked for apart, each in the schedule's order, with peer and lane.
constexpr bool sides_are_apart() {
  auto const sends = moves<side::sends>(cx::chunk(3));
  auto const receives = moves<side::receives>(cx::chunk(3));
  return sends.size() == 1 && sends[0].kind == kind::send && sends[0].peer == 1 && sends[0].lane == 2 && receives.size() == 2 &&
         receives[0].kind == kind::recv && receives[0].lane == 2 && receives[1].kind == kind::reduce && receives[1].peer == 0 &&
         receives[1].lane == 0 && receives[1].chunk_count() == 1;
}
static_assert(sides_are_apart());

// Runs come flat, ascending, neighbours joined, whatever order the schedule named them in; of 8 chunks.
constexpr bool becomes(runs what, cx::chunks first, cx::chunks second, bool repeats = false) {
  auto const all = moves<side::sends>(what);
  int const count = second.count > 0 ? 2 : 1;
  return all.size() == 1 && all[0].runs.size() == count && all[0].runs[0] == first && (count == 1 || all[0].runs[1] == second) &&
         all[0].repeats == repeats;
}
static_assert(becomes({{1, 2}, {5, 1}}, {1, 2}, {5, 1}) && becomes({{5, 1}, {1, 2}}, {1, 2}, {5, 1}));
static_assert(becomes({{3, 2}, {1, 2}}, {1, 4}, {0, 0}) && becomes({{6, 4}, {0, 0}}, {0, 2}, {6, 2}));
static_assert(becomes({{-1, 2}, {1, 6}}, {0, 8}, {0, 0}) && becomes({{1, 2}, {-3, -2}}, {1, 2}, {0, 0}));
static_assert(becomes({{1, 2}, {2, 1}}, {1, 2}, {2, 1}, true));

// A move without chunks is no move.
static_assert(moves<side::sends>(runs{{1, 0}, {2, 0}}).empty() && moves<side::receives>(cx::chunks{0, 0}).empty());

}  // namespace visit_test
