// SPDX-License-Identifier: Apache-2.0
/// A growing array that constant evaluation can use on every supported compiler: plans and proofs are made of it.
#pragma once

#include "collectx/config.hpp"

#include <utility>

namespace collectx {
inline namespace v0 {
namespace exec {

/// Of std::vector only what plans need (clang 16 cannot evaluate the one of libstdc++ 12 at compile time).
template <class T>
class list {
 public:
  constexpr list() = default;
  constexpr explicit list(int count) : data_(count > 0 ? new T[static_cast<unsigned>(count)]() : nullptr), size_(count), capacity_(count) {}
  constexpr list(int count, T const& value) { resize(count, value); }
  constexpr list(list const& other) { append(other); }
  constexpr list(list&& other) noexcept : data_(other.data_), size_(other.size_), capacity_(other.capacity_) { other.forget(); }
  constexpr list& operator=(list const& other) {
    if (this == &other) return *this;
    clear();
    append(other);
    return *this;
  }
  constexpr list& operator=(list&& other) noexcept {
    T* const mine = data_;
    data_ = other.data_;
    size_ = other.size_;
    capacity_ = other.capacity_;
    if (data_ == mine) return *this;  // self-move, or both empty
    delete[] mine;
    other.forget();
    return *this;
  }
  constexpr ~list() { delete[] data_; }

  constexpr int size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr T& operator[](int i) { return data_[i]; }
  constexpr T const& operator[](int i) const { return data_[i]; }
  constexpr T* begin() { return data_; }
  constexpr T* end() { return data_ + size_; }
  constexpr T const* begin() const { return data_; }
  constexpr T const* end() const { return data_ + size_; }
  constexpr T& back() { return data_[size_ - 1]; }
  constexpr T const& back() const { return data_[size_ - 1]; }

  constexpr void clear() { size_ = 0; }
  /// @pre count <= size()
  constexpr void truncate(int count) { size_ = count; }
  constexpr T& push(T value) {
    reserve(size_ + 1);
    data_[size_] = std::move(value);
    return data_[size_++];
  }
  constexpr void append(list const& other) {
    reserve(size_ + other.size_);
    for (T const& value : other) data_[size_++] = value;
  }
  constexpr void resize(int count, T const& value = T{}) {
    reserve(count);
    for (int i = size_; i < count; ++i) data_[i] = value;
    size_ = count;
  }
  constexpr void erase(int at) {
    for (int i = at + 1; i < size_; ++i) data_[i - 1] = std::move(data_[i]);
    --size_;
  }

 private:
  constexpr void reserve(int count) {
    if (count <= capacity_) return;
    int const wanted = count > 2 * capacity_ ? count : 2 * capacity_;
    T* const larger = new T[static_cast<unsigned>(wanted > 0 ? wanted : 1)]();
    for (int i = 0; i < size_; ++i) larger[i] = std::move(data_[i]);
    delete[] data_;
    data_ = larger;
    capacity_ = wanted;
  }
  constexpr void forget() {
    data_ = nullptr;
    size_ = capacity_ = 0;
  }

  T* data_ = nullptr;
  int size_ = 0;
  int capacity_ = 0;
};

}  // namespace exec
}  // namespace v0
}  // namespace collectx
