// SPDX-License-Identifier: Apache-2.0
/// What a rank shows to the others of its group in one memory: a few small values under keys, written by one, read by all, no lock.
#pragma once

#include "collectx/rendezvous.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace collectx {
inline namespace v0 {
namespace detail {

using shared_word = std::atomic_ref<std::uint64_t>;

/// Zero is its initial state: nothing is shown. Every word is only ever touched as an atomic.
struct alignas(64) notice_memory {
  static constexpr int capacity = 4;
  static constexpr std::size_t key_words = 4, value_words = rendezvous_value::capacity / 8;

  struct notice {
    std::uint64_t stamp;  // odd while it is being written
    std::uint64_t bytes;  // 0: nothing is shown
    std::uint64_t key[key_words];
    std::uint64_t value[value_words];
  };
  notice list[capacity];
};

class notices {
 public:
  /// For the owner only. False where `capacity` other keys are shown already.
  static bool post(notice_memory& mine, char const* key, rendezvous_value const& value) noexcept {
    notice* place = find(mine, key);
    for (notice& n : mine.list)
      if (place == nullptr && n.bytes == 0) place = &n;
    if (place == nullptr) return false;
    std::uint64_t words[notice_memory::value_words] = {};
    std::memcpy(words, value.data(), value.size());
    write(*place, name(key), words, value.size());
    return true;
  }

  static void withdraw(notice_memory& mine, char const* key) noexcept {
    std::uint64_t const nothing[notice_memory::value_words] = {};
    if (notice* const n = find(mine, key)) write(*n, name(key), nothing, 0);
  }

  /// For everybody. False where `key` is not shown, or is being written just now.
  static bool read(notice_memory& theirs, char const* key, rendezvous_value& value) noexcept {
    words const wanted = name(key);
    for (notice& n : theirs.list) {
      std::uint64_t seen[notice_memory::value_words];
      words shown;
      std::uint64_t const before = load(n.stamp), bytes = load(n.bytes);
      for (std::size_t i = 0; i < notice_memory::key_words; ++i) shown.of[i] = load(n.key[i]);
      for (std::size_t i = 0; i < notice_memory::value_words; ++i) seen[i] = load(n.value[i]);
      if (before % 2 != 0 || shared_word(n.stamp).load(std::memory_order_relaxed) != before) continue;
      if (bytes == 0 || bytes > rendezvous_value::capacity || std::memcmp(&shown, &wanted, sizeof shown) != 0) continue;
      value = rendezvous_value(seen, static_cast<std::size_t>(bytes));
      return true;
    }
    return false;
  }

 private:
  using notice = notice_memory::notice;
  struct words {
    std::uint64_t of[notice_memory::key_words];
  };

  static words name(char const* key) noexcept {
    char text[sizeof(words)] = {};
    std::memcpy(text, key, ::strnlen(key, sizeof text - 1));  // snprintf would warn of truncation
    words w;
    std::memcpy(&w, text, sizeof w);
    return w;
  }
  static std::uint64_t load(std::uint64_t& word) noexcept { return shared_word(word).load(std::memory_order_acquire); }

  static notice* find(notice_memory& mine, char const* key) noexcept {
    words const wanted = name(key);
    for (notice& n : mine.list)
      if (n.bytes != 0 && std::memcmp(n.key, &wanted, sizeof wanted) == 0) return &n;
    return nullptr;
  }

  static void write(notice& n, words const& key, std::uint64_t const* value, std::size_t bytes) noexcept {
    std::uint64_t const stamp = n.stamp;
    shared_word(n.stamp).store(stamp + 1, std::memory_order_relaxed);
    // A reader that sees any new word also sees the odd stamp: release on each word, since fences would blind ThreadSanitizer.
    shared_word(n.bytes).store(bytes, std::memory_order_release);
    for (std::size_t i = 0; i < notice_memory::key_words; ++i) shared_word(n.key[i]).store(key.of[i], std::memory_order_release);
    for (std::size_t i = 0; i < notice_memory::value_words; ++i) shared_word(n.value[i]).store(value[i], std::memory_order_release);
    shared_word(n.stamp).store(stamp + 2, std::memory_order_release);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
