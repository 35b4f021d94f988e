// SPDX-License-Identifier: Apache-2.0
/// What the tests of test/device/ipc ask of the stand-in, for a real GPU: kernels need not be registered, and nobody counts allocations.
#pragma once

#include <cuda_runtime_api.h>

namespace standin {
template <class T, class Op>
void plans() {}
template <class T, class Op>
void direct_all_reduces() {}
inline int standin_allocations() { return 0; }
inline int standin_mappings() { return 0; }
}  // namespace standin
