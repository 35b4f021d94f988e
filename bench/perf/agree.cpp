// SPDX-License-Identifier: Apache-2.0
#include "agree.hpp"

namespace perf {

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
