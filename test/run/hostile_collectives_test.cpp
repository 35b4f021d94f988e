// SPDX-License-Identifier: Apache-2.0
// compile: -O1
// timeout: 240
#include <collectx/transport/hostile.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/advance.hpp"
#include "support/sanitizers.hpp"

namespace cx = collectx;
using support::trial;

namespace {

constexpr int seeds_per_cell = support::under_sanitizer ? 12 : 200;

template <class C>
trial drawn(support::algorithm const& a, support::random_stream& random) {
  trial t;
  t.how = &a;
  t.n = 2 + static_cast<int>(random.below(8));
  t.root = static_cast<int>(random.below(static_cast<std::size_t>(t.n)));
  t.where = random.below(2) == 0 ? support::placement::out_of_place : support::placement::in_place;
  std::size_t const n = static_cast<std::size_t>(t.n), counts[] = {0, 1, n - 1, n, n + 1, 50, 200, 1 + random.below(400)};
  for (std::uint64_t i = 0; i < 3; ++i)
    t.calls.push_back({support::has_shares<C> ? counts[random.below(8)] / 2 : counts[random.below(8)], i, t.root});
  return t;
}

/// Channels as narrow as the proof allows, or a little wider.
template <class C, class T, class Op>
cx::hostile_options narrow(trial const& t, support::random_stream& random) {
  cx::hostile_options o;
  o.slots = support::slots_for<C, Op, T>(t);
  if (random.below(3) == 0) o.slots = (std::max)(o.slots, 3);
  o.slot_bytes = (std::max)(std::size_t{64} * (1 + random.below(8)), support::least_slot_bytes<C>(*t.how, t.n, sizeof(T)));
  return o;
}

template <class C, class T, class Op>
void hostile_runs(Op const& op) {
  for (support::algorithm const& a : support::algorithms_for<C>()) {
    if (!cx::is_commutative_v<Op, T> && !a.keeps_rank_order()) continue;
    int clean = 0;
    for (int i = 0; i < seeds_per_cell; ++i) {
      std::uint64_t const seed = support::seed() + static_cast<std::uint64_t>(i);
      support::random_stream random(seed);
      trial const t = drawn<C>(a, random);
      cx::hostile_options const options = narrow<C, T, Op>(t, random);
      support::outcome const o = support::run_hostile<C, T>(t, support::plans_for<C, Op, T>(t), options, seed, op);
      if (o.clean()) {
        ++clean;
        continue;
      }
      FAIL_CHECK(std::string(C::name) << " by " << a.name << ", " << t.n << " ranks, root " << t.root << ", " << options.slots
                                      << " slots of " << options.slot_bytes << " bytes: " << o.text() << "; COLLECTX_TEST_SEED=" << seed
                                      << " replays it");
      break;
    }
    CHECK(clean == seeds_per_cell);
  }
}

/// Says which expression it stands for: neither associative nor commutative, so two orders of operands never give the same.
struct expression {
  static constexpr bool is_commutative = true;  // as far as the choice of a schedule goes
  constexpr std::uint64_t operator()(std::uint64_t l, std::uint64_t r) const {
    return (l * 0x9e3779b97f4a7c15u) ^ ((r << 23 | r >> 41) + l);
  }
};

template <class C>
std::vector<std::uint64_t> expressions_of(trial const& t, cx::exec::list<cx::exec::plan> const& plans, std::uint64_t seed) {
  using work = support::rank_at_work<cx::hostile_transport, C, std::uint64_t, expression>;
  auto group = cx::hostile_group::create(t.n, seed);
  REQUIRE(group.has_value());
  expression const op;
  std::vector<cx::hostile_transport> transports;
  for (int r = 0; r < t.n; ++r) transports.push_back(*group->transport(r));
  std::vector<std::unique_ptr<work>> ranks;
  for (int r = 0; r < t.n; ++r) ranks.push_back(std::make_unique<work>(transports[static_cast<std::size_t>(r)], plans[r], t, op));
  std::vector<std::uint64_t> first;
  auto const same_everywhere = [&](int, auto const& memory, support::call const&) -> std::string {
    std::vector<std::uint64_t> const mine(memory.out.begin(), memory.out.end());
    if (first.empty()) first = mine;
    return mine == first ? "" : "ranks have evaluated different expressions";
  };
  support::outcome const o = support::advance_all(
      ranks, [&] { return group->random(); }, same_everywhere);
  CHECK_MESSAGE(o.clean(), o.text());
  return first;
}

struct death {
  int victim = 0;
  std::int64_t at = 0;
};

/// What one death came to: whether it happened, and how many survivors were told.
struct aftermath {
  bool happened = false;
  int told = 0;
};

template <class C, class T, class Op>
aftermath survive(trial const& t, cx::exec::list<cx::exec::plan> const& plans, death const& d, Op const& op) {
  using work = support::rank_at_work<cx::hostile_transport, C, T, Op>;
  cx::hostile_options options;
  options.slots = support::slots_for<C, Op, T>(t);
  options.kill_rank = d.victim;
  options.kill_at = d.at;
  auto group = cx::hostile_group::create(t.n, support::seed() + static_cast<std::uint64_t>(d.at), options);
  REQUIRE(group.has_value());
  std::vector<cx::hostile_transport> transports;
  for (int r = 0; r < t.n; ++r) transports.push_back(*group->transport(r));
  std::vector<std::unique_ptr<work>> ranks;
  for (int r = 0; r < t.n; ++r) ranks.push_back(std::make_unique<work>(transports[static_cast<std::size_t>(r)], plans[r], t, op));
  support::by_reference<C, T, Op> const reference(t, op);
  auto const of_the_living = [&](int rank, auto const& memory, support::call const& c) {
    return group->is_dead(rank) ? std::string() : reference(rank, memory, c);
  };
  support::outcome const o = support::advance_all(
      ranks, [&] { return group->random(); }, of_the_living);
  CHECK_MESSAGE(o.defect.empty(), o.defect);
  CHECK_FALSE(o.hangs);
  aftermath after;
  after.happened = group->is_dead(d.victim);
  for (int r = 0; r < t.n; ++r) {
    cx::status const& s = o.ends[static_cast<std::size_t>(r)];
    if (r == d.victim || s.ok()) continue;
    ++after.told;
    CHECK_MESSAGE((s.code() == cx::errc::peer_lost && s.rank() == d.victim), s.what());
  }
  return after;
}

template <class C>
void deaths_of(char const* name) {
  for (support::algorithm const& a : support::algorithms_for<C>()) {
    if (a.name != name) continue;
    CAPTURE(a.name);
    trial t;
    t.how = &a;
    t.n = 4;
    for (std::uint64_t i = 0; i < 2; ++i) t.calls.push_back({40, i, 0});
    auto const plans = support::plans_for<C, cx::sum, std::int32_t>(t);
    for (int victim = 0; victim < t.n; ++victim) {
      CAPTURE(victim);
      int all_told = 0;
      std::int64_t at = 1;
      for (;; ++at) {
        CAPTURE(at);
        aftermath const after = survive<C, std::int32_t>(t, plans, {victim, at}, cx::sum{});
        if (!after.happened) break;
        all_told += after.told == t.n - 1 ? 1 : 0;
      }
      CHECK(at > 4);  // it has operations to die at
      CHECK(all_told > 0);
    }
  }
}

}  // namespace

