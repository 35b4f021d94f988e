// SPDX-License-Identifier: Apache-2.0
/// All algorithms of one collective on one group of processes, whatever wire it has.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "perform.hpp"
#include "sweep.hpp"

namespace support {

/// Every algorithm, placement and count of one collective, and what has to come of it. Made before the processes.
template <class C, class T, class Op>
class errand {
 public:
  errand(int n, std::vector<std::size_t> const& counts) : tasks_(tasks(n, counts)), expected_(n, tasks_, Op{}) {}

  template <class Comm>
  cx::status operator()(Comm& comm) const {
    for (task const& t : tasks_)
      if (cx::status failed = perform<C, T, false>(comm, t, expected_.of(t), Op{}); !failed) return failed;
    return {};
  }

 private:
  static std::vector<task> tasks(int n, std::vector<std::size_t> const& counts) {
    std::vector<task> all;
    for (algorithm const& a : algorithms_for<C>()) {
      if (!cx::is_commutative_v<Op, T> && !a.keeps_rank_order()) continue;
      for (std::size_t count : counts) {
        for (placement where : {placement::out_of_place, placement::in_place}) {
          std::uint64_t const salt = all.size() % 3;
          std::size_t const share = has_shares<C> && count > 5000 ? count / static_cast<std::size_t>(n) : count;
          all.push_back({&a, where, {share, salt, static_cast<int>(all.size()) % n}, all.size() % 2});
        }
      }
    }
    return all;
  }
  std::vector<task> tasks_;
  references<C, T, Op> expected_;
};

/// All errands, one after the other, on one group of n processes. `run(n, f)` starts them.
template <class Run, class... Errands>
void on_processes(Run const& run, int n, Errands const&... errands) {
  auto const each = [&](auto& comm) -> cx::status {
    cx::status s;
    static_cast<void>(((s = errands(comm)).ok() && ...));
    return s;
  };
  cx::status const s = run(n, each);
  CHECK_MESSAGE(s.ok(), std::string(s.what()));
}

/// Every collective: sums of numbers at `counts`, and what keeps the order of ranks at `few`.
template <class Run>
void every_collective(Run const& run, int n, std::vector<std::size_t> const& counts, std::vector<std::size_t> const& few) {
  auto const all = [&]<class... C>(C...) {
    on_processes(run, n, errand<C, std::int32_t, cx::sum>(n, counts)..., errand<C, affine, compose>(n, few)...);
  };
  all(cx::all_reduce{}, cx::reduce_scatter{}, cx::all_gather{}, cx::broadcast{}, cx::reduce{});
}

}  // namespace support
