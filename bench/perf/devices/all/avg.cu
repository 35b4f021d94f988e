// SPDX-License-Identifier: Apache-2.0
#include "../reductions.cuh"

namespace perf {
namespace {

built_for_floats<collectx::avg> const floats;
built_for_integers<collectx::avg> const integers;

}  // namespace
}  // namespace perf
