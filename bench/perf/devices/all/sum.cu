// SPDX-License-Identifier: Apache-2.0
#include "../reductions.cuh"

namespace perf {
namespace {

built_for_integers<collectx::sum> const integers;

}  // namespace
}  // namespace perf
