// SPDX-License-Identifier: Apache-2.0
// compile: -O0
// timeout: 120
#include <collectx/libfabric.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "network/hosts.hpp"
#include "network/ready.hpp"
#include "processes.hpp"
#include "support/on_processes.hpp"

namespace cx = collectx;

namespace {

/// f(communicator&) -> status on as many ranks as `where` names hosts for; what the first rank that failed says.
template <class F>
cx::status on_hosts(network::hosts const& hosts, std::vector<int> const& where, F& f) {
  int const n = static_cast<int>(where.size());
  auto table = cx::in_process_rendezvous::create(n);
  if (!table) return table.error();
  processes::group ranks(n);
  for (int r = 0; r < n; ++r) {
    ranks.start([&, r]() -> cx::status {
      if (!hosts.enter(where[static_cast<std::size_t>(r)]))
        return cx::status::system(errno, "cannot enter host %d", where[static_cast<std::size_t>(r)]);
      auto comm = cx::composite::join(table->of(r));
      if (!comm) return comm.error();
      cx::status const s = f(*comm);
      return s.ok() ? s : comm->abort(s);
    });
  }
  ranks.wait();
  for (int r = 0; r < n; ++r) {
    if (ranks[r].code != 0) return cx::status::failure(static_cast<cx::errc>(ranks[r].code), r, "rank %d: %s", r, ranks[r].text);
  }
  return {};
}

}  // namespace

TEST_CASE("every collective on hosts in uneven placement: every algorithm, count, placement and root") {
  auto const hosts = network::hosts::make(3);
  if (!hosts) return;
  for (std::vector<int> const& where : {std::vector{0, 1, 1, 0}, std::vector{0, 1}, std::vector{2, 0, 0, 1, 0}}) {
    CAPTURE(where.size());
    auto const run = [&](int, auto& f) { return on_hosts(*hosts, where, f); };
    support::every_collective(run, static_cast<int>(where.size()), {0, 1, 5, 1000, 65537}, {1, 3000});
  }
}

TEST_CASE("hosts are numbered by their first ranks, and are the groups of hierarchical algorithms") {
  auto const hosts = network::hosts::make(2);
  if (!hosts) return;
  auto f = [](auto& comm) -> cx::status {
    cx::algo::placed const nodes = comm.nodes();
    int const expected[] = {0, 1, 1, 0};
    bool good = nodes.count(4) == 2 && nodes.size(0, 4) == 2 && nodes.rank_of(0, 1, 4) == 3 && nodes.rank_of(1, 0, 4) == 1;
    for (int r = 0; r < 4; ++r) good = good && comm.transport().node_of(r) == expected[r] && nodes.of(r, 4) == expected[r];
    if (!good) return cx::status::failure(cx::errc::system, comm.rank(), "rank %d sees other hosts", comm.rank());
    std::vector<std::int32_t> in(1001, comm.rank() + 1), out(1001);
    if (cx::status s = comm.all_reduce(in, out, cx::sum{}, cx::algo::hierarchical<cx::algo::ring, cx::algo::two_shot>{}); !s) return s;
    bool right = *std::min_element(out.begin(), out.end()) == 10 && *std::max_element(out.begin(), out.end()) == 10;
    // Short and long, by the library's choice: a long one goes by hosts.
    for (std::size_t count : {std::size_t{3}, std::size_t{200000}}) {
      std::vector<std::int32_t> both(count, comm.rank() + 1);
      if (cx::status s = comm.all_reduce(cx::in_place(both), cx::sum{}); !s) return s;
      right = right && *std::min_element(both.begin(), both.end()) == 10 && *std::max_element(both.begin(), both.end()) == 10;
    }
    return right ? cx::status{} : cx::status::failure(cx::errc::system, comm.rank(), "rank %d has a wrong sum", comm.rank());
  };
  cx::status const s = on_hosts(*hosts, {1, 0, 0, 1}, f);
  CHECK_MESSAGE(s.ok(), std::string(s.what()));
}

static_assert(cx::algo::two_levels_pay({{4, 2}}, 4, 1 << 20) && !cx::algo::two_levels_pay({{4, 2}}, 4, 1000));
static_assert(!cx::algo::two_levels_pay({{4, 1}}, 4, 1 << 20) && !cx::algo::two_levels_pay({{4, 4}}, 4, 1 << 20));
