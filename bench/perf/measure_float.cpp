// SPDX-License-Identifier: Apache-2.0
#include "measure_type.hpp"

COLLECTX_PERF_MEASURES(float)
COLLECTX_PERF_MEASURES(double)
