// SPDX-License-Identifier: Apache-2.0
#include "measure_type.hpp"

namespace perf {

template collectx::status measure_type<collectx::loopback_transport, std::int16_t>(collectx::communicator<collectx::loopback_transport>&,
                                                                                   job const&, row_taker, void*);
template collectx::status measure_type<collectx::shared_memory_transport, std::int16_t>(
    collectx::communicator<collectx::shared_memory_transport>&, job const&, row_taker, void*);
template collectx::status measure_type<collectx::loopback_transport, std::uint16_t>(collectx::communicator<collectx::loopback_transport>&,
                                                                                    job const&, row_taker, void*);
template collectx::status measure_type<collectx::shared_memory_transport, std::uint16_t>(
    collectx::communicator<collectx::shared_memory_transport>&, job const&, row_taker, void*);

}  // namespace perf
