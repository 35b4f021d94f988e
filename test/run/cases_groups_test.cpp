// SPDX-License-Identifier: Apache-2.0
// compile: -O0
// timeout: 180
/// Roots, nodes, groups that overlap, long sequences of calls, many communicators at once.
#include <collectx/algo/hierarchical.hpp>
#include <collectx/launch.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "processes.hpp"
#include "support/algorithms.hpp"
#include "support/ranks.hpp"

namespace cx = collectx;
using support::algorithms_for;
using support::all_succeed;
using support::wrong;

namespace {

/// Two nodes of two ranks: rank r is on node[r].
struct on_two_nodes {
  static constexpr bool contiguous = false;
  int node[4] = {};
  constexpr bool admits(int n) const { return n == 4; }
  constexpr int count(int) const { return 2; }
  constexpr int size(int, int) const { return 2; }
  constexpr int of(int rank, int) const { return node[rank]; }
  constexpr int index(int rank, int) const {
    int before = 0;
    for (int r = 0; r < rank; ++r) before += node[r] == node[rank];
    return before;
  }
  constexpr int rank_of(int group, int place, int) const {
    int rank = 0;
    while (node[rank] != group || place-- > 0) ++rank;
    return rank;
  }
  friend constexpr bool operator==(on_two_nodes, on_two_nodes) = default;
};

/// Calls f(family) for families on the same nodes.
template <class Nodes, class F>
cx::status on_nodes(Nodes const& nodes, F&& f) {
  using namespace cx::algo;
  if (cx::status s = f(hierarchical<ring, double_binary_tree, Nodes>{{}, {}, nodes}); !s) return s;
  if (cx::status s = f(hierarchical<direct, recursive_halving, Nodes>{{}, {}, nodes}); !s) return s;
  return f(hierarchical<ring, ring, Nodes>{{}, {}, nodes});
}

template <class Comm, class A>
cx::status sum_is(Comm& comm, int expected, A const& algorithm) {
  std::vector<int> in{comm.rank() + 1, comm.rank() + 1, comm.rank() + 1}, out(3);
  if (cx::status s = comm.all_reduce(in, out, cx::sum{}, algorithm); !s) return s;
  return out == std::vector<int>(3, expected) ? cx::status{} : wrong(comm.rank(), "wrong sum");
}

template <class Comm, class A>
cx::status gathers(Comm& comm, A const& algorithm) {
  std::vector<int> in{comm.rank()}, out(static_cast<std::size_t>(comm.size()));
  if (cx::status s = comm.all_gather(in, out, algorithm); !s) return s;
  for (int r = 0; r < comm.size(); ++r)
    if (out[static_cast<std::size_t>(r)] != r) return wrong(comm.rank(), "wrong gather");
  return {};
}

template <class Comm, class A>
cx::status scatters(Comm& comm, A const& algorithm) {
  int const n = comm.size();
  std::vector<int> in(static_cast<std::size_t>(n)), out(1);
  for (int i = 0; i < n; ++i) in[static_cast<std::size_t>(i)] = comm.rank() + i;
  if (cx::status s = comm.reduce_scatter(in, out, cx::sum{}, algorithm); !s) return s;
  return out[0] == n * comm.rank() + n * (n - 1) / 2 ? cx::status{} : wrong(comm.rank(), "wrong share");
}

template <class Comm, class A>
cx::status broadcasts_and_reduces(Comm& comm, A const& algorithm) {
  for (int root = 0; root < comm.size(); ++root) {
    std::vector<int> both(5, comm.rank() == root ? root + 50 : -1);
    if (cx::status s = comm.broadcast(both, root, algorithm); !s) return s;
    if (both != std::vector<int>(5, root + 50)) return wrong(comm.rank(), "wrong broadcast");
    std::vector<int> out(5, -1);
    if (cx::status s = comm.reduce(both, out, cx::sum{}, root, algorithm); !s) return s;
    if (comm.rank() == root && out != std::vector<int>(5, (root + 50) * comm.size())) return wrong(comm.rank(), "wrong reduce");
  }
  return {};
}

/// All that a hierarchy on these nodes offers.
template <class Nodes>
void everything_on(int n, int sum, Nodes const& nodes = {}) {
  CAPTURE(n);
  all_succeed(n, [sum, &nodes](auto& comm) -> cx::status {
    cx::status s = on_nodes(nodes, [&](auto const& family) -> cx::status {
      using family_type = std::remove_cvref_t<decltype(family)>;
      if (cx::status failed = sum_is(comm, sum, family); !failed) return failed;
      if constexpr (cx::offers<family_type, cx::all_gather>)
        if (cx::status failed = gathers(comm, family); !failed) return failed;
      if constexpr (cx::offers<family_type, cx::reduce_scatter>)
        if (cx::status failed = scatters(comm, family); !failed) return failed;
      if constexpr (cx::offers<family_type, cx::broadcast>)
        if (cx::status failed = broadcasts_and_reduces(comm, family); !failed) return failed;
      return comm.barrier(family);
    });
    return s;
  });
}

}  // namespace

