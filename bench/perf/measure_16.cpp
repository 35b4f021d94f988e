// SPDX-License-Identifier: Apache-2.0
#include "measure_type.hpp"

COLLECTX_PERF_MEASURES(std::int16_t)
COLLECTX_PERF_MEASURES(std::uint16_t)
