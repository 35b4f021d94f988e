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

/// Every algorithm, placement and count, all on one group of n processes. The references are made before the fork.
/// `run(n, f)` starts them.
template <class C, class T, class Run, class Op>
void on_processes(Run const& run, int n, std::vector<std::size_t> const& counts, Op const& op) {
  std::vector<task> tasks;
  for (algorithm const& a : algorithms_for<C>()) {
    if (!cx::is_commutative_v<Op, T> && !a.keeps_rank_order()) continue;
    for (std::size_t count : counts) {
      for (placement where : {placement::out_of_place, placement::in_place}) {
        std::uint64_t const salt = tasks.size() % 3;
        std::size_t const share = has_shares<C> && count > 5000 ? count / static_cast<std::size_t>(n) : count;
        tasks.push_back({&a, where, {share, salt, static_cast<int>(tasks.size()) % n}, tasks.size() % 2});
      }
    }
  }
  references<C, T, Op> const expected(n, tasks, op);
  auto const each = [&](auto& comm) -> cx::status {
    for (task const& t : tasks)
      if (cx::status failed = perform<C, T, false>(comm, t, expected.of(t), op); !failed) return failed;
    return {};
  };
  cx::status const s = run(n, each);
  CHECK_MESSAGE(s.ok(), std::string(s.what()));
}

}  // namespace support