TEST_CASE("TOP-03: nodes of very different sizes") {
  everything_on<cx::algo::sizes<7, 8>>(15, 120);
  everything_on<cx::algo::sizes<1, 2>>(3, 6);
  everything_on<cx::algo::sizes<3, 1, 2>>(6, 21);
  everything_on<cx::algo::sizes<1, 1, 5>>(7, 28);
}

TEST_CASE("TOP-01: two nodes of two ranks, placed in all six ways: every root, and every rank's own values") {
  for (on_two_nodes const& nodes : {on_two_nodes{{0, 0, 1, 1}}, on_two_nodes{{0, 1, 0, 1}}, on_two_nodes{{0, 1, 1, 0}},
                                    on_two_nodes{{1, 0, 0, 1}}, on_two_nodes{{1, 0, 1, 0}}, on_two_nodes{{1, 1, 0, 0}}})
    everything_on(4, 10, nodes);
}

TEST_CASE("ONE-03: nodes of one rank, one node for all, and both") {
  everything_on<cx::algo::sizes<1, 1, 1>>(3, 6);
  everything_on<cx::algo::sizes<3>>(3, 6);
  everything_on<cx::algo::sizes<1, 1, 2>>(4, 10);
}

TEST_CASE("ROO-04: a million elements from root 3 in pieces that do not divide them") {
  cx::loopback::options uneven;
  uneven.slots = 8;
  uneven.slot_bytes = 65536 + 64;
  all_succeed(4, uneven, [](auto& comm) -> cx::status {
    constexpr std::size_t count = 1000000;
    for (support::algorithm const& a : algorithms_for<cx::broadcast>()) {
      std::vector<std::int32_t> both(count, -1);
      for (std::size_t i = 0; comm.rank() == 3 && i < count; ++i) both[i] = static_cast<std::int32_t>(i);
      if (cx::status s = comm.broadcast(both, 3, a.erased()); !s) return s;
      for (std::size_t i = 0; i < count; ++i)
        if (both[i] != static_cast<std::int32_t>(i)) return wrong(comm.rank(), ("wrong element by " + a.name).c_str());
    }
    return {};
  });
}

TEST_CASE("TUN-01: what is chosen depends on nothing that ranks could see differently") {
  // `choose` is told what the call is, and what all ranks know alike; at every size all ranks agree, whoever they are.
  static_assert(std::is_same_v<decltype(&cx::algo::choose), cx::algo::choice (*)(cx::algo::situation const&, int, std::size_t)>);
  all_succeed(4, [](auto& comm) -> cx::status {
    for (std::size_t count = 2; count <= std::size_t{1} << 22; count *= 2) {
      std::vector<int> both(count, comm.rank() + 1);
      if (cx::status s = comm.all_reduce(cx::in_place(both), cx::sum{}); !s) return s;
      if (both.front() != 10 || both.back() != 10) return wrong(comm.rank(), "wrong sum");
    }
    return {};
  });
}

