// SPDX-License-Identifier: Apache-2.0
/// The loops over elements: combine, copy and fold, as wide as the processor allows even where the user compiles at -O2.
///
/// g++ 12 at -O2 vectorises only loops whose number of turns is a constant, so every loop here is cut into blocks of a constant size, and
/// the same loop is compiled a second time for AVX2 and chosen at run time. AVX2 without FMA and without AVX-512, on purpose: either
/// would let the compiler contract a user's `a * b + c`, and a result would depend on the processor and on an element's place in the vector.
#pragma once

#include "collectx/reduction.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace collectx {
inline namespace v0 {
namespace kernel {

/// A source of a fold. `left`: it stands on the left of what has been folded so far.
struct operand {
  void const* data;
  bool left;
};

/// A destination of a fold. `finish`: it is part of the result, so that `op.finish` is due.
struct sink {
  void* data;
  bool finish;
};

}  // namespace kernel

namespace detail {

// ThreadSanitizer does not see stores made by intrinsics.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool can_stream = false;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || !defined(__x86_64__)
inline constexpr bool can_stream = false;
#else
inline constexpr bool can_stream = true;
#endif
#elif defined(__x86_64__)
inline constexpr bool can_stream = true;
#else
inline constexpr bool can_stream = false;
#endif

// Clang warns where it cannot vectorise what it was told is safe, at the function that the loop has ended up in: hence noinline below.
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

/// body(0) ... body(n - 1). The turns must not depend on one another; a turn may write where it has read.
template <std::size_t Block, class Body>
COLLECTX_FORCEINLINE std::size_t for_blocks(std::size_t i, std::size_t n, Body const& body) {
  for (; n - i >= Block; i += Block) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
    for (std::size_t k = 0; k < Block; ++k) body(i + k);
  }
  return i;
}

template <std::size_t ElementBytes, class Body>
COLLECTX_FORCEINLINE void for_all(std::size_t n, Body const& body) {
  constexpr auto elements = [](std::size_t bytes) { return bytes < ElementBytes ? 1 : std::bit_floor(bytes / ElementBytes); };
  std::size_t i = for_blocks<elements(256)>(0, n, body);
  i = for_blocks<elements(32)>(i, n, body);
  for (; i < n; ++i) body(i);
}

template <std::size_t ElementBytes, class Body>
[[gnu::noinline]] void for_all_baseline(std::size_t n, Body body) {
  for_all<ElementBytes>(n, body);
}

#if defined(__x86_64__)
template <std::size_t ElementBytes, class Body>
[[gnu::target("avx2"), gnu::noinline]] void for_all_avx2(std::size_t n, Body body) {
  for_all<ElementBytes>(n, body);
}
#endif

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

/// Few elements are done on the spot, since a call would cost more than they do.
template <std::size_t ElementBytes, class Body>
COLLECTX_FORCEINLINE void for_each_index(std::size_t n, Body const& body) {
  if (n <= 64 / ElementBytes) {
    for (std::size_t i = 0; i < n; ++i) body(i);
    return;
  }
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return for_all_avx2<ElementBytes>(n, body);
#endif
  for_all_baseline<ElementBytes>(n, body);
}

/// An operation as the loops keep it: by value where that is cheap, because the compiler must assume that a store to the output changes
/// an object that it reaches through a reference.
template <class Op>
using kept = std::conditional_t<std::is_trivially_copyable_v<Op> && sizeof(Op) <= 64, Op const, Op const&>;

template <class T, class Op>
struct combine_one {
  T* out;
  T const* left;
  T const* right;
  kept<Op> op;
  COLLECTX_FORCEINLINE void operator()(std::size_t i) const { out[i] = static_cast<T>(op(left[i], right[i])); }
};

template <class T, class Op>
struct combine_two {
  T* out;
  T* out_too;
  T const* left;
  T const* right;
  kept<Op> op;
  COLLECTX_FORCEINLINE void operator()(std::size_t i) const {
    T const value = static_cast<T>(op(left[i], right[i]));
    out[i] = value;
    out_too[i] = value;
  }
};

template <class T, class Op>
struct finish_one {
  T* out;
  T const* in;
  kept<Op> op;
  int ranks;
  COLLECTX_FORCEINLINE void operator()(std::size_t i) const { out[i] = static_cast<T>(op.finish(in[i], ranks)); }
};

/// op whose result is finished at once.
template <class T, class Op>
struct finished {
  kept<Op> op;
  int ranks;
  COLLECTX_FORCEINLINE T operator()(T const& left, T const& right) const {
    return static_cast<T>(op.finish(static_cast<T>(op(left, right)), ranks));
  }
};

inline void copy_around_cache([[maybe_unused]] void* out, [[maybe_unused]] void const* in, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__x86_64__)
  auto* to = static_cast<std::byte*>(out);
  auto const* from = static_cast<std::byte const*>(in);
  std::size_t const misfit = (16 - reinterpret_cast<std::uintptr_t>(to) % 16) % 16, head = misfit < bytes ? misfit : bytes;
  std::memcpy(to, from, head);
  std::size_t done = head;
  for (; bytes - done >= 16; done += 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + done), _mm_loadu_si128(reinterpret_cast<__m128i const*>(from + done)));
  std::memcpy(to + done, from + done, bytes - done);
#endif
}

