// SPDX-License-Identifier: Apache-2.0
/// Where the accidents of a test come from: one number, printed, that makes them happen again.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace support {

/// COLLECTX_TEST_SEED, or `usual`. Printed once per test program.
inline std::uint64_t seed(std::uint64_t usual = 20240229) {
  static std::uint64_t const value = [usual] {
    char const* const text = std::getenv("COLLECTX_TEST_SEED");
    std::uint64_t const chosen = text == nullptr ? usual : std::strtoull(text, nullptr, 0);
    std::printf("COLLECTX_TEST_SEED=%llu\n", static_cast<unsigned long long>(chosen));
    return chosen;
  }();
  return value;
}

class random_stream {
 public:
  explicit random_stream(std::uint64_t from) : state_(from) {}
  std::uint64_t next() {  // splitmix64
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }
  template <class Container>
  auto const& pick(Container const& from) {
    return from[below(from.size())];
  }

 private:
  std::uint64_t state_;
};

}  // namespace support
