// SPDX-License-Identifier: Apache-2.0
// compile: -O1
/// A harness that never says no proves nothing: each fault here is one that an executor, a pass or a ring could really have, and the
/// harness of hostile_collectives_test has to find it.
#include <collectx/transport/hostile.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/advance.hpp"
#include "support/faulty.hpp"

namespace cx = collectx;
using support::compose;
using support::fault;
using support::outcome;
using support::trial;

namespace {

using element = support::affine;
using collective = cx::all_reduce;
using plans = cx::exec::list<cx::exec::plan>;

constexpr int most_seeds = 200;

support::algorithm const& by_name(char const* name) {
  for (support::algorithm const& a : support::algorithms_for<collective>())
    if (a.name == name) return a;
  REQUIRE(false);
  return support::algorithms_for<collective>().front();
}

trial all_reduces(char const* name, int n) {
  trial t;
  t.how = &by_name(name);
  t.n = n;
  t.calls = {{50, 0, 0}, {3, 1, 0}, {200, 2, 0}};
  return t;
}

template <class Op>
cx::hostile_options narrow(trial const& t) {
  cx::hostile_options o;
  o.slots = support::slots_for<collective, Op, element>(t);
  o.slot_bytes = 128;
  return o;
}

/// Seeds until `run(seed)` is not clean; 0 where it always is.
template <class Run>
int seeds_to_find(char const* what, Run const& run) {
  for (int i = 0; i < most_seeds; ++i) {
    outcome const o = run(support::seed() + static_cast<std::uint64_t>(i));
    if (o.clean()) continue;
    std::printf("%s: found by seed %d: %s\n", what, i + 1, o.text().c_str());
    return i + 1;
  }
  return 0;
}

/// Plans with something changed, over the hostile transport.
template <class Op, class Change>
int find_in_plans(char const* what, trial const& t, Op const& op, Change const& change) {
  plans const sound = support::plans_for<collective, Op, element>(t);
  plans changed = sound;
  REQUIRE(change(changed));
  cx::hostile_options const options = narrow<Op>(t);
  CHECK(seeds_to_find("nothing",
                      [&](std::uint64_t seed) { return support::run_hostile<collective, element>(t, sound, options, seed, op); }) == 0);
  return seeds_to_find(what, [&](std::uint64_t seed) { return support::run_hostile<collective, element>(t, changed, options, seed, op); });
}

/// Sound plans over faulty channels.
template <class Op>
outcome run_faulty(trial const& t, plans const& p, fault planted, std::uint64_t seed, Op const& op) {
  using work = support::rank_at_work<support::faulty_transport, collective, element, Op>;
  cx::hostile_options const options = narrow<Op>(t);
  auto group = cx::hostile_group::create(t.n, seed, options);
  REQUIRE(group.has_value());
  cx::transport_options plain;
  plain.slots = options.slots;
  plain.slot_bytes = options.slot_bytes;
  plain.lanes = options.lanes;
  support::faulty_group faulty(*group, planted, plain);
  std::vector<std::unique_ptr<work>> ranks;
  for (int r = 0; r < t.n; ++r) ranks.push_back(std::make_unique<work>(*faulty.transports[static_cast<std::size_t>(r)], p[r], t, op));
  return support::advance_all(
      ranks, [&] { return group->random(); }, support::by_reference<collective, element, Op>(t, op));
}

int find_in_channels(char const* what, fault planted) {
  trial const t = all_reduces("ring", 4);
  support::add_words const op;
  plans const p = support::plans_for<collective, support::add_words, element>(t);
  for (fault none : {fault::none, fault::none_on_plain_rings})
    CHECK(seeds_to_find("nothing", [&](std::uint64_t seed) { return run_faulty(t, p, none, seed, op); }) == 0);
  return seeds_to_find(what, [&](std::uint64_t seed) { return run_faulty(t, p, planted, seed, op); });
}

bool is_found(int seeds) { return seeds > 0; }

bool reduces(cx::exec::segment const& s) { return s.sources.size() > 1; }

}  // namespace

TEST_CASE("planted fault: a slot is given back before it has been read") {
  CHECK(is_found(find_in_channels("released at peek", fault::released_at_peek)));
}

