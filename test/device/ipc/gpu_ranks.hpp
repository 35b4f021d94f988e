// SPDX-License-Identifier: Apache-2.0
/// Ranks as forked processes that own a device of the stand-in, and what they do with it.
#pragma once

#include <collectx/cuda_ipc.cuh>

#include "../../run/processes.hpp"
#include "gpu_memory.hpp"
#if ON_GPU
#include "../gpu/standin.hpp"
#else
#include "../standin/serial_block.hpp"
#endif

namespace gpu {

namespace cx = collectx;
using communicator = cx::communicator<cx::cuda_ipc_transport>;

/// Small, so that a few thousand elements take several pieces on several blocks.
inline cx::cuda_ipc::options small() {
  cx::cuda_ipc::options o;
  o.blocks = 2;
  o.slots = {2, 4096};
  o.low_latency = {2, 1024};
  o.host_slots = 4;
  o.host_slot_bytes = 4096;
  o.device = 0;
  o.join_timeout = std::chrono::seconds(20);
  return o;
}

/// Starts `size` ranks, each of which joins and runs f(comm) -> status; `before(rank)` comes first.
template <class Before, class F>
void start(processes::group& group, cx::in_process_rendezvous& table, int size, cx::cuda_ipc::options const& options, Before before, F f) {
  for (int r = 0; r < size; ++r)
    group.start([&table, &options, before, f, r]() -> cx::status {
      before(r);
      auto mine = table.of(r);
      auto comm = cx::cuda_ipc::join(mine, options);
      return comm ? f(*comm) : comm.error();
    });
}

/// The same, to the end; the first failure.
template <class F>
cx::status run(int size, F f, cx::cuda_ipc::options const& options = small()) {
  return cx::cuda_ipc::run(size, options, f);
}

}  // namespace gpu
