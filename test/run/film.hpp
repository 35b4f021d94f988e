// SPDX-License-Identifier: Apache-2.0
// Schedules written down, so that proofs and mutants of a hundred schedules are compiled once.
#pragma once

#include "collectx/algo/direct.hpp"
#include "collectx/algo/double_binary_tree.hpp"
#include "collectx/algo/hierarchical.hpp"
#include "collectx/algo/recursive_doubling.hpp"
#include "collectx/algo/recursive_halving.hpp"
#include "collectx/algo/ring.hpp"
#include "collectx/algo/striped.hpp"
#include "collectx/exec/prove.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace film_of {

namespace cx = collectx;
namespace algo = collectx::algo;

struct move {
  cx::exec::kind kind;
  int peer, lane;
  std::vector<cx::chunks> runs;
  template <class F>
  void for_each(F&& f) const {
    for (cx::chunks const run : runs) f(run);
  }
};

/// The RankContext that writes down.
struct recorder : cx::context_base {
  recorder(int rank, cx::exec::shape const& its_form, std::vector<move>& written) : my_rank(rank), form(its_form), moves(written) {}
  int my_rank;
  cx::exec::shape const& form;
  std::vector<move>& moves;
  int rank() const { return my_rank; }
  int size() const { return form.size; }
  int chunks() const { return form.chunks; }
  int blocks() const { return form.blocks; }
  template <cx::Runs R>
  void send(int peer, R const& runs, int lane = 0) {
    take(cx::exec::kind::send, peer, runs, lane);
  }
  template <cx::Runs R>
  void recv(int peer, R const& runs, int lane = 0) {
    take(cx::exec::kind::recv, peer, runs, lane);
  }
  template <cx::Runs R>
  void reduce(int peer, R const& runs, int lane = 0) {
    take(cx::exec::kind::reduce, peer, runs, lane);
  }

 private:
  template <class R>
  void take(cx::exec::kind kind, int peer, R const& runs, int lane) {
    begin(kind, peer, lane);
    runs.for_each([this](cx::chunks run) { add(run); });
    if (moves.back().runs.empty()) moves.pop_back();
  }
  [[gnu::noinline]] void begin(cx::exec::kind kind, int peer, int lane) { moves.push_back({kind, peer, lane, {}}); }
  [[gnu::noinline]] void add(cx::chunks run) {
    if (run.count > 0) moves.back().runs.push_back(run);
  }
};

template <cx::RankContext M>
void play(move const& m, M& me) {
  switch (m.kind) {
    case cx::exec::kind::send:
      return me.send(m.peer, m, m.lane);
    case cx::exec::kind::recv:
      return me.recv(m.peer, m, m.lane);
    case cx::exec::kind::reduce:
      return me.reduce(m.peer, m, m.lane);
  }
}

/// What a schedule does among n ranks, as a schedule.
class film {
 public:
  template <cx::Schedule S, cx::Collective C>
  film(S const& schedule, C const& collective, int n)
      : form_(cx::exec::shape_of(schedule, collective, n)), steps_(schedule.steps(n)), scenes_(static_cast<std::size_t>(steps_ * n)) {
    for (int k = 0; k < steps_; ++k)
      for (int r = 0; r < n; ++r) {
        recorder me(r, form_, scenes_[static_cast<std::size_t>(k * n + r)]);
        schedule.step(k, me);
      }
  }
  int steps(int) const { return steps_; }
  int parts(int) const { return form_.parts; }
  std::vector<move> const& scene(int k, int rank) const { return scenes_[static_cast<std::size_t>(k * form_.size + rank)]; }
  cx::exec::shape const& form() const { return form_; }
  template <cx::RankContext M>
  void step(int k, M& me) const {
    for (move const& m : scene(k, me.rank())) play(m, me);
  }

 private:
  cx::exec::shape form_;
  int steps_;
  std::vector<std::vector<move>> scenes_;
};

