// SPDX-License-Identifier: Apache-2.0
/// Channels over a network that can write into a peer's memory: a slot travels as one such write, from the sender's staging memory to the
/// same place in the receiver's, and what arrives with it is a number that says in which channel.
#pragma once

#include "collectx/transport.hpp"
#include "collectx/transport/fabric.hpp"
#include "collectx/transport/segment.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
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
struct fabric_layout {
  static constexpr std::size_t head_room = 128;  // a payload begins on a line of its own

  std::size_t channels = 0;  ///< of a rank with all others: peer * (lanes + 1) + lane
  int slots = 0;
  std::size_t slot_bytes = 0;

  std::size_t stride() const noexcept { return head_room + slot_ring::stride(slot_bytes); }
  std::size_t ring() const noexcept { return static_cast<std::size_t>(slots) * stride(); }
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
    fabric_window window;
  };
  static constexpr std::uint32_t credit_flag = std::uint32_t{1} << 31;

  fabric_endpoint endpoint;
  fabric_object<::fid_mr> region;
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
  /// The same, with the last `bytes` from the memory that the ticket has borrowed.
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

/// What a receiver has released, and how much of that its sender has been told, modulo 2^32.
struct fabric_released {
  std::uint32_t taken = 0;
  std::uint32_t published = 0;
};

class fabric_sender {
 public:
  fabric_sender() = default;
  /// `mine` is the channel's number here, `theirs` at the peer.
  fabric_sender(fabric_port& port, std::byte* memory, int peer, std::size_t mine, std::size_t theirs, bool names_calls) noexcept
      : port_(&port),
        staging_(memory + port.layout.staging(mine)),
        remote_(port.layout.receiving(theirs)),
        number_(static_cast<std::uint32_t>(theirs)),
        peer_(peer),
        names_calls_(names_calls) {}

  /// Before its first use.
  void prepare() {
    if (tickets_ || port_ == nullptr) return;
    tickets_ = std::make_unique<fabric_ticket[]>(slots());
    for (std::uint32_t i = 0; i < slots(); ++i) {
      tickets_[i].port = port_;
      tickets_[i].peer = peer_;
      tickets_[i].what = fabric_ticket::message;
    }
  }

  std::byte* try_acquire(std::size_t) noexcept {
    if (closed_ || sent_ - released_ >= slots() || tickets_[index_].busy) return nullptr;
    return slot(index_) + fabric_layout::head_room;
  }

  void commit(std::size_t bytes, std::uint32_t tag) noexcept {
    opposite_->published = opposite_->taken;
    fabric_head const head{sent_ + 1, static_cast<std::uint32_t>(bytes), tag, opposite_->taken};
    std::byte* const front = slot(index_) + fabric_layout::head_room - sizeof head;
    std::memcpy(front, &head, sizeof head);
    if (names_calls_) std::memcpy(front - sizeof port_->call, &port_->call, sizeof port_->call);
    tickets_[index_].busy = true;
    ++sent_;
    ++port_->unsettled;
    if (++index_ == slots()) index_ = 0;
    if (late_ || post()) return;
    late_ = true;
    port_->late.push_back(this);
  }

  /// The payload is read where it lies, if that is better than a copy, until the port borrows no more.
  void commit_from(std::byte const* memory, std::size_t bytes, std::uint32_t tag) noexcept {
    if (!port_->borrow(tickets_[index_], memory, bytes)) std::memcpy(slot(index_) + fabric_layout::head_room, memory, bytes);
    commit(bytes, tag);
  }

  /// Whether the peer had better fetch this memory; it may until taken().
  bool offers(std::byte const* memory, std::size_t bytes, offer& made) noexcept {
    fabric_window window;
    if (bytes < port_->worth_offering || !port_->endpoint.offer(memory, bytes, offered_, window)) return false;
    made = {window.address, window.key};
    return true;
  }
  bool taken() noexcept {
    if (released_ != sent_) return false;
    offered_ = {};
    return true;
  }

