// SPDX-License-Identifier: Apache-2.0
/// Reducing two buffers of one device, by cub::DeviceTransform, which copies in bulk where the architecture can. Include it by name: CUB
/// costs a unit seconds.
///
/// Not for memory that another device writes meanwhile: its loads may go through caches that do not see that.
#pragma once

#include "collectx/device/pack.cuh"
#include "collectx/reduction.hpp"

#include <cstddef>
#include <cub/device/device_transform.cuh>

namespace collectx {
inline namespace v0 {
namespace device {
namespace detail {

template <class T, std::size_t Count, class Op>
struct combine_packs {
  Op op;
  __device__ pack<T, Count> operator()(pack<T, Count> const& left, pack<T, Count> const& right) const {
    using wide = folded_in<Op, T>;
    pack<T, Count> out;
    COLLECTX_UNROLL
    for (std::size_t k = 0; k < Count; ++k)
      out.set(k, narrowed<T>(static_cast<wide>(op(widened<wide>(left.get(k)), widened<wide>(right.get(k))))));
    return out;
  }
};

template <std::size_t Count, class T, class Op>
error transform(T* out, T const* left, T const* right, std::size_t count, Op const& op, stream on) {
  using unit = pack<T, Count>;
  if (count == 0) return cudaSuccess;
  return cub::DeviceTransform::Transform(::cuda::std::make_tuple(reinterpret_cast<unit const*>(left), reinterpret_cast<unit const*>(right)),
                                         reinterpret_cast<unit*>(out), count, combine_packs<T, Count, Op>{op}, on);
}

}  // namespace detail

/// out[i] = op(left[i], right[i]) for `count` elements in memory of the current device, on stream `on`. In units of 16 bytes where all
/// three are aligned to that, which CUB would else do by elements: 2 bytes at a time for bfloat16.
/// @pre `out` is the memory of `left` or `right`, or overlaps neither
template <class T, class Op>
requires Reduction<Op, T> error reduce_local(T* out, T const* left, T const* right, std::size_t count, Op const& op, stream on) {
  constexpr std::size_t per_pack = pack_count<T>;
  auto const misfit = [](void const* data) { return reinterpret_cast<std::uintptr_t>(data) % access_bytes; };
  std::size_t const whole = (misfit(out) | misfit(left) | misfit(right)) == 0 ? count / per_pack * per_pack : 0;
  error const first = detail::transform<per_pack>(out, left, right, whole / per_pack, op, on);
  return first != cudaSuccess ? first : detail::transform<1>(out + whole, left + whole, right + whole, count - whole, op, on);
}

}  // namespace device
}  // namespace v0
}  // namespace collectx
