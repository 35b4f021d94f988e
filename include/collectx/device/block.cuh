// SPDX-License-Identifier: Apache-2.0
/// What the body of a kernel knows of the threads that run it together.
#pragma once

#include "collectx/device/vendor.cuh"
#include "collectx/reduction.hpp"
#include "collectx/transport.hpp"

#include <concepts>
#include <cstddef>

namespace collectx {
inline namespace v0 {
namespace device {

/// A Block is some threads that run one function together, one of a grid of blocks.
///
/// 1. `rank()` of this thread among `size()`; `index()` of this block among `count()`.
/// 2. `sync()`: what any thread of the block has done before it, all see behind it. `any(yes)`: the same, and tells whether one said yes.
///    All threads come to the same ones, in the same order.
/// 3. `shared()`: memory that the block's threads share, as much as the launch has asked for, aligned to 16, uninitialised.
/// 4. `relax()`: this thread waits for another block. `now()`: nanoseconds on a clock for deadlines.
///
/// Not required: that blocks of one grid see one another, or run at the same time.
template <class B>
concept Block = requires(B& block, bool yes) {
  { block.rank() } -> std::same_as<int>;
  { block.size() } -> std::same_as<int>;
  { block.index() } -> std::same_as<int>;
  { block.count() } -> std::same_as<int>;
  { block.any(yes) } -> std::same_as<bool>;
  { block.shared() } -> std::same_as<std::byte*>;
  { block.now() } -> std::same_as<nanoseconds>;
  block.sync();
  block.relax();
};

#if defined(__CUDACC__)
#if defined(__CUDA_ARCH__)
#define COLLECTX_DEVICE_OR_HOST(on_device, on_host) on_device
#else
#define COLLECTX_DEVICE_OR_HOST(on_device, on_host) on_host
#endif

/// The threads of a kernel's block. Host code can name it and gets a block of one thread, which nobody should run.
class cuda_block {
 public:
  COLLECTX_DEVICE explicit cuda_block(std::byte* shared) : shared_(shared) {}
  COLLECTX_DEVICE int rank() const { return static_cast<int>(COLLECTX_DEVICE_OR_HOST(threadIdx.x, 0)); }
  COLLECTX_DEVICE int size() const { return static_cast<int>(COLLECTX_DEVICE_OR_HOST(blockDim.x, 1)); }
  COLLECTX_DEVICE int index() const { return static_cast<int>(COLLECTX_DEVICE_OR_HOST(blockIdx.x, 0)); }
  COLLECTX_DEVICE int count() const { return static_cast<int>(COLLECTX_DEVICE_OR_HOST(gridDim.x, 1)); }
  COLLECTX_DEVICE void sync() const { COLLECTX_DEVICE_OR_HOST(__syncthreads(), void()); }
  COLLECTX_DEVICE bool any(bool yes) const { return COLLECTX_DEVICE_OR_HOST(__syncthreads_or(yes ? 1 : 0) != 0, yes); }
  COLLECTX_DEVICE void relax() const { COLLECTX_DEVICE_OR_HOST(__nanosleep(20), void()); }
  COLLECTX_DEVICE nanoseconds now() const {
    nanoseconds time = 0;
    COLLECTX_DEVICE_OR_HOST(asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time)), void());
    return time;
  }
  COLLECTX_DEVICE std::byte* shared() const { return shared_; }

 private:
  std::byte* shared_;
};
#undef COLLECTX_DEVICE_OR_HOST
static_assert(Block<cuda_block>);

/// Of a kernel's block, at most, and how many blocks have room on a processor at once: 64 registers a thread follow. Both are said in
/// launch bounds, since ptxas 13 spills registers for the sake of more blocks where it is not told how many are enough.
inline constexpr int most_threads = 512, blocks_per_processor = 2;

/// This block, with the dynamic shared memory of the launch.
__device__ inline cuda_block this_block() {
  extern __shared__ uint4 collectx_shared[];
  return cuda_block(reinterpret_cast<std::byte*>(collectx_shared));
}

template <class T, class Op>
__device__ void OPERATION_MUST_BE_CALLABLE_ON_THE_DEVICE(Op const& op, T const* values) {
  using wide = folded_in<Op, T>;
  wide const left = static_cast<wide>(values[0]), right = static_cast<wide>(values[1]);
  static_cast<void>(op(left, right));
  if constexpr (has_finish<Op, wide>) static_cast<void>(op.finish(left, 1));
  if constexpr (has_prepare<Op, T>) static_cast<void>(op.prepare(values[0], 1));
}

/// Each kernel that is given an operation says this. An operation that only the host can call is then an error whose text names it and the
/// function above. Without it there would be no diagnostic: called from code that is compiled for both, it gives a kernel that does
/// nothing.
template <class T, class Op>
__device__ void require_on_device(Op const& op) {
  if (false) OPERATION_MUST_BE_CALLABLE_ON_THE_DEVICE<T>(op, nullptr);
}
#endif

}  // namespace device
}  // namespace v0
}  // namespace collectx