TEST_CASE("ORD-01: 70000 barriers, more than 16 bits can count") {
  all_succeed(2, [](auto& comm) -> cx::status {
    for (int i = 0; i < 70000; ++i)
      if (cx::status s = comm.barrier(); !s) return s;
    std::vector<int> in{comm.rank() + 1}, out(1);
    if (cx::status s = comm.all_reduce(in, out, cx::sum{}); !s) return s;
    return out[0] == 3 ? cx::status{} : wrong(comm.rank(), "wrong sum");
  });
}

TEST_CASE("ORD-01: tags differ between neighbours at every number of a call that a narrow counter would take for another") {
  for (int bits : {8, 15, 16, 23, 31, 32, 63}) {
    std::uint64_t const around = (std::uint64_t{1} << bits) - 3;
    for (std::uint64_t i = 0; i < 8; ++i) {
      std::uint32_t const tag = cx::detail::tag_of(1, 100, around + i);
      CHECK(tag != 0);
      CHECK(tag != cx::detail::tag_of(1, 100, around + i + 1));
      for (int period : {8, 16, 31, 32}) CHECK(tag != cx::detail::tag_of(1, 100, around + i + (std::uint64_t{1} << period)));
    }
  }
}

TEST_CASE("ORD-07: 20000 all-reduces back to back between processes, with counts that change") {
  cx::status const s = cx::shared_memory::run(4, [](auto& comm) -> cx::status {
    constexpr std::size_t counts[] = {1, 4096, 7, 65536, 2};
    std::vector<int> in(65536), out(65536);
    for (int it = 0; it < 20000; ++it) {
      std::size_t const count = counts[it % 5];
      std::span<int> const mine = std::span(in).first(count), result = std::span(out).first(count);
      std::fill(mine.begin(), mine.end(), it + comm.rank());
      if (cx::status failed = comm.all_reduce(mine, result, cx::sum{}); !failed) return failed;
      if (std::count(result.begin(), result.end(), 4 * it + 6) != static_cast<std::ptrdiff_t>(count))
        return wrong(comm.rank(), "wrong sum");
    }
    return {};
  });
  CHECK_MESSAGE(s.ok(), support::text(s));
}

TEST_CASE("ORD-09: three groups of two out of three ranks, used in different orders") {
  auto ab = cx::loopback::group::create(2), bc = cx::loopback::group::create(2), ac = cx::loopback::group::create(2);
  REQUIRE((ab && bc && ac));
  cx::status ends[3];
  auto const pair = [](cx::loopback::group& group, int rank) { return cx::communicator<cx::loopback_transport>(*group.transport(rank)); };
  auto const sum = [](auto& comm, int mine, int expected) -> cx::status {
    std::vector<int> both{mine};
    if (cx::status s = comm.all_reduce(cx::in_place(both), cx::sum{}); !s) return s;
    return both[0] == expected ? cx::status{} : wrong(comm.rank(), "wrong sum");
  };
  auto const member = [&](int who, cx::loopback::group& first, int rank_in_first, int expected_first, cx::loopback::group& second,
                          int rank_in_second, int expected_second, int mine) {
    auto one = pair(first, rank_in_first);
    auto two = pair(second, rank_in_second);
    cx::status s;
    for (int round = 0; round < 1000 && s.ok(); ++round) {
      s = sum(one, mine, expected_first);
      if (s.ok()) s = sum(two, mine, expected_second);
    }
    ends[who] = s;
  };
  std::thread a([&] { member(0, *ab, 0, 11, *ac, 0, 101, 1); });
  std::thread b([&] { member(1, *ab, 1, 11, *bc, 0, 110, 10); });
  std::thread c([&] { member(2, *bc, 1, 110, *ac, 1, 101, 100); });
  a.join();
  b.join();
  c.join();
  for (cx::status const& s : ends) CHECK_MESSAGE(s.ok(), support::text(s));
}

