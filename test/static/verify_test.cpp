// SPDX-License-Identifier: Apache-2.0
#include "collectx/exec/verify.hpp"

#include "collectx/algo/ring.hpp"

namespace verify_test {

namespace cx = collectx;
using cx::finding;
using cx::flaw;

/// One step, written as a lambda.
template <class Step>
struct in_one_step {
  Step what;
  constexpr int steps(int) const { return 1; }
  constexpr int parts(int) const { return 1; }
  template <cx::RankContext Me>
  constexpr void step(int, Me& me) const {
    what(me);
  }
};
template <class Collective, class Step>
constexpr cx::exec::report of(Collective const& collective, int n, Step what) {
  return cx::exec::verify_schedule(in_one_step<Step>{what}, collective, n);
}
template <class Collective, class Step>
constexpr bool finds(finding const& expected, Collective const& collective, Step what) {
  return of(collective, expected.size, what).finding == expected;
}
constexpr cx::all_reduce all{};

// Each flaw, with rank, peer, step and chunk.
static_assert(finds({flaw::send_nobody_receives, 3, 1, 2, 0, 0}, all, [](auto& me) {
  if (me.rank() == 1) me.send(2, cx::everything(me));
}));
static_assert(finds({flaw::recv_without_matching_send, 3, 2, 1, 0, 1}, all, [](auto& me) {
  if (me.rank() == 2) me.reduce(1, cx::chunk(1));
}));
// A peer that is not there, and oneself.
static_assert(finds({flaw::send_nobody_receives, 2, 1, 2, 0, 0}, all, [](auto& me) {
  if (me.rank() == 1) me.send(2, cx::everything(me));
}));
static_assert(finds({flaw::send_nobody_receives, 2, 1, 1, 0, 0}, all, [](auto& me) {
  if (me.rank() == 1) me.send(1, cx::everything(me));
}));
static_assert(finds({flaw::recv_without_matching_send, 2, 1, -1, 0, 0}, all, [](auto& me) {
  if (me.rank() == 1) me.recv(-1, cx::everything(me));
}));
// On another lane.
static_assert(finds({flaw::recv_without_matching_send, 2, 1, 0, 0, 0}, all, [](auto& me) {
  if (me.rank() == 0) me.send(1, cx::everything(me), 1);
  if (me.rank() == 1) me.reduce(0, cx::everything(me), 0);
}));
// Less than is sent, more than is sent.
static_assert(finds({flaw::send_nobody_receives, 2, 0, 1, 0, 1}, all, [](auto& me) {
  if (me.rank() == 0) me.send(1, cx::everything(me));
  if (me.rank() == 1) me.reduce(0, cx::chunk(0));
}));
static_assert(finds({flaw::recv_without_matching_send, 2, 1, 0, 0, 1}, all, [](auto& me) {
  if (me.rank() == 0) me.send(1, cx::chunk(0));
  if (me.rank() == 1) me.reduce(0, cx::everything(me));
}));
// What is sent is not there.
static_assert(finds({flaw::contribution_missing, 2, 1, 0, 0, 0}, cx::broadcast{}, [](auto& me) {
  if (me.rank() == 1) me.send(0, cx::everything(me));
  if (me.rank() == 0) me.recv(1, cx::everything(me));
}));
// What is combined with is not there.
static_assert(finds({flaw::contribution_missing, 2, 1, 0, 0, 0}, cx::broadcast{}, [](auto& me) {
  if (me.rank() == 0) me.send(1, cx::everything(me));
  if (me.rank() == 1) me.reduce(0, cx::everything(me));
}));
// Too little in the end: the step is the one after the last.
static_assert(finds({flaw::contribution_missing, 2, 0, -1, 1, 0}, all, [](auto& me) {
  if (me.rank() == 0) me.send(1, cx::everything(me));
  if (me.rank() == 1) me.reduce(0, cx::everything(me));
}));
// Nothing at all.
static_assert(finds({flaw::contribution_missing, 2, 1, -1, 1, 0}, cx::broadcast{}, [](auto&) {}));
static_assert(finds({flaw::contribution_missing, 2, 1, -1, 1, 0}, cx::all_gather{}, [](auto&) {}));
// The same contribution from two sides, and a chunk named twice in one move.
static_assert(finds({flaw::contribution_counted_twice, 2, 1, 0, 0, 0}, all, [](auto& me) {
  for (int i = 0; i < 2; ++i) {
    if (me.rank() == 0) me.send(1, cx::everything(me));
    if (me.rank() == 1) me.reduce(0, cx::everything(me));
  }
}));
static_assert(finds({flaw::contribution_counted_twice, 2, 0, 1, 0, 0}, all, [](auto& me) {
  if (me.rank() == 0) me.send(1, cx::chunks{0, 3});
  if (me.rank() == 1) me.reduce(0, cx::chunks{0, 3});
}));
// Replaced while it is sent; replaced twice; replaced and combined.
static_assert(finds({flaw::chunk_read_and_written_in_one_step, 2, 0, 1, 0, 0}, all, [](auto& me) {
  me.send(cx::next(me), cx::everything(me));
  me.recv(cx::prev(me), cx::everything(me));
}));
static_assert(finds({flaw::chunk_read_and_written_in_one_step, 3, 0, 2, 0, 0}, all, [](auto& me) {
  if (me.rank() != 0) return me.send(0, cx::everything(me));
  me.recv(1, cx::everything(me));
  me.recv(2, cx::everything(me));
}));
static_assert(finds({flaw::chunk_read_and_written_in_one_step, 3, 0, 2, 0, 0}, all, [](auto& me) {
  if (me.rank() != 0) return me.send(0, cx::everything(me));
  me.recv(1, cx::everything(me));
  me.reduce(2, cx::everything(me));
}));
static_assert(finds({flaw::chunk_read_and_written_in_one_step, 3, 0, 2, 0, 0}, all, [](auto& me) {
  if (me.rank() != 0) return me.send(0, cx::everything(me));
  me.reduce(1, cx::everything(me));
  me.recv(2, cx::everything(me));
}));

// A step is a set: both send what they had, both combine what they get, and the order of operands is that of ranks, not of moves.
constexpr cx::exec::report exchange = of(all, 2, [](auto& me) {
  me.reduce(cx::prev(me), cx::everything(me));
  me.send(cx::next(me), cx::everything(me));
});
static_assert(exchange.finding.ok() && exchange.rank_order && exchange.agreement && exchange.cost == cx::cost{1, 1, 2, 2, 1});
constexpr cx::exec::report from_both_sides = of(cx::reduce{1}, 3, [](auto& me) {
  if (me.rank() != 1) return me.send(1, cx::everything(me));
  me.reduce(2, cx::everything(me));
  me.reduce(0, cx::everything(me));
});
static_assert(from_both_sides.finding.ok() && from_both_sides.rank_order);

// Complete, but not in order: the higher rank's on the left.
struct the_wrong_way_round {
  constexpr int steps(int) const { return 2; }
  constexpr int parts(int) const { return 1; }
  /// Rank 2 gives to 0, then 1 does.
  template <cx::RankContext Me>
  constexpr void step(int k, Me& me) const {
    if (me.rank() == 2 - k) me.send(0, cx::everything(me));
    if (me.rank() == 0) me.reduce(2 - k, cx::everything(me));
  }
};
constexpr cx::exec::report disorder = cx::exec::verify_schedule(the_wrong_way_round{}, cx::reduce{}, 3);
static_assert(disorder.finding.ok() && !disorder.rank_order && disorder.agreement);

// Complete and in order, but not alike: ((0 1) 2) 3 on ranks 0 and 3, (0 1) (2 3) on ranks 1 and 2.
struct two_opinions {
  constexpr int steps(int) const { return 4; }
  constexpr int parts(int) const { return 1; }
  template <cx::RankContext Me>
  constexpr void step(int k, Me& me) const {
    if (k == 0) gives(me, 0, 1), gives(me, 1, 0);
    if (k == 1) gives(me, 2, 0), gives(me, 3, 2);
    if (k == 2) gives(me, 3, 0), gives(me, 2, 1);
    if (k == 3 && me.rank() < 2) me.send(3 - me.rank(), cx::everything(me));
    if (k == 3 && me.rank() >= 2) me.recv(3 - me.rank(), cx::everything(me));
  }
  template <cx::RankContext Me>
  static constexpr void gives(Me& me, int from, int to) {
    if (me.rank() == from) me.send(to, cx::everything(me));
    if (me.rank() == to) me.reduce(from, cx::everything(me));
  }
};
constexpr cx::exec::report opinions = cx::exec::verify_schedule(two_opinions{}, all, 4);
static_assert(opinions.finding.ok() && opinions.rank_order && !opinions.agreement);

static_assert(cx::exec::verify_schedule(cx::algo::ring_reduce_scatter{}, cx::reduce_scatter{}, 0).finding ==
              finding{flaw::schedule_not_admitted_at_size, 0, -1, -1, -1, -1});

// One sentence each, all different.
constexpr bool same(char const* a, char const* b) {
  while (*a != 0 && *a == *b) ++a, ++b;
  return *a == *b;
}
constexpr bool sentences_differ() {
  for (int a = 0; a <= static_cast<int>(flaw::plan_differs_from_schedule); ++a)
    for (int b = 0; b < a; ++b)
      if (same(cx::sentence(static_cast<flaw>(a)), cx::sentence(static_cast<flaw>(b)))) return false;
  return !same(cx::sentence(flaw::plan_differs_from_schedule), "unknown");
}
static_assert(sentences_differ());

}  // namespace verify_test
