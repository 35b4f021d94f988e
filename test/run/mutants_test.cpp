// SPDX-License-Identifier: Apache-2.0
// compile: -O1
// timeout: 300
// A proof that never said no is not tested. Every move of every schedule is spoilt in every way below, one at a time; the proof must find
// each mutant, and name the step and the rank.
#include "film.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace {

namespace cx = collectx;
using film_of::film;
using film_of::move;

enum class change { dropped, doubled, next_peer, next_chunk, other_kind };
constexpr change changes[] = {change::dropped, change::doubled, change::next_peer, change::next_chunk, change::other_kind};

/// The index-th move of `rank` in `step`, changed.
struct mutation {
  int step, rank, index;
  change what;
};

move changed(move m, change what, int size) {
  if (what == change::next_peer) m.peer = (m.peer + 1) % size;
  if (what == change::next_chunk)
    for (cx::chunks& run : m.runs) ++run.first;
  if (what == change::other_kind) m.kind = m.kind == cx::exec::kind::recv ? cx::exec::kind::reduce : cx::exec::kind::recv;
  return m;
}

struct mutant {
  film const& original;
  mutation how;
  int steps(int n) const { return original.steps(n); }
  int parts(int n) const { return original.parts(n); }
  template <cx::RankContext M>
  void step(int k, M& me) const {
    if (k != how.step || me.rank() != how.rank) return original.step(k, me);
    int index = 0;
    for (move const& m : original.scene(k, me.rank())) {
      bool const spoilt = index++ == how.index;
      if (spoilt && how.what == change::dropped) continue;
      film_of::play(spoilt ? changed(m, how.what, me.size()) : m, me);
      if (spoilt && how.what == change::doubled) film_of::play(m, me);
    }
  }
};

/// Which chunks a move names, each as often as it does.
std::vector<int> names_of(move const& m, int total) {
  std::vector<int> names;
  for (cx::chunks const run : m.runs)
    for (int i = 0; i < run.count; ++i) names.push_back(((run.first + i) % total + total) % total);
  std::sort(names.begin(), names.end());
  return names;
}
/// A shift of all chunks names all chunks. Nothing else that is changed stays what it was.
bool changes_nothing(move const& m, change what, cx::exec::shape const& form) {
  return what == change::next_chunk && names_of(m, form.chunks) == names_of(changed(m, what, form.size), form.chunks);
}

struct tally {
  int made = 0, killed = 0, equivalent = 0, misnamed = 0;
};

template <class C>
void kill_all(std::string const& name, film const& original, C const& collective, int n, tally& count) {
  for (int k = 0; k < original.steps(n); ++k)
    for (int r = 0; r < n; ++r) {
      std::vector<move> const& moves = original.scene(k, r);
      for (int i = 0; i < static_cast<int>(moves.size()); ++i)
        for (change const what : changes) {
          move const& m = moves[static_cast<std::size_t>(i)];
          if (what == change::other_kind && m.kind == cx::exec::kind::send) continue;
          if (changes_nothing(m, what, original.form())) {
            ++count.equivalent;
            continue;
          }
          ++count.made;
          cx::finding const found = cx::exec::verify_schedule(mutant{original, {k, r, i, what}}, collective, n).finding;
          CAPTURE(name);
          CAPTURE(n);
          CAPTURE(k);
          CAPTURE(r);
          CAPTURE(i);
          CAPTURE(static_cast<int>(what));
          CAPTURE(cx::sentence(found.what));
          CAPTURE(found.rank);
          CAPTURE(found.peer);
          CAPTURE(found.step);
          CHECK(!found.ok());
          if (!found.ok()) ++count.killed;
          // A value lost or combined by the wrong kind of move is seen where it is missed, which may be later and elsewhere.
          if (what == change::other_kind) continue;
          bool const named = found.step == k && (found.rank == r || found.peer == r);
          CHECK(named);
          if (!named) ++count.misnamed;
        }
    }
}

TEST_CASE("every mutant of every schedule is found, and its step and rank are named, 2 to 6 ranks") {
  tally count;
  for (int n = 2; n <= 6; ++n) {
    auto const kill = [&](std::string const& name, film const& original, auto const& collective, film_of::declared) {
      REQUIRE(cx::exec::verify_schedule(original, collective, n).finding.ok());
      kill_all(name, original, collective, n, count);
    };
    film_of::of_flat_families(n, kill);
    film_of::of_two_levels(film_of::any_groups::like<cx::algo::default_groups>(), n, kill);
    film_of::of_two_levels(film_of::any_groups::like<cx::algo::sizes<3, 1, 2>>(), n, kill);
  }
  std::printf("mutants of schedules: %d made, %d killed, %d equivalent, %d misnamed\n", count.made, count.killed, count.equivalent,
              count.misnamed);
  CHECK(count.killed == count.made);
  CHECK(count.misnamed == 0);
  CHECK(count.made >= 29000);
}

}  // namespace
