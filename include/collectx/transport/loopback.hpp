// SPDX-License-Identifier: Apache-2.0
/// Ranks are threads of one process: the same rings as between processes, in private memory.
#pragma once

#include "collectx/process.hpp"
#include "collectx/transport/segment.hpp"

#include <cstdint>
#include <utility>

namespace collectx {
inline namespace v0 {

class loopback_transport : public segment_transport {
 public:
  loopback_transport(segment_transport base) noexcept : segment_transport(std::move(base)) {}
};

namespace loopback {

using options = transport_options;

/// The memory of a group, and one transport per rank out of it. The memory lasts until the group and all its transports are gone.
class group {
 public:
  /// Errors: invalid_configuration names the option that cannot work, out_of_memory the bytes.
  static result<group> create(int size, options const& chosen = {}) noexcept {
    result<detail::segment_layout> layout = detail::lay_out(size, chosen);
    if (!layout) return layout.error();
    result<detail::mapping> memory = detail::mapping::anonymous(layout->bytes);
    if (!memory) return memory.error();
    return group(std::move(*memory), *layout);
  }

  int size() const noexcept { return layout_.size; }

  /// Called once per rank, by any thread. Errors: invalid_argument where there is no such rank or it was made before.
  result<loopback_transport> transport(int rank) const noexcept {
    if (rank < 0 || rank >= size()) {
      return status::failure(errc::invalid_argument, rank, "rank %d is not in a group of %d", rank, size());
    }
    return seats::of(memory_.share(), layout_, rank);
  }

 private:
  struct seats : segment_transport {
    static result<loopback_transport> of(detail::mapping memory, detail::segment_layout const& layout, int rank) noexcept {
      // Threads die with their process, so there is nobody to look up.
      result<segment_transport> base = take_seat(std::move(memory), layout, rank, process_identity{});
      if (!base) return base.error();
      return loopback_transport(std::move(*base));
    }
  };

  group(detail::mapping memory, detail::segment_layout const& layout) noexcept : memory_(std::move(memory)), layout_(layout) {
    memory_.count_in(reinterpret_cast<detail::board_memory*>(memory_.address())->users);
  }

  detail::mapping memory_;
  detail::segment_layout layout_;
};

}  // namespace loopback

static_assert(Transport<loopback_transport>);

}  // namespace v0
}  // namespace collectx
