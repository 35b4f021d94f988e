// SPDX-License-Identifier: Apache-2.0
/// The loops over elements: combine, copy and fold, as wide as the processor allows even where the user compiles at -O2.
///
/// g++ 12 at -O2 vectorises only loops whose number of turns is a constant, so every loop here is cut into blocks of a constant size, and
/// the same loop is compiled a second time for AVX2 and chosen at run time. AVX2 without FMA and without AVX-512, on purpose: either
/// would let the compiler contract a user's `a * b + c`, and a result would depend on the processor and on an element's place in the
/// vector.
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

/// out[i] = value(i), and out_too[i] where there is one, around the cache. A line at a time, so that loads and stores to memory overlap:
/// with tiles of 4 KiB they take turns, which costs a quarter.
/// @pre both outputs are equally far from a multiple of 16
template <class T, class Value>
[[gnu::target("avx2"), gnu::noinline]] void stream_all_avx2(T* out, T* out_too, std::size_t n, Value value) {
  constexpr std::size_t line = 64 / sizeof(T);
  auto const one = [&](std::size_t i) {
    T const result = value(i);
    out[i] = result;
    if (out_too != nullptr) out_too[i] = result;
  };
  std::size_t i = 0;
  for (; i < n && reinterpret_cast<std::uintptr_t>(out + i) % 64 != 0; ++i) one(i);
  for (; n - i >= line; i += line) {
    alignas(64) std::byte memory[64];
    for_blocks<line>(0, line, [&](std::size_t k) { reinterpret_cast<T*>(memory)[k] = value(i + k); });
    for (std::size_t b = 0; b < 64; b += 16) {
      __m128i const part = _mm_load_si128(reinterpret_cast<__m128i const*>(memory + b));
      _mm_stream_si128(reinterpret_cast<__m128i*>(reinterpret_cast<std::byte*>(out + i) + b), part);
      if (out_too != nullptr) _mm_stream_si128(reinterpret_cast<__m128i*>(reinterpret_cast<std::byte*>(out_too + i) + b), part);
    }
  }
  for (; i < n; ++i) one(i);
}
#endif

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

inline constexpr std::size_t few = 8;