/// Calls `visit(name, film, collective, declared, n)` for the collectives that a family offers.
struct declared {
  bool rank_order, agreement;
};
template <class F, class C, class V>
void of_collective(char const* name, F const& family, C const& collective, int n, V&& visit) {
  if constexpr (cx::offers<F, C>) {
    auto const schedule = cx::schedule_of(family, collective);
    using schedule_type = std::remove_cv_t<decltype(schedule)>;
    if (!cx::admits(schedule, n)) return;
    visit(std::string(name) + "/" + C::name, film(schedule, collective, n), collective,
          declared{cx::keeps_rank_order<schedule_type>(), cx::agrees_bitwise<schedule_type>()});
  }
}
template <class F, class V>
void of_family(char const* name, F const& family, int n, V&& visit) {
  of_collective(name, family, cx::all_reduce{}, n, visit);
  of_collective(name, family, cx::reduce_scatter{}, n, visit);
  of_collective(name, family, cx::all_gather{}, n, visit);
  of_collective(name, family, cx::broadcast{}, n, visit);
  of_collective(name, family, cx::reduce{}, n, visit);
}

template <class V>
void of_flat_families(int n, V&& visit) {
  of_family("ring", algo::ring{}, n, visit);
  of_family("recursive_halving", algo::recursive_halving{}, n, visit);
  of_family("recursive_doubling", algo::recursive_doubling{}, n, visit);
  of_family("striped<ring>", algo::striped<algo::ring>{}, n, visit);
  of_family("double_binary_tree", algo::double_binary_tree{}, n, visit);
  of_family("direct", algo::direct{}, n, visit);
  of_family("two_shot", algo::two_shot{}, n, visit);
  of_family("central", algo::central{}, n, visit);
}

/// Groups of any kind, behind one type, so that two-level schedules are compiled once for all of them.
class any_groups {
 public:
  static constexpr bool contiguous = true;
  template <algo::Groups G>
  static any_groups like() {
    static_assert(G::contiguous);
    any_groups g;
    g.count_ = [](int n) { return G{}.count(n); };
    g.size_ = [](int group, int n) { return G{}.size(group, n); };
    g.of_ = [](int rank, int n) { return G{}.of(rank, n); };
    g.index_ = [](int rank, int n) { return G{}.index(rank, n); };
    g.rank_of_ = [](int group, int index, int n) { return G{}.rank_of(group, index, n); };
    g.admits_ = [](int n) { return G{}.admits(n); };
    return g;
  }
  int count(int n) const { return count_(n); }
  int size(int group, int n) const { return size_(group, n); }
  int of(int rank, int n) const { return of_(rank, n); }
  int index(int rank, int n) const { return index_(rank, n); }
  int rank_of(int group, int index, int n) const { return rank_of_(group, index, n); }
  bool admits(int n) const { return admits_(n); }
  friend bool operator==(any_groups const&, any_groups const&) = default;

 private:
  int (*count_)(int) = nullptr;
  int (*size_)(int, int) = nullptr;
  int (*of_)(int, int) = nullptr;
  int (*index_)(int, int) = nullptr;
  int (*rank_of_)(int, int, int) = nullptr;
  bool (*admits_)(int) = nullptr;
};

/// Every family inside and every family outside at least once, with blocks and through leaders.
template <class Inner, class Outer>
constexpr auto two_levels(any_groups const& groups) {
  return algo::hierarchical<Inner, Outer, any_groups>{{}, {}, groups};
}
template <class V>
void of_two_levels(any_groups const& groups, int n, V&& visit) {
  of_family("hierarchical<ring, ring>", two_levels<algo::ring, algo::ring>(groups), n, visit);
  of_family("hierarchical<ring, tree>", two_levels<algo::ring, algo::double_binary_tree>(groups), n, visit);
  of_family("hierarchical<halving, two_shot>", two_levels<algo::recursive_halving, algo::two_shot>(groups), n, visit);
  of_family("hierarchical<direct, halving>", two_levels<algo::direct, algo::recursive_halving>(groups), n, visit);
  of_family("hierarchical<two_shot, direct>", two_levels<algo::two_shot, algo::direct>(groups), n, visit);
  of_family("hierarchical<tree, central>", two_levels<algo::double_binary_tree, algo::central>(groups), n, visit);
  of_family("hierarchical<central, tree>", two_levels<algo::central, algo::double_binary_tree>(groups), n, visit);
}

}  // namespace film_of
