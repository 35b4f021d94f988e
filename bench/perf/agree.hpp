// SPDX-License-Identifier: Apache-2.0
/// What the ranks of a measurement tell each other, for those who instantiate it.
#pragma once

#include "measure.hpp"

namespace perf {

template <class Tr>
collectx::status meet(collectx::communicator<Tr>& comm) {
  return comm.barrier();
}

template <class Tr>
collectx::status slowest_of(collectx::communicator<Tr>& comm, std::span<double> seconds) {
  return comm.all_reduce(collectx::in_place(seconds), collectx::max{});
}

template <class Tr>
collectx::status total_of(collectx::communicator<Tr>& comm, std::int64_t& count) {
  return comm.all_reduce(collectx::in_place(std::span(&count, 1)), collectx::sum{});
}

}  // namespace perf
