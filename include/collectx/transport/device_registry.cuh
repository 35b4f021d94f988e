// SPDX-License-Identifier: Apache-2.0
/// Buffers of users that all ranks know of, and have mapped where devices reach one another, so that a kernel may read the others' where
/// they lie.
#pragma once

#include "collectx/transport/device_meeting.cuh"
#include "collectx/transport/device_store.cuh"
#include "collectx/transport/mapping_cache.cuh"

#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace collectx {
inline namespace v0 {
namespace detail {

/// What a rank has of others' memory, and what it has allocated for that. Registrations may end in any thread.
class device_registry {
  struct block {
    device_allocation memory;
    std::size_t bytes = 0;
    bool used = false;
  };

 public:
  /// A buffer of this rank and the others' counterparts. @pre the registry lives
  class registration {
   public:
    registration(device_registry& whose, std::size_t bytes, status const& reach) noexcept : whose_(whose), bytes_(bytes), reach_(reach) {}
    registration(registration const&) = delete;
    registration& operator=(registration const&) = delete;
    ~registration() { whose_.end(*this); }

    std::byte* own() const noexcept { return own_; }
    std::size_t bytes() const noexcept { return bytes_; }
    /// Whether devices read one another's buffers; else who does not reach whom, and calls go through slots. The same on all ranks.
    status const& reach() const noexcept { return reach_; }
    /// Of all ranks, in memory of the device, as this rank's device sees them; null but for its own where `reach()` is a failure.
    std::byte* const* addresses() const noexcept { return reinterpret_cast<std::byte* const*>(table_); }

   private:
    friend class device_registry;
    device_registry& whose_;
    std::size_t bytes_;
    status reach_;
    std::byte* own_ = nullptr;
    std::byte* table_ = nullptr;
    std::vector<block*> borrowed_;
    std::vector<mapping_cache::entry*> mappings_;
  };

  device_registry(std::size_t idle_mappings) noexcept : cache_(idle_mappings) {}

  /// Registers `bytes` from `at` on, as all ranks do at the same time with as many; `at` null: memory of the library's own. Calls
  /// `sequence` and the next of the group. The same on all ranks: a registration, or a failure that leaves the group as it was. Where
  /// `reach` is a failure nobody maps anything, but what cannot be registered is the same as elsewhere.
  template <Transport Wire>
  result<std::unique_ptr<registration>> enroll(Wire& wire, device_meeting& meeting, device_context const& context, status const& reach,
                                               int device, cudaStream_t errand, std::byte* at, std::size_t bytes, std::uint64_t sequence,
                                               nanoseconds patience) {
    int const rank = wire.rank();
    std::unique_ptr<registration> self = std::make_unique<registration>(*this, bytes, reach);
    self->own_ = at;
    status mine = at != nullptr ? status{} : borrow(*self, bytes, self->own_, rank);
    shared_memory_offer offered;
    if (mine.ok()) {
      result<shared_memory_offer> made = offer_memory(context.driver, self->own_, bytes, rank);
      mine = made.error();
      if (made) offered = std::move(*made);
    }
    offered.ticket.length = bytes;
    if (!reach) {
      offered.parts.clear();
      offered.ticket.parts = 0;
    }
    result<offers> all = meeting.trade(wire, offered, sequence, patience);
    if (!all) return all.error();
    if (!mine) return mine;
    if (status s = agree(all->tickets, rank); !s) return s;
    mine = map(*self, context, *all, device, errand, rank);
    if (status s = meeting.all_mapped(wire, mine, sequence + 1, patience); !s) return s;
    return result<std::unique_ptr<registration>>(std::move(self));
  }

  /// Mappings of others' memory.
  std::size_t mappings() noexcept {
    std::lock_guard const held(lock_);
    return cache_.size();
  }

 private:
  /// Memory of the library's own. Others may still have it mapped when a registration ends, so it is not freed but given out again.
  status borrow(registration& r, std::size_t bytes, std::byte*& at, int rank) {
    std::lock_guard const held(lock_);
    block* found = nullptr;
    for (block& b : blocks_)
      if (!b.used && b.bytes >= bytes && (found == nullptr || b.bytes < found->bytes)) found = &b;
    if (found == nullptr) {
      result<device_allocation> memory = device_allocation::of(bytes, rank);
      if (!memory) return memory.error();
      blocks_.push_back({std::move(*memory), bytes, false});
      found = &blocks_.back();
    }
    found->used = true;
    r.borrowed_.push_back(found);
    at = found->memory.at();
    return {};
  }

  static status agree(std::vector<memory_ticket> const& tickets, int rank) noexcept {
    for (std::size_t i = 0; i < tickets.size(); ++i) {
      int const other = static_cast<int>(i);
      if (tickets[i].how == memory_ticket::nothing) {
        return status::failure(errc::invalid_argument, other, "rank %d cannot share the buffer that it registers, and says why", other);
      }
      if (tickets[i].length == tickets[0].length) continue;
      return status::failure(errc::mismatch, other, "rank %d registers a buffer of %llu bytes, rank 0 one of %llu (seen by rank %d)", other,
                             static_cast<unsigned long long>(tickets[i].length), static_cast<unsigned long long>(tickets[0].length), rank);
    }
    return {};
  }

  status map(registration& r, device_context const& context, offers const& all, int device, cudaStream_t errand, int rank) {
    std::vector<std::byte*> addresses;
    for (std::size_t i = 0; i < all.tickets.size(); ++i) {
      if (static_cast<int>(i) == rank) {
        addresses.push_back(r.own_);
        continue;
      }
      if (!r.reach_) {
        addresses.push_back(nullptr);
        continue;
      }
      std::lock_guard const held(lock_);
      result<mapping_cache::entry*> e = cache_.acquire(context.driver, all.tickets[i], all.parts[i], device, rank);
      if (!e) return e.error();
      r.mappings_.push_back(*e);
      addresses.push_back((*e)->memory.at() + all.tickets[i].offset);
    }
    std::size_t const bytes = addresses.size() * sizeof(std::byte*);
    if (status s = borrow(r, bytes, r.table_, rank); !s) return s;
    return copy_now(r.table_, addresses.data(), bytes, errand, rank);
  }

  void end(registration& r) noexcept {
    std::lock_guard const held(lock_);
    for (mapping_cache::entry* e : r.mappings_) cache_.release(e);
    for (block* b : r.borrowed_) b->used = false;
  }

  std::mutex lock_;
  mapping_cache cache_;
  std::list<block> blocks_;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
