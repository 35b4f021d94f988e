// SPDX-License-Identifier: Apache-2.0
/// A job on GPUs: what the rest of the program, which is compiled without nvcc, sees of it.
#pragma once

#include <collectx/rendezvous/environment.hpp>

#include "measure.hpp"

namespace perf {

/// `what` by ranks that somebody has started, of which this is one, or by forked ones where `meeting` is null; GPUs by rank.
collectx::status measure_on_devices(job const& what, collectx::environment_rendezvous* meeting, row_taker take, void* context);

/// Slots and lanes between devices.
collectx::transport_options defaults_on_devices();

}  // namespace perf
