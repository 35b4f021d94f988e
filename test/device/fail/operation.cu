// SPDX-License-Identifier: Apache-2.0
// What an operation that a kernel cannot call is told. Without this, it would compile to a kernel that does nothing.
#include "collectx/exec/direct_device.cuh"
#include "collectx/exec/run_device.cuh"

namespace cx = collectx;

struct on_the_host_only {
  static constexpr bool is_commutative = true;
  float operator()(float left, float right) const { return left + right; }
};
struct finished_on_the_host_only {
  static constexpr bool is_commutative = true;
  constexpr float operator()(float left, float right) const { return left + right; }
  float finish(float value, int ranks) const { return value / static_cast<float>(ranks); }
};
struct on_both {
  static constexpr bool is_commutative = true;
  __host__ __device__ float operator()(float left, float right) const { return left + right; }
};

using wire = cx::device::flagged<>;

template <class Op>
void launch_plan(Op const& op) {
  cx::exec::plan_kernel<wire, float, Op><<<1, 32>>>(cx::device::world{}, cx::device::wires<wire>{}, cx::exec::device_call<float>{}, op);
}
template <class Op>
void launch_direct(Op const& op) {
  cx::exec::one_shot_kernel<float, Op><<<1, 32>>>(cx::device::world{}, cx::exec::direct_call<float>{}, op);
}

void fits() {
  launch_plan(on_both{});
  launch_direct(on_both{});
}

// expect PLAN: calling a __host__ function.*on_the_host_only.*OPERATION_MUST_BE_CALLABLE_ON_THE_DEVICE.*is not allowed
#if defined(PLAN)
void plan() { launch_plan(on_the_host_only{}); }
#endif

// expect DIRECT: calling a __host__ function.*on_the_host_only.*OPERATION_MUST_BE_CALLABLE_ON_THE_DEVICE.*is not allowed
#if defined(DIRECT)
void direct() { launch_direct(on_the_host_only{}); }
#endif

// expect FINISH: calling a __host__ function.*finished_on_the_host_only::finish.*OPERATION_MUST_BE_CALLABLE_ON_THE_DEVICE.*is not allowed
#if defined(FINISH)
void finish() { launch_direct(finished_on_the_host_only{}); }
#endif
