// SPDX-License-Identifier: Apache-2.0
/// What a block does with elements: it folds any number of sources into any number of sinks.
#pragma once

#include "collectx/device/block.cuh"
#include "collectx/reduce/host_kernels.hpp"

#include <cstddef>

namespace collectx {
inline namespace v0 {
namespace device {

/// kernel::fold by all threads of a block: the same order of operands, the same bits. No synchronisation: who reads the sinks syncs first.
/// The lists may lie in memory that the block shares.
/// @pre as kernel::fold
template <class T, Block B, class Op>
COLLECTX_DEVICE void fold(B& block, kernel::sink const* sinks, int sink_count, kernel::operand const* sources, int source_count,
                          std::size_t count, Op const& op, int ranks) {
  std::size_t const step = static_cast<std::size_t>(block.size());
  for (std::size_t i = static_cast<std::size_t>(block.rank()); i < count; i += step) {
    T value = static_cast<T const*>(sources[0].data)[i];
    for (int s = 1; s < source_count; ++s) {
      T const next = static_cast<T const*>(sources[s].data)[i];
      value = static_cast<T>(sources[s].left ? op(next, value) : op(value, next));
    }
    for (int k = 0; k < sink_count; ++k) {
      T result = value;
      if constexpr (has_finish<Op, T>)
        if (sinks[k].finish) result = static_cast<T>(op.finish(value, ranks));
      static_cast<T*>(sinks[k].data)[i] = result;
    }
  }
}

}  // namespace device
}  // namespace v0
}  // namespace collectx
