// SPDX-License-Identifier: Apache-2.0
// Kernels of 8-bit types, for architectures that convert them by instructions: elsewhere they spill a few registers.
#include "collectx/exec/direct_device.cuh"
#include "collectx/reduce/functors.hpp"
#include "collectx/reduce/small_floats.hpp"

namespace cx = collectx;

template __global__ void cx::exec::one_shot_kernel<cx::float8_e4m3, cx::sum>(cx::device::world, cx::exec::direct_call<cx::float8_e4m3>,
                                                                             cx::sum);
template __global__ void cx::exec::one_shot_kernel<cx::float8_e5m2, cx::max>(cx::device::world, cx::exec::direct_call<cx::float8_e5m2>,
                                                                             cx::max);
