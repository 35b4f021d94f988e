// SPDX-License-Identifier: Apache-2.0
/// All-reduce by reading what the peers have registered, for small vectors and ranks that reach one another: no slots, no copies in
/// between.
///
/// All ranks' operands are folded in the order of ranks, so all get the same bits, those of `algo::direct`. Blocks are independent, as in
/// run_device.cuh. What a peer registers is read while its kernel runs, hence by ordinary loads only.
#pragma once

#include "collectx/device/barrier.cuh"
#include "collectx/exec/call_tag.hpp"
#include "collectx/reduce/device.cuh"

#include <cstdint>

namespace collectx {
inline namespace v0 {
namespace exec {

/// One call, passed to the kernel by value; tables and buffers are in memory of the device, and peers' buffers as mapped here.
template <class T>
struct direct_call {
  T const* const* inputs = nullptr;  ///< of all ranks, `count` elements each
  T* output = nullptr;               ///< `count` elements; in place by two_shot only
  T* const* scratch = nullptr;       ///< of all ranks, for two_shot: two_shot_scratch() elements each
  std::size_t count = 0;
  std::uint64_t identity = 0;  ///< of the call: the same on all ranks that make the same one
};

namespace detail {

/// What the threads of a block share. Behind it: an operand per rank to fold, one per rank to copy, and where the copies go.
struct direct_frame {
  device::tale told;
  bool alive;
  kernel::sink sinks[2];
};
static_assert(sizeof(direct_frame) % alignof(kernel::operand) == 0 && sizeof(kernel::operand) % alignof(kernel::sink) == 0);

/// Elements of two_shot's scratch that one block of the grid uses.
constexpr std::size_t two_shot_share(std::size_t count, std::size_t element_bytes, int ranks, int blocks) {
  return device::block_share(device::block_share(count, element_bytes, blocks, 0).count, element_bytes, ranks, 0).count;
}

}  // namespace detail

/// Bytes that a block's threads share.
constexpr std::size_t direct_shared_bytes(int ranks) {
  return sizeof(detail::direct_frame) + static_cast<std::size_t>(ranks) * (2 * sizeof(kernel::operand) + sizeof(kernel::sink));
}
/// Elements of scratch that each rank registers for two_shot: its share of the vector, and a little.
constexpr std::size_t two_shot_scratch(std::size_t count, std::size_t element_bytes, int ranks, int blocks) {
  return detail::two_shot_share(count, element_bytes, ranks, blocks) * static_cast<std::size_t>(blocks);
}

/// One call of one rank, by one block.
template <class Atomics, class T, class Op, device::Block B>
class direct_run {
  static_assert(
      prepares_alike<Op, T>,
      "collectx: a rank that reads what its peers have registered prepares it for them, so the operation must not have a state of "
      "the rank's own: run a plan instead");

 public:
  COLLECTX_DEVICE direct_run(B& block, device::world const& group, direct_call<T> const& call, Op const& op)
      : block_(block),
        group_(group),
        call_(call),
        op_(op),
        share_(device::block_share(call.count, sizeof(T), block.count(), block.index())),
        tell_(block, group, frame().told) {}

  /// Every rank reads everything: one exchange of flags before, one behind, so that nobody's input changes while it is read.
  /// @pre the output shares no memory with an input
  [[nodiscard]] COLLECTX_DEVICE device::outcome one_shot() {
    if (!begin()) return device::outcome::aborted;
    for (int rank = block_.rank(); rank < ranks(); rank += block_.size())
      operands()[rank] = {call_.inputs[rank] + share_.first, false, true};
    if (leads()) frame().sinks[0] = {call_.output + share_.first, true};
    device::barrier<Atomics, B> all(block_, group_, frame().told.call, tag());
    if (!all.meet()) return fail(all);
    fold(1, share_.count);
    return all.meet() ? device::outcome::done : fail(all);
  }

  /// Every rank folds its share of the vector and then reads the others' results: 2 (n-1)/n of the vector over the link instead of n-1.
  [[nodiscard]] COLLECTX_DEVICE device::outcome two_shot() {
    if (!begin()) return device::outcome::aborted;
    extent const mine = part(group_.rank);
    std::size_t const in_scratch =
        detail::two_shot_share(call_.count, sizeof(T), ranks(), block_.count()) * static_cast<std::size_t>(block_.index());
    for (int rank = block_.rank(); rank < ranks(); rank += block_.size()) {
      operands()[rank] = {call_.inputs[rank] + share_.first + mine.first, false, true};
      results()[rank] = {call_.scratch[rank] + in_scratch, false};
      places()[rank] = {call_.output + share_.first + part(rank).first, false};
    }
    if (leads()) {
      frame().sinks[0] = {call_.scratch[group_.rank] + in_scratch, true};
      frame().sinks[1] = {call_.output + share_.first + mine.first, true};
    }
    device::barrier<Atomics, B> all(block_, group_, frame().told.call, tag());
    if (!all.meet()) return fail(all);
    fold(2, mine.count);
    if (!all.meet()) return fail(all);
    for (int i = 1; i < ranks(); ++i) {
      int const rank = (group_.rank + i) % ranks();  // not all ranks read from the same one at once
      device::fold<T>(block_, places() + rank, 1, results() + rank, 1, part(rank).count, op_, ranks());
    }
    return device::outcome::done;
  }

 private:
  using frame_type = detail::direct_frame;

  COLLECTX_DEVICE bool leads() const { return block_.rank() == 0; }
  COLLECTX_DEVICE int ranks() const { return group_.layout.ranks; }
  COLLECTX_DEVICE frame_type& frame() const { return *reinterpret_cast<frame_type*>(block_.shared()); }
  COLLECTX_DEVICE kernel::operand* operands() const { return reinterpret_cast<kernel::operand*>(block_.shared() + sizeof(frame_type)); }
  COLLECTX_DEVICE kernel::operand* results() const { return operands() + ranks(); }
  COLLECTX_DEVICE kernel::sink* places() const { return reinterpret_cast<kernel::sink*>(results() + ranks()); }
  COLLECTX_DEVICE std::uint32_t tag() const { return collectx::detail::tag_of(call_.identity, call_.count, frame().told.call); }
  COLLECTX_DEVICE extent part(int rank) const { return device::block_share(share_.count, sizeof(T), ranks(), rank); }

  COLLECTX_DEVICE bool begin() {
    if (leads()) {
      frame().alive = tell_.begin();
      if (!frame().alive) tell_.fail(device::outcome::aborted, {});
    }
    block_.sync();
    return frame().alive;
  }
  COLLECTX_DEVICE device::outcome fail(device::barrier<Atomics, B> const& all) {
    if (leads()) {
      device::failure r;
      device::outcome const why = all.why(r);
      tell_.fail(why, r);
    }
    return device::outcome::aborted;
  }
  COLLECTX_DEVICE void fold(int sinks, std::size_t count) const {
    device::fold<T>(block_, frame().sinks, sinks, operands(), ranks(), count, op_, ranks());
  }

  B& block_;
  device::world const& group_;
  direct_call<T> const& call_;
  Op const& op_;
  extent share_;
  device::telltale<Atomics, B> tell_;  // of the first thread
};

/// The bodies of kernels.
template <class T, class Op, device::Block B, class Atomics = device::system_atomics>
COLLECTX_DEVICE device::outcome one_shot(B& block, device::world const& group, direct_call<T> const& call, Op const& op) {
  return direct_run<Atomics, T, Op, B>(block, group, call, op).one_shot();
}
template <class T, class Op, device::Block B, class Atomics = device::system_atomics>
COLLECTX_DEVICE device::outcome two_shot(B& block, device::world const& group, direct_call<T> const& call, Op const& op) {
  return direct_run<Atomics, T, Op, B>(block, group, call, op).two_shot();
}

#if defined(__CUDACC__)
/// Launch as plan_kernel, with `direct_shared_bytes(ranks)`.
template <class T, class Op>
static __global__ void __launch_bounds__(device::most_threads, device::blocks_per_processor)
    one_shot_kernel(device::world const group, direct_call<T> const call, Op const op) {
  device::cuda_block block = device::this_block();
  device::require_on_device<T>(op);
  static_cast<void>(one_shot(block, group, call, op));
}
template <class T, class Op>
static __global__ void __launch_bounds__(device::most_threads, device::blocks_per_processor)
    two_shot_kernel(device::world const group, direct_call<T> const call, Op const op) {
  device::cuda_block block = device::this_block();
  device::require_on_device<T>(op);
  static_cast<void>(two_shot(block, group, call, op));
}
#endif

}  // namespace exec
}  // namespace v0
}  // namespace collectx
