// SPDX-License-Identifier: Apache-2.0
/// What any wire must promise. A transport is channels; a channel is one directed FIFO of slots from one rank to one peer.
#pragma once

#include "collectx/status.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace collectx {
inline namespace v0 {

/// Nanoseconds on the clock of one transport. A hostile transport's clock is virtual.
using nanoseconds = std::int64_t;

class rendezvous_value;

/// A message as its receiver sees it. `data` is null where there is none yet.
struct message {
  std::byte const* data = nullptr;
  std::size_t bytes = 0;
  std::uint32_t tag = 0;
};

/// What a rank is doing, as the others may read it when something does not fit.
struct call_record {
  std::uint64_t sequence = 0;  ///< number of the call on its communicator, from 1
  std::uint64_t count = 0;     ///< elements, as the caller gave them
  std::int32_t root = -1;
  std::uint32_t tag = 0;  ///< travels with every message of the call
  char what[40] = {};     ///< "all_reduce float32 sum ring"; as many characters as there are, then without a 0 at the end
};

/// The sending end.
///
/// 1. `try_acquire(bytes)` gives writable memory of at least `bytes` (at most the transport's slot_bytes()), aligned to 16, or null; asked
///    again before `commit` it gives the same slot.
/// 2. The slot is the sender's until `commit(bytes, tag)`; what was written before is then seen by the receiver, whole, once, in order.
template <class C>
concept SendChannel = requires(C& channel, std::size_t bytes, std::uint32_t tag) {
  { channel.try_acquire(bytes) } -> std::same_as<std::byte*>;
  channel.commit(bytes, tag);
};

/// A sending end whose wire reads what is sent from where it lies (zero copy). `commit_from(memory, bytes, tag)` stands for copying
/// `memory` into the acquired slot and `commit(bytes, tag)`; the memory stays as it is while `borrows()`, or until the group has failed.
/// What has lent some has not ended before.
template <class C>
concept BorrowingChannel = SendChannel<C> && requires(C& channel, std::byte const* memory, std::size_t bytes, std::uint32_t tag) {
  channel.commit_from(memory, bytes, tag);
  { channel.borrows() } -> std::same_as<bool>;
};

/// Memory of one rank that another may copy from, as its wire needs to know it.
struct offer {
  std::uint64_t address = 0;
  std::uint64_t key = 0;
};

/// A sending end whose peer can copy what is sent straight from where it lies to where it belongs: elsewhere called a rendezvous by read.
/// `offers(memory, bytes, made)`: whether that is better than slots for so much; what it has made is then sent in place of the memory,
/// which stays as it is until `taken()`: the peer has released all that was sent.
template <class C>
concept OfferingChannel = SendChannel<C> && requires(C& channel, std::byte const* memory, std::size_t bytes, offer& made) {
  { channel.offers(memory, bytes, made) } -> std::same_as<bool>;
  { channel.taken() } -> std::same_as<bool>;
};

/// The receiving end.
///
/// 1. `try_peek()` gives the oldest message not yet released, or one without data; asked again it gives the same.
/// 2. The slot is the receiver's until `release()`, which gives it back to the sender.
template <class C>
concept RecvChannel = requires(C& channel) {
  { channel.try_peek() } -> std::same_as<message>;
  channel.release();
};

/// The other end of an OfferingChannel. `fetch(from, to, bytes)` begins to copy, or could not; `fetched()`: it has ended; `flush()`: the
/// sender hears at once of what was released. Nothing is written after the group has failed.
template <class C>
concept FetchingChannel = RecvChannel<C> && requires(C& channel, offer const& from, std::byte* to, std::size_t bytes) {
  { channel.fetch(from, to, bytes) } -> std::same_as<bool>;
  { channel.fetched() } -> std::same_as<bool>;
  channel.flush();
};

/// A Transport moves bytes between the ranks of one group.
///
/// 1. `channel_to(p, lane)` here and `channel_from(q, lane)` there are two ends of one FIFO of `slots()` slots of `slot_bytes()`; the
///    reference stays valid as long as the transport. Plans use lanes 0 .. lanes()-1; lane lanes() is there too, for send and recv.
/// 2. `try_*` never block; `progress()` moves what the wire needs moved; `now()` is the clock of all deadlines.
/// 3. `idle(polls, peer)` is called when nothing could be done `polls` times in a row and `peer` is waited for: it spends the time well
///    (spin, yield) and returns a failure as soon as the group has one: a rank died, a rank aborted, calls differ, or `peer` is lost.
///    With `polls` 0 the wait is over, and `peer` is this rank.
/// 4. `begin(record)` publishes what this rank does, `end()` that it is done and waits for nobody.
/// 5. `abort(status)` makes every rank's `idle` fail; the first report wins and is what `abort` returns. `verdict()` is that report,
///    ok as long as the group lives; it costs a few loads, and fails in a forked child, which is not a member.
/// 6. `blame(peer)` follows who waits for whom from `peer` to the rank that waits for nobody. `absent(text, capacity)` writes which ranks
///    have not begun this rank's call: "1, 3". `lost(rank)`: that rank is known to be dead, to have left, or to be out of reach; true
///    once, true for ever; may take microseconds.
/// 7. `conflict(peer)`: a message of `peer` does not belong to this rank's call. Aborts with what both are doing.
/// 8. A small notice board: `post(key, value)` shows a value to all other ranks, in place of this rank's former one under the same key;
///    `posted(rank, key, value)` looks without blocking whether `rank` shows one; `withdraw(key)` takes this rank's back. Keys are as in
///    Rendezvous, at least four per rank at once, an error where there is no room. It works after an abort as well, as far as ranks live.
/// 9. `options()` are those the group has agreed on: with them another group can be made alike.
///
/// A transport may say `unsent()`: a rank that something sent has not left for yet, or -1. No call ends before that is -1: a rank that
/// computes makes no progress, and others would wait for what it has sent.
///
/// `static constexpr bool dear_messages = true` where a message costs system calls: then algorithms are chosen that send few.
///
/// Not required: threads, ordering between two channels, or host-addressable memory. A transport whose ranks can found another group out
/// of a Rendezvous says so by `static result<Tr> join(R& rendezvous, options)`; communicators then can be split.
template <class T>
concept Transport = requires(T& transport, int peer, int lane, int polls, call_record const& record, status const& why, char* text,
                             std::size_t capacity, rendezvous_value const& shown, rendezvous_value& seen, char const* key) {
  { transport.rank() } -> std::same_as<int>;
  { transport.size() } -> std::same_as<int>;
  { transport.lanes() } -> std::same_as<int>;
  { transport.slots() } -> std::same_as<int>;
  { transport.slot_bytes() } -> std::same_as<std::size_t>;
  { transport.channel_to(peer, lane) } -> SendChannel;
  { transport.channel_from(peer, lane) } -> RecvChannel;
  { transport.now() } -> std::same_as<nanoseconds>;
  { transport.idle(polls, peer) } -> std::same_as<status>;
  { transport.abort(why) } -> std::same_as<status>;
  { transport.verdict() } -> std::same_as<status>;
  { transport.blame(peer) } -> std::same_as<int>;
  { transport.lost(peer) } -> std::same_as<bool>;
  { transport.conflict(peer) } -> std::same_as<status>;
  { transport.post(key, shown) } -> std::same_as<status>;
  { transport.posted(peer, key, seen) } -> std::same_as<bool>;
  transport.absent(text, capacity);
  transport.withdraw(key);
  transport.progress();
  transport.begin(record);
  transport.end();
  transport.options();
};

/// A DeviceTransport also has a half on a device of each rank: calls are put onto a stream of it, and end there.
///
/// `enqueue(plan, what, identity, buffers, op, stream, timeout)` puts one call onto a stream; `look()`: what those that have ended came to;
/// `enroll(at, bytes, sequence, timeout)` gives a `registration` of a buffer that all ranks know of, the same on all or a failure on
/// all; `device_token()`: memory of the device for calls that carry nothing. Only failures that the caller can mend leave the group alive.
///
/// Not required: that it waits for anything, or that a call is still under way when it returns.
template <class T>
concept DeviceTransport = Transport<T> && requires(T& transport) {
  typename T::stream_type;
  typename T::registration;
  { transport.look() } -> std::same_as<status>;
  { transport.device_token() } -> std::same_as<std::uint8_t*>;
};

namespace detail {
template <Transport Tr>
constexpr bool messages_are_dear() {
  if constexpr (requires { Tr::dear_messages; })
    return Tr::dear_messages;
  else
    return false;
}
}  // namespace detail

}  // namespace v0
}  // namespace collectx
