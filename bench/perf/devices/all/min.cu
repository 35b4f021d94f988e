// SPDX-License-Identifier: Apache-2.0
#include "../reductions.cuh"

namespace perf {
namespace {

built_for_floats<collectx::min> const floats;
built_for_integers<collectx::min> const integers;

}  // namespace
}  // namespace perf
