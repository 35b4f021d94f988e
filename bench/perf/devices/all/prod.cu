// SPDX-License-Identifier: Apache-2.0
#include "../reductions.cuh"

namespace perf {
namespace {

built_for_floats<collectx::prod> const floats;
built_for_integers<collectx::prod> const integers;

}  // namespace
}  // namespace perf
