// SPDX-License-Identifier: Apache-2.0
/// Mappings of other ranks' allocations: each opened once, however many buffers lie in it, and some of them kept when nobody uses them.
#pragma once

#include "collectx/transport/device_memory.cuh"

#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

namespace collectx {
inline namespace v0 {
namespace detail {

/// Not thread-safe: it belongs to a communicator, whose calls take turns.
class mapping_cache {
 public:
  struct entry {
    memory_ticket ticket;
    mapped_memory memory;
    int users = 0;
  };

  /// `idle`: mappings at most that are kept though nobody uses them.
  explicit mapping_cache(std::size_t idle = 8) noexcept : most_idle_(idle) {}

  /// The mapping of what `ticket` speaks of, for one more user. An older mapping of other memory that was at the same place goes: its
  /// owner has freed it. Addresses alone do not tell, since allocators give them out again; the number of the allocation does.
  result<entry*> acquire(driver_calls const& driver, memory_ticket const& ticket, std::vector<memory_part> const& parts, int device,
                         int rank) {
    for (auto at = entries_.begin(); at != entries_.end(); ++at) {
      if (!at->ticket.same_memory(ticket)) continue;
      entries_.splice(entries_.begin(), entries_, at);  // the most recently used is in front
      ++at->users;
      return &*at;
    }
    entries_.remove_if([&](entry const& e) { return e.users == 0 && replaced_by(e.ticket, ticket); });
    result<mapped_memory> mapped = mapped_memory::map(driver, ticket, parts, device, rank);
    if (!mapped) return mapped.error();
    entries_.push_front({ticket, std::move(*mapped), 1});
    return &entries_.front();
  }

  void release(entry* used) noexcept {
    --used->users;
    std::size_t idle = 0;
    for (auto at = entries_.begin(); at != entries_.end();) {
      bool const goes = at->users == 0 && ++idle > most_idle_;
      at = goes ? entries_.erase(at) : std::next(at);
    }
  }

  std::size_t size() const noexcept { return entries_.size(); }

 private:
  static bool replaced_by(memory_ticket const& old, memory_ticket const& young) noexcept {
    return old.process == young.process && old.base < young.base + young.bytes && young.base < old.base + old.bytes;
  }

  std::list<entry> entries_;
  std::size_t most_idle_;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
