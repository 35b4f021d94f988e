// SPDX-License-Identifier: Apache-2.0
/// Ranks are processes on one host, or threads of them, that own a device each: slots lie in memory of the devices that all have mapped.
///
/// The host's half is shared memory: its channels carry calls without a stream and what ranks agree on, and its board knows who has died. A
/// thread of each rank looks at the board while everybody waits for devices, and ends their waits.
#pragma once

#include "collectx/transport/device_owner.cuh"
#include "collectx/transport/shared_memory.hpp"

#include <memory>
#include <utility>

namespace collectx {
inline namespace v0 {

struct cuda_ipc_options {
  static constexpr int current = detail::current_device, by_rank = detail::device_by_rank;

  int device = current;  ///< its number; current: that of the thread that joins; by_rank: rank modulo devices. Ranks may share one
  bool stage = false;    ///< through pinned memory of the host, even where devices reach one another
  int blocks = 16;       ///< of a kernel, at most: as many channels side by side
  int lanes = 2;         ///< between two ranks within a block; on the host, too
  device::slot_shape slots{4, std::size_t{64} << 10};       ///< per channel: messages behind a flag
  device::slot_shape low_latency{4, std::size_t{8} << 10};  ///< per channel: messages that tell themselves that they are there
  std::size_t direct_bytes = std::size_t{512} << 10;        ///< of an all-reduce, at most, that reads registered buffers where they lie
  std::size_t idle_mappings = 0;  ///< of others' buffers, kept though none is registered any more: faster again, but freed late
  int host_slots = 16;            ///< per channel of the host
  std::size_t host_slot_bytes = std::size_t{64} << 10;
  std::chrono::nanoseconds join_timeout{0};  ///< for all ranks to come together; 0: COLLECTX_JOIN_TIMEOUT seconds, or 60
};

class cuda_ipc_transport : public detail::device_owner<cuda_ipc_transport, shared_memory_transport, detail::board> {
  using owner = detail::device_owner<cuda_ipc_transport, shared_memory_transport, detail::board>;

 public:
  /// Joins the group that `rendezvous` is about; returns on every rank when all have mapped the windows of all, or with the same failure on
  /// all that came. Shapes are the least that any rank asks for. Where a device does not reach another, all go through the host's memory.
  /// Errors: those of shared_memory_transport::join; not_supported (native 35 or 100) where there is no GPU.
  template <Rendezvous R>
  static result<cuda_ipc_transport> join(R& rendezvous, cuda_ipc_options const& options = {}) noexcept {
    result<nanoseconds> patience = detail::join_patience(options.join_timeout.count(), rendezvous.rank());
    if (!patience) return patience.error();
    result<shared_memory_transport> host = shared_memory_transport::join(rendezvous, host_options(options));
    if (!host) return host.error();
    cuda_ipc_transport self(std::move(*host), options);
    auto const found = [&self](device::layout const&, int) { return result<detail::board>(self.second_place()); };
    if (status s = self.own(self.options_, options.direct_bytes, *patience, found); !s) return s;
    return result<cuda_ipc_transport>(std::move(self));
  }

  cuda_ipc_transport(cuda_ipc_transport&& other) noexcept = default;
  ~cuda_ipc_transport() {
    if (side_ == nullptr) return;
    if (!here()) {  // a forked child has neither the device nor the thread
      (void)side_.release();
      return;
    }
    side_->retire();
    leave();
    side_->linger();
    discard(std::move(side_));
  }

  cuda_ipc_options options() const noexcept { return options_; }

  /// See DeviceTransport.
  status look() noexcept { return side_->outcome(); }

 private:
  cuda_ipc_transport(shared_memory_transport&& host, cuda_ipc_options const& options) noexcept
      : owner(std::move(host)), options_(options) {}

  static transport_options host_options(cuda_ipc_options const& options) noexcept {
    transport_options host;
    host.slots = options.host_slots;
    host.slot_bytes = options.host_slot_bytes;
    host.lanes = options.lanes;
    host.join_timeout = options.join_timeout;
    return host;
  }

  cuda_ipc_options options_;
};

static_assert(DeviceTransport<cuda_ipc_transport>);

}  // namespace v0
}  // namespace collectx
