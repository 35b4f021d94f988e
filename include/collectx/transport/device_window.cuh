// SPDX-License-Identifier: Apache-2.0
/// The windows of a group: memory of each rank that all ranks on its host have mapped. On the devices where these reach one another, else
/// in pinned memory of the host, which every device reaches.
#pragma once

#include "collectx/transport/device_meeting.cuh"
#include "collectx/transport/device_store.cuh"

#include <cstdint>
#include <utility>
#include <vector>

namespace collectx {
inline namespace v0 {
namespace detail {

class device_windows {
 public:
  device_windows() = default;

  /// Opens the windows of all ranks, of `bytes` each, all zero. Returns on every rank when all have mapped all, or with the same failure.
  template <Transport Wire>
  static result<device_windows> open(Wire& wire, device_meeting& meeting, driver_calls const& driver, int device, std::size_t bytes,
                                     bool stage, cudaStream_t errand, nanoseconds patience) {
    device_windows self;
    if (status s = self.look_around(wire, meeting, device, stage, patience); !s) return s;
    shared_memory_offer mine;
    if (status s = self.make(driver, bytes, errand, wire.rank(), mine); !s) return wire.abort(s);
    result<offers> all = meeting.trade(wire, mine, 0, patience);
    if (!all) return all.error();
    for (int r = 0; r < wire.size(); ++r) {
      if (!is_neighbour(wire, r)) continue;
      self.peers_.push_back(r);
      if (status s = self.map(driver, *all, r, device, bytes, wire.rank()); !s) return wire.abort(self.whose_fault(wire, s, r));
    }
    if (status s = meeting.all_mapped(wire, {}, 0, patience); !s) return s;
    return result<device_windows>(std::move(self));
  }

  /// Whether ranks of this host go through its memory.
  bool staged() const noexcept { return staged_; }
  /// Whether devices may read one another's memory; else who does not reach whom. The same on all ranks.
  status const& reach() const noexcept { return reach_; }
  /// Addresses for this rank's device, in the order of ranks; `elsewhere` for those on other hosts.
  std::vector<std::byte*> addresses(int rank, int size, std::byte* elsewhere) const {
    std::vector<std::byte*> all(static_cast<std::size_t>(size), elsewhere);
    all[static_cast<std::size_t>(rank)] = own();
    for (std::size_t i = 0; i < peers_.size(); ++i) all[static_cast<std::size_t>(peers_[i])] = staged_ ? pinned_[i].at() : mapped_[i].at();
    return all;
  }
  std::byte* own() const noexcept { return staged_ ? own_pinned_.at() : own_.at(); }

  /// Lets go of the others' windows, so that they may free them.
  void unmap() noexcept {
    mapped_.clear();
    pinned_.clear();
  }

 private:
  /// Finds out whether devices reach one another; the answer is the same on all ranks.
  template <Transport Wire>
  status look_around(Wire& wire, device_meeting const& meeting, int device, bool stage, nanoseconds patience) {
    std::vector<int> out_of_reach(static_cast<std::size_t>(wire.size()));
    int const rank = wire.rank();
    int mine = stage ? wanted : none;
    for (int r = 0; r < wire.size() && mine == none; ++r) {
      if (r != rank && !is_neighbour(wire, r)) continue;
      int there = -1, can = 1;
      // A device that this process does not see is tried: mapping is allowed where asking is not.
      cudaError_t const asked = cudaDeviceGetByPCIBusId(&there, meeting.of(r).bus);
      bool const unseen = asked == cudaErrorInvalidDevice || asked == cudaErrorInvalidValue;
      status s = unseen ? status{} : device_status(asked, rank, "which device another rank uses");
      if (unseen) (void)cudaGetLastError();
      if (s.ok() && !unseen && there != device) {
        s = device_status(cudaDeviceCanAccessPeer(&can, device, there), rank, "whether devices reach one another");
      }
      if (!s) return wire.abort(s);
      if (can == 0) mine = r;
    }
    if (status s = exchange(wire, mine, out_of_reach, "comparing devices", 0, patience); !s) return s;
    for (int r = wire.size() - 1; r >= 0; --r) {
      if constexpr (requires { wire.node_of(r); }) {
        if (wire.node_of(r) != wire.node_of(0)) reach_ = elsewhere(r);
      }
      int const peer = out_of_reach[static_cast<std::size_t>(r)];
      if (peer == none) continue;
      staged_ = staged_ || r == rank || is_neighbour(wire, r);  // windows are mapped within a host only
      reach_ = peer == wanted ? by_choice(r) : out_of_sight(r, meeting.of(r).bus, peer, meeting.of(peer).bus);
    }
    return {};
  }
  static constexpr int none = -1, wanted = -2;
  static status elsewhere(int r) noexcept {
    return status::failure(errc::not_supported, r,
                           "rank %d is on another host than rank 0, so registered buffers are not read where they lie: split the group by "
                           "hosts for that",
                           r);
  }
  static status by_choice(int r) noexcept {
    return status::failure(errc::not_supported, r,
                           "rank %d goes through the host's memory (option stage), so registered buffers are not read where they lie", r);
  }
  static status out_of_sight(int r, char const* bus, int peer, char const* peers_bus) noexcept {
    return status::failure(errc::not_supported, r,
                           "rank %d (device %s) and rank %d (device %s) do not reach each other's memory, so registered buffers are not "
                           "read where they lie, and calls go through the host: give ranks devices with peer access (NVLink, or PCIe "
                           "within a root)",
                           r, bus, peer, peers_bus);
  }

  status make(driver_calls const& driver, std::size_t bytes, cudaStream_t errand, int rank, shared_memory_offer& mine) {
    if (!staged_) {
      result<device_allocation> memory = device_allocation::zeroed(bytes, errand, rank);
      if (!memory) return memory.error();
      own_ = std::move(*memory);
      result<shared_memory_offer> offered = offer_memory(driver, own_.at(), bytes, rank);
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

  status map(driver_calls const& driver, offers const& all, int peer, int device, std::size_t bytes, int rank) {
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
  template <Transport Wire>
  status whose_fault(Wire& wire, status const& why, int peer) const noexcept {
    // Who is being killed has lost its memory a moment before it is known to be dead.
    rendezvous_value seen;
    for (int looks = 0; looks < 100 && !wire.lost(peer); ++looks) {
      (void)wire.posted(peer, "", seen);  // takes in what has come
      nap(1'000'000);
    }
    if (wire.lost(peer)) return status::failure(errc::peer_lost, peer, "rank %d died while rank %d mapped its memory", peer, wire.rank());
    if (staged_) return why;
    return status::foreign(why.code(), wire.rank(), why.native(),
                           "rank %d cannot map the device memory of rank %d (with the option stage they go through the host's): %.200s",
                           wire.rank(), peer, sentence(why));
  }

  bool staged_ = false;
  status reach_;
  device_allocation own_;
  pinned_mapping own_pinned_;
  std::vector<int> peers_;  // whose windows those are that follow
  std::vector<mapped_memory> mapped_;
  std::vector<pinned_mapping> pinned_;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
