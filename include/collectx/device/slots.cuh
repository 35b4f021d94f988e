// SPDX-License-Identifier: Apache-2.0
/// Two protocols by which a block fills a slot in a peer's memory: `flagged`, and `low_latency` for small messages.
///
/// A protocol is the two ends of a channel. Only the first thread of a block asks and tells: `try_acquire`, `commit`, `try_peek`, `release`
/// are those of SendChannel and RecvChannel. Where `staged`, what is acquired and peeked at is memory of this rank, and all threads of
/// the block carry it: `fetch` before it is read, `put` after it is written, each followed by a sync before the first thread goes on.
#pragma once

#include "collectx/device/world.cuh"

#include <cstdint>

namespace collectx {
inline namespace v0 {
namespace device {

/// The payload, then a flag. Full bandwidth; a message takes a synchronisation of the block and a flag that arrives behind it.
/// Needs of the memory: words of 64 bits are stored whole, release and acquire in system scope.
template <class Atomics = system_atomics>
struct flagged {
  using atomics = Atomics;
  using sender = ring_sender<Atomics>;
  using receiver = ring_receiver<Atomics>;
  static constexpr bool staged = false;

  static slot_shape shape(layout const& l) { return l.slots; }
  /// The ends of channel (block, peer, lane) of rank `rank`, for memory of the device: once per group, by the host.
  static sender make_sender(layout const& l, std::byte* const* windows, int rank, int block, int peer, int lane, std::byte*) {
    std::size_t const there = l.channel(block, rank, lane), here = l.channel(block, peer, lane);
    return sender(ring(l, windows[peer], there, windows[rank] + l.credit_word(here)));
  }
  static receiver make_receiver(layout const& l, std::byte* const* windows, int rank, int block, int peer, int lane, std::byte*) {
    std::size_t const there = l.channel(block, rank, lane), here = l.channel(block, peer, lane);
    return receiver(ring(l, windows[rank], here, windows[peer] + l.credit_word(there)));
  }

 private:
  static slot_ring ring(layout const& l, std::byte* window, std::size_t channel, std::byte* credit) {
    return {reinterpret_cast<slot_line*>(window + l.lines(channel)), reinterpret_cast<std::uint64_t*>(credit), window + l.data(channel),
            l.slots.slots, l.slots.bytes};
  }
};

/// A cell of 16 bytes, stored at once: 8 of them payload, and in each half the number of the message, so that a half that has arrived is
/// known by itself. Needs of the memory: the halves, words of 64 bits, are stored whole; the two in any order.
struct halves_with_flags {
  static constexpr int payload_words = 2;  // of 32 bits

  COLLECTX_DEVICE static word_pair pack(std::uint32_t const* payload, std::uint32_t flag) {
    std::uint64_t const high = std::uint64_t{flag} << 32;
    return {payload[0] | high, payload[1] | high};
  }
  /// False where some of it is still on its way.
  COLLECTX_DEVICE static bool unpack(word_pair cell, std::uint32_t flag, std::uint32_t* payload) {
    payload[0] = static_cast<std::uint32_t>(cell.low);
    payload[1] = static_cast<std::uint32_t>(cell.high);
    return cell.low >> 32 == flag && cell.high >> 32 == flag;
  }
};

/// Every cell says itself whether it is there, so a message takes one way over the link and no synchronisation before it is sent. Half the
/// bandwidth (the idea is that of NCCL's protocol LL). Numbers of messages are cut to 32 bits: a cell that no short message has reached
/// for 2^32 messages would look new, so every 2^31 messages the sender writes each slot to its end.
template <class Atomics = system_atomics, class Cell = halves_with_flags>
struct low_latency {
  using atomics = Atomics;
  static constexpr bool staged = true;

  static slot_shape shape(layout const& l) { return l.low_latency; }

  /// What both ends know.
  struct end {
    word_pair* cells = nullptr;  ///< of all slots, in the receiver's window
    std::uint64_t* credit = nullptr;
    std::byte* staging = nullptr;
    std::uint64_t number = 0;  ///< of messages so far
    std::uint32_t slots = 1;
    std::uint32_t cells_per_slot = 1;

    COLLECTX_DEVICE word_pair* slot() const { return cells + static_cast<std::uint32_t>(number % slots) * std::size_t{cells_per_slot}; }
    COLLECTX_DEVICE std::uint32_t flag() const { return static_cast<std::uint32_t>(number + 1); }
    COLLECTX_DEVICE std::uint32_t* payload(std::uint32_t cell) const {
      return reinterpret_cast<std::uint32_t*>(staging) + (cell - 1) * Cell::payload_words;
    }
    /// Cells of a message, the first included, which says its length and tag.
    COLLECTX_DEVICE static std::uint32_t cells_of(std::size_t bytes) {
      constexpr std::size_t per_cell = Cell::payload_words * sizeof(std::uint32_t);
      return 1 + static_cast<std::uint32_t>((bytes + per_cell - 1) / per_cell);
    }
  };

  class sender : public end {
   public:
    COLLECTX_DEVICE std::byte* try_acquire(std::size_t) {
      if (this->number - released_ < this->slots) return this->staging;
      released_ = Atomics::load_acquire(*this->credit);
      return this->number - released_ < this->slots ? this->staging : nullptr;
    }
    template <Block B>
    COLLECTX_DEVICE void put(B& block, std::size_t bytes, std::uint32_t tag) const {
      std::uint32_t const count = end::cells_of(bytes), last = renews() ? this->cells_per_slot : count;
      for (std::uint32_t i = static_cast<std::uint32_t>(block.rank()); i < last; i += static_cast<std::uint32_t>(block.size())) {
        std::uint32_t const head[4] = {static_cast<std::uint32_t>(bytes), tag, 0, 0};
        word_pair const cell = i == 0 || i >= count ? Cell::pack(head, this->flag()) : Cell::pack(this->payload(i), this->flag());
        Atomics::store_pair(this->slot()[i], cell);
      }
    }
    COLLECTX_DEVICE void commit(std::size_t, std::uint32_t) { ++this->number; }

   private:
    COLLECTX_DEVICE bool renews() const { return this->number >> 31 != (this->number - this->slots) >> 31; }
    std::uint64_t released_ = 0;
  };

  class receiver : public end {
   public:
    COLLECTX_DEVICE message try_peek() const {
      std::uint32_t head[4];
      if (!Cell::unpack(Atomics::load_pair(this->slot()[0]), this->flag(), head)) return {};
      return {this->staging, head[0], head[1]};
    }
    /// Waits for the rest of what `try_peek` has seen the beginning of. The sender has stored all of it, or is about to.
    template <Block B>
    [[nodiscard]] COLLECTX_DEVICE outcome fetch(B& block, std::size_t bytes, patience<Atomics, B>& waiting) const {
      std::uint32_t const count = end::cells_of(bytes);
      for (std::uint32_t i = 1 + static_cast<std::uint32_t>(block.rank()); i < count; i += static_cast<std::uint32_t>(block.size()))
        while (!Cell::unpack(Atomics::load_pair(this->slot()[i]), this->flag(), this->payload(i)))
          if (outcome const o = waiting.turn(); o != outcome::done) return o;
      return outcome::done;
    }
    COLLECTX_DEVICE void release() { ++this->number; }
    COLLECTX_DEVICE void flush() const { Atomics::store_release(*this->credit, this->number); }
  };

  static sender make_sender(layout const& l, std::byte* const* windows, int rank, int block, int peer, int lane, std::byte* staging) {
    std::size_t const there = l.channel(block, rank, lane), here = l.channel(block, peer, lane);
    return make<sender>(l, windows[peer] + l.cells(there), windows[rank] + l.low_latency_credit_word(here), staging);
  }
  static receiver make_receiver(layout const& l, std::byte* const* windows, int rank, int block, int peer, int lane, std::byte* staging) {
    std::size_t const there = l.channel(block, rank, lane), here = l.channel(block, peer, lane);
    return make<receiver>(l, windows[rank] + l.cells(here), windows[peer] + l.low_latency_credit_word(there), staging);
  }

 private:
  template <class End>
  static End make(layout const& l, std::byte* cells, std::byte* credit, std::byte* staging) {
    End e;
    e.cells = reinterpret_cast<word_pair*>(cells);
    e.credit = reinterpret_cast<std::uint64_t*>(credit);
    e.staging = staging;
    e.slots = static_cast<std::uint32_t>(l.low_latency.slots);
    e.cells_per_slot = static_cast<std::uint32_t>(l.cells_per_slot());
    return e;
  }
};

/// The ends of all channels of a rank, `layout.channels()` of each, in memory of the device.
template <class Protocol>
struct wires {
  typename Protocol::sender* senders = nullptr;
  typename Protocol::receiver* receivers = nullptr;
};

/// Bytes of staging memory that the ends of a rank need together, for a staged protocol.
template <class Protocol>
constexpr std::size_t staging_bytes(layout const& l) {
  return Protocol::staged ? 2 * l.channels() * Protocol::shape(l).bytes : 0;
}

/// Writes the ends of all channels of `rank` where the host can write; `windows` and `staging` are addresses of the device.
template <class Protocol>
void make_wires(layout const& l, std::byte* const* windows, int rank, std::byte* staging, wires<Protocol> const& out) {
  std::size_t const each = Protocol::shape(l).bytes;
  for (int block = 0; block < l.blocks; ++block)
    for (int peer = 0; peer < l.ranks; ++peer)
      for (int lane = 0; lane < l.lanes; ++lane) {
        std::size_t const at = l.channel(block, peer, lane);
        std::byte* const mine = Protocol::staged ? staging + 2 * at * each : nullptr;
        out.senders[at] = Protocol::make_sender(l, windows, rank, block, peer, lane, mine);
        out.receivers[at] = Protocol::make_receiver(l, windows, rank, block, peer, lane, mine + (Protocol::staged ? each : 0));
      }
}

/// The same for channels that a relay carries to other hosts, in place of those by windows. `shared` and `slots`: where the device sees
/// what it shares with the relay, and the relay's slots.
template <class Atomics, class Relay>
void make_relayed_wires(layout const& l, Relay& relay, std::byte* shared, std::byte* slots, wires<flagged<Atomics>> const& out) {
  for (int block = 0; block < l.blocks; ++block)
    for (int peer = 0; peer < l.ranks; ++peer)
      for (int lane = 0; lane < l.lanes && relay.relays(peer); ++lane) {
        std::size_t const at = l.channel(block, peer, lane);
        out.senders[at] = ring_sender<Atomics>(relay.ring_to(block, peer, lane, shared, slots));
        out.receivers[at] = ring_receiver<Atomics>(relay.ring_from(block, peer, lane, shared, slots));
      }
}

}  // namespace device
}  // namespace v0
}  // namespace collectx
