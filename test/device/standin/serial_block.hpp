// SPDX-License-Identifier: Apache-2.0
/// Kernels of the library for the stand-in: each block is one thread of the CPU, so that processes which outnumber the cores come along.
#pragma once

#include <collectx/exec/direct_device.cuh>
#include <collectx/exec/run_device.cuh>

#include "standin.hpp"

#include <sched.h>
#include <vector>

namespace standin {

namespace cx = collectx;

/// A Block of one thread.
class serial_block {
 public:
  serial_block(launched const& at, std::size_t shared_bytes) : at_(at), shared_(shared_bytes / sizeof(unit) + 1) {}
  COLLECTX_DEVICE int rank() const { return 0; }
  COLLECTX_DEVICE int size() const { return 1; }
  COLLECTX_DEVICE int index() const { return static_cast<int>(at_.block); }
  COLLECTX_DEVICE int count() const { return static_cast<int>(at_.blocks); }
  COLLECTX_DEVICE void sync() const {}
  COLLECTX_DEVICE bool any(bool yes) const { return yes; }
  COLLECTX_DEVICE std::byte* shared() const { return memory_; }
  COLLECTX_DEVICE void relax() const {
#if !defined(__CUDA_ARCH__)
    ::sched_yield();
#endif
  }
  COLLECTX_DEVICE cx::nanoseconds now() const {
#if !defined(__CUDA_ARCH__)
    return cx::detail::monotonic_now();
#else
    return 0;
#endif
  }

 private:
  struct alignas(16) unit {
    std::byte bytes[16];
  };
  launched at_;
  std::vector<unit> shared_;
  std::byte* memory_ = shared_.front().bytes;
};

/// Calls of plans of T combined by Op run from now on.
template <class T, class Op>
void plans() {
  auto const each = [](auto protocol) {
    using Protocol = decltype(protocol);
    kernel(
        &cx::exec::plan_kernel<Protocol, T, Op>,
        +[](launched const& at, cx::device::world group, cx::device::wires<Protocol> wires, cx::exec::device_call<T> call, Op op) {
          serial_block block(at, cx::exec::shared_bytes(cx::exec::image_view(call.image)));
          static_cast<void>(cx::exec::run_plan(block, group, wires, call, op));
        });
  };
  each(cx::device::flagged<>{});
  each(cx::device::low_latency<>{});
}

/// And all-reduces that read registered buffers.
template <class T, class Op>
void direct_all_reduces() {
  kernel(
      &cx::exec::one_shot_kernel<T, Op>, +[](launched const& at, cx::device::world group, cx::exec::direct_call<T> call, Op op) {
        serial_block block(at, cx::exec::direct_shared_bytes(group.layout.ranks));
        static_cast<void>(cx::exec::one_shot(block, group, call, op));
      });
  kernel(
      &cx::exec::two_shot_kernel<T, Op>, +[](launched const& at, cx::device::world group, cx::exec::direct_call<T> call, Op op) {
        serial_block block(at, cx::exec::direct_shared_bytes(group.layout.ranks));
        static_cast<void>(cx::exec::two_shot(block, group, call, op));
      });
}

}  // namespace standin
