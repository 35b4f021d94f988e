// SPDX-License-Identifier: Apache-2.0
// Kernels of elements of 2 to 24 bytes, of the library's operations and of a user's, for every architecture. They are compiled and looked
// at, never run.
#include "collectx/exec/direct_device.cuh"
#include "collectx/exec/run_device.cuh"
#include "collectx/reduce/functors.hpp"
#include "collectx/reduce/small_floats.hpp"

namespace cx = collectx;

namespace {

struct affine {
  unsigned long long a, b, c;
};
/// A user's operation, for host and device; that `compose` is callable on both is all that it takes.
struct compose {
  static constexpr bool is_commutative = false;
  __host__ __device__ affine operator()(affine const& l, affine const& r) const { return {l.a * r.a, r.a * l.b + r.b, l.c + r.c}; }
};

using flagged = cx::device::flagged<>;

}  // namespace

template __global__ void cx::exec::plan_kernel<flagged, cx::bfloat16, cx::sum>(cx::device::world, cx::device::wires<flagged>,
                                                                               cx::exec::device_call<cx::bfloat16>, cx::sum);
template __global__ void cx::exec::one_shot_kernel<cx::float16, cx::avg>(cx::device::world, cx::exec::direct_call<cx::float16>, cx::avg);
template __global__ void cx::exec::one_shot_kernel<std::int64_t, cx::prod>(cx::device::world, cx::exec::direct_call<std::int64_t>,
                                                                           cx::prod);
template __global__ void cx::exec::one_shot_kernel<affine, compose>(cx::device::world, cx::exec::direct_call<affine>, compose);
