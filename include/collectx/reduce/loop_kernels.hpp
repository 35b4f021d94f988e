// SPDX-License-Identifier: Apache-2.0
/// Loops over independent elements, as wide as the processor allows even where the user compiles at -O2, and around the cache if asked.
///
/// g++ 12 at -O2 vectorises only loops whose number of turns is a constant, so every loop here is cut into blocks of a constant size, and
/// the same loop is compiled a second time for AVX2 and chosen at run time. AVX2 without FMA and without AVX-512, on purpose: either
/// would let the compiler contract a user's `a * b + c`, and a result would depend on the processor and on an element's place in the
/// vector.
#pragma once

#include "collectx/config.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace collectx {
inline namespace v0 {
namespace detail::kernels {

// ThreadSanitizer does not see stores made by intrinsics.
#if !defined(__x86_64__) || defined(__SANITIZE_THREAD__)
inline constexpr bool can_stream = false;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool can_stream = false;
#else
inline constexpr bool can_stream = true;
#endif
#else
inline constexpr bool can_stream = true;
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

COLLECTX_FORCEINLINE void stream_line(void* out, std::byte const* line) {
  for (std::size_t b = 0; b < 64; b += 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(static_cast<std::byte*>(out) + b),
                     _mm_load_si128(reinterpret_cast<__m128i const*>(line + b)));
}

/// out[i] = value(i), with Two also out_too[i], around the cache. A line at a time, so that loads and stores to memory overlap: with
/// tiles of 4 KiB they take turns, which costs a quarter. Two is no condition at run time, for clang 16 merges the last store of both
/// branches into one that is not streamed any more, and a line that is half streamed costs a hundred times as much.
/// @pre both outputs are equally far from a multiple of 16
template <bool Two, class T, class Value>
[[gnu::target("avx2"), gnu::noinline]] void stream_all_avx2(T* out, T* out_too, std::size_t n, Value value) {
  constexpr std::size_t line = 64 / sizeof(T);
  auto const one = [&](std::size_t i) {
    T const result = value(i);
    out[i] = result;
    if constexpr (Two) out_too[i] = result;
  };
  std::size_t i = 0;
  for (; i < n && reinterpret_cast<std::uintptr_t>(out + i) % 64 != 0; ++i) one(i);
  for (; n - i >= line; i += line) {
    alignas(64) std::byte memory[64];
    for_blocks<line>(0, line, [&](std::size_t k) { reinterpret_cast<T*>(memory)[k] = value(i + k); });
    stream_line(out + i, memory);
    if constexpr (Two) stream_line(out_too + i, memory);
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

/// Streamed stores are not ordered with the store that will publish them, so this comes last, and once: it waits for all of them.
inline void order_streamed_stores() noexcept {
#if defined(__x86_64__)
  _mm_sfence();
#endif
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
      if (out_too == nullptr)
        stream_all_avx2<false>(out, out_too, n, value);
      else
        stream_all_avx2<true>(out, out_too, n, value);
      order_streamed_stores();
      return true;
    }
  }
#endif
  return false;
}

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

/// @post with `stream`, order_streamed_stores() is due
inline void store(void* out, void const* in, std::size_t bytes, bool stream) noexcept {
  if (out == in) return;
  if (can_stream && stream)
    copy_around_cache(out, in, bytes);
  else
    std::memcpy(out, in, bytes);
}

}  // namespace detail::kernels
}  // namespace v0
}  // namespace collectx