/// Few elements are done on the spot, since a call would cost more than they do.
template <std::size_t ElementBytes, class Body>
COLLECTX_FORCEINLINE void for_each_index(std::size_t n, Body const& body) {
  if (n <= few) {
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
struct combined {
  T const* left;
  T const* right;
  kept<Op> op;
  COLLECTX_FORCEINLINE T operator()(std::size_t i) const { return static_cast<T>(op(left[i], right[i])); }
};

template <class T, class Op>
struct finished {
  T const* in;
  kept<Op> op;
  int ranks;
  COLLECTX_FORCEINLINE T operator()(std::size_t i) const { return static_cast<T>(op.finish(in[i], ranks)); }
};

struct picked {
  unsigned char const* in;
  COLLECTX_FORCEINLINE unsigned char operator()(std::size_t i) const { return in[i]; }
};

/// op whose result is finished at once.
template <class T, class Op>
struct finishing {
  kept<Op> op;
  int ranks;
  COLLECTX_FORCEINLINE T operator()(T const& left, T const& right) const {
    return static_cast<T>(op.finish(static_cast<T>(op(left, right)), ranks));
  }
};

template <class T, class Value>
struct to_one {
  T* out;
  Value value;
  COLLECTX_FORCEINLINE void operator()(std::size_t i) const { out[i] = value(i); }
};

template <class T, class Value>
struct to_two {
  T* out;
  T* out_too;
  Value value;
  COLLECTX_FORCEINLINE void operator()(std::size_t i) const {
    T const result = value(i);
    out[i] = result;
    out_too[i] = result;
  }
};

template <class T, class Value>
COLLECTX_FORCEINLINE void write_one(T* out, std::size_t n, Value const& value) {
  for_each_index<sizeof(T)>(n, to_one<T, Value>{out, value});
}

/// False where this shape cannot be streamed line by line, and nothing has been done.
template <class T, class Value>
bool stream_lines([[maybe_unused]] T* out, [[maybe_unused]] T* out_too, [[maybe_unused]] std::size_t n,
                  [[maybe_unused]] Value const& value) {
#if defined(__x86_64__)
  if constexpr (can_stream && 64 % sizeof(T) == 0) {
    auto const place = reinterpret_cast<std::uintptr_t>(out),
               place_too = out_too == nullptr ? place : reinterpret_cast<std::uintptr_t>(out_too);
    if (__builtin_cpu_supports("avx2") && place % sizeof(T) == 0 && (place ^ place_too) % 16 == 0) {
      stream_all_avx2(out, out_too, n, value);
      _mm_sfence();
      return true;
    }
  }
#endif
  return false;
}

/// Streamed stores are not ordered with the store that will publish them: whoever streams ends with sfence.
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

template <class T>
T const* at(kernel::operand const& source, std::size_t first) {
  return static_cast<T const*>(source.data) + first;
}
template <class T>
T* at(kernel::sink const& sink, std::size_t first) {
  return static_cast<T*>(sink.data) + first;
}

/// A fold as it was asked for, in the ways of doing it. All of them have read the sources at an element before they write a sink there.
template <class T, class Op>
struct folding {
  kernel::sink const* sinks;
  int sink_count;
  kernel::operand const* sources;
  int source_count;
  Op const& op;
  int ranks;
  bool stream;
  int to_finish;  // sinks

  void few_elements(std::size_t n) const {
    for (std::size_t i = 0; i < n; ++i) {
      T value = *at<T>(sources[0], i);
      for (int s = 1; s < source_count; ++s) {
        T const& next = *at<T>(sources[s], i);
        value = static_cast<T>(sources[s].left ? op(next, value) : op(value, next));
      }
      for (int k = 0; k < sink_count; ++k)
        if (!finishes(k)) *at<T>(sinks[k], i) = value;
      if constexpr (has_finish<Op, T>) {
        if (to_finish == 0) continue;
        value = static_cast<T>(op.finish(value, ranks));
        for (int k = 0; k < sink_count; ++k)
          if (finishes(k)) *at<T>(sinks[k], i) = value;
      }
    }
  }

  template <class Step>
  bool two_sources(std::size_t n, Step const& how) const {
    bool const swap = sources[1].left;
    combined<T, Step> const value{at<T>(sources[swap ? 1 : 0], 0), at<T>(sources[swap ? 0 : 1], 0), how};
    T* const out = at<T>(sinks[0], 0);
    T* const out_too = sink_count == 2 ? at<T>(sinks[1], 0) : nullptr;
    if (can_stream && stream) return stream_lines(out, out_too, n, value);
    if (out_too == nullptr)
      write_one(out, n, value);
    else
      for_each_index<sizeof(T)>(n, to_two<T, combined<T, Step>>{out, out_too, value});
    return true;
  }

  void copies(std::size_t n) const {
    void const* const in = sources[0].data;
    if (sink_count == 2 && !(can_stream && stream) && sinks[0].data != in && sinks[1].data != in) {
      auto const* const bytes = static_cast<unsigned char const*>(in);
      auto* const out = static_cast<unsigned char*>(sinks[0].data);
      auto* const out_too = static_cast<unsigned char*>(sinks[1].data);
      return for_each_index<1>(n * sizeof(T), to_two<unsigned char, picked>{out, out_too, picked{bytes}});
    }
    for (int k = 0; k < sink_count; ++k) store(sinks[k].data, in, n * sizeof(T), stream);
  }

  [[gnu::noinline]] void tiles(std::size_t n) const {
    constexpr std::size_t per_tile = sizeof(T) < 4096 ? 4096 / sizeof(T) : 1;
    alignas(alignof(T) < 64 ? 64 : alignof(T)) std::byte memory[per_tile * sizeof(T)];
    for (std::size_t first = 0; first < n; first += per_tile)
      tile(reinterpret_cast<T*>(memory), first, n - first < per_tile ? n - first : per_tile);
  }

 private:
  bool finishes(int k) const { return to_finish != 0 && sinks[k].finish; }

  template <class Step>
  void step(T* out, T const* value, int index, std::size_t first, std::size_t n, Step const& how) const {
    T const* const next = at<T>(sources[index], first);
    bool const left = sources[index].left;
    write_one(out, n, combined<T, Step>{left ? next : value, left ? value : next, how});
  }

  void write(T const* value, bool finish_sinks, std::size_t first, std::size_t n) const {
    for (int k = 0; k < sink_count; ++k)
      if (finishes(k) == finish_sinks) store(at<T>(sinks[k], first), value, n * sizeof(T), stream);
  }

  void tile(T* memory, std::size_t first, std::size_t n) const {
    T const* value = at<T>(sources[0], first);
    for (int s = 1; s < source_count; ++s) {
      bool const last = s + 1 == source_count;
      T* const out = last && sink_count == 1 && !(can_stream && stream) ? at<T>(sinks[0], first) : memory;
      if constexpr (has_finish<Op, T>) {
        if (last && to_finish == sink_count) {
          step(out, value, s, first, n, finishing<T, Op>{op, ranks});
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
      write_one(memory, n, finished<T, Op>{value, op, ranks});
      write(memory, true, first, n);
    }
  }
};

}  // namespace detail

namespace kernel {

/// @pre `out` and `in` are the same memory or do not overlap
/// `stream`: the stores go around the cache, for outputs larger than it.
inline void copy(void* out, void const* in, std::size_t bytes, bool stream) noexcept {
  if (bytes != 0) detail::store(out, in, bytes, stream);
}

/// out[i] = op(left[i], right[i]).
/// @pre `out` is the same memory as `left`, as `right`, as both, or overlaps neither
template <class T, class Op>
  requires Reduction<Op, T>
void combine(T* out, T const* left, T const* right, std::size_t n, Op const& op) noexcept {
  detail::write_one(out, n, detail::combined<T, Op>{left, right, op});
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

  detail::folding<T, Op> const how{sinks, sink_count, sources, source_count, op, ranks, stream && n > detail::few, to_finish};
  if (source_count == 1 && to_finish == 0) return how.copies(n);
  if (source_count == 2 && sink_count <= 2) {
    if (to_finish == 0 && how.two_sources(n, op)) return;
    if constexpr (has_finish<Op, T>)
      if (to_finish == sink_count && how.two_sources(n, detail::finishing<T, Op>{op, ranks})) return;
  }
  if (n <= detail::few) return how.few_elements(n);
  how.tiles(n);
}

}  // namespace kernel
}  // namespace v0
}  // namespace collectx
