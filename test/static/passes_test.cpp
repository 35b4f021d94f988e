// SPDX-License-Identifier: Apache-2.0
#include "collectx/exec/passes.hpp"

#include "collectx/algo/direct.hpp"
#include "collectx/algo/double_binary_tree.hpp"
#include "collectx/algo/hierarchical.hpp"
#include "collectx/algo/recursive_halving.hpp"
#include "collectx/algo/ring.hpp"
#include "collectx/exec/verify_plan.hpp"

namespace passes_test {

namespace cx = collectx;
using cx::exec::operation;
using cx::exec::place;
using cx::exec::plan;
using cx::exec::segment;
using plans = cx::exec::list<plan>;

/// The plans of all ranks after the first `passes` passes.
template <class S, class C>
constexpr plans after(int passes, S const& schedule, C const& collective, int n) {
  plans all;
  for (int r = 0; r < n; ++r) {
    plan p = cx::exec::record(schedule, collective, n, r);
    if (passes > 0) cx::exec::fuse(p);
    if (passes > 1) cx::exec::drop_dead_stores(p, collective);
    if (passes > 2) cx::exec::place_chunks(p, collective);
    if (passes > 3) cx::exec::find_strands(p);
    all.push(std::move(p));
  }
  return all;
}

// Every pass keeps the meaning: what is proved before is proved after, in order and in agreement as before.
template <class C>
constexpr bool same(cx::exec::report const& proved, C const& collective, plans const& all, place results, bool in_place = false) {
  cx::exec::report const found = cx::exec::verify_plans(collective, all, 4, results, in_place);
  return found.finding.ok() && found.rank_order == proved.rank_order && found.agreement == proved.agreement;
}
template <class F, class C>
constexpr bool keep_the_meaning(F const& family, C const& collective, int n) {
  auto const schedule = cx::schedule_of(family, collective);
  cx::exec::report const proved = cx::exec::verify_schedule(schedule, collective, n);
  return proved.finding.ok() && same(proved, collective, after(0, schedule, collective, n), place::local) &&
         same(proved, collective, after(1, schedule, collective, n), place::local) &&
         same(proved, collective, after(2, schedule, collective, n), place::local) &&
         same(proved, collective, after(3, schedule, collective, n), place::output) &&
         same(proved, collective, after(3, schedule, collective, n), place::output, true) &&
         same(proved, collective, after(4, schedule, collective, n), place::output, true);
}
using namespace cx::algo;
// One constant each, so that each has the compiler's limits for itself.
template <class F, auto Collective, int N>
inline constexpr bool kept = keep_the_meaning(F{}, Collective, N);
template <class F, int N>
constexpr bool keeps_whole_vectors = kept<F, cx::all_reduce{}, N>&& kept<F, cx::broadcast{1}, N>&& kept<F, cx::reduce{1}, N>;
template <class F, int N>
constexpr bool keeps_blocks = kept<F, cx::reduce_scatter{}, N>&& kept<F, cx::all_gather{}, N>;
static_assert(keeps_whole_vectors<ring, 2> && keeps_blocks<ring, 2> && keeps_whole_vectors<ring, 4> && keeps_blocks<ring, 4>);
static_assert(keeps_whole_vectors<recursive_halving, 3> && keeps_blocks<recursive_halving, 3> && keeps_blocks<recursive_halving, 4>);
static_assert(keeps_whole_vectors<double_binary_tree, 3> && keeps_whole_vectors<double_binary_tree, 4>);
static_assert(keeps_whole_vectors<direct, 3> && keeps_blocks<direct, 4> && keeps_whole_vectors<two_shot, 3> && keeps_blocks<two_shot, 3>);
static_assert(keeps_whole_vectors<central, 3> && keeps_whole_vectors<hierarchical<ring, central>, 4>);
static_assert(keeps_blocks<hierarchical<ring, two_shot>, 4>);

// fuse: a ring reads and writes each chunk once.
struct kinds {
  int send = 0, receive_reduce_send = 0, receive_reduce_copy_send = 0, receive_copy_send = 0, receive = 0, other = 0;
  friend constexpr bool operator==(kinds const&, kinds const&) = default;
};
constexpr kinds count(plan const& p) {
  kinds found;
  for (operation const& o : p.operations) {
    bool const receives = !o.in.empty(), sends = !o.out.empty(), stores = cx::exec::detail::writes(o.segments[0]);
    bool const combines = o.segments[0].sources.size() > 1;
    if (o.segments.size() != 1)
      ++found.other;
    else if (!receives && sends)
      ++found.send;
    else if (receives && sends && combines)
      ++(stores ? found.receive_reduce_copy_send : found.receive_reduce_send);
    else if (receives && sends && stores)
      ++found.receive_copy_send;
    else if (receives && !sends && !combines && stores)
      ++found.receive;
    else
      ++found.other;
  }
  return found;
}
constexpr bool fuses_a_ring(int n) {
  plans const all = after(2, ring_all_reduce{}, cx::all_reduce{}, n);
  for (plan const& p : all)
    if (count(p) != kinds{1, n - 2, 1, n - 2, 1, 0}) return false;
  return true;
}
static_assert(fuses_a_ring(2) && fuses_a_ring(3) && fuses_a_ring(5) && fuses_a_ring(8));
// It holds its slot until it has the next, so two are needed where one was enough.
static_assert(cx::exec::verify_plans(cx::all_reduce{}, after(0, ring_all_reduce{}, cx::all_reduce{}, 4), 1, place::local).finding.ok());
static_assert(cx::exec::verify_plans(cx::all_reduce{}, after(1, ring_all_reduce{}, cx::all_reduce{}, 4), 1, place::local).finding.what ==
              cx::flaw::deadlock_with_slots);
static_assert(cx::exec::verify_plans(cx::all_reduce{}, after(1, ring_all_reduce{}, cx::all_reduce{}, 4), 2, place::local).finding.ok());

// fuse: equal sends of one step are one operation with several outs; reductions one after the other are one with several ins.
constexpr bool fuses_sends() {
  plans const all = after(1, one_shot_all_reduce{}, cx::all_reduce{}, 4);
  for (plan const& p : all)
    if (p.operations.size() != 2 || p.operations[0].out.size() != 3 || p.operations[1].in.size() != 3) return false;
  return true;
}
static_assert(fuses_sends());
struct one_after_the_other {
  constexpr int steps(int size) const { return size - 1; }
  constexpr int parts(int) const { return 1; }
  template <cx::RankContext Me>
  constexpr void step(int k, Me& me) const {
    if (me.rank() == k + 1) me.send(0, cx::everything(me));
    if (me.rank() == 0) me.reduce(k + 1, cx::everything(me));
  }
};
constexpr bool fuses_reductions() {
  plans const all = after(1, one_after_the_other{}, cx::reduce{}, 4);
  return all[0].operations.size() == 1 && all[0].operations[0].in.size() == 3 && all[0].operations[0].segments[0].sources.size() == 4 &&
         cx::exec::verify_plans(cx::reduce{}, all, 1, place::local).rank_order;
}
static_assert(fuses_reductions());

// fuse: a send stays where another send of its channel stands before it, since messages of a channel never change order.
struct detour {
  constexpr int steps(int) const { return 3; }
  constexpr int parts(int) const { return 1; }
  /// Rank 1 takes chunk 0, sends its own chunk 1, and sends chunk 0 on after that.
  template <cx::RankContext Me>
  constexpr void step(int k, Me& me) const {
    if (k == 0 && me.rank() == 0) me.send(1, cx::chunk(0));
    if (k == 0 && me.rank() == 1) me.recv(0, cx::chunk(0));
    if (k > 0 && me.rank() == 1) me.send(2, cx::chunk(2 - k));
    if (k > 0 && me.rank() == 2) me.recv(1, cx::chunk(2 - k));
  }
};
constexpr bool keeps_channels_in_order() {
  plan p = cx::exec::record(detour{}, cx::all_reduce{}, 3, 1);
  cx::exec::fuse(p);
  return p.operations.size() == 3 && p.operations[1].out.size() == 1 && p.operations[1].segments[0].run == cx::chunk(1) &&
         p.operations[2].segments[0].run == cx::chunk(0);
}
static_assert(keeps_channels_in_order());

// drop_dead_stores: what is sent on and not kept is not stored; what a collective promises is.
constexpr int stores(plans const& all) {
  int sum = 0;
  for (plan const& p : all)
    for (operation const& o : p.operations)
      for (cx::exec::segment const& s : o.segments)
        if (cx::exec::detail::writes(s)) sum += s.run.count;
  return sum;
}
static_assert(stores(after(1, ring_reduce_scatter{}, cx::reduce_scatter{}, 4)) == 12 &&
              stores(after(2, ring_reduce_scatter{}, cx::reduce_scatter{}, 4)) == 4);
static_assert(stores(after(1, ring_all_reduce{}, cx::all_reduce{}, 4)) == 24 &&
              stores(after(2, ring_all_reduce{}, cx::all_reduce{}, 4)) == 16);
static_assert(stores(after(2, chain_reduce{}, cx::reduce{}, 4)) == 1);

// place: the input is never written, results are finished once, scratch is there where it is needed and only there.
template <class S, class C>
constexpr bool places(S const& schedule, C const& collective, int n, bool scratch) {
  bool any_scratch = false;
  for (plan const& p : after(3, schedule, collective, n)) {
    cx::exec::list<int> finished(p.form.chunks, 0), written(p.form.chunks, 0);
    bool uses_scratch = false;
    for (operation const& o : p.operations)
      for (cx::exec::segment const& s : o.segments) {
        for (cx::exec::source const& x : s.sources)
          if (x.from == place::local) return false;
        for (cx::exec::target const& x : s.targets) {
          if (x.to == place::local || x.to == place::input) return false;
          if (x.to == place::scratch) uses_scratch = true;
          for (int c = s.run.first; c < s.run.first + s.run.count; ++c) {
            if (x.finish) ++finished[c];
            if (x.to == place::output) ++written[c];
          }
        }
      }
    if (p.uses_scratch != uses_scratch) return false;
    any_scratch = any_scratch || uses_scratch;
    cx::chunks const kept = p.form.names(collective.output(n, p.rank));
    for (int c = 0; c < p.form.chunks; ++c) {
      bool const mine = c >= kept.first && c < kept.first + kept.count;
      if (!mine && (finished[c] != 0 || written[c] != 0)) return false;
      if (mine && C::reduces && finished[c] != 1) return false;
      if (mine && written[c] == 0) return false;
    }
  }
  return any_scratch == scratch;
}
static_assert(places(ring_all_reduce{}, cx::all_reduce{}, 4, false) && places(one_shot_all_reduce{}, cx::all_reduce{}, 4, false));
static_assert(places(ring_reduce_scatter{}, cx::reduce_scatter{}, 4, false));
static_assert(places(halving_reduce_scatter{}, cx::reduce_scatter{}, 8, true));
static_assert(places(ring_all_gather{}, cx::all_gather{}, 4, false) && places(chain_reduce{}, cx::reduce{}, 4, false));
static_assert(places(cx::reversed<chain_reduce>{}, cx::broadcast{}, 4, false));
static_assert(places(tree_reduce<numbering::first>{}, cx::reduce{}, 8, false));

// find_strands: both trees go their own ways, and each way up is another strand than its way down; a ring is one.
constexpr int strands(auto const& schedule, auto const& collective, int n, int rank) {
  return after(4, schedule, collective, n)[rank].strands;
}
static_assert(strands(ring_all_reduce{}, cx::all_reduce{}, 4, 0) == 1);
static_assert(strands(double_binary_tree{}.all_reduce(), cx::all_reduce{}, 4, 1) > 1);
static_assert(strands(ring_all_reduce{}, cx::all_reduce{}, 1, 0) == 1);
constexpr bool links_are_sound(plans const& all) {
  for (plan const& p : all)
    for (int j = 0; j < p.operations.size(); ++j) {
      if (p.operations[j].strand < 0 || p.operations[j].strand >= p.strands) return false;
      for (int const i : p.operations[j].after)
        if (i >= j || p.operations[i].strand == p.operations[j].strand || !cx::exec::detail::conflict(p.operations[i], p.operations[j]))
          return false;
    }
  return true;
}
static_assert(links_are_sound(after(4, double_binary_tree{}.all_reduce(), cx::all_reduce{}, 6)));
static_assert(links_are_sound(after(4, two_shot{}.all_reduce(), cx::all_reduce{}, 4)));

// find_lenders: a vector that is sent whole may be sent from the caller's memory unless the result replaces it; what a rank has got is
// passed on from the slot, and a finished part is sent from the result, in place as well.
constexpr bool lends(plan const& p, int operation, cx::exec::lending expected) { return p.operations[operation].lends == expected; }
constexpr plan made(auto const& schedule, auto const& collective, int n, int rank) {
  return cx::exec::make_plan(schedule, collective, n, rank);
}
using cx::exec::lending;
static_assert(lends(made(one_shot_all_reduce{}, cx::all_reduce{}, 2, 0), 0, lending::out_of_place));
static_assert(lends(made(one_shot_all_reduce{}, cx::all_reduce{}, 2, 0), 1, lending::never));
static_assert(lends(made(ring_all_reduce{}, cx::all_reduce{}, 4, 1), 0, lending::out_of_place));
static_assert(lends(made(ring_all_gather{}, cx::all_gather{}, 4, 1), 0, lending::always));
static_assert(lends(made(ring_all_gather{}, cx::all_gather{}, 4, 1), 1, lending::never));
/// Nothing that is lent is written by a later operation: by name, or where input and output are one memory.
constexpr bool lending_is_sound(plan const& p) {
  for (int i = 0; i < p.operations.size(); ++i)
    for (segment const& s : p.operations[i].segments)
      for (int j = i + 1; j < p.operations.size() && p.operations[i].lends != lending::never; ++j)
        for (segment const& later : p.operations[j].segments)
          if (cx::exec::detail::writes(later) && later.sources[0].from != place::input && cx::exec::detail::overlap(s.run, later.run) &&
              (p.operations[i].lends == lending::always || s.sources[0].from != place::input))
            return false;
  return true;
}
static_assert(lending_is_sound(made(halving_reduce_scatter{}, cx::reduce_scatter{}, 7, 3)));
static_assert(lending_is_sound(made(recursive_halving{}.all_reduce(), cx::all_reduce{}, 6, 2)));
static_assert(lending_is_sound(made(double_binary_tree{}.all_reduce(), cx::all_reduce{}, 6, 3)));

}  // namespace passes_test
