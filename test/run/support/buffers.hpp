// SPDX-License-Identifier: Apache-2.0
/// Buffers that notice: 64 bytes before and behind that nobody may write, and a hash of what nobody may change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

namespace support {

inline std::uint64_t hash_of(void const* data, std::size_t bytes) {
  auto const* const p = static_cast<unsigned char const*>(data);
  std::uint64_t hash = 0xcbf29ce484222325u, word = 0;
  std::size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    std::memcpy(&word, p + i, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  for (; i < bytes; ++i) hash = (hash ^ p[i]) * 0x100000001b3u;
  return hash;
}

/// `shift` elements after a 64-byte boundary; canaries stand right beside the data.
template <class T>
class guarded {
 public:
  explicit guarded(std::size_t count, std::size_t shift = 0)
      : count_(count), memory_(new line[1 + (shift * sizeof(T) + 2 * margin + count * sizeof(T)) / sizeof(line)]) {
    first_ = reinterpret_cast<std::byte*>(memory_.get()) + margin + shift * sizeof(T);
    std::memset(first_ - margin, canary, margin);
    std::memset(first_ + count * sizeof(T), canary, margin);
    fill(0x5c);
  }

  T* data() const { return reinterpret_cast<T*>(first_); }
  std::size_t size() const { return count_; }
  T* begin() const { return data(); }
  T* end() const { return data() + count_; }
  T& operator[](std::size_t i) const { return data()[i]; }
  std::span<T> span() const { return {data(), count_}; }
  void fill(int byte) { std::memset(static_cast<void*>(data()), byte, count_ * sizeof(T)); }

  std::uint64_t hash() const { return hash_of(data(), count_ * sizeof(T)); }
  bool intact() const {
    for (std::size_t i = 0; i < margin; ++i)
      if (first_[-1 - static_cast<std::ptrdiff_t>(i)] != std::byte{canary} || first_[count_ * sizeof(T) + i] != std::byte{canary})
        return false;
    return true;
  }

 private:
  static constexpr std::size_t margin = 64;
  static constexpr unsigned char canary = 0xc7;
  struct alignas(64) line {
    std::byte bytes[64];
  };

  std::size_t count_;
  std::unique_ptr<line[]> memory_;
  std::byte* first_ = nullptr;
};

}  // namespace support
