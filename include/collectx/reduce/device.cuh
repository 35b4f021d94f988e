// SPDX-License-Identifier: Apache-2.0
/// What a block does with elements: it folds any number of sources into any number of sinks.
///
/// The operation is called from these functions directly, never through a constexpr one: nvcc would compile a call of a host-only operation
/// from there to a kernel that does nothing, without a word. CUB's ThreadReduce is not used, since it may add in another order.
#pragma once

#include "collectx/device/block.cuh"
#include "collectx/device/pack.cuh"
#include "collectx/reduce/host_kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace collectx {
inline namespace v0 {
namespace device {
namespace detail {

/// The same value, which may not become part of a fused multiply-add: see kernels::kept_apart. A product with one that is rounded by name.
template <class T>
COLLECTX_DEVICE T kept_apart(T value) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, float>)
    asm volatile("mul.rn.f32 %0, %0, 0f3F800000;" : "+f"(value));
  else if constexpr (std::is_same_v<T, double>)
    asm volatile("mul.rn.f64 %0, %0, 0d3FF0000000000000;" : "+d"(value));
  return value;
#else
  return collectx::detail::kernels::kept_apart(value);
#endif
}

/// A fold as it was asked for, for one thread. A unit is one element or as many as fill 16 bytes.
template <class T, class Op>
struct thread_fold {
  using wide = folded_in<Op, T>;

  kernel::sink const* sinks;
  int sink_count;
  kernel::operand const* sources;
  int source_count;
  Op const& op;
  int ranks;
  int to_finish;  // sinks

  /// Units of one thread that are loaded before the first of them is used: as many as fit with their running values into what the kernel
  /// around them leaves of 64 registers, fewer where the operation needs some for itself.
  template <std::size_t Count>
  static constexpr std::size_t in_flight() {
    constexpr std::size_t budget = has_prepare<Op, T> ? 16 : has_finish<Op, wide> || sizeof(wide) > 4 ? 28 : 32;
    constexpr std::size_t running = Count * ((sizeof(wide) + 3) / 4), loaded = (Count * sizeof(T) + 3) / 4;
    constexpr std::size_t fitting = budget / (running + loaded);
    return fitting == 0 ? 1 : fitting > 4 ? 4 : fitting;
  }

  /// `Units` units: the one that begins with element `from`, and on in steps of so many units.
  template <std::size_t Count, std::size_t Units>
  COLLECTX_DEVICE void units(std::size_t from, int step) const {
    pack<T, Count> in[Units];
    wide value[Units][Count];
    read<Count, Units>(in, 0, from, step);
    COLLECTX_UNROLL
    for (std::size_t u = 0; u < Units; ++u) {
      COLLECTX_UNROLL
      for (std::size_t k = 0; k < Count; ++k) value[u][k] = widened<wide>(in[u].get(k));
    }
    COLLECTX_ROLL
    for (int s = 1; s < source_count; ++s) {
      read<Count, Units>(in, s, from, step);
      if (!is_commutative_v<Op, T> && sources[s].left)
        meet<true, Count, Units>(value, in);
      else
        meet<false, Count, Units>(value, in);
    }
    if (to_finish < sink_count) {
      if (source_count > 1) narrow<Count, Units>(in, value);  // what is only copied keeps its bits, also those of a NaN
      write<Count, Units>(in, false, from, step);
    }
    if constexpr (has_finish<Op, wide>) {
      if (to_finish == 0) return;
      COLLECTX_UNROLL
      for (std::size_t u = 0; u < Units; ++u) {
        COLLECTX_UNROLL
        for (std::size_t k = 0; k < Count; ++k) value[u][k] = finished(value[u][k]);
      }
      narrow<Count, Units>(in, value);
      write<Count, Units>(in, true, from, step);
    }
  }

 private:
  template <bool Left, std::size_t Count, std::size_t Units>
  COLLECTX_DEVICE void meet(wide (&value)[Units][Count], pack<T, Count> const* in) const {
    COLLECTX_UNROLL
    for (std::size_t u = 0; u < Units; ++u) {
      COLLECTX_UNROLL
      for (std::size_t k = 0; k < Count; ++k) {
        wide const next = widened<wide>(in[u].get(k));
        value[u][k] = static_cast<wide>(Left ? op(next, value[u][k]) : op(value[u][k], next));
      }
    }
  }

  COLLECTX_DEVICE wide finished(wide const& value) const {
    if constexpr (requires { op.template finish_as<T>(value, ranks); })
      return op.template finish_as<T>(value, ranks);
    else
      return static_cast<wide>(op.finish(value, ranks));
  }

  template <std::size_t Count, std::size_t Units>
  COLLECTX_DEVICE void read(pack<T, Count>* in, int s, std::size_t from, int step) const {
    T const* const data = static_cast<T const*>(sources[s].data) + from;
    COLLECTX_UNROLL
    for (std::size_t u = 0; u < Units; ++u) in[u] = load<T, Count>(data, static_cast<int>(u) * step);
    if constexpr (has_prepare<Op, T>) {
      if (!sources[s].own) return;
      COLLECTX_UNROLL
      for (std::size_t u = 0; u < Units; ++u) {
        pack<T, Count> ready;
        COLLECTX_UNROLL
        for (std::size_t k = 0; k < Count; ++k) ready.set(k, kept_apart(static_cast<T>(op.prepare(in[u].get(k), ranks))));
        in[u] = ready;
      }
    }
  }

  template <std::size_t Count, std::size_t Units>
  COLLECTX_DEVICE void narrow(pack<T, Count>* out, wide const (&value)[Units][Count]) const {
    COLLECTX_UNROLL
    for (std::size_t u = 0; u < Units; ++u) {
      COLLECTX_UNROLL
      for (std::size_t k = 0; k < Count; ++k) out[u].set(k, narrowed<T>(value[u][k]));
    }
  }

  template <std::size_t Count, std::size_t Units>
  COLLECTX_DEVICE void write(pack<T, Count> const* out, bool finish, std::size_t from, int step) const {
    COLLECTX_ROLL
    for (int k = 0; k < sink_count; ++k) {
      if ((to_finish != 0 && sinks[k].finish) != finish) continue;
      T* const data = static_cast<T*>(sinks[k].data) + from;
      COLLECTX_UNROLL
      for (std::size_t u = 0; u < Units; ++u) store<T, Count>(data, static_cast<int>(u) * step, out[u]);
    }
  }
};

/// All units of the elements [from, end), shared out among the threads of a block. Strides are of 32 bits, to save registers.
template <std::size_t Count, class T, class Op, Block B>
COLLECTX_DEVICE void fold_units(B& block, thread_fold<T, Op> const& how, std::size_t from, std::size_t end) {
  constexpr unsigned units = thread_fold<T, Op>::template in_flight<Count>(), elements = Count;
  int const step = block.size();
  unsigned const stride = static_cast<unsigned>(step) * elements;
  std::size_t at = from + static_cast<unsigned>(block.rank()) * elements;
  COLLECTX_ROLL
  for (; at + (units - 1) * stride < end; at += units * stride) how.template units<Count, units>(at, step);
  COLLECTX_ROLL
  for (; at < end; at += stride) how.template units<Count, 1>(at, step);
}

COLLECTX_DEVICE inline std::size_t misfit(void const* data) { return reinterpret_cast<std::uintptr_t>(data) % access_bytes; }

/// Elements before the first one that is aligned to 16 bytes in all sources and sinks; `count` if there is none.
template <class T, class Op>
COLLECTX_DEVICE std::size_t unaligned_head(thread_fold<T, Op> const& how, std::size_t count) {
  std::size_t const first = misfit(how.sources[0].data);
  bool agree = true;
  for (int s = 1; s < how.source_count; ++s) agree = agree && misfit(how.sources[s].data) == first;
  for (int k = 0; k < how.sink_count; ++k) agree = agree && misfit(how.sinks[k].data) == first;
  std::size_t const head = (access_bytes - first) % access_bytes / sizeof(T);
  return agree && head < count ? head : count;
}

}  // namespace detail

