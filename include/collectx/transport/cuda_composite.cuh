// SPDX-License-Identifier: Apache-2.0
/// Ranks own a device each and are on any hosts: those of one host by memory of their devices, as cuda_ipc does, and hosts by libfabric.
/// Include it by name; needs nvcc, and link `collectx::cuda` and `collectx::libfabric`.
///
/// The host's half is a composite_transport: its channels carry calls without a stream. Between hosts kernels fill slots, from which a
/// relay of this rank has the network send, over a second group of the same ranks. The slots are memory of the device where the provider
/// reaches it (FI_HMEM, GPUDirect RDMA), else pinned memory of the host.
#pragma once

#include "collectx/transport/composite.hpp"
#include "collectx/transport/device_owner.cuh"
#include "collectx/transport/device_relay.hpp"
#include "collectx/transport/rdma_memory.cuh"

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace collectx {
inline namespace v0 {

struct cuda_composite_options {
  static constexpr int current = detail::current_device, by_rank = detail::device_by_rank;

  composite_options host;  ///< calls without a stream; provider, link_timeout and join_timeout count for those on streams, too
  int device = current;  ///< its number; current: that of the thread that joins; by_rank: the place among ranks of its host modulo devices
  bool stage = false;    ///< within a host through its memory, even where devices reach one another
  bool gpu_direct = true;  ///< between hosts by memory of the device, where it and the network allow that; else by pinned memory
  int blocks = 4;          ///< of a kernel, at most; each has slots of its own between any two ranks
  int lanes = 2;           ///< between two ranks within a block
  device::slot_shape slots{4, std::size_t{64} << 10};
  // Where all ranks are on one host, as cuda_ipc has them:
  device::slot_shape low_latency{4, std::size_t{8} << 10};
  std::size_t direct_bytes = std::size_t{512} << 10;
  std::size_t idle_mappings = 0;
};

namespace detail {

/// What a device_side knows of its group where that is on several hosts.
class device_elsewhere {
 public:
  /// All ranks do this together. @pre `device` is the thread's
  static result<device_elsewhere> open(composite_transport& wire, device::layout const& l, int device, bool gpu_direct,
                                       libfabric_options options) {
    device_elsewhere self;
    std::vector<bool> relayed;
    for (int r = 0; r < wire.size(); ++r) {
      relayed.push_back(r != wire.rank() && !is_neighbour(wire, r));
      self.any_ = self.any_ || wire.node_of(r) != wire.node_of(0);
    }
    result<pinned_array<std::byte>> shared = pinned_array<std::byte>::of(device_relay::shared_bytes(l), wire.rank());
    if (!shared) return wire.abort(shared.error());
    self.shared_ = std::move(*shared);
    fabric_device reached;
    if (gpu_direct && self.any_) {
      result<std::unique_ptr<rdma_memory>> memory = rdma_memory::of(device, wire.rank());
      if (!memory) return wire.abort(memory.error());
      self.memory_ = std::move(*memory);
      reached = self.memory_->device();
    }
    result<libfabric_transport> network = meet(wire, l, options, reached);
    if (!network) return wire.abort(network.error());
    self.relay_ = std::make_unique<device_relay>(std::move(*network), l, std::move(relayed), self.shared_.host());
    if (self.gpu_direct()) return result<device_elsewhere>(std::move(self));
    self.memory_.reset();  // the network may have refused it
    result<pinned_range> slots = pinned_range::of(self.relay_->slots(), self.relay_->slots_bytes(), wire.rank());
    if (!slots) return wire.abort(slots.error());
    self.slots_ = std::move(*slots);
    return result<device_elsewhere>(std::move(self));
  }

  status verdict() noexcept { return relay_->verdict(); }
  status abort(status const& why) noexcept { return relay_->abort(why); }
  bool lost(int rank) noexcept { return relay_->lost(rank); }
  bool has_left(int rank) const noexcept { return relay_->has_left(rank); }

  device_relay& relay() noexcept { return *relay_; }
  /// Whether the group is on more hosts than one; the same on all ranks.
  bool goes_elsewhere() const noexcept { return any_; }
  bool gpu_direct() const noexcept { return relay_->in_device_memory(); }
  /// As the device sees them.
  std::byte* window() const noexcept { return device_relay::window(shared_.device()); }
  std::uint64_t* told(device::layout const& l) const noexcept { return device_relay::told(l, shared_.device()); }
  void connect(device::layout const& l, device::wires<device::flagged<>> const& out) {
    device::make_relayed_wires(l, *relay_, shared_.device(), gpu_direct() ? memory_->at() : slots_.at(), out);
  }

 private:
  /// The relay's network: the same ranks once more.
  static result<libfabric_transport> meet(composite_transport& wire, device::layout const& l, libfabric_options options,
                                          fabric_device const& device) {
    std::vector<int> all(static_cast<std::size_t>(wire.size()));
    std::iota(all.begin(), all.end(), 0);
    board_rendezvous<composite_transport> meeting(wire, all, wire.rank(), "relay", false);
    libfabric_options const wanted = device_relay::options_for(l);
    options.lanes = wanted.lanes;
    options.slots = wanted.slots;
    options.slot_bytes = wanted.slot_bytes;
    options.between_hosts = true;
    return libfabric_transport::join(meeting, options, &device);
  }

  pinned_array<std::byte> shared_;
  std::unique_ptr<rdma_memory> memory_;  // of the slots, where they are the device's
  std::unique_ptr<device_relay> relay_;
  pinned_range slots_;  // goes first: the memory is the relay's
  bool any_ = false;
};

}  // namespace detail

/// Models DeviceTransport.
class cuda_composite_transport : public detail::device_owner<cuda_composite_transport, composite_transport, detail::device_elsewhere> {
  using owner = detail::device_owner<cuda_composite_transport, composite_transport, detail::device_elsewhere>;

 public:
  /// Joins the group that `rendezvous` is about; returns on every rank when all devices can be reached, or with a failure on all that came.
  /// Errors: those of composite_transport::join; not_supported (native 35 or 100) where there is no GPU.
  template <Rendezvous R>
  static result<cuda_composite_transport> join(R& rendezvous, cuda_composite_options const& options = {}) noexcept {
    result<nanoseconds> patience = detail::join_patience(options.host.join_timeout.count(), rendezvous.rank());
    if (!patience) return patience.error();
    result<composite_transport> host = composite_transport::join(rendezvous, options.host);
    if (!host) return host.error();
    cuda_composite_transport self(std::move(*host), options);
    std::size_t direct_bytes = options.direct_bytes;
    for (int r = 0; r < self.size(); ++r)
      if (self.node_of(r) != self.node_of(0)) direct_bytes = 0;
    auto const found = [&](device::layout const& l, int device) {
      return detail::device_elsewhere::open(self, l, device, options.gpu_direct, self.composite_transport::options().between);
    };
    if (status s = self.own(self.options_, direct_bytes, *patience, found); !s) return s;
    return result<cuda_composite_transport>(std::move(self));
  }

  cuda_composite_transport(cuda_composite_transport&& other) noexcept = default;
  ~cuda_composite_transport() {
    if (side_ == nullptr) return;
    if (!mark_.here()) {  // a forked child has neither the device nor the threads
      (void)side_.release();
      return;
    }
    side_->retire();
    wait_for_neighbours();
    discard(std::move(side_));
  }

  cuda_composite_options options() const noexcept { return options_; }
  /// Whether the network reads and writes memory of this rank's device.
  bool gpu_direct() const noexcept { return side_->place().gpu_direct(); }

  /// Of both groups of these ranks: what ends one ends the other.
  status verdict() noexcept {
    if (side_ != nullptr) {
      if (status s = side_->verdict(); !s) return composite_transport::abort(s);
    }
    return composite_transport::verdict();
  }
  status idle(int polls, int peer) noexcept {
    if (status s = verdict(); !s) return s;
    return both(composite_transport::idle(polls, peer));
  }
  status conflict(int peer) noexcept { return both(composite_transport::conflict(peer)); }
  /// The relay looks while no call does.
  bool lost(int rank) noexcept { return composite_transport::lost(rank) || (side_ != nullptr && side_->lost(rank)); }
  status abort(status const& why) noexcept { return composite_transport::abort(side_ != nullptr ? side_->end(why) : why); }

  /// See DeviceTransport.
  status look() noexcept {
    if (status const s = composite_transport::verdict(); !s) return side_->end(s);
    return side_->outcome();
  }

 private:
  cuda_composite_transport(composite_transport&& host, cuda_composite_options const& options) noexcept
      : owner(std::move(host)), options_(options) {}

  /// What has ended the host's group ends the relay's.
  status both(status const& s) noexcept { return s.ok() ? s : abort(s); }
  /// Until nobody has this rank's windows mapped any more, or for a second.
  void wait_for_neighbours() noexcept {
    char const yes = 1;
    (void)post("unmapped", rendezvous_value(&yes, sizeof yes));  // where it fails the others wait out their second
    nanoseconds const deadline = detail::monotonic_now() + 1'000'000'000;
    rendezvous_value seen;
    for (int r = 0; r < size(); ++r)
      while (detail::is_neighbour(*this, r) && !posted(r, "unmapped", seen) && !lost(r) && detail::monotonic_now() < deadline)
        detail::nap(200'000);
  }

  cuda_composite_options options_;
  detail::fork_mark mark_ = detail::fork_mark::take();
};

static_assert(DeviceTransport<cuda_composite_transport>);

}  // namespace v0
}  // namespace collectx
