// SPDX-License-Identifier: Apache-2.0
// The storage types have the bits and the roundings of the vendor's types of the same names, whose headers a host compiler takes as well.
#include "collectx/reduce/small_floats.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

namespace cx = collectx;

namespace {

/// Differences; `narrow` and `widen` are the vendor's, from and to the bits of its type.
template <class T, class Narrow, class Widen>
long differences(char const* name, Narrow narrow, Widen widen) {
  long different = 0;
  using bits = decltype(T::bits);
  for (std::uint32_t pattern = 0; pattern < 1U << (8 * sizeof(T)); ++pattern) {
    float const ours = T::from_bits(static_cast<bits>(pattern)), theirs = widen(static_cast<bits>(pattern));
    bool const same = std::isnan(ours) ? std::isnan(theirs) : std::bit_cast<std::uint32_t>(ours) == std::bit_cast<std::uint32_t>(theirs);
    different += same ? 0 : 1;
  }
  // Every exponent and sign, and mantissas that end in all ways near a tie: the last bits run through all values of a stride that is odd.
  for (std::uint64_t at = 0; at < std::uint64_t{1} << 32; at += 127) {
    auto const value = std::bit_cast<float>(static_cast<std::uint32_t>(at));
    different += T(value).bits == narrow(value) ? 0 : 1;
    auto const tie = std::bit_cast<float>(static_cast<std::uint32_t>(at) & 0xfffff000U);
    different += T(tie).bits == narrow(tie) ? 0 : 1;
  }
  std::printf("L1: %s: %ld differences from the vendor's conversions\n", name, different);
  return different;
}

std::uint8_t to_8_bits(float value, __nv_fp8_interpretation_t kind) {
  // The vendor's saturation makes infinity a number; an e5m2 has an infinity, and keeps it here.
  if (kind == __NV_E5M2 && std::isinf(value)) return std::signbit(value) ? 0xfc : 0x7c;
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, kind);
}
float from_8_bits(std::uint8_t bits, __nv_fp8_interpretation_t kind) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, kind))); }

}  // namespace

int main() {
  static_assert(sizeof(cx::bfloat16) == sizeof(__nv_bfloat16) && alignof(cx::bfloat16) == alignof(__nv_bfloat16));
  static_assert(sizeof(cx::float16) == sizeof(__half) && alignof(cx::float16) == alignof(__half));
  static_assert(sizeof(cx::float8_e4m3) == sizeof(__nv_fp8_e4m3) && sizeof(cx::float8_e5m2) == sizeof(__nv_fp8_e5m2));
  long different = differences<cx::bfloat16>(
      "bfloat16", [](float v) { return std::bit_cast<std::uint16_t>(__float2bfloat16(v)); },
      [](std::uint16_t bits) { return __bfloat162float(std::bit_cast<__nv_bfloat16>(bits)); });
  different += differences<cx::float16>(
      "float16", [](float v) { return std::bit_cast<std::uint16_t>(__float2half(v)); },
      [](std::uint16_t bits) { return __half2float(std::bit_cast<__half>(bits)); });
  different += differences<cx::float8_e4m3>(
      "float8_e4m3", [](float v) { return to_8_bits(v, __NV_E4M3); }, [](std::uint8_t bits) { return from_8_bits(bits, __NV_E4M3); });
  different += differences<cx::float8_e5m2>(
      "float8_e5m2", [](float v) { return to_8_bits(v, __NV_E5M2); }, [](std::uint8_t bits) { return from_8_bits(bits, __NV_E5M2); });
  return different == 0 ? 0 : 1;
}
