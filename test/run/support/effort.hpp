// SPDX-License-Identifier: Apache-2.0
/// How much a test is to do.
#pragma once

#include <cstdlib>
#include <cstring>

namespace support {

/// Whether all of what takes half an hour is wanted, and not a sample: `ctest -L faults_full` says so.
inline bool everything() {
  char const* const wish = std::getenv("COLLECTX_FAULTS");
  return wish != nullptr && std::strcmp(wish, "full") == 0;
}

}  // namespace support