  /// Hands to the network what it takes; false where something is left.
  bool post() noexcept {
    while (posted_ != sent_) {
      std::size_t const payload = posting_ * port_->layout.stride() + fabric_layout::head_room;
      std::size_t const front = sizeof(fabric_head) + (names_calls_ ? sizeof(call_record) : 0), start = payload - front;
      std::size_t const bytes = fabric_head::before(staging_ + payload).bytes;
      fabric_ticket& ticket = tickets_[posting_];
      ssize_t const rc = ticket.borrowed != nullptr
                             ? port_->write_borrowed(ticket, staging_ + start, front, bytes, remote_ + start, number_)
                             : port_->write(ticket, staging_ + start, front + bytes, remote_ + start, number_);
      if (rc == -FI_EAGAIN) return false;
      if (rc != 0) port_->breaks(peer_, rc), ticket.settle();
      ++posted_;
      if (++posting_ == slots()) posting_ = 0;
    }
    late_ = false;
    return true;
  }

  /// @pre `released` counts messages of this channel, modulo 2^32
  void credit(std::uint32_t released) noexcept {
    if (static_cast<std::int32_t>(released - released_) > 0) released_ = released;
  }
  void oppose(fabric_released& released) noexcept { opposite_ = &released; }
  void close() noexcept { closed_ = true; }
  /// Closes nothing that a forked child has in common with its parent.
  void abandon() noexcept {
    offered_.abandon();
    for (std::uint32_t i = 0; tickets_ && i < slots(); ++i) tickets_[i].borrowed_memory.abandon();
  }
  int peer() const noexcept { return peer_; }
  bool unsettled() const noexcept {
    bool busy = false;
    for (std::uint32_t i = 0; tickets_ && i < slots(); ++i) busy |= tickets_[i].busy;
    return busy;
  }

 private:
  std::uint32_t slots() const noexcept { return static_cast<std::uint32_t>(port_->layout.slots); }
  std::byte* slot(std::uint32_t index) const noexcept { return staging_ + index * port_->layout.stride(); }

  fabric_port* port_ = nullptr;
  std::byte* staging_ = nullptr;
  std::size_t remote_ = 0;
  std::uint32_t number_ = 0;
  int peer_ = -1;
  bool names_calls_ = true;
  std::uint32_t sent_ = 0, posted_ = 0, released_ = 0;  // modulo 2^32
  std::uint32_t index_ = 0, posting_ = 0;               // slots of `sent_` and `posted_`
  bool closed_ = false;
  bool late_ = false;
  fabric_released* opposite_ = nullptr;
  fabric_object<::fid_mr> offered_;
  std::unique_ptr<fabric_ticket[]> tickets_;
};

class fabric_receiver {
 public:
  fabric_receiver() = default;
  fabric_receiver(fabric_port& port, std::byte* memory, int peer, std::size_t mine, std::size_t theirs, fabric_sender& opposite) noexcept
      : port_(&port),
        ring_(memory + port.layout.receiving(mine)),
        promise_(memory + port.layout.promises() + mine * sizeof(std::uint64_t)),
        remote_(theirs * sizeof(std::uint64_t)),
        number_(static_cast<std::uint32_t>(theirs) | fabric_port::credit_flag),
        opposite_(&opposite) {
    ticket_.port = fetching_.port = &port;
    ticket_.peer = fetching_.peer = peer;
    fetching_.what = fabric_ticket::fetched;
  }

  /// Copies out of the sender's memory; false where the network does not take that now. @pre nothing is being fetched
  bool fetch(offer const& from, std::byte* to, std::size_t bytes) noexcept {
    ssize_t const rc = port_->read(fetching_, to, bytes, from);
    if (rc == 0) fetching_.busy = true, ++port_->borrowing;
    if (rc != 0 && rc != -FI_EAGAIN) port_->breaks(fetching_.peer, rc);
    return rc == 0;
  }
  bool fetched() const noexcept { return !fetching_.busy; }

