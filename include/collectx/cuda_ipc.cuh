// SPDX-License-Identifier: Apache-2.0
/// Groups whose ranks own a GPU each: `cuda_ipc::join` from a process that somebody has started, `run` as forked processes here. Include it
/// by name, compile with nvcc, and link `collectx::cuda`.
#pragma once

#include "collectx/launch.hpp"
#include "collectx/transport/cuda_ipc.cuh"

namespace collectx {
inline namespace v0 {
namespace cuda_ipc {

using options = cuda_ipc_options;

/// Joins the group that `rendezvous` is about. Errors: see cuda_ipc_transport::join.
template <class R>
result<communicator<cuda_ipc_transport>> join(R&& rendezvous, options const& chosen = {}) {
  return detail::join_by<cuda_ipc_transport>(rendezvous, chosen);
}

/// Runs f(communicator&) -> status on `size` ranks, each a forked process, and returns the first failure; a rank that dies is one.
/// @pre this process has not used a device: what it has of one does not survive the fork
template <class F>
status run(int size, options const& chosen, F&& f) {
  return detail::run_forked<cuda_ipc_transport>(size, chosen, f);
}
template <class F>
status run(int size, F&& f) {
  return run(size, options{}, f);
}

}  // namespace cuda_ipc
}  // namespace v0
}  // namespace collectx
