// SPDX-License-Identifier: Apache-2.0
/// Elements as a thread reads and writes them: 16 bytes at once where it can.
///
/// Nothing here says that memory is read-only (no __restrict__, no __ldg): a peer may write what a block reads next, and such loads go
/// through a cache that does not see it. `cg` stays out of the first level of cache, which nobody would use again. These are CUB's
/// ThreadLoad<LOAD_CG> and ThreadStore<STORE_CG>, whose header alone would cost every unit 4.3 s.
#pragma once

#include "collectx/device/vendor.cuh"
#include "collectx/reduce/small_floats.hpp"

#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>
namespace collectx {
inline namespace v0 {
namespace device {

inline constexpr std::size_t access_bytes = 16;

/// Count elements that lie side by side.
template <class T, std::size_t Count>
struct alignas(Count == 1 ? alignof(T) : access_bytes) pack {
  T values[Count];
  COLLECTX_DEVICE T get(std::size_t k) const { return values[k]; }
  COLLECTX_DEVICE void set(std::size_t k, T const& value) { values[k] = value; }
};
/// Those smaller than a register stay in words, from which each is taken when it is its turn, or every one would hold a register.
template <class T, std::size_t Count>
requires(Count > 1 && sizeof(T) < 4) struct alignas(access_bytes) pack<T, Count> {
  using bits = std::conditional_t<sizeof(T) == 1, std::uint8_t, std::uint16_t>;
  static constexpr std::size_t per_word = 4 / sizeof(T), width = 8 * sizeof(T);
  std::uint32_t words[Count / per_word];
  COLLECTX_DEVICE T get(std::size_t k) const { return std::bit_cast<T>(static_cast<bits>(words[k / per_word] >> (k % per_word * width))); }
  /// In ascending order, since the first of a word clears the others.
  COLLECTX_DEVICE void set(std::size_t k, T const& value) {
    std::uint32_t const shifted = std::uint32_t{std::bit_cast<bits>(value)} << (k % per_word * width);
    words[k / per_word] = k % per_word == 0 ? shifted : words[k / per_word] | shifted;
  }
};

/// Whether a thread can take several elements of T at once, and how many.
template <class T>
inline constexpr std::size_t pack_count = sizeof(T) <= access_bytes&& access_bytes % sizeof(T) == 0 && std::is_default_constructible_v<T>
                                              ? access_bytes / sizeof(T)
                                              : 1;

/// Whether it goes in one access of 16 bytes.
template <class T, std::size_t Count>
inline constexpr bool is_one_access = sizeof(pack<T, Count>) == access_bytes && alignof(pack<T, Count>) == access_bytes;

template <class T, std::size_t Count>
COLLECTX_DEVICE pack<T, Count> load(void const* data, int index) {
  auto const* const from = static_cast<pack<T, Count> const*>(data) + index;
#if defined(__CUDA_ARCH__)
  if constexpr (is_one_access<T, Count>) {
    uint4 words;
    asm volatile("ld.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w) : "l"(from));
    return std::bit_cast<pack<T, Count>>(words);
  }
#endif
  return *from;
}

template <class T, std::size_t Count>
COLLECTX_DEVICE void store(void* data, int index, pack<T, Count> const& value) {
  auto* const to = static_cast<pack<T, Count>*>(data) + index;
#if defined(__CUDA_ARCH__)
  if constexpr (is_one_access<T, Count>) {
    auto const words = std::bit_cast<uint4>(value);
    asm volatile("st.cg.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w));
    return;
  }
#endif
  *to = value;
}

/// What T is folded in, from T: the conversion that small_floats.hpp defines, by the instructions that the device has for it.
template <class Wide, class T>
COLLECTX_DEVICE Wide widened(T const& value) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, float16> && std::is_same_v<Wide, float>) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
    return wide;
  }
#if __CUDA_ARCH__ >= 890
  if constexpr ((std::is_same_v<T, float8_e4m3> || std::is_same_v<T, float8_e5m2>)&&std::is_same_v<Wide, float>) {
    std::uint32_t two;
    std::uint16_t const stored = value.bits;
    if constexpr (std::is_same_v<T, float8_e4m3>)
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two) : "h"(stored));
    else
      asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(two) : "h"(stored));
    return widened<float>(float16::from_bits(static_cast<std::uint16_t>(two & 0xffff)));
  }
#endif
#endif
  return static_cast<Wide>(value);
}

/// And back. The instructions give the NaN that small_floats.hpp gives; they make the infinity of float8_e5m2 its largest number,
/// which lies one below.
template <class T, class Wide>
COLLECTX_DEVICE T narrowed(Wide const& value) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<T, float16> && std::is_same_v<Wide, float>) {
    std::uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return T::from_bits(bits);
  }
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, bfloat16> && std::is_same_v<Wide, float>) {
    std::uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return T::from_bits(bits);
  }
#endif
#if __CUDA_ARCH__ >= 890
  if constexpr ((std::is_same_v<T, float8_e4m3> || std::is_same_v<T, float8_e5m2>)&&std::is_same_v<Wide, float>) {
    std::uint16_t two;
    if constexpr (std::is_same_v<T, float8_e4m3>)
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0F), "f"(value));
    else
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0F), "f"(value));
    bool const is_infinite = (std::bit_cast<std::uint32_t>(value) & 0x7fffffff) == collectx::detail::float_infinity;
    std::uint32_t const past_largest = std::is_same_v<T, float8_e5m2> && is_infinite ? 1 : 0;
    return T::from_bits(static_cast<std::uint8_t>((two + past_largest) & 0xff));
  }
#endif
#endif
  return static_cast<T>(value);
}

}  // namespace device
}  // namespace v0
}  // namespace collectx
