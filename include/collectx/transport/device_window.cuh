// SPDX-License-Identifier: Apache-2.0
/// The windows of a group: memory of each rank that all ranks have mapped. On the devices where these reach one another, else in pinned
/// memory of the host, which every device reaches.
#pragma once

#include "collectx/transport/device_meeting.cuh"

#include <cstdint>
#include <utility>
#include <vector>

namespace collectx {
inline namespace v0 {
namespace detail {

/// Device memory that is freed when it goes. A failure to free has nobody to hear of it.
class device_allocation {
 public:
  device_allocation() = default;
  device_allocation(device_allocation&& other) noexcept : at_(std::exchange(other.at_, nullptr)) {}
  device_allocation& operator=(device_allocation&& other) noexcept {
    std::swap(at_, other.at_);
    return *this;
  }
  ~device_allocation() {
    if (at_ != nullptr) (void)cudaFree(at_);
  }
  static result<device_allocation> of(std::size_t bytes, int rank) noexcept {
    device_allocation a;
    void* at = nullptr;
    char what[64];
    std::snprintf(what, sizeof what, "allocating %zu bytes of device memory", bytes);
    if (status s = device_status(cudaMalloc(&at, bytes), rank, what); !s) return s;
    a.at_ = static_cast<std::byte*>(at);
    return result<device_allocation>(std::move(a));
  }
  /// The same, and zero.
  static result<device_allocation> zeroed(std::size_t bytes, int rank) noexcept {
    result<device_allocation> a = of(bytes, rank);
    if (!a) return a;
    status s = device_status(cudaMemset(a->at(), 0, bytes), rank, "clearing device memory");
    if (s.ok()) s = device_status(cudaDeviceSynchronize(), rank, "clearing device memory");
    if (!s) return s;
    return a;
  }
  std::byte* at() const noexcept { return at_; }

 private:
  std::byte* at_ = nullptr;
};

/// A file in memory that this process and its device have mapped.
class pinned_mapping {
 public:
  pinned_mapping() = default;
  pinned_mapping(pinned_mapping&& other) noexcept
      : memory_(std::move(other.memory_)), pinned_(std::exchange(other.pinned_, false)), at_(other.at_) {}
  pinned_mapping& operator=(pinned_mapping&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(pinned_, other.pinned_);
    std::swap(at_, other.at_);
    return *this;
  }
  ~pinned_mapping() {
    if (pinned_) (void)cudaHostUnregister(memory_.address());
  }
  static result<pinned_mapping> of(int file, std::size_t bytes, int rank) noexcept {
    result<mapping> memory = map_file(file, bytes);
    if (!memory) return memory.error();
    pinned_mapping p;
    p.memory_ = std::move(*memory);
    std::byte* const host = p.memory_.address();
    if (status s = device_status(cudaHostRegister(host, bytes, cudaHostRegisterMapped), rank, "pinning memory of the host"); !s) return s;
    p.pinned_ = true;
    void* at = nullptr;
    if (status s = device_status(cudaHostGetDevicePointer(&at, host, 0), rank, "the device's address of host memory"); !s) return s;
    p.at_ = static_cast<std::byte*>(at);
    return result<pinned_mapping>(std::move(p));
  }
  std::byte* at() const noexcept { return at_; }

 private:
  mapping memory_;
  bool pinned_ = false;
  std::byte* at_ = nullptr;
};

class device_windows {
 public:
  device_windows() = default;

  /// Opens the windows of all ranks, of `bytes` each, all zero. Returns on every rank when all have mapped all, or with the same failure.
  static result<device_windows> open(segment_transport& wire, device_meeting& meeting, driver_calls const& driver, int device,
                                     std::size_t bytes, bool stage, nanoseconds patience) noexcept {
    device_windows self;
    result<bool> near = self.all_near(wire, meeting, device, stage, patience);
    if (!near) return near.error();
    self.staged_ = !*near;
    shared_memory_offer mine;
    if (status s = self.make(driver, bytes, wire.rank(), mine); !s) return wire.abort(s);
    result<offers> all = meeting.trade(wire, mine, 0, patience);
    if (!all) return all.error();
    for (int r = 0; r < wire.size(); ++r) {
      if (r == wire.rank()) continue;
      if (status s = self.map(driver, *all, r, device, bytes, wire.rank()); !s) return wire.abort(self.whose_fault(wire, s, r));
    }
    if (status s = meeting.all_mapped(wire, 0, patience); !s) return s;
    return result<device_windows>(std::move(self));
  }

  bool staged() const noexcept { return staged_; }
  /// Addresses for this rank's device, in the order of ranks.
  std::vector<std::byte*> addresses(int rank) const {
    std::vector<std::byte*> all;
    std::size_t const mine = static_cast<std::size_t>(rank), peers = staged_ ? pinned_.size() : mapped_.size();
    for (std::size_t i = 0; i < peers; ++i) all.push_back(staged_ ? pinned_[i].at() : mapped_[i].at());
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(mine), own());
    return all;
  }
  std::byte* own() const noexcept { return staged_ ? own_pinned_.at() : own_.at(); }

  /// Lets go of the others' windows, so that they may free them.
  void unmap() noexcept {
    mapped_.clear();
    pinned_.clear();
  }

 private:
  /// Whether each rank's device reaches each other's; the answer is the same on all.
  result<bool> all_near(segment_transport& wire, device_meeting& meeting, int device, bool stage, nanoseconds patience) noexcept {
    bool reaches = !stage;
    for (int r = 0; r < wire.size() && reaches; ++r) {
      int there = -1, can = 1;
      // A device that this process does not see is tried: mapping is allowed where asking is not.
      if (cudaError_t const e = cudaDeviceGetByPCIBusId(&there, meeting.of(r).bus);
          e == cudaErrorInvalidDevice || e == cudaErrorInvalidValue) {
        (void)cudaGetLastError();
        continue;
      } else if (status s = device_status(e, wire.rank(), "which device another rank uses"); !s) {
        return wire.abort(s);
      }
      if (there == device) continue;
      if (status s = device_status(cudaDeviceCanAccessPeer(&can, device, there), wire.rank(), "whether devices reach one another"); !s) {
        return wire.abort(s);
      }
      reaches = can != 0;
    }
    std::vector<char> all(static_cast<std::size_t>(wire.size()));
    if (status s = exchange(wire, static_cast<char>(reaches), all, "comparing devices", 0, patience); !s) return s;
    for (char yes : all)
      if (yes == 0) return false;
    return true;
  }

  status make(driver_calls const& driver, std::size_t bytes, int rank, shared_memory_offer& mine) noexcept {
    if (!staged_) {
      result<device_allocation> memory = device_allocation::zeroed(bytes, rank);
      if (!memory) return memory.error();
      own_ = std::move(*memory);
      result<shared_memory_offer> offered = offer(driver, own_.at(), bytes, rank);
      if (!offered) return offered.error();
      mine = std::move(*offered);
      return {};
    }
    result<descriptor> file = memory_file(bytes, bytes);
    if (!file) return file.error();
    result<pinned_mapping> pinned = pinned_mapping::of(file->get(), bytes, rank);
    if (!pinned) return pinned.error();
    own_pinned_ = std::move(*pinned);
    mine.ticket.how = memory_ticket::host;
    mine.ticket.parts = 1;
    mine.parts.push_back({std::move(*file), bytes});
    return {};
  }

  status map(driver_calls const& driver, offers const& all, int peer, int device, std::size_t bytes, int rank) noexcept {
    std::size_t const i = static_cast<std::size_t>(peer);
    if (!staged_) {
      result<mapped_memory> m = mapped_memory::map(driver, all.tickets[i], all.parts[i], device, rank);
      if (!m) return m.error();
      mapped_.push_back(std::move(*m));
      return {};
    }
    result<pinned_mapping> p = pinned_mapping::of(all.parts[i][0].file.get(), bytes, rank);
    if (!p) return p.error();
    pinned_.push_back(std::move(*p));
    return {};
  }

  /// A mapping may fail where nobody could say so before, as between containers, or because its owner has died.
  status whose_fault(segment_transport& wire, status const& why, int peer) const noexcept {
    if (wire.lost(peer)) return status::failure(errc::peer_lost, peer, "rank %d died while rank %d mapped its memory", peer, wire.rank());
    if (staged_) return why;
    return status::foreign(why.code(), wire.rank(), why.native(),
                           "rank %d cannot map the device memory of rank %d (with the option stage they go through the host's): %.200s",
                           wire.rank(), peer, sentence(why));
  }

  bool staged_ = false;
  device_allocation own_;
  pinned_mapping own_pinned_;
  std::vector<mapped_memory> mapped_;
  std::vector<pinned_mapping> pinned_;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
