// SPDX-License-Identifier: Apache-2.0
/// What a time means in bytes per second: the definitions of nccl-tests (doc/PERFORMANCE.md), in one function.
#pragma once

#include <cstddef>

namespace perf {

enum class collective { all_reduce, reduce_scatter, all_gather, broadcast, reduce };

struct bandwidth {
  double algorithm = 0;  ///< GB/s, 1 GB = 1e9 bytes
  double bus = 0;        ///< what a wire between ranks has to carry of it: comparable between collectives and numbers of ranks
};

/// `bytes` of the whole vector: of an all-gather the total output, of a reduce-scatter the total input, so that the algorithm bandwidth
/// holds no factor of n. Among one rank nothing is on the wire; nothing in no time is no bandwidth: the result is always finite.
constexpr bandwidth bandwidth_of(collective what, int ranks, std::size_t bytes, double seconds) {
  if (bytes == 0 || seconds <= 0) return {};
  double const algorithm = static_cast<double>(bytes) / seconds * 1e-9;
  double const n = ranks;
  switch (what) {
    case collective::all_reduce:
      return {algorithm, algorithm * 2 * (n - 1) / n};
    case collective::reduce_scatter:
    case collective::all_gather:
      return {algorithm, algorithm * (n - 1) / n};
    case collective::broadcast:
    case collective::reduce:
      break;
  }
  return {algorithm, ranks > 1 ? algorithm : 0};
}

}  // namespace perf
