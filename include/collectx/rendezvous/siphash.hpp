// SPDX-License-Identifier: Apache-2.0
/// A keyed hash of short messages: SipHash-2-4 (Aumasson & Bernstein 2012). It is how ranks show that they know a secret without saying it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace collectx {
inline namespace v0 {
namespace detail {

struct siphash_key {
  std::uint64_t low = 0, high = 0;
};

/// The hash of `bytes` bytes at `data`. Without the key nobody can tell it from a random number.
constexpr std::uint64_t siphash(siphash_key key, unsigned char const* data, std::size_t bytes) noexcept {
  std::uint64_t a = key.low ^ 0x736f6d6570736575, b = key.high ^ 0x646f72616e646f6d;
  std::uint64_t c = key.low ^ 0x6c7967656e657261, d = key.high ^ 0x7465646279746573;
  auto turned = [](std::uint64_t x, int by) { return (x << by) | (x >> (64 - by)); };
  auto rounds = [&](int count) {
    for (int r = 0; r < count; ++r) {
      a += b, c += d;
      b = turned(b, 13) ^ a, d = turned(d, 16) ^ c;
      a = turned(a, 32);
      c += b, a += d;
      b = turned(b, 17) ^ c, d = turned(d, 21) ^ a;
      c = turned(c, 32);
    }
  };
  auto word = [&](std::size_t at, std::size_t count) {
    std::uint64_t w = 0;
    for (std::size_t i = 0; i < count; ++i) w |= std::uint64_t{data[at + i]} << (8 * i);
    return w;
  };
  auto absorb = [&](std::uint64_t w) {
    d ^= w;
    rounds(2);
    a ^= w;
  };
  std::size_t at = 0;
  for (; at + 8 <= bytes; at += 8) absorb(word(at, 8));
  absorb(word(at, bytes - at) | (std::uint64_t{bytes & 0xff} << 56));
  c ^= 0xff;
  rounds(4);
  return a ^ b ^ c ^ d;
}

/// A key out of a secret of any length.
constexpr siphash_key key_of(char const* secret) noexcept {
  unsigned char block[256] = {};
  siphash_key key{0x636f6c6c65637478, 0x736563726574};
  do {  // longer secrets in blocks, each hashed under what came of those before
    std::size_t used = 0;
    for (; *secret != 0 && used < sizeof block; ++used, ++secret) block[used] = static_cast<unsigned char>(*secret);
    siphash_key const other{~key.low, ~key.high};
    key = {siphash(key, block, used), siphash(other, block, used)};
  } while (*secret != 0);
  return key;
}

/// Compares without an early exit: how long it takes does not tell how much of a guess was right.
constexpr bool same_hash(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t difference = a ^ b;
  for (int half = 32; half > 0; half /= 2) difference |= difference >> half;
  return (difference & 1) == 0;
}

}  // namespace detail
}  // namespace v0
}  // namespace collectx
