// SPDX-License-Identifier: Apache-2.0
/// From a run to a finished call: advancing it, waiting within a deadline, and saying what went wrong.
#pragma once

#include "collectx/exec/run.hpp"

namespace collectx {
inline namespace v0 {
namespace exec {

namespace detail {

/// The deadline has passed: the sentence says where this rank stood, and blames the rank at the end of the chain of waits.
template <class Run, Transport Tr>
[[gnu::noinline]] status call_is_late(Run const& run, Tr& transport, call_record const& record, nanoseconds waited) {
  int const culprit = transport.blame(run.peer());
  char absent[80];
  transport.absent(absent, sizeof absent);
  return status::failure(errc::timeout, culprit,
                         "timeout: rank %d waited %.3f s for rank %d in %.40s, call %llu, step %d, chunk %d; the waits end "
                         "at rank %d; not yet in this call: %s",
                         transport.rank(), static_cast<double>(waited) * 1e-9, run.peer(), record.what,
                         static_cast<unsigned long long>(record.sequence), run.step(), run.chunk(), culprit,
                         *absent != 0 ? absent : "none");
}

template <class Run, Transport Tr>
[[gnu::noinline]] status timed_out(Run const& run, Tr& transport, call_record const& record, nanoseconds waited) {
  if constexpr (requires { run.late(transport, waited); })
    return transport.abort(run.late(transport, waited));
  else
    return transport.abort(call_is_late(run, transport, record, waited));
}

template <class Run, Transport Tr>
[[gnu::noinline]] status differing(Run const& run, Tr& transport) {
  if constexpr (requires { run.conflict(transport); })
    return transport.abort(run.conflict(transport));
  else
    return transport.conflict(run.peer());
}

/// A rank that something sent is still on its way to, or -1. Where the wire is memory, what is sent is there.
template <Transport Tr>
int unsent(Tr& transport) noexcept {
  if constexpr (requires { transport.unsent(); })
    return transport.unsent();
  else
    return -1;
}

template <Transport Tr>
[[gnu::noinline]] status not_taken(Tr& transport, int peer, call_record const& record, nanoseconds waited) {
  return transport.abort(status::failure(errc::timeout, peer, "timeout: rank %d waited %.3f s for rank %d to take what was sent in %.40s",
                                         transport.rank(), static_cast<double>(waited) * 1e-9, peer, record.what));
}

}  // namespace detail

/// From here on the number of polls goes round within the last 128: a wait may be long.
inline constexpr int many_polls = 1 << 30;

/// A run is what `exec::run` is: advance(), and where it is stuck or in conflict peer(), step() and chunk(). One that is no collective call
/// says itself what is wrong: late(transport, waited), conflict(transport).
///
/// Advances `run` until it is done, the group fails, or it has been stuck for `timeout`. Every wait looks at the group's verdict.
template <class Run, Transport Tr>
status drive(Run& run, Tr& transport, call_record const& record, nanoseconds timeout) {
  nanoseconds since = -1;
  for (int polls = 0;;) {
    progress const p = run.advance();
    int const unsent = p == progress::done ? detail::unsent(transport) : -1;
    if (p == progress::done && unsent < 0) return {};
    if (p == progress::conflict) return detail::differing(run, transport);
    if (p == progress::moved) {
      polls = 0;
      since = -1;
      continue;
    }
    transport.progress();
    polls = polls == many_polls ? many_polls - 127 : polls + 1;
    if (status s = transport.idle(polls, unsent < 0 ? run.peer() : unsent); !s) return s;
    if (polls % 128 != 0) continue;
    nanoseconds const now = transport.now();
    if (since < 0) since = now;
    if (now - since < timeout) continue;
    return unsent >= 0 ? detail::not_taken(transport, unsent, record, now - since) : detail::timed_out(run, transport, record, now - since);
  }
}

}  // namespace exec
}  // namespace v0
}  // namespace collectx
