// SPDX-License-Identifier: Apache-2.0
/// From names of chunks to elements: how a call's vector falls into pieces, and where the chunks of a piece lie.
///
/// Without owners (one block) a piece is a window of the whole vector and is cut into all chunks. With owners it is the same window of
/// every rank's block. Either way the largest message of a piece fits one slot, at every rank alike.
#pragma once

#include "collectx/exec/plan.hpp"

namespace collectx {
inline namespace v0 {
namespace exec {

/// A stretch of memory: from element `element` of the vector, which lies from `in_scratch` on in scratch memory.
struct stretch {
  std::size_t element = 0, in_scratch = 0, count = 0;
};

class geometry {
 public:
  constexpr geometry() = default;

  /// `count` elements per block; slots hold `slot_elements`. @pre slot_elements >= 1
  constexpr geometry(shape const& form, int largest_message, std::size_t count, std::size_t slot_elements)
      : geometry(form, largest_message, {0, count}, count, slot_elements) {}

  /// Only `slice` of the `stride` elements of each block.
  constexpr geometry(shape const& form, int largest_message, extent slice, std::size_t stride, std::size_t slot_elements)
      : parts_(form.per_block()), blocks_(form.blocks), first_(slice.first), count_(slice.count), stride_(stride), window_(slice.count) {
    std::size_t per_chunk = slot_elements / static_cast<std::size_t>(largest_message);
    if (per_chunk > 64) per_chunk -= per_chunk % 64;
    std::size_t window = per_chunk * static_cast<std::size_t>(parts_);
    if (blocks_ == 1 && window < slot_elements && per_chunk < 64) window = slot_elements;  // any message is at most the piece
    if (window < count_) window_ = window;
    fits_ = window_ > 0 || count_ == 0;
    pieces_ = count_ == 0 || !fits_ ? 1 : (count_ + window_ - 1) / window_;
  }

  /// False where a slot cannot hold even one element of each chunk of the largest message.
  constexpr bool fits() const { return fits_; }
  constexpr std::size_t pieces() const { return pieces_; }
  constexpr std::size_t scratch_elements() const { return window_ * static_cast<std::size_t>(blocks_); }

  /// Makes `piece` the one that the functions below speak of.
  constexpr void select(std::size_t piece) {
    std::size_t const done = piece * window_, left = count_ - done, length = left < window_ ? left : window_;
    base_ = first_ + done;
    quotient_ = length / static_cast<std::size_t>(parts_);
    remainder_ = length % static_cast<std::size_t>(parts_);
  }

  /// Elements of a run of chunks.
  constexpr std::size_t length(chunks run) const {
    std::size_t sum = 0;
    while (run.count > 0) sum += next(run).count;
    return sum;
  }

  /// Takes the first contiguous stretch off a run. It may be empty. @pre run.count > 0
  constexpr stretch next(chunks& run) const {
    if (blocks_ == 1) {
      std::size_t const first = offset(run.first), count = offset(run.first + run.count) - first;
      run.count = 0;
      return {base_ + first, first, count};
    }
    int const block = run.first / parts_, part = run.first - block * parts_;
    int const taken = run.count < parts_ - part ? run.count : parts_ - part;
    std::size_t const at = offset(part), count = offset(part + taken) - at, b = static_cast<std::size_t>(block);
    run.first += taken;
    run.count -= taken;
    return {b * stride_ + base_ + at, b * window_ + at, count};
  }

  /// Calls f(element, scratch element, count) for each stretch of a run that is not empty, in order.
  template <class F>
  constexpr void for_each(chunks run, F&& f) const {
    while (run.count > 0) {
      stretch const s = next(run);
      if (s.count > 0) f(s.element, s.in_scratch, s.count);
    }
  }

 private:
  /// Where part `part` of the window begins.
  constexpr std::size_t offset(int part) const {
    std::size_t const p = static_cast<std::size_t>(part);
    return p * quotient_ + (p < remainder_ ? p : remainder_);
  }

  int parts_ = 1;  // of a block
  int blocks_ = 1;
  std::size_t first_ = 0;   // of the slice, in a block
  std::size_t count_ = 0;   // elements of the slice
  std::size_t stride_ = 0;  // elements of a block
  std::size_t window_ = 0;  // of the slice in a piece
  std::size_t pieces_ = 1;
  bool fits_ = true;
  std::size_t base_ = 0, quotient_ = 0, remainder_ = 0;  // of the selected piece
};

}  // namespace exec
}  // namespace v0
}  // namespace collectx
