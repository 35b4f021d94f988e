// SPDX-License-Identifier: Apache-2.0
/// Loops that convert elements to what they are folded in and back.
#pragma once

#include "collectx/reduce/loop_kernels.hpp"
#include "collectx/reduce/small_floats.hpp"

#include <cstddef>
#include <cstring>
#include <type_traits>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace collectx {
inline namespace v0 {
namespace detail::kernels {

template <class Out, class In>
struct converting {
  Out* out;
  In const* in;
  COLLECTX_FORCEINLINE void operator()(std::size_t i) const { out[i] = static_cast<Out>(in[i]); }
};

#if defined(__x86_64__)
using eight_halves = short __attribute__((vector_size(16)));
using eight_floats = float __attribute__((vector_size(32)));

/// By hand, since clang 16 does not know "f16c" as something a processor may support.
inline bool converts_halves() {
  static bool const known = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0 && __builtin_cpu_supports("avx2");
  }();
  return known;
}

// The instructions by the names that g++ and clang share: the header that declares them for everybody costs each user a third of a second.
[[gnu::target("avx2,f16c"), gnu::noinline]] inline std::size_t widen_eights(float* out, float16 const* in, std::size_t n) {
  std::size_t i = 0;
  for (; n - i >= 8; i += 8) {
    eight_halves stored;
    std::memcpy(&stored, in + i, sizeof stored);
    eight_floats const value = __builtin_ia32_vcvtph2ps256(stored);
    std::memcpy(out + i, &value, sizeof value);
  }
  return i;
}

[[gnu::target("avx2,f16c"), gnu::noinline]] inline std::size_t narrow_eights(float16* out, float const* in, std::size_t n) {
  std::size_t i = 0;
  for (; n - i >= 8; i += 8) {
    eight_floats value;
    std::memcpy(&value, in + i, sizeof value);
    eight_halves stored = __builtin_ia32_vcvtps2ph256(value, 0);  // to nearest even
    eight_halves const is_nan = (stored & 0x7fff) > 0x7c00;
    stored = (stored & ~is_nan) | (is_nan & 0x7fff);
    std::memcpy(static_cast<void*>(out + i), &stored, sizeof stored);
  }
  return i;
}
#endif

/// out[i] = in[i] in the other type, for n elements. The bits do not depend on n nor on the processor.
template <class Out, class In>
void convert(Out* out, In const* in, std::size_t n) {
  std::size_t done = 0;
#if defined(__x86_64__)
  if constexpr (std::is_same_v<In, float16> && std::is_same_v<Out, float>) {
    if (converts_halves()) done = widen_eights(out, in, n);
  } else if constexpr (std::is_same_v<In, float> && std::is_same_v<Out, float16>) {
    if (converts_halves()) done = narrow_eights(out, in, n);
  }
#endif
  for_each_index<sizeof(Out)>(n - done, converting<Out, In>{out + done, in + done});
}

}  // namespace detail::kernels
}  // namespace v0
}  // namespace collectx
