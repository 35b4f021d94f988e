// SPDX-License-Identifier: Apache-2.0
/// The one protocol for memory that two parties share: a ring of slots from one sender to one receiver, acquire and release only.
#pragma once

#include "collectx/transport.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace collectx {
inline namespace v0 {

/// What the ring needs of atomic words. Another policy puts the same source on a device, or plants a fault for a race detector to find.
/// No fences anywhere: ThreadSanitizer does not model them.
struct host_atomics {
  static std::uint64_t load_acquire(std::uint64_t& word) noexcept {
    return std::atomic_ref<std::uint64_t>(word).load(std::memory_order_acquire);
  }
  static void store_release(std::uint64_t& word, std::uint64_t value) noexcept {
    std::atomic_ref<std::uint64_t>(word).store(value, std::memory_order_release);
  }
  /// The line will be written next, and the peer has read it: taking it back now happens while we wait for something else. Optional.
  static constexpr void prepare_to_write([[maybe_unused]] void* line) noexcept {
    if (std::is_constant_evaluated()) return;
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*static_cast<char*>(line)));
#else
    __builtin_prefetch(line, 1);
#endif
  }
};

/// A slot's own line: its sequence number, and beside it a payload small enough to travel in the same cache line.
struct alignas(64) slot_line {
  static constexpr std::size_t inline_bytes = 48;

  std::uint64_t sequence;  ///< 1 + number of the message that lies here
  std::uint32_t bytes;
  std::uint32_t tag;
  std::byte payload[inline_bytes];
};
static_assert(sizeof(slot_line) == 64);

/// Where a ring lies. The lines are dense, for the prefetcher; the data areas are an odd number of lines out of step, since areas a power
/// of two apart would all claim the same few cache sets (64 slots of 1 KiB in 64 KiB areas would evict one another from a 1 MiB cache).
struct slot_ring {
  static constexpr std::size_t skew = std::size_t{17} * 64;

  slot_line* lines = nullptr;         ///< slots of them
  std::uint64_t* released = nullptr;  ///< the receiver's counter, on a line of its own
  std::byte* data = nullptr;          ///< slots areas, aligned to 64
  int slots = 0;
  std::size_t slot_bytes = 0;
  std::size_t apart = stride(slot_bytes);  ///< from one area to the next

  static constexpr std::size_t stride(std::size_t slot_bytes) { return slot_bytes + skew; }
};

/// The sending end. All state but the ring itself is private to it and fills one cache line.
template <class Atomics = host_atomics>
class alignas(64) ring_sender {
 public:
  constexpr ring_sender() = default;

  /// `start` is the number of the first message; both ends must agree on it, and only tests have a reason not to start at 0.
  constexpr explicit ring_sender(slot_ring const& ring, std::uint64_t start = 0)
      : lines_(ring.lines),
        data_(ring.data),
        released_word_(ring.released),
        stride_(ring.apart),
        sent_(start),
        released_(start),
        slots_(static_cast<std::uint32_t>(ring.slots)),
        index_(static_cast<std::uint32_t>(start % slots_)) {}

  /// @pre bytes <= slot_bytes; asked again before `commit`, the same bytes.
  constexpr std::byte* try_acquire(std::size_t bytes) {
    if (sent_ - released_ >= slots_) {
      released_ = Atomics::load_acquire(*released_word_);
      if (sent_ - released_ >= slots_) return nullptr;
    }
    in_line_ = bytes <= slot_line::inline_bytes;
    return in_line_ ? lines_[index_].payload : data_ + index_ * stride_;
  }

  /// @pre the last `try_acquire` gave a slot, for no fewer bytes.
  constexpr void commit(std::size_t bytes, std::uint32_t tag) {
    slot_line& line = lines_[index_];
    if (!in_line_ && bytes <= slot_line::inline_bytes) {
      for (std::size_t i = 0; i < bytes; ++i) line.payload[i] = data_[index_ * stride_ + i];
    }
    line.bytes = static_cast<std::uint32_t>(bytes);
    line.tag = tag;
    Atomics::store_release(line.sequence, ++sent_);
    if (++index_ == slots_) index_ = 0;
    if constexpr (requires { Atomics::prepare_to_write(lines_); })
      if (in_line_) Atomics::prepare_to_write(lines_ + index_);
  }

  /// From now on there is never a free slot.
  constexpr void close() { slots_ = 0; }

 private:
  slot_line* lines_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t* released_word_ = nullptr;
  std::size_t stride_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t released_ = 0;  // as last seen: the receiver's line is read again only when the ring seems full
  std::uint32_t slots_ = 0;
  std::uint32_t index_ = 0;
  bool in_line_ = true;
};

/// The receiving end. Credits go back in batches of a quarter of the ring, so that a full ring costs its sender one miss per batch and not
/// one per message; whoever waits must `flush`, or a sender that needs every slot would wait for credits nobody publishes.
template <class Atomics = host_atomics>
class alignas(64) ring_receiver {
 public:
  constexpr ring_receiver() = default;

  constexpr explicit ring_receiver(slot_ring const& ring, std::uint64_t start = 0)
      : lines_(ring.lines),
        data_(ring.data),
        released_word_(ring.released),
        stride_(ring.apart),
        taken_(start),
        published_(start),
        slots_(static_cast<std::uint32_t>(ring.slots)),
        index_(static_cast<std::uint32_t>(start % slots_)),
        batch_(slots_ < 8 ? 1 : slots_ / 4) {}

  constexpr message try_peek() {
    slot_line& line = lines_[index_];
    if (Atomics::load_acquire(line.sequence) != taken_ + 1) return {};
    return {line.bytes <= slot_line::inline_bytes ? line.payload : data_ + index_ * stride_, line.bytes, line.tag};
  }

  /// @pre the last `try_peek` gave a message.
  constexpr void release() {
    ++taken_;
    if (++index_ == slots_) index_ = 0;
    if (taken_ - published_ >= batch_) flush();
  }

  constexpr void flush() {
    if (published_ == taken_) return;
    published_ = taken_;
    Atomics::store_release(*released_word_, taken_);
  }

  /// From now on there is never a message: no sender counts this far.
  constexpr void close() { taken_ = published_ = ~std::uint64_t{1}; }

 private:
  slot_line* lines_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t* released_word_ = nullptr;
  std::size_t stride_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t published_ = 0;
  std::uint32_t slots_ = 0;
  std::uint32_t index_ = 0;
  std::uint32_t batch_ = 1;
};

static_assert(SendChannel<ring_sender<>> && RecvChannel<ring_receiver<>>);
static_assert(sizeof(ring_sender<>) == 64 && sizeof(ring_receiver<>) == 64);

}  // namespace v0
}  // namespace collectx
