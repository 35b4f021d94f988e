// SPDX-License-Identifier: Apache-2.0
/// The plans of all ranks, made in one place.
#pragma once

#include <collectx/exec/verify_plan.hpp>

namespace support {

template <class S, class C>
collectx::exec::list<collectx::exec::plan> plans_of(S const& schedule, C const& collective, int n) {
  collectx::exec::list<collectx::exec::plan> plans = collectx::exec::make_plans(schedule, collective, n);
  int const largest = collectx::exec::largest_message(schedule, plans[0].form);
  for (collectx::exec::plan& p : plans) p.largest_message = largest;
  return plans;
}

}  // namespace support
