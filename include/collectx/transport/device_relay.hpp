// SPDX-License-Identifier: Apache-2.0
/// Between devices on different hosts: a thread that carries what a kernel has put into slots to the network, and what comes to where the
/// kernel looks.
///
/// The slots are those of the network's channels: the kernel fills them and the network sends from them, and it reads where the network has
/// written. They lie in memory of the device where the network reaches that, or else in memory of the host that the device reaches; over
/// slot_line::inline_bytes this thread touches no payload. What is carried is lines and credits. For the kernel a peer on another host
/// is a ring like all others, so no plan and no kernel knows of it. Knows nothing of any device; include it by name.
#pragma once

#include "collectx/device/layout.hpp"
#include "collectx/transport/libfabric.hpp"
#include "collectx/transport/slot_ring.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace collectx {
inline namespace v0 {
namespace detail {

/// One rank's. Its network is a group of its own, of the same ranks, whose board tells on all hosts whom kernels wait for.
class device_relay {
 public:
  /// What its network must be like for kernels of this layout.
  static libfabric_options options_for(device::layout const& l) noexcept {
    libfabric_options o;
    o.lanes = l.blocks * l.lanes;
    o.slots = l.slots.slots;
    o.slot_bytes = l.slots.bytes;
    return o;
  }
  /// Of memory that the device and this object share, all zero in the beginning.
  static std::size_t shared_bytes(device::layout const& l) noexcept { return lines(l, 2 * l.channels()); }

  /// @param relayed  whether a rank's messages go this way, for each rank
  /// @pre `wire` is as options_for(l) asks; `shared` is aligned to 128 and outlives this object
  device_relay(libfabric_transport wire, device::layout const& l, std::vector<bool> relayed, std::byte* shared)
      : wire_(std::move(wire)), layout_(l), relayed_(std::move(relayed)), shared_(shared) {
    for (int block = 0; block < l.blocks; ++block)
      for (int peer = 0; peer < l.ranks; ++peer)
        for (int lane = 0; lane < l.lanes && relays(peer); ++lane) channels_.push_back(make(block, peer, lane));
    thread_ = std::thread([this] { work(); });
  }
  device_relay(device_relay const&) = delete;
  device_relay& operator=(device_relay const&) = delete;
  /// When all kernels of this rank have ended: sends what they have left, and stays until it was taken, for a second at most. The board of
  /// this group knows of no calls, so it would let this rank go with something still on its way, which a connection that is closed and
  /// hears of credits takes with it.
  ~device_relay() {
    nanoseconds const deadline = monotonic_now() + 1'000'000'000;
    ending_.store(true, std::memory_order_release);
    while (verdict().ok() && !all_taken_.load(std::memory_order_acquire) && monotonic_now() < deadline) nap(20'000);
    over_.store(true, std::memory_order_release);
    thread_.join();
  }

  bool relays(int rank) const noexcept { return rank != wire_.rank() && relayed_[static_cast<std::size_t>(rank)]; }

  /// Where a kernel sends to `peer` and receives from it, as the device sees the shared memory and that of the slots.
  slot_ring ring_to(int block, int peer, int lane, std::byte* shared, std::byte* slots) noexcept {
    return ring(2 * layout_.channel(block, peer, lane), wire_.address_of_sender(peer, over(block, lane))->place_of(0), shared, slots);
  }
  slot_ring ring_from(int block, int peer, int lane, std::byte* shared, std::byte* slots) noexcept {
    return ring(2 * layout_.channel(block, peer, lane) + 1, wire_.channel_from(peer, over(block, lane)).place_of(0), shared, slots);
  }
  /// The memory of the slots, for the device to reach.
  std::byte* slots() const noexcept { return wire_.memory(); }
  std::size_t slots_bytes() const noexcept { return wire_.memory_bytes(); }
  bool in_device_memory() const noexcept { return wire_.in_device_memory(); }
  /// What kernels take for the window of a relayed rank. Of that they touch the words about aborts and waits only: their meetings are plans
  /// here, since a group on several hosts has no low-latency slots and reads nothing directly.
  static std::byte* window(std::byte* shared) noexcept { return shared; }
  /// Where they tell the host whom they wait for, a word per block.
  static std::uint64_t* told(device::layout const& l, std::byte* shared) noexcept {
    return reinterpret_cast<std::uint64_t*>(shared + l.arrival_word(0, 0));
  }

  // From any thread.

  status verdict() noexcept { return wire_.verdict(); }
  status abort(status const& why) noexcept { return wire_.abort(why); }
  bool lost(int rank) noexcept { return wire_.lost(rank); }
  bool has_left(int rank) const noexcept { return wire_.has_left(rank); }
  /// Follows who waits for whom, over all hosts.
  int blame(int peer) noexcept {
    guests_.fetch_add(1, std::memory_order_relaxed);
    std::lock_guard const held(lock_);
    guests_.fetch_sub(1, std::memory_order_relaxed);
    return wire_.blame(peer);
  }

 private:
  static constexpr std::size_t line_bytes = sizeof(slot_line);
  static constexpr nanoseconds attention = 4'000'000;
  static constexpr std::uint32_t awake = 20'000;  // turns in vain, then it naps between them

  struct channel {
    fabric_sender* to;
    fabric_receiver* from;
    slot_line *out, *in;
    std::uint64_t *out_credit, *in_credit;
    std::uint64_t sent = 0, credited = 0;       // messages that the network has been given, and that the kernel has back
    std::uint64_t delivered = 0, released = 0;  // messages that the kernel has been given, and that it has given back
  };

  /// The ends of directed channel i are: its credit, on a line of its own, and the lines of its slots.
  static std::size_t lines(device::layout const& l, std::size_t i) noexcept {
    std::size_t const words = (static_cast<std::size_t>(l.blocks) * sizeof(std::uint64_t) + 127) / 128 * 128;
    return l.arrival_word(0, 0) + words + i * (1 + static_cast<std::size_t>(l.slots.slots)) * line_bytes;
  }
  slot_ring ring(std::size_t directed, std::byte const* place, std::byte* shared, std::byte* slots) const noexcept {
    std::byte* const at = shared + lines(layout_, directed);
    return {reinterpret_cast<slot_line*>(at + line_bytes),
            reinterpret_cast<std::uint64_t*>(at),
            slots + (place - wire_.memory()),
            layout_.slots.slots,
            layout_.slots.bytes,
            wire_.slot_stride()};
  }
  int over(int block, int lane) const noexcept { return block * layout_.lanes + lane; }

  channel make(int block, int peer, int lane) {
    slot_ring const out = ring_to(block, peer, lane, shared_, slots()), in = ring_from(block, peer, lane, shared_, slots());
    int const mine = over(block, lane);
    return {&wire_.channel_to(peer, mine), &wire_.channel_from(peer, mine), out.lines, in.lines, out.released, in.released};
  }

  void work() noexcept {
    nanoseconds looked = 0, quiet_since = 0;
    int polls = 0;
    for (std::uint32_t vain = 0; !over_.load(std::memory_order_acquire);) {
      bool moved = false;
      int peer = -1;
      {
        std::lock_guard const held(lock_);
        if (wire_.verdict().ok()) {
          moved = carry();
          peer = moved ? -1 : whom_kernels_wait_for();
          polls = peer < 0 ? 0 : polls + 1;
          bool const may_look = polls == 0 && (vain % 64 == 0 || vain >= awake);
          nanoseconds const now = may_look ? monotonic_now() : looked;
          if (peer >= 0 || now - looked > attention) {
            (void)wire_.idle(polls, peer < 0 ? wire_.rank() : peer);  // what it says, the verdict says again
            if (peer < 0) wire_.look(), looked = now;
          }
        } else {
          wire_.look();  // and tells those who have not heard
          vain = awake;
        }
      }
      vain = moved ? 0 : vain + 1;
      if (moved) quiet_since = 0;
      if (vain > awake && peer < 0) {
        // A sixteenth of the pause, so that what comes next is not much later for it.
        nanoseconds const now = monotonic_now();
        quiet_since = quiet_since == 0 ? now : quiet_since;
        nap(std::clamp<nanoseconds>((now - quiet_since) / 16, 50'000, 1'000'000));
        vain = awake;
      }
      if (vain > 256 || guests_.load(std::memory_order_relaxed) > 0) ::sched_yield();
    }
    std::lock_guard const held(lock_);
    (void)wire_.idle(0, wire_.rank());
  }

  /// One turn over all channels; whether anything has moved.
  bool carry() noexcept {
    bool const ending = ending_.load(std::memory_order_acquire);  // before it looks for what kernels have left
    bool moved = false;
    wire_.progress();
    if (!wire_.verdict().ok()) return false;
    for (channel& c : channels_) {
      if (send(c)) moved = true;
      if (receive(c)) moved = true;
    }
    if (!moved)
      for (channel& c : channels_) c.from->flush();
    if (ending && !moved && wire_.unsent() < 0 && taken()) all_taken_.store(true, std::memory_order_release);
    return moved;
  }

  /// Whether the peers' kernels have released all that was sent.
  bool taken() const noexcept {
    bool all = true;
    for (channel const& c : channels_) all = all && c.credited == c.sent;
    return all;
  }

  bool send(channel& c) noexcept {
    std::uint64_t const sent = c.sent, credited = c.credited, slots = static_cast<std::uint64_t>(layout_.slots.slots);
    for (;;) {
      slot_line& line = c.out[c.sent % slots];
      if (host_atomics::load_acquire(line.sequence) != c.sent + 1) break;
      std::byte* const slot = c.to->try_acquire(line.bytes);
      if (slot == nullptr) break;
      if (line.bytes <= slot_line::inline_bytes) std::memcpy(slot, line.payload, line.bytes);
      c.to->commit(line.bytes, line.tag);
      ++c.sent;
    }
    while (c.credited < c.sent && c.to->returned(c.credited)) ++c.credited;
    if (c.credited != credited) host_atomics::store_release(*c.out_credit, c.credited);
    return c.sent != sent || c.credited != credited;
  }

  bool receive(channel& c) noexcept {
    std::uint64_t const delivered = c.delivered, released = c.released, slots = static_cast<std::uint64_t>(layout_.slots.slots);
    for (std::uint64_t const taken = host_atomics::load_acquire(*c.in_credit); c.released < taken; ++c.released) c.from->release();
    while (c.delivered - c.released < slots) {
      message const m = c.from->try_peek(static_cast<std::uint32_t>(c.delivered - c.released));
      if (m.data == nullptr) break;
      slot_line& line = c.in[c.delivered % slots];
      line.bytes = static_cast<std::uint32_t>(m.bytes);
      line.tag = m.tag;
      if (m.bytes <= slot_line::inline_bytes) std::memcpy(line.payload, m.data, m.bytes);
      host_atomics::store_release(line.sequence, ++c.delivered);
    }
    return c.delivered != delivered || c.released != released;
  }

  int whom_kernels_wait_for() noexcept {
    for (int b = 0; b < layout_.blocks; ++b) {
      int const peer = static_cast<int>(host_atomics::load_acquire(told(layout_, shared_)[b]) & 0xffffu) - 1;
      if (peer >= 0) return peer;
    }
    return -1;
  }

  libfabric_transport wire_;
  device::layout layout_;
  std::vector<bool> relayed_;
  std::byte* shared_;
  std::vector<channel> channels_;
  std::mutex lock_;
  std::atomic<int> guests_{0};  // who waits for the lock, which this thread would else take again at once
  std::atomic<bool> ending_{false}, all_taken_{false}, over_{false};
  std::thread thread_;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
