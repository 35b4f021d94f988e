// SPDX-License-Identifier: Apache-2.0
/// What the kernels of one rank know of their group, and how they wait for it.
#pragma once

#include "collectx/device/block.cuh"
#include "collectx/device/layout.hpp"
#include "collectx/device/report.hpp"

#include <cstdint>

namespace collectx {
inline namespace v0 {
namespace device {

/// Passed to every kernel by value. The arrays are in memory of the device, but for `told`.
struct world {
  device::layout layout;
  int rank = 0;
  std::byte* const* windows = nullptr;  ///< of all ranks, as mapped here
  std::uint64_t* calls = nullptr;       ///< begun so far, one word per block: so a captured launch can be replayed
  report* reports = nullptr;            ///< one per block
  std::uint64_t* told = nullptr;        ///< one word per block, for a host that tells other hosts whom a block waits for
  nanoseconds timeout = 300'000'000'000;

  COLLECTX_DEVICE std::uint64_t& word(int of_rank, std::size_t offset) const {
    return *reinterpret_cast<std::uint64_t*>(windows[of_rank] + offset);
  }
};

/// Waiting, turn by turn, for as long as the group lives and there is time.
template <class Atomics, Block B>
class patience {
 public:
  COLLECTX_DEVICE patience(B& block, world const& group) : block_(block), group_(group) {}

  /// `done`: go on waiting.
  [[nodiscard]] COLLECTX_DEVICE outcome turn() {
    block_.relax();
    if (Atomics::load_acquire(group_.word(group_.rank, group_.layout.abort_word())) != 0) return outcome::aborted;
    if (++turns_ % turns_per_look != 0) return outcome::done;
    nanoseconds const now = block_.now();
    if (since_ == 0) since_ = now;
    return waited(now) < group_.timeout ? outcome::done : outcome::late;
  }
  COLLECTX_DEVICE std::uint32_t turns() const { return turns_; }
  COLLECTX_DEVICE nanoseconds waited(nanoseconds now) const { return since_ == 0 ? 0 : now - since_; }
  COLLECTX_DEVICE void begin_again() { since_ = 0, turns_ = 0; }

  /// So many turns are short, whatever the clock says.
  static constexpr std::uint32_t turns_per_look = 64;

 private:
  B& block_;
  world const& group_;
  nanoseconds since_ = 0;
  std::uint32_t turns_ = 0;
};

/// What a block has told last.
struct tale {
  std::uint64_t call = 0;
  int peer = -2;
};

/// What the first thread of each block tells its peers about its calls: which it is in, whom it waits for, and how it failed. What it has
/// told is kept in memory of the block, so that it takes no register.
template <class Atomics, Block B>
class telltale {
 public:
  COLLECTX_DEVICE telltale(B& block, world const& group, tale& told) : block_(block), group_(group), told_(told) {}

  /// Begins the next call; false where the group has failed already.
  [[nodiscard]] COLLECTX_DEVICE bool begin() {
    told_ = {++group_.calls[block_.index()], -2};
    wait_for(nobody);
    return abort_word() == 0;
  }
  COLLECTX_DEVICE void wait_for(int peer) {
    if (peer == told_.peer) return;
    told_.peer = peer;
    std::uint64_t const said = told_.call << 16 | static_cast<std::uint64_t>(peer + 1);
    Atomics::store_release(group_.word(group_.rank, group_.layout.waiting_word(block_.index())), said);
    if (group_.told != nullptr) Atomics::store_release(group_.told[block_.index()], said);
  }

  /// Writes the report, if it is the first of this block, and, unless the group has been told already, ends the call on all ranks.
  COLLECTX_DEVICE void fail(outcome what, failure seen) {
    if (what == outcome::aborted)
      seen.verdict = verdict::of(abort_word());
    else
      seen.verdict = {what, group_.rank, what == outcome::late ? culprit(seen.peer) : seen.peer};
    seen.block = block_.index();
    if (report& mine = group_.reports[block_.index()]; mine.call == 0) {
      static_cast<failure&>(mine) = seen;
      Atomics::store_release(mine.call, told_.call);
    }
    if (what == outcome::aborted) return;
    for (int rank = 0; rank < group_.layout.ranks; ++rank)
      Atomics::store_release(group_.word(rank, group_.layout.abort_word()), seen.verdict.word());
  }

 private:
  static constexpr int nobody = -1;

  COLLECTX_DEVICE std::uint64_t abort_word() const { return Atomics::load_acquire(group_.word(group_.rank, group_.layout.abort_word())); }

  /// Follows who waits for whom to the rank that waits for nobody in this call, or is not in it.
  COLLECTX_DEVICE int culprit(int peer) const {
    int at = peer;
    for (int hops = 0; hops < group_.layout.ranks && at >= 0 && at != group_.rank; ++hops) {
      std::uint64_t const said = Atomics::load_acquire(group_.word(at, group_.layout.waiting_word(block_.index())));
      int const next = static_cast<int>(said & 0xffffu) - 1;
      if (said >> 16 != (told_.call & 0xffffffffffffu) || next == nobody) return at;
      at = next;
    }
    return peer;
  }

  B& block_;
  world const& group_;
  tale& told_;
};

}  // namespace device
}  // namespace v0
}  // namespace collectx