TEST_CASE("ORD-11: any number of lanes and slots gives the same sums") {
  for (int lanes : {1, 2, 3, 4, 7}) {
    for (int slots : {2, 3, 64}) {
      cx::loopback::options o;
      o.lanes = lanes;
      o.slots = slots;
      o.slot_bytes = 4096;
      all_succeed(2, o, [](auto& comm) -> cx::status {
        std::vector<int> in(409600), out(409600);
        for (std::size_t i = 0; i < in.size(); ++i) in[i] = (comm.rank() + 1) * static_cast<int>(i % 97);
        for (support::algorithm const& a : algorithms_for<cx::all_reduce>()) {
          if (a.face->lanes(0) > comm.transport().lanes()) continue;
          if (cx::status s = comm.all_reduce(in, out, cx::sum{}, a.erased()); !s) return s;
          for (std::size_t i = 0; i < out.size(); ++i)
            if (out[i] != 3 * static_cast<int>(i % 97)) return wrong(comm.rank(), ("wrong sum by " + a.name).c_str());
        }
        return {};
      });
    }
  }
}

TEST_CASE("ORD-04, SHM-03: two processes of eight threads, a communicator for each thread, all at once") {
  constexpr int threads = 8;
  std::vector<cx::in_process_rendezvous> tables;
  for (int t = 0; t < threads; ++t) {
    auto table = cx::in_process_rendezvous::create(2);
    REQUIRE(table.has_value());
    tables.push_back(std::move(*table));
  }
  auto const one_thread = [](cx::in_process_rendezvous rendezvous, int t) -> cx::status {
    auto comm = cx::shared_memory::join(rendezvous);
    if (!comm) return comm.error();
    constexpr std::size_t counts[] = {1, 17, 4096};
    std::vector<int> in(4096), out(4096);
    for (int round = 0; round < 500; ++round) {
      std::size_t const count = counts[round % 3];
      std::fill(in.begin(), in.end(), 100 * t + comm->rank());
      std::span<int> const result = std::span(out).first(count);
      if (cx::status s = comm->all_reduce(std::span(in).first(count), result, cx::sum{}); !s) return s;
      if (std::count(result.begin(), result.end(), 200 * t + 1) != static_cast<std::ptrdiff_t>(count))
        return wrong(comm->rank(), "wrong sum");
    }
    return {};
  };
  processes::group ranks(2);
  for (int r = 0; r < 2; ++r) {
    ranks.start([&, r]() -> cx::status {
      return processes::by_threads(threads, [&](int t) { return one_thread(tables[static_cast<std::size_t>(t)].of(r), t); });
    });
  }
  ranks.wait();
  for (int r = 0; r < 2; ++r) CHECK_MESSAGE(ranks[r].code == 0, std::string(ranks[r].text));
}

TEST_CASE("DIE-01: a process leaves without a word between two communicators: the other hears of it on the second") {
  for (int gone : {0, 1}) {
    auto first = cx::in_process_rendezvous::create(2), second = cx::in_process_rendezvous::create(2);
    REQUIRE((first && second));
    processes::group ranks(2);
    for (int r = 0; r < 2; ++r) {
      ranks.start([&, r]() -> cx::status {
        auto one = cx::shared_memory::join(first->of(r));
        auto two = cx::shared_memory::join(second->of(r));
        if (!one) return one.error();
        if (!two) return two.error();
        if (cx::status s = one->barrier(); !s) return s;
        if (r == gone) ::_exit(86);
        std::vector<int> both(1000);
        return two->all_reduce(cx::in_place(both), cx::sum{});
      });
    }
    ranks.wait();
    CHECK_MESSAGE(ranks[1 - gone].code == static_cast<int>(cx::errc::peer_lost), std::string(ranks[1 - gone].text));
    CHECK(ranks[1 - gone].rank == gone);
    CHECK(ranks[1 - gone].seconds < 20);  // long before any deadline
  }
}
