// SPDX-License-Identifier: Apache-2.0
#include "reductions.cuh"

namespace perf {
namespace {

built_for_floats<collectx::sum> const floats;
built<collectx::sum, std::int32_t> const integers;

}  // namespace
}  // namespace perf
