// SPDX-License-Identifier: Apache-2.0
/// What both units of BLD-01 instantiate: the same templates, which one program must be able to hold twice.
#pragma once

#include "collectx/collectx.hpp"

#include <array>

void const* left_category();
void const* right_category();
int left_sum(int ranks);
int right_sum(int ranks);

/// 1 + 2 + ... + ranks as every rank sees it, or -1.
inline int units_sum(int ranks) {
  int const expected = ranks * (ranks + 1) / 2;
  collectx::status const s = collectx::loopback::run(ranks, [expected](auto& comm) -> collectx::status {
    std::array<int, 7> data{};
    data.fill(comm.rank() + 1);
    if (collectx::status const failed = comm.all_reduce(collectx::in_place(data), collectx::sum{}); !failed) return failed;
    for (int const x : data)
      if (x != expected) return collectx::status::failure(collectx::errc::mismatch, comm.rank(), "%d is not %d", x, expected);
    return {};
  });
  return s.ok() ? expected : -1;
}
