// SPDX-License-Identifier: Apache-2.0
/// libfabric looks for its providers at its first call, for a tenth of a second: here that is before ranks are forked, and not in each.
#pragma once

#include <collectx/transport/fabric.hpp>

#include <cstdint>

namespace network {

inline std::uint32_t const providers_found = collectx::detail::fabric_endpoint::offered({});

}  // namespace network