TEST_CASE("all_reduce is right whatever the order in which ranks, messages and credits move") {
  hostile_runs<cx::all_reduce, std::int32_t>(cx::sum{});
  hostile_runs<cx::all_reduce, support::affine>(support::compose{});
}
TEST_CASE("reduce_scatter is right whatever the order in which ranks, messages and credits move") {
  hostile_runs<cx::reduce_scatter, std::int32_t>(cx::sum{});
  hostile_runs<cx::reduce_scatter, support::affine>(support::compose{});
}
TEST_CASE("all_gather is right whatever the order in which ranks, messages and credits move") {
  hostile_runs<cx::all_gather, std::int32_t>(cx::sum{});
  hostile_runs<cx::all_gather, support::affine>(support::add_words{});
}
TEST_CASE("broadcast is right whatever the order in which ranks, messages and credits move") {
  hostile_runs<cx::broadcast, std::int32_t>(cx::sum{});
  hostile_runs<cx::broadcast, support::affine>(support::add_words{});
}
TEST_CASE("reduce is right whatever the order in which ranks, messages and credits move") {
  hostile_runs<cx::reduce, std::int32_t>(cx::sum{});
  hostile_runs<cx::reduce, support::affine>(support::compose{});
}

TEST_CASE("every rank of an all_reduce evaluates the same expression, whatever the timing") {
  for (support::algorithm const& a : support::algorithms_for<cx::all_reduce>()) {
    REQUIRE(a.face->agrees_bitwise());
    for (int n = 2; n <= 9; ++n) {
      CAPTURE(a.name);
      CAPTURE(n);
      trial t;
      t.how = &a;
      t.n = n;
      t.calls.push_back({100, 0, 0});
      auto const plans = support::plans_for<cx::all_reduce, expression, std::uint64_t>(t);
      std::vector<std::uint64_t> const first = expressions_of<cx::all_reduce>(t, plans, support::seed());
      for (std::uint64_t i = 1; i < 8; ++i) CHECK(expressions_of<cx::all_reduce>(t, plans, support::seed() + i) == first);
    }
  }
}

TEST_CASE("a rank dies at any operation: every survivor hears its name or has what it needed, and nobody waits for ever") {
  for (char const* name : {"ring", "recursive_halving", "double_binary_tree", "direct", "two_shot"}) deaths_of<cx::all_reduce>(name);
  deaths_of<cx::all_gather>("ring");
  deaths_of<cx::reduce_scatter>("ring");
}

TEST_CASE("a rank never calls: everybody's deadline passes, and the blame follows the waits to that rank") {
  using work = support::rank_at_work<cx::hostile_transport, cx::all_reduce, std::int32_t, cx::sum>;
  for (support::algorithm const& a : support::algorithms_for<cx::all_reduce>()) {
    trial t;
    t.how = &a;
    t.n = 6;
    t.calls.push_back({100, 0, 0});
    auto const plans = support::plans_for<cx::all_reduce, cx::sum, std::int32_t>(t);
    cx::sum const op;
    for (int absent = 0; absent < t.n; ++absent) {
      CAPTURE(a.name);
      CAPTURE(absent);
      auto group = cx::hostile_group::create(t.n, support::seed());
      REQUIRE(group.has_value());
      std::vector<cx::hostile_transport> transports;
      for (int r = 0; r < t.n; ++r) transports.push_back(*group->transport(r));
      std::vector<std::unique_ptr<work>> ranks;
      for (int r = 0; r < t.n; ++r)
        if (r != absent) ranks.push_back(std::make_unique<work>(transports[static_cast<std::size_t>(r)], plans[r], t, op));
      support::outcome const o = support::advance_all(
          ranks, [&] { return group->random(); }, support::by_reference<cx::all_reduce, std::int32_t, cx::sum>(t, op));
      CHECK_FALSE(o.hangs);
      for (cx::status const& s : o.ends) {
        CHECK(s.code() == cx::errc::timeout);
        CHECK_MESSAGE(s.rank() == absent, std::string(s.what()));
      }
      CHECK(group->now() > work::patience);
    }
  }
}
