// SPDX-License-Identifier: Apache-2.0
// compile: -O0
// labels: sanitize
// The body of the example's kernel, by blocks of threads of the CPU.
#include "../../examples/fused_norm.cuh"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/on_blocks.hpp"

namespace cx = collectx;
using fused::number;

namespace {

using group_type = support::block_group<cx::device::flagged<>>;

cx::device::layout for_ranks(int n) {
  cx::device::layout l;
  l.ranks = n;
  l.blocks = 2;
  l.slots = l.low_latency = {1, 64};
  return l;
}

number some(std::size_t i, std::size_t salt) { return number(static_cast<float>((i * 37 + salt * 101) % 257) / 64.0F - 2.0F); }

struct ranks {
  int n, rows, hidden;
  std::vector<std::vector<number>> in, residual, out;
  std::vector<number> weight;
  std::vector<number const*> inputs;

  ranks(int size, int row_count, int width) : n(size), rows(row_count), hidden(width) {
    std::size_t const count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(hidden);
    for (int r = 0; r < n; ++r) {
      in.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i) in.back()[i] = some(i, static_cast<std::size_t>(r) + 1);
      residual.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i) residual.back()[i] = some(i, 100);
      out.emplace_back(count);
      inputs.push_back(in.back().data());
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(hidden); ++i) weight.push_back(some(i, 200));
  }

  fused::layer layer(int rank) {
    std::size_t const r = static_cast<std::size_t>(rank);
    return {inputs.data(), residual[r].data(), weight.data(), out[r].data(), rows, hidden, 1e-6F};
  }

  /// The sums to the bit, what is normalised to its rounding; the same on all ranks.
  int wrong() const {
    int wrong = 0;
    std::size_t const width = static_cast<std::size_t>(hidden);
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
      double squares = 0;
      std::vector<float> sums(width);
      for (std::size_t i = 0; i < width; ++i) {
        std::size_t const at = row * width + i;
        float sum = in[0][at];
        for (std::size_t r = 1; r < in.size(); ++r) sum += in[r][at];
        sums[i] = sum + some(at, 100);
        squares += static_cast<double>(sums[i]) * static_cast<double>(sums[i]);
      }
      double const scale = 1 / std::sqrt(squares / static_cast<double>(hidden) + 1e-6);
      for (std::size_t i = 0; i < width; ++i) {
        std::size_t const at = row * width + i;
        number const sum = sums[i];
        double const expected = static_cast<double>(static_cast<float>(sum)) * static_cast<double>(static_cast<float>(weight[i])) * scale;
        wrong += residual[0][at].bits == sum.bits ? 0 : 1;
        wrong += std::fabs(static_cast<double>(static_cast<float>(out[0][at])) - expected) <= std::fabs(expected) / 200 ? 0 : 1;
        for (std::size_t r = 1; r < in.size(); ++r)
          wrong += residual[r][at].bits == residual[0][at].bits && out[r][at].bits == out[0][at].bits ? 0 : 1;
      }
    }
    return wrong;
  }
};

}  // namespace

TEST_CASE("fused all-reduce, residual and norm: sums to the bit, the same on all ranks, twice in a row") {
  for (int n : {1, 2, 3}) {
    CAPTURE(n);
    for (int threads : {1, 3}) {
      ranks all(n, 3, 67);
      group_type group(for_ranks(n));
      std::vector<int> failed(static_cast<std::size_t>(n));
      for (int call = 0; call < 2; ++call) {
        for (auto& r : all.residual)
          for (std::size_t i = 0; i < r.size(); ++i) r[i] = some(i, 100);
        group.launch(2, threads, fused::shared_bytes(n, threads), [&](cx::device::cpu_block& block, int rank) {
          bool const good = fused::all_reduce_and_normalize(block, group.world(rank), all.layer(rank));
          if (block.rank() == 0 && block.index() == 0) failed[static_cast<std::size_t>(rank)] += good ? 0 : 1;
        });
        CHECK(all.wrong() == 0);
      }
      CHECK(failed == std::vector<int>(static_cast<std::size_t>(n)));
    }
  }
}

TEST_CASE("fused all-reduce, residual and norm: who does not come is reported") {
  ranks all(3, 2, 16);
  group_type group(for_ranks(3));
  group.timeout = 50'000'000;
  std::vector<int> good(3);
  group.launch(
      1, 2, fused::shared_bytes(3, 2),
      [&](cx::device::cpu_block& block, int rank) {
        bool const done = fused::all_reduce_and_normalize(block, group.world(rank), all.layer(rank));
        if (block.rank() == 0) good[static_cast<std::size_t>(rank)] += done ? 1 : 0;
      },
      1);
  CHECK(good == std::vector<int>(3));
  CHECK(group.reports(0)[0].verdict.culprit == 1);
}
