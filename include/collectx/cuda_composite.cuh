// SPDX-License-Identifier: Apache-2.0
/// Groups whose ranks own a GPU each, on any hosts: `cuda_composite::join` from a process that somebody has started. Include it by name,
/// compile with nvcc, and link `collectx::cuda` and `collectx::libfabric`.
#pragma once

#include "collectx/launch.hpp"
#include "collectx/transport/cuda_composite.cuh"

namespace collectx {
inline namespace v0 {
namespace cuda_composite {

using options = cuda_composite_options;

/// Joins the group that `rendezvous` is about. Errors: see cuda_composite_transport::join.
template <class R>
result<communicator<cuda_composite_transport>> join(R&& rendezvous, options const& chosen = {}) {
  return detail::join_by<cuda_composite_transport>(rendezvous, chosen);
}

/// Runs f(communicator&) -> status on `size` ranks, each a forked process, and returns the first failure; a rank that dies is one.
/// @pre this process has not used a device: what it has of one does not survive the fork
template <class F>
status run(int size, options const& chosen, F&& f) {
  return detail::run_forked<cuda_composite_transport>(size, chosen, f);
}
template <class F>
status run(int size, F&& f) {
  return run(size, options{}, f);
}

}  // namespace cuda_composite
}  // namespace v0
}  // namespace collectx
