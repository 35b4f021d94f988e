// SPDX-License-Identifier: Apache-2.0
/// What a test says to the stand-in for the runtime and the driver of CUDA, which runs device code on the CPU.
///
/// Device memory is memory without a name that other processes can map, a stream is a thread, and a kernel is the CPU function that was
/// registered for its host stub, one thread per block. What it checks is the host's half: who maps what, when, and what happens when it
/// fails.
///
/// Environment: STANDIN_DEVICES (2): devices there are; STANDIN_NO_PEER=1: none can reach another; STANDIN_FAIL=k: the k-th call fails.
#pragma once

#include <cuda_runtime_api.h>

#include <csignal>
#include <cstddef>
#include <functional>
#include <tuple>
#include <utility>

namespace standin {

struct launched {
  unsigned blocks, threads;
  unsigned block;
};

/// Makes of a kernel's arguments, which do not outlive the launch, what one block runs.
using body_maker = std::function<void(launched const&)> (*)(void* body, void** arguments);

extern "C" {
void standin_register(void const* stub, body_maker make, void* body);
/// Calls made by this process since the last of these three, and the one that is to fail, or at which the process is to be killed, or
/// stopped: 0 for none.
long standin_calls();
void standin_fail_at(long call);
void standin_kill_at(long call, int signal = SIGKILL);
/// The name of the call that has failed so, or null.
char const* standin_failed();
/// What this process has not given back: allocations, and mappings of others' memory.
int standin_allocations();
int standin_mappings();
/// How often it has let a device see what networks have written.
long standin_flushes();
}

namespace detail {
template <class... A, std::size_t... I>
std::function<void(launched const&)> hold(void (*body)(launched const&, A...), void** arguments, std::index_sequence<I...>) {
  return [body, copies = std::tuple<A...>(*static_cast<A*>(arguments[I])...)](launched const& at) { body(at, std::get<I>(copies)...); };
}
template <class... A>
std::function<void(launched const&)> make(void* body, void** arguments) {
  return hold(reinterpret_cast<void (*)(launched const&, A...)>(body), arguments, std::index_sequence_for<A...>());
}
}  // namespace detail

/// From now on a launch of `stub` runs `body` for each block.
template <class... A>
void kernel(void (*stub)(A...), void (*body)(launched const&, A...)) {
  standin_register(reinterpret_cast<void const*>(stub), &detail::make<A...>, reinterpret_cast<void*>(body));
}

}  // namespace standin
