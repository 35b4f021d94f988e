// SPDX-License-Identifier: Apache-2.0
// The executors of plans by both protocols, and all-reduces in two shots, for every architecture. They are compiled and looked at, never
// run.
#include "collectx/exec/direct_device.cuh"
#include "collectx/exec/run_device.cuh"
#include "collectx/reduce/functors.hpp"

namespace cx = collectx;
using flagged = cx::device::flagged<>;
using low_latency = cx::device::low_latency<>;

template __global__ void cx::exec::plan_kernel<flagged, float, cx::sum>(cx::device::world, cx::device::wires<flagged>,
                                                                        cx::exec::device_call<float>, cx::sum);
template __global__ void cx::exec::plan_kernel<low_latency, float, cx::sum>(cx::device::world, cx::device::wires<low_latency>,
                                                                            cx::exec::device_call<float>, cx::sum);
template __global__ void cx::exec::plan_kernel<low_latency, double, cx::avg>(cx::device::world, cx::device::wires<low_latency>,
                                                                             cx::exec::device_call<double>, cx::avg);
template __global__ void cx::exec::two_shot_kernel<float, cx::sum>(cx::device::world, cx::exec::direct_call<float>, cx::sum);
