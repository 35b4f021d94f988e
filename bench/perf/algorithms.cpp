// SPDX-License-Identifier: Apache-2.0
#include <collectx/algo/hierarchical.hpp>
#include <collectx/algo/striped.hpp>
#include <collectx/exec/prove.hpp>

#include "any_algorithm.hpp"

namespace perf {
namespace {

namespace cx = collectx;
namespace algo = collectx::algo;

template <class C>
C about(int root) {
  if constexpr (requires { C{root}; })
    return C{root};
  else
    return C{};
}

template <class Family, class C>
schedule_face const* face_of() {
  if constexpr (cx::offers<Family, C>) {
    static constexpr auto schedule = [](int root) { return cx::schedule_of(Family{}, about<C>(root)); };
    static constexpr schedule_face face{
        [](int root, int n) { return cx::admits(schedule(root), n); },     [](int root) { return cx::lanes_of(schedule(root)); },
        [](int root, int n) { return schedule(root).steps(n); },           [](int root, int n) { return schedule(root).parts(n); },
        [](int root, int k, any_rank& me) { schedule(root).step(k, me); },
    };
    return &face;
  } else {
    return nullptr;
  }
}

template <class Family>
algorithm_entry entry(char const* name) {
  return {name,
          {face_of<Family, cx::all_reduce>(), face_of<Family, cx::reduce_scatter>(), face_of<Family, cx::all_gather>(),
           face_of<Family, cx::broadcast>(), face_of<Family, cx::reduce>()}};
}

template <class C>
schedule_face const* choice(int ranks, std::size_t bytes) {
  return algo::with_choice<false>(C{}, ranks, bytes, [](auto family) { return face_of<decltype(family), C>(); });
}

template <class C>
int slots(schedule_face const& face, int root, int ranks) {
  return cx::cost_of(any_algorithm{&face}, about<C>(root), ranks).slots;
}

}  // namespace

std::vector<algorithm_entry> const& algorithms() {
  using algo::hierarchical;
  static std::vector<algorithm_entry> const all{
      entry<algo::ring>("ring"),
      entry<algo::recursive_halving>("recursive_halving"),
      entry<algo::recursive_doubling>("recursive_doubling"),
      entry<algo::double_binary_tree>("double_binary_tree"),
      entry<algo::direct>("direct"),
      entry<algo::two_shot>("two_shot"),
      entry<algo::central>("central"),
      entry<hierarchical<algo::ring, algo::double_binary_tree>>("hierarchical"),
      entry<hierarchical<algo::ring, algo::ring>>("hierarchical_rings"),
      entry<algo::striped<algo::ring>>("striped"),
      entry<hierarchical<algo::direct, algo::recursive_halving>>("hierarchical_halving"),
  };
  return all;
}

schedule_face const* automatic_choice(collective what, int ranks, std::size_t bytes) {
  switch (what) {
    case collective::all_reduce:
      return choice<cx::all_reduce>(ranks, bytes);
    case collective::reduce_scatter:
      return choice<cx::reduce_scatter>(ranks, bytes);
    case collective::all_gather:
      return choice<cx::all_gather>(ranks, bytes);
    case collective::broadcast:
      return choice<cx::broadcast>(ranks, bytes);
    case collective::reduce:
      break;
  }
  return choice<cx::reduce>(ranks, bytes);
}

int slots_needed(collective what, schedule_face const& face, int root, int ranks) {
  switch (what) {
    case collective::all_reduce:
      return slots<cx::all_reduce>(face, root, ranks);
    case collective::reduce_scatter:
      return slots<cx::reduce_scatter>(face, root, ranks);
    case collective::all_gather:
      return slots<cx::all_gather>(face, root, ranks);
    case collective::broadcast:
      return slots<cx::broadcast>(face, root, ranks);
    case collective::reduce:
      break;
  }
  return slots<cx::reduce>(face, root, ranks);
}

}  // namespace perf
