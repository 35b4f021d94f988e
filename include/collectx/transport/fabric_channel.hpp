// SPDX-License-Identifier: Apache-2.0
/// Channels over a network that can write into a peer's memory: a slot travels as one such write, from the sender's staging memory to the
/// same place in the receiver's, and what arrives with it is a number that says in which channel.
#pragma once

#include "collectx/transport.hpp"
#include "collectx/transport/fabric_port.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace collectx {
inline namespace v0 {
namespace detail {

/// What a receiver has released, and how much of that its sender has been told, modulo 2^32.
struct fabric_released {
  std::uint32_t taken = 0;
  std::uint32_t published = 0;
};

/// The slots of one channel at one of its ends.
class fabric_ring {
 public:
  fabric_ring() = default;
  static fabric_ring staging(fabric_port const& port, std::size_t channel) noexcept {
    return {port, port.layout.staging(channel), port.layout.staging_apart(channel)};
  }
  static fabric_ring receiving(fabric_port const& port, std::size_t channel) noexcept {
    return {port, port.layout.receiving(channel), port.layout.receiving_apart(channel)};
  }

  /// What lies in front of this place is the head, what lies behind it is a payload that travels with it.
  std::byte* front(std::uint32_t slot) const noexcept { return fronts_ + front_offset(slot); }
  std::size_t front_offset(std::uint32_t slot) const noexcept { return slot * front_stride_ + fabric_layout::head_room; }
  std::byte* payload(std::uint32_t slot, bool apart) const noexcept { return apart ? payloads_ + slot * stride_ : front(slot); }

 private:
  fabric_ring(fabric_port const& port, std::size_t fronts, std::size_t payloads) noexcept
      : fronts_(port.base + fronts),
        payloads_(port.layout.apart ? port.base_apart + payloads : nullptr),
        front_stride_(port.layout.front_stride()),
        stride_(port.layout.stride()) {}

  std::byte* fronts_ = nullptr;
  std::byte* payloads_ = nullptr;
  std::size_t front_stride_ = 0, stride_ = 0;
};

class fabric_sender {
 public:
  fabric_sender() = default;
  /// `mine` is the channel's number here, `theirs` at the peer. @pre the port's layout and memories are those that stay
  fabric_sender(fabric_port& port, int peer, std::size_t mine, std::size_t theirs, bool names_calls) noexcept
      : port_(&port), staging_(fabric_ring::staging(port, mine)), theirs_(theirs), peer_(peer), names_calls_(names_calls) {}

  /// Before its first use.
  void prepare() {
    if (tickets_ || port_ == nullptr) return;
    std::uint32_t const count = port_->layout.apart ? 2 * slots() : slots();
    tickets_ = std::make_unique<fabric_ticket[]>(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      tickets_[i].port = port_;
      tickets_[i].peer = peer_;
      tickets_[i].what = fabric_ticket::message;
    }
  }

  std::byte* try_acquire(std::size_t bytes) noexcept {
    if (closed_ || sent_ - released_ >= slots() || busy(index_)) return nullptr;
    return staging_.payload(index_, port_->layout.goes_apart(bytes));
  }

  /// @pre where payloads lie apart, as many bytes as were asked for
  void commit(std::size_t bytes, std::uint32_t tag) noexcept {
    opposite_->published = opposite_->taken;
    fabric_head const head{sent_ + 1, static_cast<std::uint32_t>(bytes), tag, opposite_->taken};
    std::byte* const front = staging_.front(index_) - sizeof head;
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

  /// The payload is read where it lies, if that is better than a copy, while it borrows().
  void commit_from(std::byte const* memory, std::size_t bytes, std::uint32_t tag) noexcept {
    if (!port_->borrow(tickets_[index_], memory, bytes))
      std::memcpy(staging_.payload(index_, port_->layout.goes_apart(bytes)), memory, bytes);
    commit(bytes, tag);
  }

  /// Where message `number`'s payload lies, from its beginning to its return, for whoever writes it beforehand. Where payloads lie apart, a
  /// short one is in the slot that try_acquire gives.
  std::byte* place_of(std::uint64_t number) const noexcept {
    return staging_.payload(static_cast<std::uint32_t>(number % slots()), port_->layout.apart);
  }
  /// The peer has released message `number`, and the network does not read it any more. @pre sent, and at most slots() ago
  bool returned(std::uint64_t number) const noexcept {
    return static_cast<std::int32_t>(released_ - static_cast<std::uint32_t>(number)) > 0 &&
           !busy(static_cast<std::uint32_t>(number % slots()));
  }

  bool borrows() const noexcept {
    bool any = false;
    for (std::uint32_t i = 0; port_->borrowing > 0 && tickets_ && i < slots(); ++i) any |= tickets_[i].borrowed != nullptr;
    return any;
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
    for (; posted_ != sent_; ++posted_, posting_ = posting_ + 1 == slots() ? 0 : posting_ + 1) {
      std::size_t const bytes = fabric_head::before(staging_.front(posting_)).bytes;
      bool const apart = port_->layout.goes_apart(bytes);
      if (apart && !post_payload(bytes)) return false;
      fabric_ticket& ticket = tickets_[posting_];
      std::size_t const front = sizeof(fabric_head) + (names_calls_ ? sizeof(call_record) : 0);
      std::byte* const start = staging_.front(posting_) - front;
      std::size_t const there = port_->layout.receiving(theirs_) + staging_.front_offset(posting_) - front;
      ssize_t const rc = ticket.borrowed != nullptr ? port_->write_borrowed(ticket, start, front, bytes, there, number())
                                                    : port_->write(ticket, start, front + (apart ? 0 : bytes), there, number());
      if (rc == -FI_EAGAIN) return false;
      if (rc != 0) port_->breaks(peer_, rc), ticket.settle();
      halfway_ = false;
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
    bool any = false;
    for (std::uint32_t i = 0; tickets_ && i < slots(); ++i) any |= busy(i);
    return any;
  }

 private:
  std::uint32_t slots() const noexcept { return static_cast<std::uint32_t>(port_->layout.slots); }
  /// Of what is posted next: in which slot of which channel it arrives.
  std::uint32_t number() const noexcept { return static_cast<std::uint32_t>(theirs_) * slots() + posting_; }
  /// Whether the network still reads from this slot.
  bool busy(std::uint32_t index) const noexcept { return tickets_[index].busy || (port_->layout.apart && tickets_[slots() + index].busy); }
  /// What lies apart goes first; false where the network does not take it now.
  bool post_payload(std::size_t bytes) noexcept {
    if (halfway_) return true;
    fabric_ticket& ticket = tickets_[slots() + posting_];
    std::size_t const there = port_->layout.receiving_apart(theirs_) + posting_ * port_->layout.stride();
    ssize_t const rc = port_->write_apart(ticket, staging_.payload(posting_, true), bytes, there, number());
    if (rc == -FI_EAGAIN) return false;
    if (rc != 0) port_->breaks(peer_, rc);
    if (rc == 0) ticket.busy = true, ++port_->unsettled;
    halfway_ = true;
    return true;
  }

  fabric_port* port_ = nullptr;
  fabric_ring staging_;
  std::size_t theirs_ = 0;  // the channel's number at the peer
  int peer_ = -1;
  bool names_calls_ = true;
  std::uint32_t sent_ = 0, posted_ = 0, released_ = 0;  // modulo 2^32
  std::uint32_t index_ = 0, posting_ = 0;               // slots of `sent_` and `posted_`
  bool closed_ = false;
  bool late_ = false;
  bool halfway_ = false;  // of the message that is posted next the payload, which lies apart, has been
  fabric_released* opposite_ = nullptr;
  fabric_object<::fid_mr> offered_;
  std::unique_ptr<fabric_ticket[]> tickets_;
};

class fabric_receiver {
 public:
  fabric_receiver() = default;
  fabric_receiver(fabric_port& port, int peer, std::size_t mine, std::size_t theirs, fabric_sender& opposite)
      : port_(&port),
        ring_(fabric_ring::receiving(port, mine)),
        promise_(port.base + port.layout.promises() + mine * sizeof(std::uint64_t)),
        remote_(theirs * sizeof(std::uint64_t)),
        number_(static_cast<std::uint32_t>(theirs) | fabric_port::credit_flag),
        opposite_(&opposite) {
    here_ = std::make_unique<bool[]>(static_cast<std::size_t>(port.layout.slots));
    if (port.layout.apart) landed_ = std::make_unique<bool[]>(static_cast<std::size_t>(port.layout.slots));
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

  message try_peek() noexcept { return try_peek(0); }
  /// The message that is so many behind the oldest not yet released. @pre ahead < slots
  message try_peek(std::uint32_t ahead) noexcept {
    std::uint32_t const slots = static_cast<std::uint32_t>(port_->layout.slots);
    std::uint32_t const at = index_ + ahead < slots ? index_ + ahead : index_ + ahead - slots;
    if (!here_[at] || closed_) return {};
    fabric_head const head = fabric_head::before(ring_.front(at));
    bool const apart = port_->layout.goes_apart(head.bytes);
    if (apart && !landed_[at]) return {};
    return {ring_.payload(at, apart), head.bytes, head.tag};
  }
  /// Where the payloads of messages lie that use slot `index`; a short one where payloads lie apart is where try_peek says.
  std::byte* place_of(std::uint64_t index) const noexcept { return ring_.payload(static_cast<std::uint32_t>(index), port_->layout.apart); }

  void release() noexcept {
    ++released_.taken;
    here_[index_] = false;
    if (landed_) landed_[index_] = false;
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

  /// All of the message in `slot` has come, but for a payload that lies apart. What has come of it before, as its first packets, is not to
  /// be looked at: messages may overtake each other. The credits in it count from now, not from when somebody looks at it: its receiver may
  /// be waiting for a slot to send from, which these credits are about, before it looks. @pre slot < slots
  void arrived(std::uint32_t slot) noexcept {
    here_[slot] = true;
    opposite_->credit(fabric_head::before(ring_.front(slot)).released);
  }
  /// The payload of a slot's message has come, which lies apart. @pre slot < slots
  void landed(std::uint32_t slot) noexcept { landed_[slot] = port_->landed = true; }
  /// What the sender of the oldest message not yet released was doing. @pre there is one, and its sender names calls
  call_record call() const noexcept {
    call_record record;
    std::memcpy(&record, ring_.front(index_) - sizeof(fabric_head) - sizeof record, sizeof record);
    return record;
  }
  bool holds() const noexcept { return here_ && here_[index_]; }
  void close() noexcept { closed_ = true; }

 private:
  std::uint32_t batch() const noexcept { return port_->layout.slots < 8 ? 1 : static_cast<std::uint32_t>(port_->layout.slots) / 4; }

  fabric_port* port_ = nullptr;
  fabric_ring ring_;
  std::unique_ptr<bool[]> here_, landed_;  // by slot: messages, and payloads where they lie apart
  std::byte* promise_ = nullptr;           // the credit that is on its way
  std::size_t remote_ = 0;
  std::uint32_t number_ = 0;
  fabric_ticket ticket_, fetching_;
  fabric_released released_;
  std::uint32_t index_ = 0;
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
