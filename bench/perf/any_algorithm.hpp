// SPDX-License-Identifier: Apache-2.0
/// Algorithms that are chosen at run time: one instantiation of a collective serves all of them, which keeps this program's build short.
#pragma once

#include <collectx/algo/automatic.hpp>
#include <collectx/communicator.hpp>
#include <collectx/exec/any_rank.hpp>

#include <string_view>
#include <vector>

#include "bandwidth.hpp"

namespace perf {

using collectx::exec::any_rank;

/// The members of a family's schedule for one collective, the root being theirs to know.
struct schedule_face {
  bool (*admits)(int root, int n);
  int (*lanes)(int root);
  int (*steps)(int root, int n);
  int (*parts)(int root, int n);
  void (*step)(int root, int k, any_rank& me);
};

/// A Schedule.
struct any_schedule {
  schedule_face const* face = nullptr;
  int root = 0;
  bool admits(int n) const { return face->admits(root, n); }
  int lanes() const { return face->lanes(root); }
  int steps(int n) const { return face->steps(root, n); }
  int parts(int n) const { return face->parts(root, n); }
  template <collectx::RankContext Me>
  void step(int k, Me& me) const {
    collectx::exec::rank_behind<Me> behind(me);
    face->step(root, k, behind);
  }
  friend bool operator==(any_schedule const&, any_schedule const&) = default;
};

/// A family of which the one member that is asked for is known.
struct any_algorithm {
  static constexpr char const* name = "chosen";
  schedule_face const* face = nullptr;
  any_schedule all_reduce() const { return {face, 0}; }
  any_schedule reduce_scatter() const { return {face, 0}; }
  any_schedule all_gather() const { return {face, 0}; }
  any_schedule broadcast(int root) const { return {face, root}; }
  any_schedule reduce(int root) const { return {face, root}; }
};

struct algorithm_entry {
  char const* name;
  schedule_face const* of[5];  ///< by collective; null where it is not offered
};

/// All algorithms that can be named, `auto` apart.
std::vector<algorithm_entry> const& algorithms();

/// What the library would take where no algorithm is named.
schedule_face const* automatic_choice(collective what, int ranks, std::size_t bytes);

/// With fewer slots per channel the ranks would wait for each other for ever.
int slots_needed(collective what, schedule_face const& face, int root, int ranks);

}  // namespace perf
