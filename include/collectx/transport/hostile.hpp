// SPDX-License-Identifier: Apache-2.0
/// The transport for tests: everything a wire may legally do, it does. One thread advances all ranks, and a seed decides the rest.
#pragma once

#include "collectx/process.hpp"
#include "collectx/transport/board.hpp"
#include "collectx/transport/segment.hpp"
#include "collectx/transport/slot_ring.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace collectx {
inline namespace v0 {

struct hostile_options {
  int slots = 2;
  std::size_t slot_bytes = 256;
  int lanes = 4;
  int kill_rank = -1;        ///< this rank dies ...
  std::int64_t kill_at = 0;  ///< ... at its operation of this number, from 1: the operation does not happen, nor any after it
};

namespace detail {

/// What all ranks of a hostile group share: the seed's stream, the clock, and who is dead.
struct hostile_world {
  hostile_options options;
  std::uint64_t seed = 0;
  nanoseconds clock = 0;
  nanoseconds died = 0;  // when `kill_rank` did
  std::int64_t operations = 0;
  bool dead = false;
  status misuse;

  std::uint64_t random() noexcept {  // splitmix64
    std::uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }

  /// Mostly none, often short, sometimes so long that everything else overtakes.
  nanoseconds delay() noexcept {
    std::uint64_t const kind = random() % 10, much = random();
    if (kind < 5) return 0;
    return static_cast<nanoseconds>(much % (kind < 9 ? 2'000 : 50'000));
  }

  /// Counts an operation of `rank`; false where it must not happen because the rank is dead.
  bool happens(int rank) noexcept {
    if (rank != options.kill_rank) return true;
    if (!dead && ++operations == options.kill_at) {
      dead = true;
      died = clock;
    }
    return !dead;
  }

  bool is_dead(int rank) const noexcept { return dead && rank == options.kill_rank; }

  template <class... Arguments>
  void blame(int rank, char const* format, Arguments... arguments) noexcept {
    if (misuse.ok()) misuse = status::failure(errc::system, rank, format, arguments...);
  }
};

/// One channel: the real ring, and what is withheld of it.
struct hostile_wire {
  static constexpr int written_over = 0xa5, taken_back = 0xdb;

  hostile_world* world = nullptr;
  int from = 0, to = 0;
  ring_sender<> sender;
  ring_receiver<> receiver;
  std::vector<nanoseconds> visible, usable;  // per slot: from when on the receiver sees it, the sender may have it again
  std::size_t sent = 0, taken = 0;
  std::byte* held = nullptr;  // acquired and not yet committed
  std::size_t held_bytes = 0;
  bool looked = false;  // the oldest message has been shown

  bool in_flight() const noexcept { return held != nullptr || sent != taken; }
};

}  // namespace detail

class hostile_sender {
 public:
  std::byte* try_acquire(std::size_t bytes) noexcept {
    detail::hostile_wire& w = *wire_;
    if (w.world->is_dead(w.from)) return nullptr;
    if (bytes > w.world->options.slot_bytes) w.world->blame(w.from, "rank %d acquires %zu bytes in a smaller slot", w.from, bytes);
    if (w.held != nullptr) {
      if (bytes > w.held_bytes)
        w.world->blame(w.from, "rank %d acquires %zu bytes, then %zu in the same slot", w.from, w.held_bytes, bytes);
      return w.held;
    }
    if (w.usable[w.sent % w.usable.size()] > w.world->clock) return nullptr;
    std::byte* const slot = w.sender.try_acquire(bytes);
    if (slot == nullptr || !w.world->happens(w.from)) return nullptr;
    std::memset(slot, detail::hostile_wire::written_over, bytes);
    w.held_bytes = bytes;
    return w.held = slot;
  }

  void commit(std::size_t bytes, std::uint32_t tag) noexcept {
    detail::hostile_wire& w = *wire_;
    if (w.world->is_dead(w.from) || !w.world->happens(w.from)) return;
    if (w.held == nullptr) return w.world->blame(w.from, "rank %d commits what it has not acquired", w.from);
    if (bytes > w.held_bytes) return w.world->blame(w.from, "rank %d commits %zu bytes of %zu", w.from, bytes, w.held_bytes);
    w.held = nullptr;
    w.visible[w.sent++ % w.visible.size()] = w.world->clock + w.world->delay();
    w.world->clock += 10;
    w.sender.commit(bytes, tag);
  }

 private:
  friend class hostile_group;
  detail::hostile_wire* wire_ = nullptr;
};

class hostile_receiver {
 public:
  message try_peek() noexcept {
    detail::hostile_wire& w = *wire_;
    if (w.world->is_dead(w.to) || w.visible[w.taken % w.visible.size()] > w.world->clock) return {};
    message const m = w.receiver.try_peek();
    if (m.data == nullptr) return {};
    if (!w.looked && !w.world->happens(w.to)) return {};
    w.looked = true;
    return m;
  }

  void release() noexcept {
    detail::hostile_wire& w = *wire_;
    if (w.world->is_dead(w.to) || !w.world->happens(w.to)) return;
    if (!w.looked) return w.world->blame(w.to, "rank %d releases what it has not peeked at", w.to);
    message const m = w.receiver.try_peek();
    // Whoever still reads it reads this; so does the next sender that counts on what it left here.
    std::memset(const_cast<std::byte*>(m.data), detail::hostile_wire::taken_back, m.bytes);
    w.looked = false;
    w.usable[w.taken++ % w.usable.size()] = w.world->clock + w.world->delay();
    w.receiver.release();
    w.receiver.flush();
  }

 private:
  friend class hostile_group;
  detail::hostile_wire* wire_ = nullptr;
};

/// A rank of a hostile group; lives no longer than the group. Models Transport.
class hostile_transport {
 public:
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return layout_.size; }
  int lanes() const noexcept { return layout_.lanes; }
  int slots() const noexcept { return layout_.slots; }
  std::size_t slot_bytes() const noexcept { return layout_.slot_bytes; }
  hostile_sender& channel_to(int peer, int lane) noexcept { return senders_[index(rank_, peer, lane)]; }
  hostile_receiver& channel_from(int peer, int lane) noexcept { return receivers_[index(peer, rank_, lane)]; }

  nanoseconds now() const noexcept { return world_->clock; }
  void progress() noexcept {}

  /// Time passes here, faster the longer nothing comes: a deadline of minutes is a few hundred polls away.
  status idle(int polls, int peer) noexcept {
    if (!world_->misuse) return board_.abort(world_->misuse);
    if (status s = verdict(); !s) return s;
    board_.announce(polls > 4 ? peer : -1);
    // By now everything that it sent before it died has become visible.
    if (peer >= 0 && world_->is_dead(peer) && world_->clock - world_->died > look_interval) return died(peer);
    int const doublings = polls / 16 < 30 ? polls / 16 : 30;
    world_->clock += static_cast<nanoseconds>(50 + world_->random() % 100) << doublings;
    if (world_->clock - looked_ < look_interval) return {};
    looked_ = world_->clock;
    int const dead = world_->options.kill_rank;
    if (world_->dead && world_->clock - world_->died > look_interval && !board_.owes_nothing(dead)) {
      return died(dead);
    }
    return board_.look_around(peer);
  }

  status abort(status const& why) noexcept { return board_.abort(why); }
  status verdict() noexcept {
    if (world_->is_dead(rank_)) return status::failure(errc::peer_lost, rank_, "rank %d is dead", rank_);
    return board_.verdict();
  }
  int blame(int peer) noexcept { return board_.blame(peer); }
  bool lost(int rank) noexcept { return world_->is_dead(rank) || board_.lost(rank); }
  status post(char const* key, rendezvous_value const& value) noexcept { return board_.post(key, value); }
  bool posted(int rank, char const* key, rendezvous_value& value) noexcept { return board_.posted(rank, key, value); }
  void withdraw(char const* key) noexcept { board_.withdraw(key); }
  hostile_options options() const noexcept { return world_->options; }
  void absent(char* text, std::size_t capacity) noexcept { board_.absent(text, capacity); }
  status conflict(int peer) noexcept { return board_.conflict(peer); }
  void begin(call_record const& record) noexcept {
    if (!world_->is_dead(rank_)) board_.begin(record);
  }
  void end() noexcept {
    if (!world_->is_dead(rank_)) board_.end();
  }

 private:
  friend class hostile_group;
  static constexpr nanoseconds look_interval = 8'000'000;

  status died(int rank) noexcept { return board_.abort(status::failure(errc::peer_lost, rank, "rank %d is dead", rank)); }

  std::size_t index(int from, int to, int lane) const noexcept {
    std::size_t const pair = static_cast<std::size_t>(from) * static_cast<std::size_t>(size()) + static_cast<std::size_t>(to);
    return pair * layout_.channels() + static_cast<std::size_t>(lane);
  }

  detail::hostile_world* world_ = nullptr;
  hostile_sender* senders_ = nullptr;
  hostile_receiver* receivers_ = nullptr;
  detail::segment_layout layout_;
  int rank_ = 0;
  detail::board board_;
  nanoseconds looked_ = 0;
};