  /// What the opposite channel's sender tells the peer. It stays where it is.
  fabric_released& released() noexcept { return released_; }

  message try_peek() noexcept {
    if (arrived_ == released_.taken) return {};
    std::byte const* const payload = ring_ + index_ * port_->layout.stride() + fabric_layout::head_room;
    fabric_head const head = fabric_head::before(payload);
    if (head.sequence != released_.taken + 1 || closed_) return {};
    return {payload, head.bytes, head.tag};
  }

  void release() noexcept {
    ++released_.taken;
    if (++index_ == static_cast<std::uint32_t>(port_->layout.slots)) index_ = 0;
    if (released_.taken - released_.published >= batch()) flush();
  }

  void flush() {
    if (released_.published == released_.taken || closed_ || in_debt_ || pay()) return;
    in_debt_ = true;
    port_->in_debt.push_back(this);
  }
  /// False where the network does not take it now, or still has the last one.
  bool pay() noexcept {
    if (ticket_.busy) return false;
    std::uint64_t const taken = released_.taken;
    std::memcpy(promise_, &taken, sizeof taken);
    ticket_.busy = true;
    ssize_t const rc = port_->write(ticket_, promise_, sizeof taken, remote_, number_);
    if (rc != 0) ticket_.busy = false;
    if (rc == -FI_EAGAIN) return false;
    released_.published = released_.taken;  // a peer that cannot be reached needs no credit
    in_debt_ = false;
    return true;
  }

  /// The credits in a message count from when it is here, not from when somebody looks at it: its receiver may be waiting for a slot to
  /// send from, which these credits are about, before it looks. Where messages overtake each other, the last one of them is found.
  void arrived() noexcept {
    ++arrived_;
    std::uint32_t const slots = static_cast<std::uint32_t>(port_->layout.slots), newest = index_ + (arrived_ - released_.taken) - 1;
    fabric_head const head = fabric_head::before(ring_ + newest % slots * port_->layout.stride() + fabric_layout::head_room);
    if (head.sequence == arrived_) opposite_->credit(head.released);
  }
  /// What the sender of the oldest message not yet released was doing. @pre there is one, and its sender names calls
  call_record call() const noexcept {
    call_record record;
    std::byte const* const payload = ring_ + index_ * port_->layout.stride() + fabric_layout::head_room;
    std::memcpy(&record, payload - sizeof(fabric_head) - sizeof record, sizeof record);
    return record;
  }
  bool holds() const noexcept { return arrived_ != released_.taken; }
  void close() noexcept { closed_ = true; }

 private:
  std::uint32_t batch() const noexcept { return port_->layout.slots < 8 ? 1 : static_cast<std::uint32_t>(port_->layout.slots) / 4; }

  fabric_port* port_ = nullptr;
  std::byte* ring_ = nullptr;
  std::byte* promise_ = nullptr;  // the credit that is on its way
  std::size_t remote_ = 0;
  std::uint32_t number_ = 0;
  fabric_ticket ticket_, fetching_;
  fabric_released released_;
  std::uint32_t arrived_ = 0, index_ = 0;
  bool closed_ = false;
  bool in_debt_ = false;
  fabric_sender* opposite_ = nullptr;
};

/// Hands over what the network did not take before, as far as it does now.
inline void fabric_port::drain() {
  std::erase_if(late, [](fabric_sender* s) { return s->post(); });
  std::erase_if(in_debt, [](fabric_receiver* r) { return r->pay(); });
}

static_assert(BorrowingChannel<fabric_sender> && OfferingChannel<fabric_sender> && FetchingChannel<fabric_receiver> &&
              RecvChannel<fabric_receiver>);

}  // namespace detail
}  // namespace v0
}  // namespace collectx
