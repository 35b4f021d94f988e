// SPDX-License-Identifier: Apache-2.0
/// Each pair of ranks by the best wire they have: shared memory where they are on one host, libfabric where they are not.
/// Include it by name and link `collectx::libfabric`.
#pragma once

#include "collectx/transport/board_rendezvous.hpp"
#include "collectx/transport/libfabric.hpp"
#include "collectx/transport/shared_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace collectx {
inline namespace v0 {

struct composite_options {
  libfabric_options between;      ///< hosts; slot_bytes and lanes go for shared memory, too
  int slots_inside = 16;          ///< per channel, on one host
  std::size_t memory_inside = 0;  ///< most bytes that the ranks of one host may come to occupy together; 0: no bound
  std::chrono::nanoseconds join_timeout = libfabric_options{}.join_timeout;  ///< for all ranks to come together
};

namespace detail {

/// One end of a channel of either kind.
template <class Near, class Far>
class either_sender {
 public:
  either_sender() = default;
  either_sender(Near* near, Far* far) noexcept : near_(near), far_(far) {}
  std::byte* try_acquire(std::size_t bytes) { return near_ != nullptr ? near_->try_acquire(bytes) : far_->try_acquire(bytes); }
  void commit(std::size_t bytes, std::uint32_t tag) { near_ != nullptr ? near_->commit(bytes, tag) : far_->commit(bytes, tag); }
  void commit_from(std::byte const* memory, std::size_t bytes, std::uint32_t tag) {
    if (near_ == nullptr) return far_->commit_from(memory, bytes, tag);
    std::memcpy(near_->try_acquire(bytes), memory, bytes);
    near_->commit(bytes, tag);
  }
  bool borrows() const { return near_ == nullptr && far_->borrows(); }

 private:
  Near* near_ = nullptr;
  Far* far_ = nullptr;
};
template <class Near, class Far>
class either_receiver {
 public:
  either_receiver() = default;
  either_receiver(Near* near, Far* far) noexcept : near_(near), far_(far) {}
  message try_peek() { return near_ != nullptr ? near_->try_peek() : far_->try_peek(); }
  void release() { near_ != nullptr ? near_->release() : far_->release(); }

 private:
  Near* near_ = nullptr;
  Far* far_ = nullptr;
};

}  // namespace detail

/// Models Transport. What is said beside the data goes between all ranks alike, over the mesh of the network's transport.
class composite_transport {
  using near = shared_memory_transport;
  using far = libfabric_transport;

 public:
  static constexpr bool dear_messages = true;
  using sender = detail::either_sender<near::sender, far::sender>;
  using receiver = detail::either_receiver<near::receiver, far::receiver>;

  /// Joins the group that `rendezvous` is about, then the ranks of each host among themselves. Both ends of a pair take the same wire,
  /// since all ranks know all ranks' hosts. Errors: those of libfabric_transport::join and shared_memory_transport::join, the same on all
  /// ranks.
  template <Rendezvous R>
  static result<composite_transport> join(R& rendezvous, composite_options const& options = {}) noexcept {
    result<nanoseconds> patience = detail::join_patience(options.join_timeout.count(), rendezvous.rank());
    if (!patience) return patience.error();
    libfabric_options between = options.between;
    between.join_timeout = std::chrono::nanoseconds(*patience);
    between.between_hosts = true;
    result<far> wide = far::join(rendezvous, between);
    if (!wide) return wide.error();
    return detail::within_memory(rendezvous.rank(), [&]() -> result<composite_transport> {
      auto made = std::make_unique<state>(std::move(*wide), options);
      made->options.join_timeout = between.join_timeout;
      status const mine = made->join_neighbours();
      if (status s = made->agree(mine); !s) return s;
      made->connect();
      return composite_transport(std::move(made));
    });
  }

  int rank() const noexcept { return state_->wide.rank(); }
  int size() const noexcept { return state_->wide.size(); }
  int lanes() const noexcept { return state_->wide.lanes(); }
  int slots() const noexcept { return state_->slots(); }
  std::size_t slot_bytes() const noexcept { return state_->wide.slot_bytes(); }
  composite_options options() const noexcept { return state_->options; }
  char const* provider() const noexcept { return state_->wide.provider(); }
  /// Hosts are numbered in the order of their first ranks.
  int node_of(int rank) const noexcept { return state_->wide.node_of(rank); }

  sender& channel_to(int peer, int lane) {
    if (!state_->is_near(peer)) state_->wide.channel_to(peer, lane);  // which prepares it
    return state_->senders[state_->channel(peer, lane)];
  }
  receiver& channel_from(int peer, int lane) noexcept { return state_->receivers[state_->channel(peer, lane)]; }

  nanoseconds now() const noexcept { return state_->wide.now(); }
  void progress() noexcept { state_->wide.progress(); }
  int unsent() const noexcept { return state_->wide.unsent(); }
  status idle(int polls, int peer) noexcept {
    if (state_->inside && state_->wide.begins_to_wait(polls)) state_->inside->flush_credits();
    return state_->wide.idle(polls, peer);
  }
  status abort(status const& why) noexcept { return state_->wide.abort(why); }
  COLLECTX_FORCEINLINE status verdict() noexcept { return state_->wide.verdict(); }
  int blame(int peer) noexcept { return state_->wide.blame(peer); }
  bool lost(int rank) noexcept { return state_->wide.lost(rank); }
  void absent(char* text, std::size_t capacity) noexcept { state_->wide.absent(text, capacity); }
  status conflict(int peer) noexcept {
    call_record theirs;
    if (state_->is_near(peer) && state_->inside->doing(state_->place[static_cast<std::size_t>(peer)], theirs)) {
      state_->wide.heard_of(peer, theirs);
    }
    return state_->wide.conflict(peer);
  }
  status post(char const* key, rendezvous_value const& value) noexcept { return state_->wide.post(key, value); }
  bool posted(int rank, char const* key, rendezvous_value& value) noexcept { return state_->wide.posted(rank, key, value); }
  void withdraw(char const* key) noexcept { state_->wide.withdraw(key); }
  void begin(call_record const& record) noexcept {
    state_->wide.begin(record);
    if (state_->inside) state_->inside->begin(record);  // a forked child is cut off from its parent's rings
  }
  void end() noexcept { state_->wide.end(); }

 private:
  struct state {
    far wide;
    composite_options options;
    std::vector<int> neighbours;  // the ranks of this host, ascending
    std::vector<int> place;       // of a rank among them, -1 where it is on another host
    std::optional<near> inside;
    std::vector<sender> senders;
    std::vector<receiver> receivers;

    state(far wire, composite_options const& chosen) : wide(std::move(wire)), options(chosen) {
      options.between = wide.options();
      for (int r = 0; r < wide.size(); ++r) {
        bool const here = wide.node_of(r) == wide.node_of(wide.rank());
        place.push_back(here ? static_cast<int>(neighbours.size()) : -1);
        if (here) neighbours.push_back(r);
      }
    }

    std::size_t channel(int peer, int lane) const noexcept {
      return static_cast<std::size_t>(peer) * (static_cast<std::size_t>(wide.lanes()) + 1) + static_cast<std::size_t>(lane);
    }
    bool is_near(int peer) const noexcept { return place[static_cast<std::size_t>(peer)] >= 0; }
    int slots() const noexcept { return inside && inside->slots() < wide.slots() ? inside->slots() : wide.slots(); }

    status join_neighbours() noexcept {
      if (neighbours.size() == 1) return {};
      transport_options rings;
      rings.slots = options.slots_inside;
      rings.slot_bytes = wide.slot_bytes();
      rings.lanes = wide.lanes();
      rings.memory = options.memory_inside;
      rings.join_timeout = options.join_timeout;
      board_rendezvous<far> meeting(wide, neighbours, place[static_cast<std::size_t>(wide.rank())], "near", false);
      result<near> joined = near::join(meeting, rings);
      if (!joined) return joined.error();
      inside.emplace(std::move(*joined));
      return {};
    }

    /// Some host's trouble is everybody's.
    status agree(status const& mine) noexcept {
      struct said {
        std::int32_t code = 0, rank = -1;
        char text[rendezvous_value::capacity - 8] = {};
      } word;
      static_assert(sizeof word <= rendezvous_value::capacity);
      word.code = static_cast<std::int32_t>(mine.code());
      word.rank = mine.rank();
      std::snprintf(word.text, sizeof word.text, "%s", detail::sentence(mine));
      if (status s = wide.post("joined", rendezvous_value(&word, sizeof word)); !s) return s;
      nanoseconds const deadline = detail::monotonic_now() + options.join_timeout.count();
      for (int r = 0; r < wide.size() && mine.ok(); ++r) {
        rendezvous_value heard;
        while (r != wide.rank() && !wide.posted(r, "joined", heard)) {
          if (status s = wide.verdict(); !s) return s;
          if (wide.lost(r)) return status::failure(errc::peer_lost, r, "rank %d was lost while joining", r);
          if (detail::monotonic_now() > deadline) return status::failure(errc::timeout, r, "rank %d did not join its host in time", r);
          detail::nap(100'000);
        }
        if (r == wide.rank()) continue;
        std::memcpy(&word, heard.data(), heard.size() < sizeof word ? heard.size() : sizeof word);
        word.text[sizeof word.text - 1] = 0;
        if (word.code != 0) return status::failure(static_cast<errc>(word.code), word.rank, "%s (reported by rank %d)", word.text, r);
      }
      return mine;
    }

    void connect() {
      senders.resize(channel(wide.size(), 0));
      receivers.resize(senders.size());
      for (int p = 0; p < wide.size(); ++p) {
        for (int lane = 0; lane <= wide.lanes() && p != wide.rank(); ++lane) {
          int const at = place[static_cast<std::size_t>(p)];
          if (at >= 0) {
            senders[channel(p, lane)] = {&inside->channel_to(at, lane), nullptr};
            receivers[channel(p, lane)] = {&inside->channel_from(at, lane), nullptr};
          } else {
            senders[channel(p, lane)] = {nullptr, wide.address_of_sender(p, lane)};
            receivers[channel(p, lane)] = {nullptr, &wide.channel_from(p, lane)};
          }
        }
      }
    }
  };

  explicit composite_transport(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
  std::unique_ptr<state> state_;
};

static_assert(Transport<composite_transport>);

}  // namespace v0
}  // namespace collectx
