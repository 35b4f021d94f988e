// SPDX-License-Identifier: Apache-2.0
/// One family several times side by side: while one stripe waits for its next message, the others fill the wire.
#pragma once

#include "collectx/algo/groups.hpp"
#include "collectx/collective.hpp"
#include "collectx/combine.hpp"

#include <type_traits>

namespace collectx {
inline namespace v0 {
namespace algo {

namespace detail {
template <int K, class S>
constexpr auto side_by_side(S const& schedule) {
  if constexpr (K == 1) {
    return schedule;
  } else {
    auto const rest = side_by_side<K - 1>(schedule);
    return beside<S, std::remove_const_t<decltype(rest)>>{schedule, rest};
  }
}
}  // namespace detail

/// K stripes of the vector, each by the family's own schedule on lanes of its own. For wires whose delay is felt: a ring or two levels of
/// them wait a delay in every step, and stripes wait in turn.
/// steps those of Family | messages per rank K times as many, a K-th as long | bytes per rank those of Family | lanes K times as many
template <class Family, int K = 2>
struct striped {
  static_assert(K >= 1, "collectx: a vector has at least one stripe");
  static constexpr char const* name = "striped";
  Family family{};

  constexpr auto all_reduce() const requires offers<Family, collectx::all_reduce> { return detail::side_by_side<K>(family.all_reduce()); }
  constexpr auto reduce_scatter() const requires offers<Family, collectx::reduce_scatter> {
    return detail::side_by_side<K>(family.reduce_scatter());
  }
  constexpr auto all_gather() const requires offers<Family, collectx::all_gather> { return detail::side_by_side<K>(family.all_gather()); }
  constexpr auto reduce(int root) const requires offers<Family, collectx::reduce> { return detail::side_by_side<K>(family.reduce(root)); }
  constexpr auto broadcast(int root) const requires offers<Family, collectx::broadcast> {
    return detail::side_by_side<K>(family.broadcast(root));
  }
  /// The same over these groups, where the family has groups and its author has named none.
  template <Groups H>
  constexpr auto over(H const& groups) const requires requires(Family const& f) { f.over(groups); } {
    return striped<decltype(family.over(groups)), K>{family.over(groups)};
  }
  friend constexpr bool operator==(striped const&, striped const&) = default;
};

}  // namespace algo
}  // namespace v0
}  // namespace collectx
