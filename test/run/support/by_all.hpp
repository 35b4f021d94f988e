// SPDX-License-Identifier: Apache-2.0
/// One all-reduce by every algorithm there is.
#pragma once

#include <collectx/launch.hpp>

#include <string>
#include <vector>

#include "algorithms.hpp"
#include "ranks.hpp"

namespace support {

/// An all-reduce by every algorithm of what `input(rank)` gives; `accept` judges the result.
template <class T, class Op, class Input, class Accept>
void by_all(int n, Op const& op, Input const& input, Accept const& accept) {
  all_succeed(n, [&](auto& comm) -> cx::status {
    for (support::algorithm const& a : algorithms_for<cx::all_reduce>()) {
      if (!cx::is_commutative_v<Op, T> && !a.keeps_rank_order()) continue;
      std::vector<T> const in = input(comm.rank());
      std::vector<T> out(in.size());
      if (cx::status s = comm.all_reduce(in, out, op, a.template erased<!cx::is_commutative_v<Op, T>>()); !s) return s;
      if (!accept(out)) return wrong(comm.rank(), ("wrong result by " + a.name).c_str());
    }
    return {};
  });
}

}  // namespace support
