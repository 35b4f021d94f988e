// SPDX-License-Identifier: Apache-2.0
/// How ranks give device memory to those on their host: tickets over the host's channels, descriptors by mail, and nobody goes on before
/// all have mapped everything.
#pragma once

#include "collectx/device/layout.hpp"
#include "collectx/transport/descriptor_mail.hpp"
#include "collectx/transport/device_memory.cuh"
#include "collectx/transport/exchange.hpp"
#include "collectx/transport/shared_memory.hpp"

#include <cerrno>
#include <cstdint>
#include <utility>
#include <vector>

namespace collectx {
inline namespace v0 {

namespace device {
/// What a rank asks for, by options of this kind. Errors: invalid_configuration.
template <class Options>
result<layout> lay_out(int rank, int size, Options const& options) noexcept {
  auto const fits = [](slot_shape const& s) { return s.slots >= 1 && s.slots <= 1024 && s.bytes >= 64 && s.bytes % 64 == 0; };
  if (options.blocks < 1 || options.blocks > 1024 || options.lanes < 1 || options.lanes > 64 || !fits(options.slots) ||
      !fits(options.low_latency)) {
    return status::failure(errc::invalid_configuration, rank,
                           "rank %d: options blocks, lanes, slots and low_latency need 1 to 1024 blocks, 1 to 64 lanes, 1 to 1024 slots, "
                           "and multiples of 64 bytes",
                           rank);
  }
  layout wanted;
  wanted.ranks = size;
  wanted.blocks = options.blocks;
  wanted.lanes = options.lanes;
  wanted.slots = options.slots;
  wanted.low_latency = options.low_latency;
  return wanted;
}
}  // namespace device

namespace detail {

/// Whether another rank is on this host, so that it can be handed memory.
template <Transport Wire>
bool is_neighbour(Wire const& wire, int rank) noexcept {
  if (rank == wire.rank()) return false;
  if constexpr (requires { wire.node_of(rank); })
    return wire.node_of(rank) == wire.node_of(wire.rank());
  else
    return true;
}

/// What a rank brings to the opening of its device's half.
struct device_wish {
  int device = 0;
  device::layout layout;

  /// Out of a transport's options. A failure has ended the group; without a GPU each rank says so itself, with the runtime's number.
  template <Transport Wire, class Options>
  static result<device_wish> of(Wire& wire, Options const& options) noexcept {
    int place = 0;
    for (int r = 0; r < wire.rank(); ++r) place += is_neighbour(wire, r);
    result<int> device = chosen_device(options.device, place, wire.rank());
    if (!device) {
      status const first = wire.abort(device.error());
      return device.error().code() == errc::not_supported ? device.error() : first;
    }
    result<device::layout> layout = device::lay_out(wire.rank(), wire.size(), options);
    if (!layout) return wire.abort(layout.error());
    return device_wish{*device, *layout};
  }
};

/// What each rank offered: a ticket, and the descriptors that belong to it.
struct offers {
  std::vector<memory_ticket> tickets;
  std::vector<std::vector<memory_part>> parts;
};

/// One rank's place in such exchanges. Whatever fails on one rank has ended the group when it is returned.
class device_meeting {
 public:
  /// What ranks know of each other before they trade.
  struct seat {
    mail_address box;
    char bus[16] = {};
    device::layout wanted;
    std::uint64_t direct_bytes = 0;  // of a vector that is read where it lies
  };

  device_meeting() = default;

  /// Opens this rank's mailbox and learns of the others'.
  template <Transport Wire>
  static result<device_meeting> open(Wire& wire, int device, device::layout const& wanted, std::size_t direct_bytes, nanoseconds patience) {
    device_meeting self;
    seat mine;
    mine.wanted = wanted;
    mine.direct_bytes = direct_bytes;
    result<descriptor_mail> box = descriptor_mail::open();
    status s = box ? bus_of(device, wire.rank(), mine.bus) : box.error();
    if (!s) return wire.abort(s);
    mine.box = box->address();
    self.mail_ = std::move(*box);
    self.seats_.resize(static_cast<std::size_t>(wire.size()));
    s = exchange(wire, mine, self.seats_, "opening device memory", 0, patience);
    if (!s) return s;
    return result<device_meeting>(std::move(self));
  }

  /// The least that any rank asks for.
  device::layout agreed() const noexcept {
    device::layout least = seats_[0].wanted;
    for (seat const& s : seats_) {
      least.blocks = lesser(least.blocks, s.wanted.blocks);
      least.lanes = lesser(least.lanes, s.wanted.lanes);
      for (auto const shape : {&device::layout::slots, &device::layout::low_latency}) {
        (least.*shape).slots = lesser((least.*shape).slots, (s.wanted.*shape).slots);
        (least.*shape).bytes = lesser((least.*shape).bytes, (s.wanted.*shape).bytes);
      }
    }
    return least;
  }
  std::size_t direct_bytes() const noexcept {
    std::uint64_t least = seats_[0].direct_bytes;
    for (seat const& s : seats_) least = lesser(least, s.direct_bytes);
    return least;
  }
  seat const& of(int rank) const noexcept { return seats_[static_cast<std::size_t>(rank)]; }

  /// Gives `mine` to all ranks of this host and gets theirs. Call `sequence` of the group.
  template <Transport Wire>
  result<offers> trade(Wire& wire, shared_memory_offer const& mine, std::uint64_t sequence, nanoseconds patience) {
    offers all;
    all.tickets.resize(seats_.size());
    all.parts.resize(seats_.size());
    ++round_;
    if (status s = exchange(wire, mine.ticket, all.tickets, "offering device memory", sequence, patience); !s) return s;
    nanoseconds const deadline = monotonic_now() + patience;
    for (int r = 0; r < wire.size(); ++r) {
      for (std::size_t i = 0; is_neighbour(wire, r) && i < mine.parts.size(); ++i) {
        if (status s = post(wire, r, mine.parts[i], i, all, deadline); !s) return s;
      }
    }
    for (int polls = 0;; ++polls) {
      if (status s = fetch(wire, all); !s) return s;
      int const late = missing(wire, all);
      if (late < 0) return result<offers>(std::move(all));
      if (status s = wait(wire, polls, late, deadline); !s) return s;
    }
  }

  /// Ends when all ranks have come here, so that nobody uses memory before all others have it too. `mine`: how mapping it has gone here; a
  /// failure of any rank is one of all.
  template <Transport Wire>
  status all_mapped(Wire& wire, status const& mine, std::uint64_t sequence, nanoseconds patience) {
    std::vector<char> all(seats_.size());
    if (status s = exchange(wire, static_cast<char>(mine.ok()), all, "mapping device memory", sequence, patience); !s) return s;
    if (!mine) return mine;
    for (int r = 0; r < wire.size(); ++r) {
      if (all[static_cast<std::size_t>(r)] != 0) continue;
      return status::failure(errc::system, r, "rank %d could not map the device memory of the others, and says why", r);
    }
    return {};
  }

 private:
  template <Transport Wire>
  status post(Wire& wire, int to, memory_part const& part, std::size_t index, offers& all, nanoseconds deadline) {
    mail letter;
    letter.round = round_;
    letter.from = wire.rank();
    letter.index = static_cast<std::uint32_t>(index);
    letter.bytes = part.bytes;
    for (int polls = 0; !descriptor_mail::send(of(to).box, letter, part.file.get()); ++polls) {
      if (errno != EAGAIN) return wire.abort(status::system(errno, "rank %d cannot send a descriptor to rank %d", wire.rank(), to));
      if (status s = fetch(wire, all); !s) return s;  // whoever we wait for may wait for us to do so
      if (status s = wait(wire, polls, to, deadline); !s) return s;
    }
    return {};
  }

  template <Transport Wire>
  status fetch(Wire& wire, offers& all) {
    mail letter;
    descriptor file;
    while (mail_.take(letter, file)) {
      if (letter.round != round_ || letter.from < 0 || letter.from >= wire.size()) continue;  // left over from an exchange that failed
      auto& parts = all.parts[static_cast<std::size_t>(letter.from)];
      if (letter.index != parts.size()) {
        return wire.abort(status::failure(errc::mismatch, letter.from, "a descriptor of rank %d is number %u where %zu was due",
                                          letter.from, letter.index, parts.size()));
      }
      parts.push_back({std::move(file), letter.bytes});
    }
    return {};
  }

  template <Transport Wire>
  static int missing(Wire const& wire, offers const& all) noexcept {
    for (int r = 0; r < wire.size(); ++r) {
      std::size_t const i = static_cast<std::size_t>(r);
      if (is_neighbour(wire, r) && all.parts[i].size() < all.tickets[i].parts) return r;
    }
    return -1;
  }

  template <Transport Wire>
  static status wait(Wire& wire, int polls, int peer, nanoseconds deadline) noexcept {
    if (status s = wire.idle(polls + 1, peer); !s) return s;
    if (monotonic_now() < deadline) return {};
    return wire.abort(
        status::failure(errc::timeout, peer, "timeout: rank %d waited for a descriptor from or to rank %d", wire.rank(), peer));
  }

  descriptor_mail mail_;
  std::vector<seat> seats_;
  std::uint64_t round_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
