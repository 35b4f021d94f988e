// SPDX-License-Identifier: Apache-2.0
/// Meeting the same block of all other ranks, for kernels that read and write registered buffers of their peers.
#pragma once

#include "collectx/device/world.cuh"

#include <cstdint>

namespace collectx {
inline namespace v0 {
namespace device {

/// One call of one block, in two phases. Phases are counted on and on, so no flag is ever reset, and a rank that is one phase ahead is no
/// trouble: nobody gets two ahead. With the first phase of a call comes its tag, so that different calls are told apart; whoever is ahead
/// of that is still in the same call.
template <class Atomics, Block B>
class barrier {
 public:
  COLLECTX_DEVICE barrier(B& block, world const& group, std::uint64_t call, std::uint32_t tag)
      : block_(block), group_(group), phase_(call * phases_per_call), tag_(tag) {}

  /// All threads of all ranks' blocks: what they have done before, all see behind it. Else how the call ends, to all threads the same.
  [[nodiscard]] COLLECTX_DEVICE bool meet() {
    block_.sync();
    ++phase_;
    for (int peer = block_.rank(); peer < group_.layout.ranks; peer += block_.size()) {
      Atomics::store_release(word(peer, group_.rank, 1), tag_);
      Atomics::store_release(word(peer, group_.rank, 0), phase_);
    }
    outcome how = outcome::done;
    patience<Atomics, B> waiting(block_, group_);
    for (int peer = block_.rank(); peer < group_.layout.ranks && how == outcome::done; peer += block_.size()) {
      while (how == outcome::done && Atomics::load_acquire(word(group_.rank, peer, 0)) < phase_) how = waiting.turn();
      if (how == outcome::done && is_first() && Atomics::load_acquire(word(group_.rank, peer, 1)) != tag_) how = outcome::conflict;
    }
    return !block_.any(how != outcome::done);
  }

  /// After `meet` has failed, for the first thread: who is missing or different, and what that means.
  COLLECTX_DEVICE outcome why(failure& r) const {
    r.step = is_first() ? 0 : 1;
    r.waited = group_.timeout;
    for (int peer = group_.layout.ranks - 1; peer >= 0; --peer) {
      if (Atomics::load_acquire(word(group_.rank, peer, 0)) < phase_) {
        r.peer = peer;
        continue;
      }
      std::uint32_t const tag = static_cast<std::uint32_t>(Atomics::load_acquire(word(group_.rank, peer, 1)));
      if (!is_first() || tag == tag_) continue;
      r.peer = peer;
      r.expected_tag = static_cast<std::uint32_t>(tag_);
      r.seen_tag = tag;
      return outcome::conflict;
    }
    bool const told = Atomics::load_acquire(group_.word(group_.rank, group_.layout.abort_word())) != 0;
    return told ? outcome::aborted : outcome::late;
  }

 private:
  static constexpr std::uint64_t phases_per_call = 2;

  /// Whether `meet` was called once.
  COLLECTX_DEVICE bool is_first() const { return phase_ % phases_per_call == 1; }

  COLLECTX_DEVICE std::uint64_t& word(int of_rank, int from, std::size_t index) const {
    return group_.word(of_rank, group_.layout.arrival_word(block_.index(), from) + index * sizeof(std::uint64_t));
  }

  B& block_;
  world const& group_;
  std::uint64_t phase_;
  std::uint64_t tag_;
};

}  // namespace device
}  // namespace v0
}  // namespace collectx
