// SPDX-License-Identifier: Apache-2.0
/// One memory that holds a board and a ring for every ordered pair of ranks and lane: what loopback and shared memory have in common.
#pragma once

#include "collectx/transport.hpp"
#include "collectx/transport/board.hpp"
#include "collectx/transport/patience.hpp"
#include "collectx/transport/slot_ring.hpp"

#include <sys/mman.h>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <thread>  // for std::chrono::nanoseconds: <chrono> itself brings streams, a tenth of a second
#include <utility>

namespace collectx {
inline namespace v0 {

/// How a group in one memory is laid out. Rings occupy nothing until they are used, then at most slots x slot_bytes each.
struct transport_options {
  int slots = 64;  ///< per channel; 64 of 64 KiB is the depth at which lines are rewritten after they have left the reader's cache
  std::size_t slot_bytes = std::size_t{64} << 10;  ///< a multiple of 64
  int lanes = 4;
  std::size_t memory = 0;                    ///< most bytes that the whole group may come to occupy; 0: no bound
  std::chrono::nanoseconds join_timeout{0};  ///< for all ranks to come together; 0: COLLECTX_JOIN_TIMEOUT seconds, or 60
};

namespace detail {

/// Where things lie in a segment of n ranks. Offsets are 64-bit and checked: n x n x lanes x slots x slot_bytes overflows quickly.
struct segment_layout {
  int size = 0;
  int lanes = 0;
  int slots = 0;
  std::size_t slot_bytes = 0;
  std::size_t lines = 0;  // offset of the first ring's lines
  std::size_t data = 0;   // offset of the first ring's data areas
  std::size_t bytes = 0;

  /// A lane more than plans have: that of send and recv. Rings are sparse, so it costs nothing before it is used.
  std::size_t channels() const { return static_cast<std::size_t>(lanes) + 1; }
  std::size_t ring_lines() const { return (static_cast<std::size_t>(slots) + 1) * sizeof(slot_line); }
  std::size_t ring_data() const { return static_cast<std::size_t>(slots) * slot_ring::stride(slot_bytes); }

  slot_ring ring(std::byte* base, int from, int to, int lane) const {
    std::size_t const column = static_cast<std::size_t>(to > from ? to - 1 : to);
    std::size_t const pair = static_cast<std::size_t>(from) * static_cast<std::size_t>(size - 1) + column;
    std::size_t const index = pair * channels() + static_cast<std::size_t>(lane);
    std::byte* const first = base + lines + index * ring_lines();
    slot_line* const line = reinterpret_cast<slot_line*>(first);
    return {line, &line[slots].sequence, base + data + index * ring_data(), slots, slot_bytes};
  }
};

inline result<segment_layout> lay_out(int size, transport_options const& options) noexcept {
  auto wrong = [](char const* option, unsigned long long value, char const* rule) {
    return status::failure(errc::invalid_configuration, -1, "option %s is %llu: %s", option, value, rule);
  };
  if (size < 1 || size > (1 << 20)) {
    return status::failure(errc::invalid_configuration, -1, "a group of %d ranks: it needs 1 to 1048576", size);
  }
  if (options.slots < 1 || options.slots > (1 << 24)) {
    return status::failure(errc::invalid_configuration, -1, "option slots is %d: it needs 1 to 16777216", options.slots);
  }
  if (options.lanes < 1 || options.lanes > (1 << 16)) {
    return status::failure(errc::invalid_configuration, -1, "option lanes is %d: it needs 1 to 65536", options.lanes);
  }
  if (options.slot_bytes < 64 || options.slot_bytes % 64 != 0) return wrong("slot_bytes", options.slot_bytes, "it needs a multiple of 64");
  if (options.slot_bytes > (std::size_t{1} << 31)) return wrong("slot_bytes", options.slot_bytes, "it needs at most 2 GiB");

  constexpr std::size_t page = 4096;
  segment_layout layout{size, options.lanes, options.slots, options.slot_bytes};
  std::size_t const rings = static_cast<std::size_t>(size) * static_cast<std::size_t>(size - 1) * layout.channels();
  std::size_t line_bytes = 0, data_bytes = 0;
  layout.lines = (board_memory::bytes(size) + page - 1) / page * page;
  bool overflow = __builtin_mul_overflow(rings, layout.ring_lines(), &line_bytes);
  overflow |= __builtin_add_overflow(layout.lines, line_bytes + page, &layout.data);
  layout.data = layout.data / page * page;
  overflow |= __builtin_mul_overflow(rings, layout.ring_data(), &data_bytes);
  overflow |= __builtin_add_overflow(layout.data, data_bytes, &layout.bytes);
  if (overflow || layout.bytes > (std::size_t{1} << 46)) {
    return status::failure(errc::invalid_configuration, -1, "%d ranks with %d lanes of %d slots of %zu bytes exceed what can be addressed",
                           size, options.lanes, options.slots, options.slot_bytes);
  }
  if (options.memory != 0 && layout.bytes > options.memory) {
    return status::failure(errc::invalid_configuration, -1,
                           "option memory is %zu: the group needs %zu bytes; lower slots, slot_bytes or lanes", options.memory,
                           layout.bytes);
  }
  return layout;
}

/// Mapped memory, unmapped by its last owner. `users` counts owners in one process; without it there is one.
class mapping {
 public:
  mapping() = default;
  mapping(void* address, std::size_t bytes) noexcept : address_(static_cast<std::byte*>(address)), bytes_(bytes) {}
  mapping(mapping&& other) noexcept : address_(std::exchange(other.address_, nullptr)), bytes_(other.bytes_), users_(other.users_) {}
  mapping& operator=(mapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    std::swap(users_, other.users_);
    return *this;
  }
  ~mapping() {
    if (address_ == nullptr) return;
    if (users_ != nullptr && shared_word(*users_).fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    ::munmap(address_, bytes_);
  }

  static result<mapping> anonymous(std::size_t bytes) noexcept {
    void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) return status::failure(errc::out_of_memory, -1, "no memory for a group, needs %zu bytes", bytes);
    return mapping(address, bytes);
  }

  /// @pre users, if not null, is a word in this memory that lives as long as it does
  void count_in(std::uint64_t& users) noexcept {
    users_ = &users;
    shared_word(users).fetch_add(1, std::memory_order_relaxed);
  }
  mapping share() const noexcept {
    mapping other(address_, bytes_);
    other.count_in(*users_);
    return other;
  }
  std::byte* address() const noexcept { return address_; }

 private:
  std::byte* address_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint64_t* users_ = nullptr;
};

}  // namespace detail

/// A rank of a group that lives in one memory, whoever else maps it. Models Transport.
class segment_transport {
 public:
  using sender = ring_sender<>;
  using receiver = ring_receiver<>;

  segment_transport(segment_transport&& other) noexcept = default;
  segment_transport& operator=(segment_transport&& other) = delete;
  ~segment_transport() {
    if (segment_.address() != nullptr && mark_.here()) board_.leave();
  }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return layout_.size; }
  int lanes() const noexcept { return layout_.lanes; }
  int slots() const noexcept { return layout_.slots; }
  std::size_t slot_bytes() const noexcept { return layout_.slot_bytes; }

  /// @pre peer != rank()
  sender& channel_to(int peer, int lane) noexcept { return senders()[index(peer, lane)]; }
  receiver& channel_from(int peer, int lane) noexcept { return receivers()[index(peer, lane)]; }

  nanoseconds now() const noexcept { return detail::monotonic_now(); }
  void progress() noexcept {}
  /// Gives back what is kept back for the sake of few cache misses: who waits may be waited for.
  void flush_credits() noexcept {
    for (std::size_t i = 0; i < ends(); ++i) receivers()[i].flush();
  }

  status idle(int polls, int peer) noexcept {
    if (orphan_) return not_ours();
    if (patience_.begins_to_wait(board_, polls)) flush_credits();
    return patience_.idle(board_, polls, peer);
  }
  [[gnu::noinline]] status abort(status const& why) noexcept { return mark_.here() ? board_.abort(why) : not_ours(); }
  COLLECTX_FORCEINLINE status verdict() noexcept {
    if (!mark_.here()) return not_ours();
    return board_.verdict();
  }
  int blame(int peer) noexcept { return board_.blame(peer); }
  bool lost(int rank) noexcept { return rank != rank_ && board_.lost(rank); }
  void absent(char* text, std::size_t capacity) noexcept { board_.absent(text, capacity); }
  status conflict(int peer) noexcept { return board_.conflict(peer); }
  /// What a rank is doing; false where it is just about to say so.
  bool doing(int rank, call_record& record) const noexcept { return board_.doing(rank, record); }

  status post(char const* key, rendezvous_value const& value) noexcept { return mark_.here() ? board_.post(key, value) : not_ours(); }
  bool posted(int rank, char const* key, rendezvous_value& value) noexcept { return board_.posted(rank, key, value); }
  void withdraw(char const* key) noexcept {
    if (mark_.here()) board_.withdraw(key);
  }
  transport_options options() const noexcept {
    transport_options agreed;
    agreed.slots = layout_.slots;
    agreed.slot_bytes = layout_.slot_bytes;
    agreed.lanes = layout_.lanes;
    agreed.join_timeout = join_timeout_;
    return agreed;
  }

  void begin(call_record const& record) noexcept {
    if (!mark_.here()) return disown();
    board_.begin(record);
  }
  void end() noexcept {
    if (!orphan_) board_.end();
  }

 protected:
  bool seated(int rank) const noexcept { return board_.seated(rank); }
  /// False in a forked child of the process that has joined.
  bool here() const noexcept { return mark_.here(); }
  /// Says so before this object goes, for ranks that wait for it. @pre here()
  void leave() noexcept { board_.leave(); }
  /// A place at the board for another thread of this rank, which may abort and look after the others, and nothing else.
  detail::board second_place() const noexcept { return board_; }

  /// Takes the seat of `rank` in a segment laid out as `layout`, or says why not.
  static result<segment_transport> take_seat(detail::mapping segment, detail::segment_layout const& layout, int rank,
                                             process_identity const& id, std::chrono::nanoseconds join_timeout) noexcept {
    std::size_t const ends = static_cast<std::size_t>(layout.size) * layout.channels();
    result<detail::mapping> channels = detail::mapping::anonymous(ends * (sizeof(sender) + sizeof(receiver)));
    if (!channels) return channels.error();
    segment_transport self(std::move(segment), std::move(*channels), layout, rank);
    for (int peer = 0; peer < layout.size; ++peer) {
      for (int lane = 0; lane <= layout.lanes; ++lane) {
        sender* const to = ::new (static_cast<void*>(&self.channel_to(peer, lane))) sender;
        receiver* const from = ::new (static_cast<void*>(&self.channel_from(peer, lane))) receiver;
        if (peer == rank) continue;
        *to = sender(layout.ring(self.segment_.address(), rank, peer, lane));
        *from = receiver(layout.ring(self.segment_.address(), peer, rank, lane));
      }
    }
    self.join_timeout_ = join_timeout;
    if (!self.board_.sit_down(id)) {
      self.segment_ = {};
      return status::failure(errc::invalid_argument, rank, "rank %d of this group was taken before", rank);
    }
    return result<segment_transport>(std::move(self));
  }

 private:
  segment_transport(detail::mapping segment, detail::mapping channels, detail::segment_layout const& layout, int rank) noexcept
      : segment_(std::move(segment)),
        channels_(std::move(channels)),
        layout_(layout),
        rank_(rank),
        board_(*reinterpret_cast<detail::board_memory*>(segment_.address()), rank, layout.size) {}

  std::size_t index(int peer, int lane) const noexcept {
    return static_cast<std::size_t>(peer) * layout_.channels() + static_cast<std::size_t>(lane);
  }
  std::size_t ends() const noexcept { return index(layout_.size, 0); }
  sender* senders() const noexcept { return reinterpret_cast<sender*>(channels_.address()); }
  receiver* receivers() const noexcept { return reinterpret_cast<receiver*>(channels_.address() + ends() * sizeof(sender)); }

  [[gnu::noinline]] status not_ours() const noexcept {
    return status::failure(errc::invalid_argument, rank_, "this transport belongs to process %llu: a forked child has to join anew",
                           mark_.pid());
  }

  /// A child that wrote into its parent's rings would corrupt the whole group.
  [[gnu::noinline]] void disown() noexcept {
    orphan_ = true;
    for (std::size_t i = 0; i < ends(); ++i) {
      senders()[i].close();
      receivers()[i].close();
    }
  }

  detail::mapping segment_;
  detail::mapping channels_;
  detail::segment_layout layout_;
  int rank_ = 0;
  bool orphan_ = false;
  std::chrono::nanoseconds join_timeout_{};
  detail::board board_;
  detail::patience patience_;
  detail::fork_mark mark_ = detail::fork_mark::take();
};
static_assert(Transport<segment_transport>);

}  // namespace v0
}  // namespace collectx
