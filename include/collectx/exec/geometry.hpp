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

class geometry {
 public:
  geometry() = default;

  /// `count` elements per block; slots hold `slot_elements`. @pre slot_elements >= 1
  geometry(shape const& form, int largest_message, std::size_t count, std::size_t slot_elements)
      : parts_(form.per_block()), blocks_(form.blocks), count_(count), window_(count) {
    std::size_t per_chunk = slot_elements / static_cast<std::size_t>(largest_message);
    if (per_chunk > 64) per_chunk -= per_chunk % 64;
    std::size_t window = per_chunk * static_cast<std::size_t>(parts_);
    if (blocks_ == 1 && window < slot_elements && per_chunk < 64) window = slot_elements;  // any message is at most the piece
    if (window < count) window_ = window;
    fits_ = window_ > 0 || count == 0;
    pieces_ = count == 0 || !fits_ ? 1 : (count + window_ - 1) / window_;
  }

  /// False where a slot cannot hold even one element of each chunk of the largest message.
  bool fits() const { return fits_; }
  std::size_t pieces() const { return pieces_; }
  std::size_t scratch_elements() const { return window_ * static_cast<std::size_t>(blocks_); }

  /// Makes `piece` the one that the functions below speak of.
  void select(std::size_t piece) {
    base_ = piece * window_;
    std::size_t const left = count_ - base_, length = left < window_ ? left : window_;
    quotient_ = length / static_cast<std::size_t>(parts_);
    remainder_ = length % static_cast<std::size_t>(parts_);
  }

  /// Elements of a run of chunks.
  std::size_t length(chunks run) const {
    if (blocks_ == 1) return offset(run.first + run.count) - offset(run.first);
    std::size_t sum = 0;
    by_block(run, [&](int, int first, int last) { sum += offset(last) - offset(first); });
    return sum;
  }

  /// Calls f(element, scratch element, count) for each contiguous stretch of a run, in order.
  template <class F>
  void for_each(chunks run, F&& f) const {
    if (blocks_ == 1) {
      std::size_t const first = offset(run.first), count = offset(run.first + run.count) - first;
      if (count > 0) f(base_ + first, first, count);
      return;
    }
    by_block(run, [&](int block, int first, int last) {
      std::size_t const at = offset(first), count = offset(last) - at, b = static_cast<std::size_t>(block);
      if (count > 0) f(b * count_ + base_ + at, b * window_ + at, count);
    });
  }

 private:
  /// Where part `part` of the window begins.
  std::size_t offset(int part) const {
    std::size_t const p = static_cast<std::size_t>(part);
    return p * quotient_ + (p < remainder_ ? p : remainder_);
  }
  template <class F>
  void by_block(chunks run, F&& f) const {
    for (int at = run.first, end = run.first + run.count; at < end;) {
      int const block = at / parts_, stop = (block + 1) * parts_ < end ? (block + 1) * parts_ : end;
      f(block, at - block * parts_, stop - block * parts_);
      at = stop;
    }
  }

  int parts_ = 1;  // of a block
  int blocks_ = 1;
  std::size_t count_ = 0;   // elements of a block
  std::size_t window_ = 0;  // of them in a piece
  std::size_t pieces_ = 1;
  bool fits_ = true;
  std::size_t base_ = 0, quotient_ = 0, remainder_ = 0;  // of the selected piece
};

}  // namespace exec
}  // namespace v0
}  // namespace collectx
