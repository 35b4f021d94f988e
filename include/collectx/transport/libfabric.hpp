// SPDX-License-Identifier: Apache-2.0
/// Ranks are anywhere: channels over libfabric (InfiniBand, RoCE, EFA, Omni-Path, TCP), and a mesh of TCP connections for all that is said
/// beside the data. Include it by name and link `collectx::libfabric`.
#pragma once

#include "collectx/process.hpp"
#include "collectx/rendezvous.hpp"
#include "collectx/transport/fabric.hpp"
#include "collectx/transport/fabric_channel.hpp"
#include "collectx/transport/fabric_choice.hpp"
#include "collectx/transport/fabric_memory.hpp"
#include "collectx/transport/patience.hpp"
#include "collectx/transport/segment.hpp"
#include "collectx/transport/socket_board.hpp"

#include <sys/mman.h>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace collectx {
inline namespace v0 {

struct libfabric_options {
  int slots = 8;                                    ///< per channel
  std::size_t slot_bytes = std::size_t{256} << 10;  ///< a multiple of 64; large, since a wire's delay is felt with every message
  int lanes = 4;
  std::size_t memory = 0;                    ///< most bytes that this rank may register; 0: no bound
  std::chrono::nanoseconds join_timeout{0};  ///< for all ranks to come together; 0: COLLECTX_JOIN_TIMEOUT seconds, or 60
  std::chrono::nanoseconds link_timeout = std::chrono::seconds(10);  ///< after which a host that does not answer is out of reach
  bool between_hosts = false;                                        ///< only providers that reach other hosts are chosen among
  char const* provider = nullptr;  ///< "net", "tcp;ofi_rxm", "verbs;ofi_rxm", "shm"...; null: the best that all ranks have
};

/// A rank of a group whose other ranks may be on other hosts. Models Transport.
///
/// What is written into a ring is written once, by the network, into the peer's ring. All progress is made inside the library's calls.
class libfabric_transport {
 public:
  static constexpr bool dear_messages = true;
  using sender = detail::fabric_sender;
  using receiver = detail::fabric_receiver;

  /// Joins the group that `rendezvous` is about; returns on every rank when all have joined, or with a failure that names who never came
  /// or what differs. Slots, slot_bytes and lanes are the least that any rank asks for.
  /// Errors: timeout, invalid_configuration, invalid_argument, not_supported where no provider is offered on all ranks.
  /// @param device  that a relay serves, in whose memory payloads shall lie if they can: then all ranks of the group give one
  template <Rendezvous R>
  static result<libfabric_transport> join(R& rendezvous, libfabric_options const& options = {},
                                          detail::fabric_device const* device = nullptr) noexcept {
    int const rank = rendezvous.rank(), size = rendezvous.size();
    if (size < 1 || rank < 0 || rank >= size) {
      return status::failure(errc::invalid_argument, rank, "rank %d is not in a group of %d", rank, size);
    }
    transport_options rings;
    rings.slots = options.slots;
    rings.slot_bytes = options.slot_bytes;
    rings.lanes = options.lanes;
    if (result<detail::segment_layout> possible = detail::lay_out(1, rings); !possible) return possible.error();
    detail::hello mine;
    mine.rank = rank;
    mine.size = size;
    mine.slots = options.slots;
    mine.lanes = options.lanes;
    mine.slot_bytes = options.slot_bytes;
    result<nanoseconds> patience = detail::join_patience(options.join_timeout.count(), rank);
    if (!patience) return patience.error();
    nanoseconds const deadline = detail::monotonic_now() + *patience;
    result<detail::socket_mesh> mesh = detail::socket_mesh::join(rendezvous, mine, options.link_timeout.count(), deadline);
    if (!mesh) return mesh.error();
    return detail::within_memory(rank, [&]() -> result<libfabric_transport> {
      auto made = std::make_unique<state>(std::move(*mesh), options);
      status const s = detail::within_memory(rank, [&] { return made->found(device, deadline); });
      if (s.ok()) return libfabric_transport(std::move(made));
      return s.code() == errc::out_of_memory ? made->board.mesh().refuse(s) : s;
    });
  }

  libfabric_transport(libfabric_transport&&) noexcept = default;
  libfabric_transport& operator=(libfabric_transport&&) = delete;

  int rank() const noexcept { return state_->board.rank(); }
  int size() const noexcept { return state_->board.size(); }
  int lanes() const noexcept { return state_->options.lanes; }
  int slots() const noexcept { return state_->options.slots; }
  std::size_t slot_bytes() const noexcept { return state_->options.slot_bytes; }
  libfabric_options options() const noexcept { return state_->options; }
  char const* provider() const noexcept { return state_->provider; }
  /// Hosts are numbered in the order of their first ranks.
  int node_of(int rank) const noexcept { return state_->nodes[static_cast<std::size_t>(rank)]; }

  /// @pre peer != rank()
  sender& channel_to(int peer, int lane) {
    sender& s = state_->senders[state_->channel(peer, lane)];
    s.prepare();
    return s;
  }
  receiver& channel_from(int peer, int lane) noexcept { return state_->receivers[state_->channel(peer, lane)]; }

  /// Where channel_to gives a reference to, for who keeps it before it is used.
  sender* address_of_sender(int peer, int lane) noexcept { return &state_->senders[state_->channel(peer, lane)]; }
  /// The payloads of all slots, staging and receiving, of all channels; a channel's lie slot_stride() apart. Memory of the host, unless it
  /// was a device's that join() was given, and the network reaches it.
  std::byte* memory() const noexcept { return state_->port.layout.apart ? state_->port.base_apart : state_->port.base; }
  std::size_t memory_bytes() const noexcept {
    return state_->port.layout.apart ? state_->port.layout.bytes_apart() : state_->port.layout.bytes();
  }
  bool in_device_memory() const noexcept { return state_->memory.on_device(); }
  std::size_t slot_stride() const noexcept { return state_->port.layout.stride(); }
  /// Takes in what others say, for who is in no call.
  void look() noexcept { state_->board.look(); }
  bool has_left(int rank) const noexcept { return state_->board.has_left(rank); }
  bool begins_to_wait(int polls) const noexcept { return state_->patience.begins_to_wait(state_->board, polls); }

  nanoseconds now() const noexcept { return detail::monotonic_now(); }
  void progress() noexcept { state_->progress(); }
  /// A rank that something sent has not left for yet, or -1: then nobody waits for this rank's next call.
  int unsent() const noexcept { return state_->port.unsettled == 0 ? -1 : state_->first_unsettled(); }

  status idle(int polls, int peer) noexcept {
    if (state_->orphan) return not_ours();
    if (begins_to_wait(polls)) state_->flush_credits();
    if (status s = state_->complain(); !s) return s;
    return state_->patience.idle(state_->board, polls, peer);
  }
  status abort(status const& why) noexcept { return state_->mark.here() ? state_->board.abort(why) : not_ours(); }
  COLLECTX_FORCEINLINE status verdict() noexcept {
    if (!state_->mark.here()) return not_ours();
    return state_->board.verdict();
  }
  int blame(int peer) noexcept { return state_->board.blame(peer); }
  bool lost(int rank) noexcept { return rank != this->rank() && state_->board.lost(rank); }
  void absent(char* text, std::size_t capacity) noexcept { state_->board.absent(text, capacity); }
  status conflict(int peer) noexcept {
    for (int lane = 0; lane < lanes(); ++lane)
      if (receiver& r = channel_from(peer, lane); r.holds()) state_->board.heard_of(peer, r.call());
    return state_->board.conflict(peer);
  }

  /// What is known of a rank's call by another way.
  void heard_of(int rank, call_record const& record) noexcept { state_->board.heard_of(rank, record); }

  status post(char const* key, rendezvous_value const& value) noexcept {
    return state_->mark.here() ? state_->board.post(key, &value) : not_ours();
  }
  bool posted(int rank, char const* key, rendezvous_value& value) noexcept { return state_->board.posted(rank, key, value); }
  void withdraw(char const* key) noexcept {
    if (state_->mark.here()) static_cast<void>(state_->board.post(key, nullptr));
  }

  void begin(call_record const& record) noexcept {
    if (!state_->mark.here()) return state_->disown();
    state_->port.call = record;
    state_->board.begin(record);
  }
  void end() noexcept {
    if (!state_->orphan) state_->board.end();
  }

 private:
  struct state {
    detail::socket_board board;
    libfabric_options options;
    char provider[32] = {};
    std::vector<int> nodes;
    detail::fabric_memory memory;  // outlives the port, which has it registered
    detail::fabric_port port;
    std::vector<detail::fabric_reach> all;
    std::vector<sender> senders;
    std::vector<receiver> receivers;
    nanoseconds suspected = 0;
    bool joined = false;
    bool orphan = false;
    bool fragile = false;                     // the provider, as its table says
    detail::patience patience{64, 1, false};  // a poll in vain costs a system call that another rank could use
    detail::fork_mark mark = detail::fork_mark::take();

    state(detail::socket_mesh mesh, libfabric_options const& chosen) : board(std::move(mesh)), options(chosen) {}
    ~state() {
      if (!mark.here()) {
        for (sender& s : senders) s.abandon();
        port.abandon();
      }
      if (!joined || !mark.here()) return;
      board.leave(linger, [this] { progress(); });
      status const end = board.verdict();
      for (int r = 0; r < board.size(); ++r)
        if (board.died(r) || (!end.ok() && end.rank() == r && r != board.rank())) all[static_cast<std::size_t>(r)].address.remove_name();
    }
    static constexpr nanoseconds linger = 1'000'000'000;
    static constexpr std::size_t worth_borrowing = std::size_t{8} << 10, worth_offering = std::size_t{32} << 10;

    std::size_t channel(int peer, int lane) const noexcept {
      return static_cast<std::size_t>(peer) * (static_cast<std::size_t>(options.lanes) + 1) + static_cast<std::size_t>(lane);
    }

    /// Everything between a mesh and a group.
    status found(detail::fabric_device const* device, nanoseconds deadline) {
      detail::socket_mesh& mesh = board.mesh();
      for (int r = 0; r < mesh.size(); ++r) {
        options.slots = (std::min)(options.slots, static_cast<int>(mesh.said(r).slots));
        options.lanes = (std::min)(options.lanes, static_cast<int>(mesh.said(r).lanes));
        options.slot_bytes = (std::min)(options.slot_bytes, static_cast<std::size_t>(mesh.said(r).slot_bytes));
      }
      detail::fabric_choice chosen;
      if (status s = chosen.make(mesh, options.provider, options.between_hosts, deadline); !s) return s;
      std::memcpy(provider, chosen.provider, sizeof provider);
      nodes = std::move(chosen.nodes);
      board.share_host(chosen.neighbours, chosen.cpus);
      detail::fabric_reach mine;
      if (status s = open(device, mine); !s) return mesh.refuse(s);
      if (device != nullptr) {  // where one rank's payloads lie apart, all ranks' do
        std::vector<int> on_devices;
        if (status s = mesh.share(int{memory.on_device()}, on_devices, deadline); !s) return s;
        port.layout.apart = std::find(on_devices.begin(), on_devices.end(), 1) != on_devices.end();
      }
      if (status s = build(mine); !s) return mesh.refuse(s);
      if (status s = mesh.share(mine, all, deadline); !s) return s;
      for (int r = 0; r < mesh.size(); ++r) {
        if (r == mesh.rank()) continue;
        detail::fabric_port::peer& p = port.peers[static_cast<std::size_t>(r)];
        p.window = all[static_cast<std::size_t>(r)].window;
        p.apart = all[static_cast<std::size_t>(r)].apart;
        if (status s = port.endpoint.learn(all[static_cast<std::size_t>(r)].address, p.number); !s) return mesh.refuse(s);
      }
      // A second round: from here on everybody may write to everybody.
      std::vector<int> ready;
      if (status s = mesh.share(0, ready, deadline); !s) return s;
      status const s = board.open();
      joined = s.ok();
      return s;
    }

    /// The endpoint, and as much of the layout as no other rank has a say in.
    status open(detail::fabric_device const* device, detail::fabric_reach& mine) noexcept {
      port.layout = detail::fabric_layout::of(board.size(), options.lanes, options.slots, options.slot_bytes);
      if (board.size() == 1) return {};
      detail::fabric_endpoint& e = port.endpoint;
      detail::fabric_provider const chosen = detail::provider_named(provider);
      if (status s = e.open(chosen, board.mesh().place(), device != nullptr && device->allocate != nullptr); !s) return s;
      fragile = chosen.fragile;
      if (e.gathers() && device == nullptr) port.worth_borrowing = worth_borrowing;
      if (chosen.copies) {
        port.copied_at_once = e.info().tx_attr->inject_size;
        port.worth_offering = worth_offering;
      }
      return device == nullptr ? status{} : memory.try_device(port, *device, mine);
    }

    status build(detail::fabric_reach& mine) {
      port.peers.resize(static_cast<std::size_t>(board.size()));
      if (status s = memory.make(port, options.memory, board.rank(), mine); !s) return s;
      if (board.size() > 1) {
        if (status s = port.endpoint.name(mine.address); !s) return s;
      }
      senders.resize(port.layout.channels);
      receivers.resize(port.layout.channels);
      port.late.reserve(port.layout.channels);  // each is in there once
      port.in_debt.reserve(port.layout.channels);
      for (int p = 0; p < board.size(); ++p) {
        for (int lane = 0; lane <= options.lanes && p != board.rank(); ++lane) {
          std::size_t const here = channel(p, lane), there = channel(board.rank(), lane);
          senders[here] = sender(port, p, here, there, lane < options.lanes);
          receivers[here] = receiver(port, p, here, there, senders[here]);
          senders[here].oppose(receivers[here].released());
        }
      }
      return {};
    }

    int first_unsettled() const noexcept {
      for (sender const& s : senders)
        if (s.unsettled()) return s.peer();
      return -1;
    }

    void progress() noexcept {
      if (fragile) seal_with_the_dead();
      if (port.borrowing > 0 && !board.verdict().ok()) port.sealed = true;  // after a failure callers have their memory back
      if (port.sealed) return;
      ::fi_cq_data_entry done[16];
      for (;;) {
        ssize_t const n = ::fi_cq_read(port.endpoint.completions(), done, 16);
        if (n == -FI_EAVAIL && stumble()) continue;
        if (n < 0 && n != -FI_EAGAIN && n != -FI_EAVAIL) {
          port.sealed = true;
          static_cast<void>(board.abort(detail::fabric_failure(static_cast<int>(n), "reading what has arrived")));
          return;
        }
        for (ssize_t i = 0; i < n; ++i) {
          if ((done[i].flags & FI_REMOTE_CQ_DATA) != 0)
            arrive(static_cast<std::uint32_t>(done[i].data));
          else if (done[i].op_context != nullptr)
            static_cast<detail::fabric_ticket*>(done[i].op_context)->settle();
        }
        if (n < 16) break;
      }
      if (std::exchange(port.landed, false))
        if (status const s = memory.make_visible(); !s) static_cast<void>(board.abort(s));
      port.drain();
    }

    void arrive(std::uint32_t number) noexcept {
      using detail::fabric_port;
      bool const credit = (number & fabric_port::credit_flag) != 0, payload = (number & fabric_port::payload_flag) != 0;
      std::uint32_t const of = number & ~(fabric_port::credit_flag | fabric_port::payload_flag);
      std::uint32_t const slots = static_cast<std::uint32_t>(port.layout.slots);
      std::size_t const at = credit ? of : of / slots;
      if (at >= senders.size() || (payload && !port.layout.apart)) return;
      if (payload) return receivers[at].landed(of % slots);
      if (!credit) return receivers[at].arrived(of % slots);
      std::uint64_t& word = reinterpret_cast<std::uint64_t*>(port.base)[at];
      senders[at].credit(static_cast<std::uint32_t>(detail::shared_word(word).load(std::memory_order_acquire)));
    }

    /// The board's connections are older than those of the data, so a process that is killed closes them first.
    void seal_with_the_dead() noexcept {
      board.look_for_ends();
      for (int r = 0; r < board.size(); ++r) port.sealed = port.sealed || board.died(r);
    }

    /// Something that was sent did not arrive. False where the provider does not say what.
    bool stumble() noexcept {
      ::fi_cq_err_entry why{};
      if (::fi_cq_readerr(port.endpoint.completions(), &why, 0) < 1) return false;
      if (why.op_context == nullptr) return true;
      auto& ticket = *static_cast<detail::fabric_ticket*>(why.op_context);
      // Who is to have a credit is missed elsewhere, if by anybody. What was not fetched stays so.
      if (ticket.what != detail::fabric_ticket::credit) port.breaks(ticket.peer, -why.err);
      if (ticket.what != detail::fabric_ticket::fetched) ticket.settle();
      return true;
    }

    /// The network's word is the last resort: who died or left is known from the board, with more to say.
    status complain() noexcept {
      if (port.broken < 0 || board.lost(port.broken)) return {};
      nanoseconds const now = detail::monotonic_now();
      if (suspected == 0) suspected = now;
      if (now - suspected < 1'000'000'000) return {};
      return board.abort(status::failure(errc::peer_lost, port.broken, "rank %d cannot write to rank %d by %s: %s", board.rank(),
                                         port.broken, provider, ::fi_strerror(port.broken_by)));
    }

    void flush_credits() noexcept {
      for (receiver& r : receivers) r.flush();
    }

    void disown() noexcept {
      orphan = true;
      for (sender& s : senders) s.close();
      for (receiver& r : receivers) r.close();
    }
  };

  explicit libfabric_transport(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}

  [[gnu::noinline]] status not_ours() const noexcept {
    return status::failure(errc::invalid_argument, rank(), "this transport belongs to process %llu: a forked child has to join anew",
                           state_->mark.pid());
  }

  std::unique_ptr<state> state_;
};

static_assert(Transport<libfabric_transport>);

}  // namespace v0
}  // namespace collectx