TEST_CASE("planted fault: a sender takes one slot more than there are credits") {
  CHECK(is_found(find_in_channels("one slot too many", fault::one_slot_too_many)));
}

TEST_CASE("planted fault: a receiver gives back one credit too few") {
  CHECK(is_found(find_in_channels("credit lost", fault::credit_lost)));
}

TEST_CASE("planted fault: a message is published before it is filled") {
  CHECK(is_found(find_in_channels("committed before filled", fault::committed_before_filled)));
}

TEST_CASE("planted fault: a fused send overtakes the one before it on its channel") {
  CHECK(is_found(find_in_plans("send overtakes", all_reduces("ring", 4), support::add_words{}, [](plans& all) {
    for (int i = 0; i + 1 < all[2].operations.size(); ++i) {
      cx::exec::operation &a = all[2].operations[i], &b = all[2].operations[i + 1];
      if (a.out.empty() || b.out.empty() || a.in.empty() || b.in.empty()) continue;
      std::swap(a.segments, b.segments);  // same channels, the other's chunks
      return true;
    }
    return false;
  })));
}

TEST_CASE("planted fault: an operand stands on the wrong side") {
  CHECK(is_found(find_in_plans("left and right exchanged", all_reduces("double_binary_tree", 5), compose{}, [](plans& all) {
    for (cx::exec::operation& o : all[2].operations)
      for (cx::exec::segment& s : o.segments)
        if (reduces(s)) {
          s.sources[1].left = !s.sources[1].left;
          return true;
        }
    return false;
  })));
}

TEST_CASE("planted fault: contributions are combined in another order than that of the ranks") {
  CHECK(is_found(find_in_plans("sources exchanged", all_reduces("direct", 4), compose{}, [](plans& all) {
    for (cx::exec::operation& o : all[0].operations)
      for (cx::exec::segment& s : o.segments)
        if (s.sources.size() > 2) {
          std::swap(s.sources[1], s.sources[2]);
          return true;
        }
    return false;
  })));
}

TEST_CASE("planted fault: operations that share a channel run pieces ahead of one another") {
  CHECK(is_found(find_in_plans("strand split", all_reduces("ring", 4), support::add_words{}, [](plans& all) {
    cx::exec::operation& last = all[3].operations.back();
    bool const shares = last.strand == all[3].operations[0].strand;
    last.strand = all[3].strands++;
    return shares;
  })));
}

TEST_CASE("planted fault: a result is taken for a dead store") {
  CHECK(is_found(find_in_plans("store dropped", all_reduces("ring", 4), support::add_words{}, [](plans& all) {
    for (cx::exec::operation& o : all[1].operations)
      for (cx::exec::segment& s : o.segments)
        for (int i = 0; i < s.targets.size(); ++i)
          if (s.targets[i].to == cx::exec::place::output) {
            s.targets.erase(i);
            return true;
          }
    return false;
  })));
}

TEST_CASE("planted fault: a message is longer than the geometry of the call says") {
  trial const t = all_reduces("ring", 4);
  support::add_words const op;
  plans const p = support::plans_for<collective, support::add_words, element>(t);
  CHECK(is_found(seeds_to_find("stale geometry", [&](std::uint64_t seed) {
    using work = support::rank_at_work<cx::hostile_transport, collective, element, support::add_words>;
    cx::hostile_options const options = narrow<support::add_words>(t);
    auto group = cx::hostile_group::create(t.n, seed, options);
    REQUIRE(group.has_value());
    std::vector<cx::hostile_transport> transports;
    for (int r = 0; r < t.n; ++r) transports.push_back(*group->transport(r));
    std::vector<std::unique_ptr<work>> ranks;
    for (int r = 0; r < t.n; ++r) ranks.push_back(std::make_unique<work>(transports[static_cast<std::size_t>(r)], p[r], t, op));
    bool planted = false;
    auto const random = [&] {
      if (!planted && ranks[1]->calls_done() == 1) {  // what the first call found stays, though the second has another count
        ranks[1]->plan().fitted(t.calls[0].count, options.slot_bytes / sizeof(element), sizeof(element));
        planted = true;
      }
      return group->random();
    };
    return support::advance_all(ranks, random, support::by_reference<collective, element, support::add_words>(t, op));
  })));
}
