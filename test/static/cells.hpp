// SPDX-License-Identifier: Apache-2.0
// What the tests of the algorithms have in common. A cell is a family and a collective; its proof is made once for each number of ranks.
#pragma once

#include "collectx/exec/prove.hpp"

#include <utility>

namespace cells {

namespace cx = collectx;

template <class F, auto Collective, int N>
inline constexpr cx::exec::report proof = cx::exec::verify(F{}, Collective, N);

template <int... N>
using at = std::integer_sequence<int, N...>;
using two_to_sixteen = at<2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16>;
using two_to_eight = at<2, 3, 4, 5, 6, 7, 8>;
using to_eight_and_sixteen = at<2, 3, 4, 5, 6, 7, 8, 16>;  // all others at run time, by verify_test

template <class F, auto Collective, class Sizes>
struct over;
template <class F, auto Collective, int... N>
struct over<F, Collective, at<N...>> {
  static constexpr bool proved = (proof<F, Collective, N>.finding.ok() && ...);
  static constexpr bool in_order = (proof<F, Collective, N>.rank_order && ...);
  static constexpr bool in_agreement = (proof<F, Collective, N>.agreement && ...);
  /// `is(n, cost)` for all of them.
  template <class Is>
  static constexpr bool costs(Is is) {
    return (is(N, proof<F, Collective, N>.cost) && ...);
  }
};

/// The most messages that any rank sends, or receives, in one step.
template <class S, class C>
constexpr int ports_of(S const& schedule, C const& collective, int n) {
  auto const form = cx::exec::shape_of(schedule, collective, n);
  int ports = 0;
  for (int k = 0; k < schedule.steps(n); ++k)
    for (int r = 0; r < n; ++r) {
      int sends = 0, receives = 0;
      cx::exec::visit_moves<cx::exec::side::sends>(schedule, form, r, k, [&](cx::exec::move&&) { ++sends; });
      cx::exec::visit_moves<cx::exec::side::receives>(schedule, form, r, k, [&](cx::exec::move&&) { ++receives; });
      for (int const count : {sends, receives}) ports = count > ports ? count : ports;
    }
  return ports;
}

/// What n ranks know can grow by a factor of ports + 1 per step (Bruck et al. 1997); with one port these are the steps of `needs`.
constexpr bool enough_steps(int steps, int ports, int n) {
  long long reached = 1;
  for (int k = 0; k < steps && reached < n; ++k) reached *= ports + 1;
  return reached >= n;
}
constexpr bool enough_bytes(cx::cost const& cost, cx::lower_bound const& least) {
  return cost.chunks_sent * least.out_of >= least.sent * cost.chunks;
}
constexpr bool fewest_bytes(cx::cost const& cost, cx::lower_bound const& least) {
  return cost.chunks_sent * least.out_of == least.sent * cost.chunks;
}
/// Bytes per rank as B * numerator / denominator.
constexpr bool sends(cx::cost const& cost, int numerator, int denominator) {
  return cost.chunks_sent * denominator == numerator * cost.chunks;
}

/// Everything that holds of every cell. `Exact`: a declaration that denies what the proof finds is wrong too, as under groups that leave
/// nothing to chance.
template <class F, auto Collective, class Sizes = to_eight_and_sixteen, bool Exact = true>
struct cell {
  using collective = decltype(Collective);
  static_assert(cx::offers<F, std::remove_cv_t<collective>>);
  static constexpr auto schedule = cx::schedule_of(F{}, Collective);
  using schedule_type = std::remove_cv_t<decltype(schedule)>;
  using all = over<F, Collective, Sizes>;

  static_assert(cx::Schedule<schedule_type> && schedule == cx::schedule_of(F{}, Collective));
  static_assert(all::proved, "the proof fails at one of the sizes");
  static_assert(cx::declares_order<schedule_type> && cx::declares_agreement<schedule_type>, "the schedule does not say");
  static_assert(!cx::keeps_rank_order<schedule_type>() || all::in_order, "declares rank order and does not keep it");
  static_assert(!Exact || cx::keeps_rank_order<schedule_type>() || !all::in_order, "keeps rank order and denies it");
  static_assert(!cx::agrees_bitwise<schedule_type>() || all::in_agreement, "declares agreement and does not keep it");
  static_assert(!Exact || cx::agrees_bitwise<schedule_type>() || !all::in_agreement, "agrees and denies it");
  static_assert(all::costs([](int n, cx::cost const& cost) { return enough_bytes(cost, Collective.needs(n)); }), "fewer bytes than can be");
  static_assert(all::costs([](int n, cx::cost const& cost) {
                  return n > 8 || enough_steps(cost.steps, ports_of(schedule, Collective, n), n);
                }),
                "fewer steps than can be");

  /// `is(n, cost)` at all sizes, and at those where plans are proved at compile time `slots(n)` slots are the fewest that do.
  template <class Is, class Slots>
  static constexpr bool costs(Is is, Slots slots) {
    return all::costs(
        [&](int n, cx::cost const& cost) { return is(n, cost) && (n > cx::exec::plans_at_compile_time || cost.slots == slots(n)); });
  }
};

/// Every root, at the sizes at which plans are proved.
template <class F, class C, int N, int... Root>
constexpr bool proved_for_roots(at<Root...>) {
  return (proof<F, C{Root}, N>.finding.ok() && ...);
}
template <class F, class C, int... N>
constexpr bool proved_for_every_root(at<N...>) {
  return (proved_for_roots<F, C, N>(std::make_integer_sequence<int, N>{}) && ...);
}

constexpr int log2_ceil(int n) { return n <= 1 ? 0 : 1 + log2_ceil((n + 1) / 2); }

}  // namespace cells
