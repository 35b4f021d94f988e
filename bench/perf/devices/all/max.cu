// SPDX-License-Identifier: Apache-2.0
#include "../reductions.cuh"

namespace perf {
namespace {

built_for_floats<collectx::max> const floats;
built_for_integers<collectx::max> const integers;

}  // namespace
}  // namespace perf