/// Streamed stores are not ordered with the store that will publish them.
inline void order_streamed_stores() noexcept {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

inline void store(void* out, void const* in, std::size_t bytes, bool stream) noexcept {
  if (out == in) return;
  if (can_stream && stream)
    copy_around_cache(out, in, bytes);
  else
    std::memcpy(out, in, bytes);
}

inline constexpr std::size_t tile_bytes = 4096;

/// One tile of a fold: everything but the sources and sinks themselves stays in L1. All sources are read before the first sink is written.
template <class T, class Op>
struct tile_of_fold {
  kernel::sink const* sinks;
  int sink_count;
  kernel::operand const* sources;
  int source_count;
  Op const& op;
  int ranks;
  bool stream;
  int to_finish;

  static T const* at(void const* data, std::size_t first) { return static_cast<T const*>(data) + first; }
  static T* at(void* data, std::size_t first) { return static_cast<T*>(data) + first; }

  template <class Step>
  void step(T* out, T const* folded, int index, std::size_t first, std::size_t n, Step const& how) const {
    T const* const next = at(sources[index].data, first);
    bool const left = sources[index].left;
    for_each_index<sizeof(T)>(n, combine_one<T, Step>{out, left ? next : folded, left ? folded : next, how});
  }

  void write(T const* value, bool finish_sinks, std::size_t first, std::size_t n) const {
    for (int k = 0; k < sink_count; ++k)
      if (sinks[k].finish == finish_sinks) store(at(sinks[k].data, first), value, n * sizeof(T), stream);
  }

  void operator()(T* tile, std::size_t first, std::size_t n) const {
    bool const all_finish = to_finish == sink_count;
    T const* value = at(sources[0].data, first);
    for (int s = 1; s < source_count; ++s) {
      bool const last = s + 1 == source_count;
      T* const out = last && sink_count == 1 && !(can_stream && stream) ? at(sinks[0].data, first) : tile;
      if constexpr (has_finish<Op, T>) {
        if (last && all_finish) {
          step(out, value, s, first, n, finished<T, Op>{op, ranks});
          return write(out, true, first, n);
        }
      }
      step(out, value, s, first, n, op);
      value = out;
    }
    // Unfinished sinks first: a finished one may be the memory of the only source.
    write(value, false, first, n);
    if constexpr (has_finish<Op, T>) {
      if (to_finish == 0) return;
      for_each_index<sizeof(T)>(n, finish_one<T, Op>{tile, value, op, ranks});
      write(tile, true, first, n);
    }
  }
};

}  // namespace detail

namespace kernel {

/// @pre `out` and `in` are the same memory or do not overlap
/// `stream`: the stores go around the cache, for outputs larger than it.
inline void copy(void* out, void const* in, std::size_t bytes, bool stream) noexcept {
  if (bytes == 0) return;
  detail::store(out, in, bytes, stream);
  if (detail::can_stream && stream) detail::order_streamed_stores();
}

/// out[i] = op(left[i], right[i]).
/// @pre `out` is the same memory as `left`, as `right`, as both, or overlaps neither
template <class T, class Op>
  requires Reduction<Op, T>
void combine(T* out, T const* left, T const* right, std::size_t n, Op const& op) noexcept {
  detail::for_each_index<sizeof(T)>(n, detail::combine_one<T, Op>{out, left, right, op});
}

/// Folds the sources element by element and stores the result in every sink.
/// acc = sources[0]; for each next one: acc = left ? op(next, acc) : op(acc, next). Sinks marked `finish` get op.finish(acc, ranks).
/// @pre source_count >= 1, sink_count >= 1; data aligned for T; a sink may be the same memory as a source, else nothing overlaps
/// `stream`: the stores go around the cache, for outputs larger than it.
template <class T, class Op>
  requires Reduction<Op, T>
void fold(sink const* sinks, int sink_count, operand const* sources, int source_count, std::size_t n, Op const& op, int ranks,
          bool stream) noexcept {
  if (n == 0) return;
  int to_finish = 0;
  if constexpr (has_finish<Op, T>)
    for (int k = 0; k < sink_count; ++k) to_finish += sinks[k].finish ? 1 : 0;

  if (source_count == 1 && sink_count == 1 && to_finish == 0) return copy(sinks[0].data, sources[0].data, n * sizeof(T), stream);

  if (source_count == 2 && sink_count <= 2 && to_finish == 0 && !(detail::can_stream && stream)) {
    bool const swap = sources[1].left;
    auto const* const left = static_cast<T const*>(sources[swap ? 1 : 0].data);
    auto const* const right = static_cast<T const*>(sources[swap ? 0 : 1].data);
    auto* const out = static_cast<T*>(sinks[0].data);
    if (sink_count == 1) return detail::for_each_index<sizeof(T)>(n, detail::combine_one<T, Op>{out, left, right, op});
    auto* const out_too = static_cast<T*>(sinks[1].data);
    return detail::for_each_index<sizeof(T)>(n, detail::combine_two<T, Op>{out, out_too, left, right, op});
  }

  constexpr std::size_t per_tile = sizeof(T) < detail::tile_bytes ? detail::tile_bytes / sizeof(T) : 1;
  alignas(alignof(T) < 64 ? 64 : alignof(T)) std::byte memory[per_tile * sizeof(T)];
  detail::tile_of_fold<T, Op> const fold_tile{sinks, sink_count, sources, source_count, op, ranks, stream, to_finish};
  for (std::size_t first = 0; first < n; first += per_tile)
    fold_tile(reinterpret_cast<T*>(memory), first, n - first < per_tile ? n - first : per_tile);
  if (detail::can_stream && stream) detail::order_streamed_stores();
}

}  // namespace kernel
}  // namespace v0
}  // namespace collectx
