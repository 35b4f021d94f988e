// SPDX-License-Identifier: Apache-2.0
#include "collectx/schedule.hpp"

namespace schedule_test {

namespace cx = collectx;

// Runs: whatever lists chunks.
struct every_other {
  int count;
  template <class F>
  constexpr void for_each(F&& f) const {
    for (int i = 0; i < count; ++i) f(cx::chunk(2 * i));
  }
};
struct lists_for_one {
  void for_each(int) const;
};
struct lists_and_changes {
  void for_each(void (*)(cx::chunks));
};
static_assert(cx::Runs<cx::chunks> && cx::Runs<every_other>);
static_assert(!cx::Runs<int> && !cx::Runs<lists_for_one> && !cx::Runs<lists_and_changes>);

// RankContext: the archetype, and near misses, each one step away.
static_assert(cx::RankContext<cx::rank_context_archetype>);
struct counts_moves : cx::rank_context_archetype {
  int moves = 0;
  template <cx::Runs R>
  constexpr void send(int, R const&, int = 0) {
    ++moves;
  }
};
static_assert(cx::RankContext<counts_moves>);
struct without_rank : cx::rank_context_archetype {
  int rank() const = delete;
};
struct without_recv : cx::rank_context_archetype {
  void recv(int, cx::chunks, int = 0) = delete;
};
struct without_lanes : cx::rank_context_archetype {
  void send(int, cx::chunks);
};
struct blocks_are_words : cx::rank_context_archetype {
  char const* blocks() const;
};
struct cannot_be_asked : cx::rank_context_archetype {
  void chunks() const;
};
static_assert(!cx::RankContext<int> && !cx::RankContext<without_rank> && !cx::RankContext<without_recv>);
static_assert(!cx::RankContext<without_lanes> && !cx::RankContext<blocks_are_words> && !cx::RankContext<cannot_be_asked>);
static_assert(!cx::RankContext<cx::rank_context_archetype const>);

// Schedule: the archetype, and near misses.
struct archetype {
  archetype(archetype const&) = delete;
  int steps(int) const;
  int parts(int) const;
  void step(int, cx::rank_context_archetype&) const;
};
static_assert(cx::Schedule<archetype>);
static_assert(!cx::declares_order<archetype> && !cx::keeps_rank_order<archetype>());
static_assert(!cx::declares_agreement<archetype> && !cx::agrees_bitwise<archetype>());
struct without_steps {
  int parts(int) const;
  void step(int, cx::rank_context_archetype&) const;
};
struct without_parts {
  int steps(int) const;
  void step(int, cx::rank_context_archetype&) const;
};
struct remembers_its_steps : archetype {
  void step(int, cx::rank_context_archetype&);
};
struct asks_nobody : archetype {
  void step(int) const;
};
struct endless : archetype {
  void steps(int) const;
};
static_assert(!cx::Schedule<int> && !cx::Schedule<without_steps> && !cx::Schedule<without_parts> && !cx::Schedule<remembers_its_steps>);
static_assert(!cx::Schedule<asks_nobody> && !cx::Schedule<endless>);

// What a schedule may say, and what is taken for granted where it does not.
struct plain {
  constexpr int steps(int) const { return 0; }
  constexpr int parts(int) const { return 1; }
  template <cx::RankContext Me>
  constexpr void step(int, Me&) const {}
};
struct for_even : plain {
  static constexpr bool keeps_rank_order = true;
  static constexpr bool agrees_bitwise = false;
  constexpr bool admits(int n) const { return n % 2 == 0; }
  constexpr int lanes() const { return 3; }
};
static_assert(cx::admits(plain{}, 1) && cx::admits(plain{}, 1000) && !cx::admits(plain{}, 0) && !cx::admits(plain{}, -2));
static_assert(cx::admits(for_even{}, 4) && !cx::admits(for_even{}, 3) && !cx::admits(for_even{}, 0));
static_assert(cx::lanes_of(plain{}) == 1 && cx::lanes_of(for_even{}) == 3);
static_assert(cx::declares_order<for_even> && cx::keeps_rank_order<for_even>());
static_assert(cx::declares_agreement<for_even> && !cx::agrees_bitwise<for_even>());

// Neighbours and names are cyclic.
struct rank_of_five : cx::rank_context_archetype {
  int me;
  constexpr explicit rank_of_five(int r) : me(r) {}
  constexpr int rank() const { return me; }
  constexpr int size() const { return 5; }
  constexpr int chunks() const { return 10; }
};
static_assert(cx::next(rank_of_five(4)) == 0 && cx::next(rank_of_five(0)) == 1 && cx::prev(rank_of_five(0)) == 4);
static_assert(cx::everything(rank_of_five(2)) == cx::chunks{0, 10});
static_assert(cx::detail::modulo(-1, 5) == 4 && cx::detail::modulo(-11, 5) == 4 && cx::detail::modulo(5, 5) == 0 &&
              cx::detail::modulo(3, 5) == 3);
static_assert(cx::detail::lcm(4, 6) == 12 && cx::detail::lcm(1, 7) == 7 && cx::detail::gcd(12, 18) == 6);
static_assert(cx::detail::ceil_div(7, 3) == 3 && cx::detail::ceil_div(6, 3) == 2 && cx::detail::ceil_div(0, 3) == 0);

constexpr bool unwraps(cx::chunks run, int total, cx::chunks first, cx::chunks second) {
  int seen = 0;
  bool right = true;
  cx::detail::unwrap(run, total, [&](cx::chunks flat) { right = right && flat == (seen++ == 0 ? first : second); });
  return right && seen == (first.count > 0 ? 1 : 0) + (second.count > 0 ? 1 : 0);
}
static_assert(unwraps({2, 3}, 8, {2, 3}, {0, 0}) && unwraps({6, 3}, 8, {6, 2}, {0, 1}) && unwraps({-1, 2}, 8, {7, 1}, {0, 1}));
static_assert(unwraps({5, 8}, 8, {5, 3}, {0, 5}) && unwraps({8, 8}, 8, {0, 8}, {0, 0}) && unwraps({3, 0}, 8, {0, 0}, {0, 0}));

}  // namespace schedule_test
