// SPDX-License-Identifier: Apache-2.0
// timeout: 300
// The proof of the static tests, at run time and at larger sizes.
#include "film.hpp"

#include <doctest/doctest.h>

namespace {

namespace cx = collectx;
using film_of::film;

struct tally {
  int cells = 0;
};

/// Schedule, plans out of place and in place; what was declared is what was found.
template <class C>
void prove(std::string const& name, film const& schedule, C const& collective, film_of::declared declared, int n, bool exact,
           tally& count) {
  CAPTURE(name);
  CAPTURE(n);
  ++count.cells;
  cx::exec::report const found = cx::exec::verify_schedule(schedule, collective, n);
  CAPTURE(cx::sentence(found.finding.what));
  CAPTURE(found.finding.rank);
  CAPTURE(found.finding.step);
  REQUIRE(found.finding.ok());
  CHECK((found.rank_order || !declared.rank_order));
  CHECK((found.agreement || !declared.agreement));
  CHECK((declared.agreement || !exact || !found.agreement));
  cx::lower_bound const least = collective.needs(n);
  CHECK(found.cost.chunks_sent * static_cast<long long>(least.out_of) >= least.sent * static_cast<long long>(found.cost.chunks));

  auto const plans = cx::exec::make_plans(schedule, collective, n);
  cx::exec::report const bounded = cx::exec::verify_bounded(collective, plans);
  CHECK(bounded.finding.ok());
  CHECK(bounded.rank_order == found.rank_order);
  CHECK(bounded.agreement == found.agreement);
  CHECK(bounded.cost.slots <= 4);
  cx::exec::report const in_place = cx::exec::verify_plans(collective, plans, bounded.cost.slots, cx::exec::place::output, true);
  CHECK(in_place.finding.ok());
  CHECK(in_place.rank_order == found.rank_order);
}

TEST_CASE("every cell is proved, 1 to 64 ranks") {
  tally count;
  for (int n = 1; n <= 64; ++n)
    film_of::of_flat_families(n, [&](std::string const& name, film const& schedule, auto const& collective, film_of::declared declared) {
      prove(name, schedule, collective, declared, n, true, count);
    });
  CHECK(count.cells == 64 * 32);
}

TEST_CASE("every cell in two levels is proved, 2 to 64 ranks, in groups of every kind") {
  tally count;
  for (int n = 2; n <= 64; n += n < 33 ? 1 : 31) {
    auto const prove_it = [&](std::string const& name, film const& schedule, auto const& collective, film_of::declared declared) {
      prove(name, schedule, collective, declared, n, false, count);
    };
    using film_of::any_groups;
    for (any_groups const& groups : {any_groups::like<cx::algo::default_groups>(), any_groups::like<cx::algo::uniform<5>>(),
                                     any_groups::like<cx::algo::sizes<3, 1, 2>>(), any_groups::like<cx::algo::sizes<7, 8>>(),
                                     any_groups::like<cx::algo::sizes<5, 3, 7, 1>>(), any_groups::like<cx::algo::sizes<1, 1, 1>>()})
      film_of::of_two_levels(groups, n, prove_it);
  }
  CHECK(count.cells >= 1700);
}

TEST_CASE("every cell but the one-shot all-reduce, with its 17 million messages of a chunk, is proved among 257 ranks") {
  tally count;
  film_of::of_flat_families(257, [&](std::string const& name, film const& schedule, auto const& collective, film_of::declared declared) {
    if (name != "direct/all_reduce") prove(name, schedule, collective, declared, 257, true, count);
  });
  CHECK(count.cells == 31);
}

}  // namespace
