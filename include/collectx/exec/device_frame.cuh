// SPDX-License-Identifier: Apache-2.0
/// What the executor on a device is given, and where a block keeps what its threads share while it runs a plan.
#pragma once

#include "collectx/device/slots.cuh"
#include "collectx/exec/plan_image.hpp"
#include "collectx/exec/run.hpp"

#include <cstdint>

namespace collectx {
inline namespace v0 {
namespace exec {

/// One call, passed to the kernel by value. The same launch may be replayed: the device counts the calls.
template <class T>
struct device_call {
  std::int32_t const* image = nullptr;  ///< of this rank's plan, in memory of the device
  buffers<T> memory;                    ///< `tag` is not used
  T* scratch = nullptr;                 ///< where the plan uses it: `scratch_elements` for each block of the grid
  std::size_t scratch_elements = 0;
  std::uint64_t identity = 0;  ///< of the call: the same on all ranks that make the same one
};

namespace detail {

struct device_strand {
  int at = 0;
  std::size_t piece = 0;
};

struct device_fold {
  int sinks, sink_count, operands, operand_count;
  std::size_t count;
};

struct device_decision {
  bool go;
  device::outcome how;
  int operation;
  int folds;
};

/// What the first thread keeps from turn to turn. In memory, since registers would be taken from all threads.
struct device_lead {
  device::tale told;
  geometry cut;
  std::size_t piece = ~std::size_t{0};  ///< that is selected
  std::uint32_t tag = 0;
  int turn = 0;  ///< the strand last asked
  int stuck_operation = 0, stuck_end = 0;
};

/// Where a block keeps what its threads share: among it the image, unless it is large, since what the first thread reads of it at every
/// turn is nearer there.
struct device_frame {
  std::uint32_t lead, strands, in, out, folds, operands, sinks, lengths, image, bytes;
  bool has_image;

  constexpr explicit device_frame(image_view const& plan) {
    image_needs const n = plan.needs();
    lead = own_place() + aligned(sizeof(device_frame));
    strands = lead + aligned(sizeof(device_lead));
    in = strands + array<device_strand>(plan.strands());
    out = in + array<std::byte const*>(n.in);
    folds = out + array<std::byte*>(n.out);
    operands = folds + array<device_fold>(n.folds);
    sinks = operands + array<kernel::operand>(n.operands);
    lengths = sinks + array<kernel::sink>(n.sinks);
    image = lengths + array<std::uint32_t>(plan.endpoints());
    has_image = plan.words() <= most_image_words;
    bytes = image + (has_image ? array<std::int32_t>(plan.words()) : 0);
  }

  static constexpr std::uint32_t own_place() { return aligned(sizeof(device_decision)); }

 private:
  static constexpr int most_image_words = 4096;
  static constexpr std::uint32_t aligned(std::size_t bytes) { return static_cast<std::uint32_t>((bytes + 15) / 16 * 16); }
  template <class E>
  static constexpr std::uint32_t array(int count) {
    return aligned(static_cast<std::size_t>(count) * sizeof(E));
  }
};

}  // namespace detail

/// Bytes that a block's threads share while they run a plan.
constexpr std::size_t shared_bytes(image_view const& image) { return detail::device_frame(image).bytes; }

/// How `count` elements per block fall into pieces for one block of the grid.
template <class Protocol>
constexpr geometry device_geometry(image_view const& image, device::layout const& l, std::size_t count, std::size_t element_bytes,
                                   int blocks, int index) {
  return geometry(image.form(), image.largest_message(), device::block_share(count, element_bytes, blocks, index), count,
                  Protocol::shape(l).bytes / element_bytes);
}

}  // namespace exec
}  // namespace v0
}  // namespace collectx
