// SPDX-License-Identifier: Apache-2.0
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

#define COLLECTX_PERF_AGREES_OVER(wire)                                                                         \
  template collectx::status meet(collectx::communicator<collectx::wire##_transport>&);                          \
  template collectx::status slowest_of(collectx::communicator<collectx::wire##_transport>&, std::span<double>); \
  template collectx::status total_of(collectx::communicator<collectx::wire##_transport>&, std::int64_t&);
COLLECTX_PERF_AGREES_OVER(shared_memory)
COLLECTX_PERF_AGREES_OVER(loopback)
#if COLLECTX_PERF_LIBFABRIC
COLLECTX_PERF_AGREES_OVER(libfabric)
#endif

}  // namespace perf