/// kernel::fold by all threads of a block: the same order of operands, the same bits. No synchronisation: who reads the sinks syncs first.
/// The lists may lie in memory that the block shares. 16 bytes a thread and access where all data are equally far from a multiple of 16,
/// with up to 4 loads of a thread in flight; element by element, as many in flight, elsewhere.
/// @pre as kernel::fold
template <class T, Block B, class Op>
COLLECTX_DEVICE void fold(B& block, kernel::sink const* sinks, int sink_count, kernel::operand const* sources, int source_count,
                          std::size_t count, Op const& op, int ranks) {
  int to_finish = 0;
  if constexpr (has_finish<Op, folded_in<Op, T>>)
    for (int k = 0; k < sink_count; ++k) to_finish += sinks[k].finish ? 1 : 0;
  detail::thread_fold<T, Op> const how{sinks, sink_count, sources, source_count, op, ranks, to_finish};
  constexpr std::size_t per_pack = pack_count<T>;
  if constexpr (per_pack == 1) {
    detail::fold_units<1>(block, how, 0, count);
  } else {
    std::size_t const head = detail::unaligned_head(how, count), done = head + (count - head) / per_pack * per_pack;
    detail::fold_units<1>(block, how, 0, head);
    detail::fold_units<per_pack>(block, how, head, done);
    detail::fold_units<1>(block, how, done, count);
  }
}

}  // namespace device
}  // namespace v0
}  // namespace collectx
