// SPDX-License-Identifier: Apache-2.0
/// What a layer of a transformer does behind a matrix product that is split over ranks, in one kernel: all-reduce, add the residual, and
/// RMSNorm (Zhang, Sennrich 2019). Peers' memory and the residual are read once.
///
/// The body is a function of a Block, so a test runs it on the CPU: test/run/fused_norm_test.cpp.
#pragma once

#include <collectx/device/barrier.cuh>
#include <collectx/reduce/device.cuh>
#include <collectx/reduce/small_floats.hpp>

#include <cmath>
#include <cstdint>

namespace fused {

namespace cx = collectx;
using number = cx::bfloat16;

// [functors]
/// Adds up, and notes the squares of the results on the way. Each thread has one of its own.
struct add_and_square {
  static constexpr bool is_commutative = true;
  float* squares;
  COLLECTX_DEVICE float operator()(float left, float right) const { return left + right; }
  COLLECTX_DEVICE float finish(float value, int) const {
    *squares += value * value;
    return value;
  }
};
/// A value times its weight, times the row's scale.
struct weigh {
  static constexpr bool is_commutative = true;
  float scale;
  COLLECTX_DEVICE float operator()(float left, float right) const { return left * right; }
  COLLECTX_DEVICE float finish(float value, int) const { return value * scale; }
};
// [functors]

/// rows x hidden numbers each, row by row; `weight`: hidden numbers. In memory of the device.
struct layer {
  number const* const* inputs;  ///< of all ranks, as mapped here
  number* residual;             ///< added to, and kept for the next layer
  number const* weight;
  number* output;
  int rows, hidden;
  float epsilon;
};

/// Memory that a block's threads share.
struct frame {
  cx::device::tale told;
  cx::kernel::sink sink;
  cx::kernel::operand weighed[2];
};
constexpr std::size_t shared_bytes(int ranks, int threads) {
  return sizeof(frame) + static_cast<std::size_t>(ranks + 1) * sizeof(cx::kernel::operand) +
         static_cast<std::size_t>(threads) * sizeof(float);
}

template <cx::device::Block B>
class layer_norm {
 public:
  COLLECTX_DEVICE layer_norm(B& block, cx::device::world const& group, layer const& what)
      : block_(block), group_(group), what_(what), ranks_(group.layout.ranks), tell_(block, group, shared().told) {}

  /// By all threads of the same grid on all ranks. False where a peer did not come; the group's reports say which.
  [[nodiscard]] COLLECTX_DEVICE bool run() {
    bool const alive = block_.rank() != 0 || tell_.begin();
    if (block_.any(!alive)) return fail({cx::device::outcome::aborted, {}});
    cx::device::barrier<cx::device::system_atomics, B> all(block_, group_, shared().told.call, 1);
    if (!all.meet()) return fail(why(all));
    for (int row = block_.index(); row < what_.rows; row += block_.count()) one(static_cast<std::size_t>(row) * width());
    return all.meet() || fail(why(all));  // nobody's input changes while it is read
  }

 private:
  struct ending {
    cx::device::outcome how;
    cx::device::failure seen;
  };
  COLLECTX_DEVICE frame& shared() const { return *reinterpret_cast<frame*>(block_.shared()); }
  COLLECTX_DEVICE cx::kernel::operand* addends() const { return reinterpret_cast<cx::kernel::operand*>(block_.shared() + sizeof(frame)); }
  COLLECTX_DEVICE float* parts() const { return reinterpret_cast<float*>(addends() + ranks_ + 1); }
  COLLECTX_DEVICE std::size_t width() const { return static_cast<std::size_t>(what_.hidden); }

  // [row]
  COLLECTX_DEVICE void one(std::size_t first) const {
    number* const residual = what_.residual + first;
    for (int i = block_.rank(); i < ranks_; i += block_.size()) addends()[i] = {what_.inputs[i] + first, false};
    if (block_.rank() == 0) {
      addends()[ranks_] = cx::kernel::operand{residual, false};
      shared().sink = cx::kernel::sink{residual, true};
    }
    block_.sync();
    float squares = 0;
    cx::device::fold<number>(block_, &shared().sink, 1, addends(), ranks_ + 1, width(), add_and_square{&squares}, ranks_);
    float const mean = sum_of_all(squares) / static_cast<float>(what_.hidden);

    if (block_.rank() == 0) {
      shared().weighed[0] = cx::kernel::operand{residual, false};
      shared().weighed[1] = {what_.weight, false};
      shared().sink = {what_.output + first, true};
    }
    block_.sync();
    cx::device::fold<number>(block_, &shared().sink, 1, shared().weighed, 2, width(), weigh{1 / std::sqrt(mean + what_.epsilon)}, ranks_);
    block_.sync();
  }
  // [row]

  COLLECTX_DEVICE float sum_of_all(float mine) const {
    parts()[block_.rank()] = mine;
    block_.sync();
    for (int reach = 1; reach < block_.size(); reach *= 2) {
      if (block_.rank() % (2 * reach) == 0 && block_.rank() + reach < block_.size())
        parts()[block_.rank()] += parts()[block_.rank() + reach];
      block_.sync();
    }
    return parts()[0];
  }

  template <class Barrier>
  COLLECTX_DEVICE ending why(Barrier const& all) const {
    cx::device::failure r;
    cx::device::outcome const how = block_.rank() == 0 ? all.why(r) : cx::device::outcome::aborted;
    return {how, r};
  }
  COLLECTX_DEVICE bool fail(ending const& end) {
    if (block_.rank() == 0) tell_.fail(end.how, end.seen);
    return false;
  }

  B& block_;
  cx::device::world const& group_;
  layer const& what_;
  int ranks_;
  cx::device::telltale<cx::device::system_atomics, B> tell_;  // of the first thread
};

template <cx::device::Block B>
COLLECTX_DEVICE bool all_reduce_and_normalize(B& block, cx::device::world const& group, layer const& what) {
  return layer_norm<B>(block, group, what).run();
}

}  // namespace fused
