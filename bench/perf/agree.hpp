// SPDX-License-Identifier: Apache-2.0
/// What the ranks of a measurement tell each other, for those who instantiate it.
#pragma once

#include "measure.hpp"

namespace perf {

/// The library's choice for a short all-reduce, by the one instantiation that serves all algorithms.
inline any_algorithm for_few_bytes(int ranks) { return {automatic_choice(collective::all_reduce, ranks, 8)}; }

template <class Tr>
collectx::status meet(collectx::communicator<Tr>& comm) {
  return comm.barrier(for_few_bytes(comm.size()));
}

template <class Tr>
collectx::status slowest_of(collectx::communicator<Tr>& comm, std::span<double> seconds) {
  return comm.all_reduce(collectx::in_place(seconds), collectx::max{}, for_few_bytes(comm.size()));
}

template <class Tr>
collectx::status total_of(collectx::communicator<Tr>& comm, std::int64_t& count) {
  return comm.all_reduce(collectx::in_place(std::span(&count, 1)), collectx::sum{}, for_few_bytes(comm.size()));
}

}  // namespace perf