/// n ranks on one thread: whoever tests advances them, in an order of his own, and gets the same run for the same seed.
///
/// Messages become visible late, slots become free late, both by the seed, so that channels overtake one another; a slot is written over
/// when it is acquired and again when it is released; a rank may die at any operation.
class hostile_group {
 public:
  static result<hostile_group> create(int size, std::uint64_t seed, hostile_options const& options = {}) {
    transport_options plain;
    plain.slots = options.slots;
    plain.slot_bytes = options.slot_bytes;
    plain.lanes = options.lanes;
    result<detail::segment_layout> layout = detail::lay_out(size, plain);
    if (!layout) return layout.error();
    result<detail::mapping> memory = detail::mapping::anonymous(layout->bytes);
    if (!memory) return memory.error();
    return hostile_group(seed, options, *layout, std::move(*memory));
  }

  int size() const noexcept { return layout_.size; }

  /// Once per rank.
  result<hostile_transport> transport(int rank) noexcept {
    if (rank < 0 || rank >= size()) return status::failure(errc::invalid_argument, rank, "rank %d is not in a group of %d", rank, size());
    hostile_transport t;
    t.world_ = world_.get();
    t.senders_ = senders_.data();
    t.receivers_ = receivers_.data();
    t.layout_ = layout_;
    t.rank_ = rank;
    t.board_ = detail::board(*reinterpret_cast<detail::board_memory*>(memory_.address()), rank, size());
    if (!t.board_.sit_down({})) return status::failure(errc::invalid_argument, rank, "rank %d of this group was taken before", rank);
    return t;
  }

