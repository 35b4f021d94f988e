// SPDX-License-Identifier: Apache-2.0
/// Groups on any hosts: `libfabric::join` and `composite::join` from a process that somebody has started, `run` as forked processes here.
/// Include it by name and link `collectx::libfabric`.
#pragma once

#include "collectx/launch.hpp"
#include "collectx/transport/composite.hpp"
#include "collectx/transport/libfabric.hpp"

namespace collectx {
inline namespace v0 {

namespace libfabric {

using options = libfabric_options;

/// Joins the group that `rendezvous` is about. Errors: see libfabric_transport::join.
template <class R>
result<communicator<libfabric_transport>> join(R&& rendezvous, options const& chosen = {}) noexcept {
  return detail::join_by<libfabric_transport>(rendezvous, chosen);
}

/// Runs f(communicator&) -> status on `size` ranks, each a forked process, and returns the first failure; a rank that dies is one.
template <class F>
status run(int size, options const& chosen, F&& f) {
  return detail::run_forked<libfabric_transport>(size, chosen, f);
}
template <class F>
status run(int size, F&& f) {
  return run(size, options{}, f);
}

}  // namespace libfabric

/// Shared memory inside hosts, libfabric between them.
namespace composite {

using options = composite_options;

/// Joins the group that `rendezvous` is about. Errors: see composite_transport::join.
template <class R>
result<communicator<composite_transport>> join(R&& rendezvous, options const& chosen = {}) noexcept {
  return detail::join_by<composite_transport>(rendezvous, chosen);
}

/// Runs f(communicator&) -> status on `size` ranks, each a forked process, and returns the first failure; a rank that dies is one.
template <class F>
status run(int size, options const& chosen, F&& f) {
  return detail::run_forked<composite_transport>(size, chosen, f);
}
template <class F>
status run(int size, F&& f) {
  return run(size, options{}, f);
}

}  // namespace composite

}  // namespace v0
}  // namespace collectx
