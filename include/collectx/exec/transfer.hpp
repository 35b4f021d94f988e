// SPDX-License-Identifier: Apache-2.0
/// One message from one rank to one other, of any size, as state machines that do what can be done now: what send and recv consist of.
///
/// It goes over the lane that no plan uses. Its first piece begins with a header that says how long it is and of what, so that ranks which
/// disagree hear of it; a small message is one piece, in one cache line where it can be.
#pragma once

#include "collectx/exec/run.hpp"
#include "collectx/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>

namespace collectx {
inline namespace v0 {
namespace exec {

/// What a message consists of, alike in every build: kind and bytes of its elements.
struct element_type {
  std::uint32_t code = 0;

  template <class T>
  static constexpr element_type of() {
    constexpr std::uint32_t whole = !std::is_integral_v<T> ? 0 : std::is_signed_v<T> ? 3 : 4;
    constexpr std::uint32_t kind = std::is_same_v<T, bool> ? 1 : std::is_floating_point_v<T> ? 2 : whole;
    return {kind << 28 | (static_cast<std::uint32_t>(sizeof(T)) & 0xfffffffu)};
  }
  constexpr std::uint32_t bytes() const { return code & 0xfffffffu; }
  /// "400 bytes (100 float32)"
  void describe(std::uint64_t total, char* text, std::size_t capacity) const {
    constexpr char const* names[] = {"elements of", "bool", "float", "int", "uint"};
    std::uint32_t const kind = code >> 28 < 5 ? code >> 28 : 0, width = kind < 2 ? bytes() : bytes() * 8;
    unsigned long long const all = total, count = bytes() == 0 ? 0 : total / bytes();
    if (kind == 1)
      std::snprintf(text, capacity, "%llu bytes (%llu bool)", all, count);
    else
      std::snprintf(text, capacity, "%llu bytes (%llu %s%s%u)", all, count, names[kind], kind == 0 ? " " : "", width);
  }
  friend constexpr bool operator==(element_type, element_type) = default;
};

/// What the first piece of a message begins with. Where the memory is offered, that offer follows in place of the message.
struct letterhead {
  std::uint64_t bytes = 0;
  element_type element{};
  std::uint32_t number : 31 = 0;
  std::uint32_t offered : 1 = 0;

  constexpr bool is_number(std::uint64_t n) const { return number == (n & 0x7fffffffu); }
};
static_assert(sizeof(letterhead) == 16);

/// Travels with every piece. Never 0.
constexpr std::uint32_t letter_tag(std::uint64_t number, element_type element) {
  std::uint64_t x = number * 0x9e3779b97f4a7c15u ^ element.code;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  return static_cast<std::uint32_t>(x >> 32) | 1u;
}

/// The part of a message that both ends have in common. `number` counts the messages from one rank to the other, from 1.
struct letter {
  int peer = -1;
  std::size_t bytes = 0;
  element_type element{};
  std::uint64_t number = 0;
};

namespace detail {

constexpr letterhead letterhead_of(letter const& l, bool offered) {
  letterhead h;
  h.bytes = l.bytes;
  h.element = l.element;
  h.number = static_cast<std::uint32_t>(l.number) & 0x7fffffffu;
  h.offered = offered;
  return h;
}

/// The sentence for a deadline that has passed: `done` of the bytes have been sent or have come.
template <Transport Tr>
[[gnu::noinline]] status letter_is_late(Tr& transport, letter const& l, bool out, std::size_t done, nanoseconds waited) {
  int const culprit = transport.blame(l.peer);
  char text[64];
  l.element.describe(l.bytes, text, sizeof text);
  return status::failure(errc::timeout, culprit,
                         "timeout: rank %d waited %.3f s to %s rank %d %s as message %llu, of which %zu bytes %s; the waits end at rank %d",
                         transport.rank(), static_cast<double>(waited) * 1e-9, out ? "send" : "receive from", l.peer, text,
                         static_cast<unsigned long long>(l.number), done, out ? "have gone" : "have come", culprit);
}

}  // namespace detail

/// The sending half. Done when all is in slots and the caller has its memory back, whether or not the receiver has begun: a short message
/// completes at once.
template <Transport Tr>
class sending {
 public:
  sending(Tr& transport, letter const& l, void const* data)
      : channel_(&transport.channel_to(l.peer, transport.lanes())), letter_(l), from_(static_cast<std::byte const*>(data)) {
    // In some pieces at least, so that the receiver copies out while this copies in.
    std::size_t const slot = transport.slot_bytes(), quarter = (l.bytes / 4 + 4095) / 4096 * 4096;
    piece_ = quarter > worth_a_piece ? quarter : worth_a_piece;
    if (piece_ > slot) piece_ = slot;
    first_ = BorrowingChannel<channel> && piece_ > first_of_many ? first_of_many : piece_;
  }

  progress advance() {
    if (offered_) return taken();
    bool moved = false;
    while (!done_) {
      std::size_t const head = at_ == 0 ? sizeof(letterhead) : 0, left = letter_.bytes - at_;
      std::size_t const most = head != 0 && left > piece_ - head ? first_ - head : piece_ - head, length = left < most ? left : most;
      std::byte* const slot = channel_->try_acquire(head + length);
      if (slot == nullptr) return moved ? progress::moved : progress::stuck;
      if (head != 0 && offer_it(slot)) return taken();
      fill(slot, head, length);
      at_ += length;
      moved = true;
      done_ = at_ == letter_.bytes;
    }
    if constexpr (BorrowingChannel<channel>)
      if (channel_->borrows()) return moved ? progress::moved : progress::stuck;
    return progress::done;
  }

  int peer() const { return letter_.peer; }
  int step() const { return static_cast<int>(at_ / piece_); }
  int chunk() const { return 0; }
  status late(Tr& transport, nanoseconds waited) const { return detail::letter_is_late(transport, letter_, true, at_, waited); }

 private:
  using channel = std::remove_reference_t<decltype(std::declval<Tr&>().channel_to(0, 0))>;
  static constexpr std::size_t worth_a_piece = std::size_t{collectx::detail::messages_are_dear<Tr>() ? 64 : 16} << 10;
  static constexpr std::size_t first_of_many = 4096;  // it is copied behind the letterhead; the others are sent from where they lie

  std::uint32_t tag() const { return letter_tag(letter_.number, letter_.element); }

  void fill(std::byte* slot, std::size_t head, std::size_t length) {
    if constexpr (BorrowingChannel<channel>)
      if (head == 0) return channel_->commit_from(from_ + at_, length, tag());
    if (head != 0) {
      letterhead const h = detail::letterhead_of(letter_, false);
      std::memcpy(slot, &h, sizeof h);
    }
    if (length != 0) std::memcpy(slot + head, from_ + at_, length);
    channel_->commit(head + length, tag());
  }

  /// In place of all pieces, if the wire likes that better.
  bool offer_it(std::byte* slot) {
    if constexpr (OfferingChannel<channel>) {
      offer made;
      if (piece_ < sizeof(letterhead) + sizeof made || !channel_->offers(from_, letter_.bytes, made)) return false;
      letterhead const h = detail::letterhead_of(letter_, true);
      std::memcpy(slot, &h, sizeof h);
      std::memcpy(slot + sizeof h, &made, sizeof made);
      channel_->commit(sizeof h + sizeof made, tag());
      offered_ = true;
    }
    return offered_;
  }
  progress taken() {
    if constexpr (OfferingChannel<channel>) {
      if (!done_ && !channel_->taken()) return progress::stuck;
      at_ = letter_.bytes;
      done_ = true;
    }
    return progress::done;
  }

  channel* channel_;
  letter letter_;
  std::byte const* from_;
  std::size_t piece_ = 0, first_ = 0;
  std::size_t at_ = 0;
  bool offered_ = false;
  bool done_ = false;
};

/// The receiving half. Pieces may be of any length that the sender likes.
template <Transport Tr>
class receiving {
 public:
  receiving(Tr& transport, letter const& l, void* data)
      : channel_(&transport.channel_from(l.peer, transport.lanes())), letter_(l), to_(static_cast<std::byte*>(data)) {}

  progress advance() {
    if (fetches_) return fetch();
    bool moved = false;
    while (!done_) {
      message m = channel_->try_peek();
      if (m.data == nullptr) return moved ? progress::moved : progress::stuck;
      if (m.tag != letter_tag(letter_.number, letter_.element)) return progress::conflict;
      if (!begun_) {
        letterhead h;
        std::memcpy(&h, m.data, sizeof h);
        if (h.bytes != letter_.bytes) return progress::conflict;
        m.data += sizeof h;
        m.bytes -= sizeof h;
        begun_ = true;
        fetches_ = h.offered != 0;
        if (fetches_) std::memcpy(&offer_, m.data, sizeof offer_);
      }
      if (fetches_) return fetch();
      if (m.bytes > letter_.bytes - at_) return progress::conflict;
      if (m.bytes != 0) std::memcpy(to_ + at_, m.data, m.bytes);
      channel_->release();
      at_ += m.bytes;
      moved = true;
      done_ = at_ == letter_.bytes;
    }
    return progress::done;
  }

  int peer() const { return letter_.peer; }
  int step() const { return begun_ ? 1 : 0; }
  int chunk() const { return 0; }
  status late(Tr& transport, nanoseconds waited) const { return detail::letter_is_late(transport, letter_, false, at_, waited); }

  /// What the sender's message is instead of the one that is expected.
  [[gnu::noinline]] status conflict(Tr& transport) const {
    message const m = channel_->try_peek();
    letterhead h;
    if (!begun_ && m.bytes >= sizeof h) std::memcpy(&h, m.data, sizeof h);
    if (begun_ || m.bytes < sizeof h || !h.is_number(letter_.number)) {
      return status::failure(errc::mismatch, letter_.peer, "rank %d receives from rank %d what is no message, or not the next one",
                             transport.rank(), letter_.peer);
    }
    char theirs[64], mine[64];
    h.element.describe(h.bytes, theirs, sizeof theirs);
    letter_.element.describe(letter_.bytes, mine, sizeof mine);
    return status::failure(errc::mismatch, letter_.peer, "rank %d sends %s, rank %d expects %s, as message %llu from one to the other",
                           letter_.peer, theirs, transport.rank(), mine, static_cast<unsigned long long>(letter_.number));
  }

 private:
  using channel = std::remove_reference_t<decltype(std::declval<Tr&>().channel_from(0, 0))>;

  /// Straight from the sender's memory. It has that back when the slot is released, so that is not put off.
  progress fetch() {
    if constexpr (FetchingChannel<channel>) {
      if (!done_ && !fetching_) fetching_ = channel_->fetch(offer_, to_, letter_.bytes);
      if (!done_ && (!fetching_ || !channel_->fetched())) return progress::stuck;
      if (!done_) channel_->release(), channel_->flush();
      at_ = letter_.bytes;
      done_ = true;
      return progress::done;
    }
    return progress::conflict;
  }

  channel* channel_;
  letter letter_;
  std::byte* to_;
  std::size_t at_ = 0;
  offer offer_;
  bool begun_ = false;
  bool fetches_ = false, fetching_ = false;
  bool done_ = false;
};

/// Both at once: neither waits for the other.
template <Transport Tr>
class exchanging {
 public:
  exchanging(sending<Tr> const& out, receiving<Tr> const& in) : out_(out), in_(in) {}

  progress advance() {
    progress const o = sent_ ? progress::done : out_.advance();
    sent_ = o == progress::done;
    progress const i = received_ ? progress::done : in_.advance();
    received_ = i == progress::done;
    if (i == progress::conflict) return i;
    if (sent_ && received_) return progress::done;
    bool const stuck = (sent_ || o == progress::stuck) && (received_ || i == progress::stuck);
    return stuck ? progress::stuck : progress::moved;
  }

  int peer() const { return received_ ? out_.peer() : in_.peer(); }
  int step() const { return received_ ? out_.step() : in_.step(); }
  int chunk() const { return 0; }
  status late(Tr& transport, nanoseconds waited) const { return received_ ? out_.late(transport, waited) : in_.late(transport, waited); }
  status conflict(Tr& transport) const { return in_.conflict(transport); }

 private:
  sending<Tr> out_;
  receiving<Tr> in_;
  bool sent_ = false, received_ = false;
};

}  // namespace exec
}  // namespace v0
}  // namespace collectx
