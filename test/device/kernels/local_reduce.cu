// SPDX-License-Identifier: Apache-2.0
// A local reduction of 16 bits: compiled, never run without a GPU.
#include "collectx/reduce/local_reduce.cuh"

#include "collectx/reduce/functors.hpp"

namespace cx = collectx;

template cudaError_t cx::device::reduce_local(cx::bfloat16*, cx::bfloat16 const*, cx::bfloat16 const*, std::size_t, cx::sum const&,
                                              cudaStream_t);
