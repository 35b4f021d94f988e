// SPDX-License-Identifier: Apache-2.0
/// What a rank's channels over a network lie in: memory of the host, and for long payloads a device's, where the network reaches it.
#pragma once

#include "collectx/status.hpp"
#include "collectx/transport/fabric.hpp"
#include "collectx/transport/fabric_port.hpp"
#include "collectx/transport/segment.hpp"

#include <cstddef>
#include <utility>

namespace collectx {
inline namespace v0 {
namespace detail {

/// What others need to write to a rank.
struct fabric_reach {
  fabric_address address;
  fabric_window window, apart;
};

class fabric_memory {
 public:
  /// Takes memory of the device for payloads, if the network reaches it. @pre the port's layout is as it stays but for `apart`
  status try_device(fabric_port& port, fabric_device const& device, fabric_reach& mine) noexcept {
    if (device.allocate == nullptr || !port.endpoint.reaches(device)) return {};
    result<std::byte*> at = device.allocate(device.context, port.layout.bytes_apart());
    if (!at) return at.error();
    device_ = device;
    port.base_apart = *at;
    on_device_ = port.endpoint.share(device, *at, port.layout.bytes_apart(), port.region_apart, mine.apart);
    return {};
  }
  bool on_device() const noexcept { return on_device_; }

  /// Everything else. Of payloads that lie apart those of a rank without such a device are in memory of the host.
  /// Errors: out_of_memory; invalid_configuration where it would be more than `limit` bytes of the host; 0: no bound.
  status make(fabric_port& port, std::size_t limit, int rank, fabric_reach& mine) noexcept {
    fabric_layout const& layout = port.layout;
    if (layout.channels > fabric_port::payload_flag / static_cast<std::size_t>(layout.slots)) {
      return status::failure(errc::invalid_configuration, rank, "%zu channels of %d slots are more than a number of 30 bits tells apart",
                             layout.channels, layout.slots);
    }
    std::size_t const apart = layout.apart && !on_device_ ? layout.bytes_apart() : 0, needed = layout.bytes() + apart;
    if (limit != 0 && needed > limit) {
      return status::failure(errc::invalid_configuration, rank,
                             "option memory is %zu: rank %d needs %zu bytes; lower slots, slot_bytes or lanes", limit, rank, needed);
    }
    result<mapping> rings = mapping::anonymous(layout.bytes());
    if (!rings) return rings.error();
    rings_ = std::move(*rings);
    port.base = rings_.address();
    bool const alone = port.peers.size() == 1;
    if (apart > 0) {
      result<mapping> payloads = mapping::anonymous(apart);
      if (!payloads) return payloads.error();
      payloads_ = std::move(*payloads);
      port.base_apart = payloads_.address();
      if (status s = alone ? status{} : port.endpoint.share(port.base_apart, apart, port.region_apart, mine.apart); !s) return s;
    }
    return alone ? status{} : port.endpoint.share(port.base, layout.bytes(), port.region, mine.window);
  }

  /// Lets the device see the payloads that have come.
  status make_visible() const noexcept {
    return on_device_ && device_.make_visible != nullptr ? device_.make_visible(device_.context) : status{};
  }

 private:
  mapping rings_, payloads_;
  fabric_device device_;
  bool on_device_ = false;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
