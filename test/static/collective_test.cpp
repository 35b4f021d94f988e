// SPDX-License-Identifier: Apache-2.0
#include "collectx/collective.hpp"

#include "collectx/algo/ring.hpp"
#include "collectx/exec/verify.hpp"

namespace collective_test {

namespace cx = collectx;

static_assert(cx::Collective<cx::all_reduce> && cx::Collective<cx::reduce_scatter> && cx::Collective<cx::all_gather>);
static_assert(cx::Collective<cx::broadcast> && cx::Collective<cx::reduce>);

struct archetype {
  archetype() = delete;
  static constexpr char const* name = "archetype";
  static constexpr bool reduces = false;
  int shares(int) const;
  int blocks(int) const;
  cx::chunks input(int, int) const;
  cx::chunks output(int, int) const;
  int source(int, int) const;
  cx::lower_bound needs(int) const;
};
static_assert(cx::Collective<archetype>);

// Near misses, each one step away.
struct nameless : archetype {
  int name;
};
struct undecided : archetype {
  void reduces() const;
};
struct without_bound : archetype {
  cx::lower_bound needs(int) const = delete;
};
struct one_block_for_input : archetype {
  int input(int, int) const;
};
struct sourceless : archetype {
  int source(int) const;
};
static_assert(!cx::Collective<int> && !cx::Collective<nameless> && !cx::Collective<undecided> && !cx::Collective<without_bound>);
static_assert(!cx::Collective<one_block_for_input> && !cx::Collective<sourceless>);

// Blocks have owners, or there is one.
template <class C>
constexpr bool consistent(C const& collective, int n) {
  int const blocks = collective.blocks(n);
  if ((blocks != 1 && blocks != n) || collective.shares(n) % blocks != 0) return false;
  for (int r = 0; r < n; ++r)
    for (cx::chunks const run : {collective.input(n, r), collective.output(n, r)})
      if (run.first < 0 || run.count < 0 || run.first + run.count > blocks) return false;
  return true;
}
template <class C>
constexpr bool consistent_to_nine(C const& collective) {
  for (int n = 1; n <= 9; ++n)
    if (!consistent(collective, n)) return false;
  return true;
}
static_assert(consistent_to_nine(cx::all_reduce{}) && consistent_to_nine(cx::reduce_scatter{}) && consistent_to_nine(cx::all_gather{}));
static_assert(consistent_to_nine(cx::broadcast{}) && consistent_to_nine(cx::reduce{}));

static_assert(cx::reduce_scatter{}.output(4, 2) == cx::chunks{2, 1} && cx::all_gather{}.input(4, 2) == cx::chunks{2, 1});
static_assert(cx::all_gather{}.source(4, 3) == 3 && cx::broadcast{2}.source(4, 0) == 2);
static_assert(cx::broadcast{2}.input(4, 2).count == 1 && cx::broadcast{2}.input(4, 0).count == 0);
static_assert(cx::reduce{2}.output(4, 2).count == 1 && cx::reduce{2}.output(4, 0).count == 0);

// Lower bounds: ceil(log2 n) steps, and bytes as Chan et al. 2007 have them.
constexpr bool needs(cx::lower_bound const& least, int steps, int sent, int out_of) {
  return least.steps == steps && least.sent * out_of == sent * least.out_of;
}
static_assert(needs(cx::all_reduce{}.needs(8), 3, 14, 8) && needs(cx::all_reduce{}.needs(5), 3, 8, 5) &&
              needs(cx::all_reduce{}.needs(1), 0, 0, 1));
static_assert(needs(cx::reduce_scatter{}.needs(8), 3, 7, 8) && needs(cx::all_gather{}.needs(9), 4, 8, 9));
static_assert(needs(cx::broadcast{}.needs(4), 2, 1, 1) && needs(cx::reduce{3}.needs(4), 2, 1, 1) &&
              needs(cx::broadcast{}.needs(1), 0, 0, 1));
static_assert(cx::detail::log2_ceil(1) == 0 && cx::detail::log2_ceil(2) == 1 && cx::detail::log2_ceil(3) == 2 &&
              cx::detail::log2_ceil(1 << 30) == 30);

// A family gives its member; a bare schedule is one, about the root where there is one.
using chain = cx::algo::chain_reduce;
static_assert(cx::offers<cx::algo::ring, cx::all_reduce> && !cx::offers<chain, cx::reduce> && !cx::offers<int, cx::reduce>);
static_assert(cx::schedule_of(cx::algo::ring{}, cx::reduce{3}) == cx::renumbered<chain>{{}, 3});
static_assert(cx::schedule_of(chain{}, cx::reduce{3}) == cx::renumbered<chain>{{}, 3});
static_assert(cx::schedule_of(cx::algo::ring_all_reduce{}, cx::all_reduce{}) == cx::algo::ring_all_reduce{});

// Renumbering begins with the root's operand; carrying the result keeps order, for one step more.
constexpr auto order_of(auto const& schedule, int n, int root) { return cx::exec::verify_schedule(schedule, cx::reduce{root}, n); }
static_assert(order_of(cx::renumbered<chain>{{}, 2}, 5, 2).finding.ok() && !order_of(cx::renumbered<chain>{{}, 2}, 5, 2).rank_order);
static_assert(order_of(cx::carried<chain>{{}, 2}, 5, 2).finding.ok() && order_of(cx::carried<chain>{{}, 2}, 5, 2).rank_order);
static_assert(order_of(cx::carried<chain>{{}, 2}, 5, 2).cost.steps == 5 && order_of(cx::carried<chain>{{}, 0}, 5, 0).cost.steps == 4);
static_assert(cx::keeps_rank_order<cx::carried<chain>>() && cx::agrees_bitwise<cx::carried<chain>>());

}  // namespace collective_test