  bool is_dead(int rank) const noexcept { return world_->is_dead(rank); }
  nanoseconds now() const noexcept { return world_->clock; }
  /// For the order in which ranks are advanced, out of the same seed.
  std::uint64_t random() noexcept { return world_->random(); }

  /// Ok where everybody kept to the rules of a channel and nothing is left in one: no slot acquired and forgotten, no message unread.
  status settled() const noexcept {
    if (!world_->misuse) return world_->misuse;
    for (detail::hostile_wire const& w : wires_) {
      if (!w.in_flight()) continue;
      return status::failure(errc::system, w.to, "channel from rank %d to rank %d: %zu sent, %zu received%s", w.from, w.to, w.sent, w.taken,
                             w.held != nullptr ? ", and a slot not committed" : "");
    }
    return {};
  }

 private:
  hostile_group(std::uint64_t seed, hostile_options const& options, detail::segment_layout const& layout, detail::mapping memory)
      : world_(std::make_unique<detail::hostile_world>()), layout_(layout), memory_(std::move(memory)) {
    world_->options = options;
    world_->seed = seed;
    std::size_t const n = static_cast<std::size_t>(size());
    std::size_t const channels = n * n * layout.channels(), slots = static_cast<std::size_t>(layout.slots);
    wires_.resize(channels);
    senders_.resize(channels);
    receivers_.resize(channels);
    std::size_t i = 0;
    for (int from = 0; from < size(); ++from) {
      for (int to = 0; to < size(); ++to) {
        for (int lane = 0; lane <= layout.lanes; ++lane, ++i) {
          if (from == to) continue;
          slot_ring const ring = layout.ring(memory_.address(), from, to, lane);
          detail::hostile_wire& w = wires_[i];
          w.world = world_.get();
          w.from = from;
          w.to = to;
          w.sender = ring_sender<>(ring);
          w.receiver = ring_receiver<>(ring);
          w.visible.resize(slots);
          w.usable.resize(slots);
          senders_[i].wire_ = receivers_[i].wire_ = &w;
        }
      }
    }
  }

  std::unique_ptr<detail::hostile_world> world_;
  detail::segment_layout layout_;
  detail::mapping memory_;
  std::vector<detail::hostile_wire> wires_;
  std::vector<hostile_sender> senders_;
  std::vector<hostile_receiver> receivers_;
};

static_assert(Transport<hostile_transport>);

}  // namespace v0
}  // namespace collectx
