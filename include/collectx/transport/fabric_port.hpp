// SPDX-License-Identifier: Apache-2.0
/// What all channels of a rank over a network share: where rings lie in its memory, its endpoint, and what is on its way.
#pragma once

#include "collectx/transport.hpp"
#include "collectx/transport/fabric.hpp"
#include "collectx/transport/slot_ring.hpp"

#include <sys/uio.h>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace collectx {
inline namespace v0 {
namespace detail {

/// Travels in front of a payload. In front of it, in turn, the call_record of what the sender is doing, so that calls which differ are told
/// apart without asking; not on the lane of messages, where it would be most of a short one.
struct fabric_head {
  std::uint32_t sequence;  ///< 1 + number of the message in its channel, modulo 2^32
  std::uint32_t bytes;
  std::uint32_t tag;
  std::uint32_t released;  ///< messages of the opposite channel that its receiver, who sends this, has released, modulo 2^32

  static fabric_head before(std::byte const* payload) noexcept {
    fabric_head head;
    std::memcpy(&head, payload - sizeof head, sizeof head);
    return head;
  }
};
static_assert(sizeof(fabric_head) + sizeof(call_record) == 80);

/// Where things lie in a rank's memory, all of which its peers may write: credits, receiving rings, staging rings, credits to be sent.
///
/// Payloads of over slot_line::inline_bytes may lie in a memory of their own, which the host need not reach: a device's. They travel by
/// themselves then, so a message counts when both of its writes have come, in whatever order.
struct fabric_layout {
  static constexpr std::size_t head_room = 128;  // a payload begins on a line of its own

  std::size_t channels = 0;  ///< of a rank with all others: peer * (lanes + 1) + lane
  int slots = 0;
  std::size_t slot_bytes = 0;
  bool apart = false;  ///< long payloads lie in a memory of their own

  static fabric_layout of(int ranks, int lanes, int slots, std::size_t slot_bytes) noexcept {
    return {static_cast<std::size_t>(ranks) * (static_cast<std::size_t>(lanes) + 1), slots, slot_bytes, false};
  }
  bool goes_apart(std::size_t payload) const noexcept { return apart && payload > slot_line::inline_bytes; }
  /// From one slot's head to the next one's, and from one payload to the next.
  std::size_t front_stride() const noexcept { return head_room + (apart ? sizeof(slot_line) : slot_ring::stride(slot_bytes)); }
  std::size_t stride() const noexcept { return apart ? slot_ring::stride(slot_bytes) : front_stride(); }
  /// Of the memory of their own, where there is one: first what is received, then what is sent.
  std::size_t receiving_apart(std::size_t channel) const noexcept {
    return channel * static_cast<std::size_t>(slots) * slot_ring::stride(slot_bytes);
  }
  std::size_t staging_apart(std::size_t channel) const noexcept { return receiving_apart(channels + channel); }
  std::size_t bytes_apart() const noexcept { return staging_apart(channels); }

  std::size_t ring() const noexcept { return static_cast<std::size_t>(slots) * front_stride(); }
  std::size_t credits() const noexcept { return (channels * sizeof(std::uint64_t) + 4095) / 4096 * 4096; }
  std::size_t receiving(std::size_t channel) const noexcept { return credits() + channel * ring(); }
  std::size_t staging(std::size_t channel) const noexcept { return receiving(channels) + channel * ring(); }
  std::size_t promises() const noexcept { return staging(channels); }
  std::size_t bytes() const noexcept { return promises() + credits(); }
};

class fabric_sender;
class fabric_receiver;

class fabric_port;

/// What the network keeps while a write is on its way. Each write has one: a provider that has to give up a write without any (an inject)
/// when its peer is gone may not survive that (ofi_rxm of libfabric 1.17).
struct fabric_ticket {
  ::fi_context2 context{};
  fabric_port* port = nullptr;
  int peer = -1;
  enum { credit, message, fetched } what = credit;
  bool busy = false;
  std::byte const* borrowed = nullptr;      ///< where the payload lies, if not in the slot: memory of the caller
  fabric_object<::fid_mr> borrowed_memory;  ///< registered as long as it is read, where the provider asks for that

  void settle() noexcept;
};

/// What all channels of a rank have in common: the endpoint, and what has not left it yet.
class fabric_port {
 public:
  struct peer {
    ::fi_addr_t number = FI_ADDR_UNSPEC;
    fabric_window window, apart;
  };
  // What the number says that arrives with a write: channel * slots + slot, or for a credit the channel.
  static constexpr std::uint32_t credit_flag = std::uint32_t{1} << 31, payload_flag = std::uint32_t{1} << 30;

  fabric_endpoint endpoint;
  fabric_object<::fid_mr> region, region_apart;
  std::byte* base = nullptr;        // of `region`, by the layout
  std::byte* base_apart = nullptr;  // of `region_apart`
  fabric_layout layout;
  std::vector<peer> peers;
  call_record call;                               // what this rank is doing
  std::size_t unsettled = 0;                      // messages that have not left this rank
  std::size_t borrowing = 0;                      // those of them whose payload is a caller's memory, and what is fetched into such
  std::size_t worth_borrowing = ~std::size_t{0};  // bytes from which on that is better than a copy
  std::size_t copied_at_once = 0;                 // so much is copied as it is written, and does not stay under way
  std::size_t worth_offering = ~std::size_t{0};   // from which on the receiver had better copy them itself
  std::vector<fabric_sender*> late;               // they have something that the network did not take
  std::vector<fabric_receiver*> in_debt;          // they have credits that the network did not take
  bool landed = false;                            // payloads that lie apart have come
  bool sealed = false;                            // the endpoint is not touched any more
  int broken = -1;                                // a peer that cannot be written to
  int broken_by = 0;

  /// Writes from this rank's memory into a peer's; 0 or a negative error.
  ssize_t write(fabric_ticket& ticket, std::byte const* from, std::size_t bytes, std::size_t offset, std::uint32_t number) noexcept {
    if (sealed) return -FI_EAGAIN;
    peer const& p = peers[static_cast<std::size_t>(ticket.peer)];
    if (bytes <= copied_at_once) {
      ssize_t const rc = ::fi_inject_writedata(endpoint.endpoint(), from, bytes, number, p.number, p.window.address + offset, p.window.key);
      if (rc == 0) ticket.settle();
      return rc;
    }
    return ::fi_writedata(endpoint.endpoint(), from, bytes, descriptor(region), number, p.number, p.window.address + offset, p.window.key,
                          &ticket.context);
  }
  /// The same from and into the memories of payloads that lie apart.
  ssize_t write_apart(fabric_ticket& ticket, std::byte const* from, std::size_t bytes, std::size_t offset, std::uint32_t number) noexcept {
    if (sealed) return -FI_EAGAIN;
    peer const& p = peers[static_cast<std::size_t>(ticket.peer)];
    return ::fi_writedata(endpoint.endpoint(), from, bytes, descriptor(region_apart), number | payload_flag, p.number,
                          p.apart.address + offset, p.apart.key, &ticket.context);
  }
  /// write(), with the last `bytes` from the memory that the ticket has borrowed.
  ssize_t write_borrowed(fabric_ticket& ticket, std::byte const* head, std::size_t head_bytes, std::size_t bytes, std::size_t offset,
                         std::uint32_t number) noexcept;
  /// Whether the caller's memory can be sent from where it is; if so, the ticket has it.
  bool borrow(fabric_ticket& ticket, std::byte const* memory, std::size_t bytes) noexcept;
  /// Reads from a peer's memory; 0 or a negative error.
  ssize_t read(fabric_ticket& ticket, void* to, std::size_t bytes, offer const& from) noexcept {
    if (sealed) return -FI_EAGAIN;
    return ::fi_read(endpoint.endpoint(), to, bytes, nullptr, peers[static_cast<std::size_t>(ticket.peer)].number, from.address, from.key,
                     &ticket.context);
  }
  static void* descriptor(fabric_object<::fid_mr> const& memory) noexcept {
    return memory.get() != nullptr ? ::fi_mr_desc(memory.get()) : nullptr;
  }
  void drain();
  void abandon() noexcept {
    region.abandon();
    region_apart.abandon();
    endpoint.abandon();
  }
  void breaks(int to, ssize_t error) noexcept {
    if (broken >= 0) return;
    broken = to;
    broken_by = static_cast<int>(-error);
  }
};

inline void fabric_ticket::settle() noexcept {
  busy = false;
  if (what == fetched) --port->borrowing;
  if (what != message) return;
  --port->unsettled;
  if (borrowed == nullptr) return;
  --port->borrowing;
  borrowed = nullptr;
  borrowed_memory = {};
}

inline ssize_t fabric_port::write_borrowed(fabric_ticket& ticket, std::byte const* head, std::size_t head_bytes, std::size_t bytes,
                                           std::size_t offset, std::uint32_t number) noexcept {
  if (sealed) return -FI_EAGAIN;
  peer const& p = peers[static_cast<std::size_t>(ticket.peer)];
  // libfabric takes what it sends as memory that it might change.
  ::iovec const from[] = {{const_cast<std::byte*>(head), head_bytes}, {const_cast<std::byte*>(ticket.borrowed), bytes}};
  void* descriptors[] = {descriptor(region), descriptor(ticket.borrowed_memory)};
  ::fi_rma_iov const to{p.window.address + offset, head_bytes + bytes, p.window.key};
  ::fi_msg_rma const message{from, descriptors, 2, p.number, &to, 1, &ticket.context, number};
  return ::fi_writemsg(endpoint.endpoint(), &message, FI_REMOTE_CQ_DATA);
}

inline bool fabric_port::borrow(fabric_ticket& ticket, std::byte const* memory, std::size_t bytes) noexcept {
  if (bytes < worth_borrowing || !endpoint.lend(memory, bytes, ticket.borrowed_memory)) return false;
  ticket.borrowed = memory;
  ++borrowing;
  return true;
}

}  // namespace detail
}  // namespace v0
}  // namespace collectx
