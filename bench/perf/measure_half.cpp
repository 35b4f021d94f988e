// SPDX-License-Identifier: Apache-2.0
#include "measure_type.hpp"

COLLECTX_PERF_MEASURES(collectx::bfloat16)
COLLECTX_PERF_MEASURES(collectx::float16)
