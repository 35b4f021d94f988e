// SPDX-License-Identifier: Apache-2.0
/// Folds of all shapes in guarded memory, compared element by element with the plainest way: for whatever claims to be kernel::fold.
#pragma once

#include <collectx/reduce/host_kernels.hpp>
#include <collectx/reduction.hpp>

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "sanitizers.hpp"

namespace support {

namespace cx = collectx;

inline constexpr int offsets = 16;

/// Long enough for every loop, and longer where that takes no minutes.
inline void add_long_ones(std::vector<std::size_t>& all) {
  all.push_back(under_sanitizer ? 300 : 1000);
  if (!under_sanitizer) all.push_back(4099);
}
inline std::vector<std::size_t> counts() {
  std::vector<std::size_t> all;
  for (std::size_t n = 0; n <= 67; ++n) all.push_back(n);
  add_long_ones(all);
  return all;
}

inline std::uint64_t next_random(std::uint64_t& state) {
  state = state * 6364136223846793005U + 1442695040888963407U;
  return state >> 16;
}

template <class T>
T random_value(std::uint64_t& state) {
  std::uint64_t const r = next_random(state);
  if constexpr (std::is_same_v<T, bool>)
    return (r & 1) != 0;
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(static_cast<std::int64_t>(r % 4001) - 2000) / T(7);
  else if constexpr (!std::is_arithmetic_v<T>)
    return T::from_bits(static_cast<decltype(T::bits)>(r));  // infinities and NaNs too
  else
    return static_cast<T>(r);
}

/// Elements in guarded memory: `offset` elements behind a multiple of 64, and nothing but those `count` may ever change.
template <class T>
class guarded {
 public:
  guarded(std::size_t count, int offset)
      : count_(count), first_(static_cast<std::size_t>(offset)), memory_(4 + (first_ + count) * sizeof(T) / sizeof(line)) {
    std::memset(static_cast<void*>(memory_.data()), guard, memory_.size() * sizeof(line));
  }
  T* data() { return reinterpret_cast<T*>(reinterpret_cast<unsigned char*>(memory_.data()) + 64 + first_ * sizeof(T)); }
  T& operator[](std::size_t i) { return data()[i]; }
  void fill(std::uint64_t seed) {
    for (std::size_t i = 0; i < count_; ++i) data()[i] = random_value<T>(seed);
  }
  bool intact() {
    auto const* const from = reinterpret_cast<unsigned char const*>(memory_.data());
    auto const* const begin = reinterpret_cast<unsigned char const*>(data());
    auto const* const end = begin + count_ * sizeof(T);
    for (auto const* p = from; p < begin; ++p)
      if (*p != guard) return false;
    for (auto const* p = end; p < end + 64; ++p)
      if (*p != guard) return false;
    return true;
  }

 private:
  static constexpr unsigned char guard = 0xA5;
  struct alignas(64) line {
    unsigned char bytes[64];
  };
  std::size_t count_, first_;
  std::vector<line> memory_;
};

template <class T>
bool equal(T const& a, T const& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

/// x -> slope x + shift modulo 2^32; composing them is associative and not commutative.
struct affine {
  std::uint32_t slope, shift;
};
struct compose {
  static constexpr bool is_commutative = false;
  affine operator()(affine f, affine g) const { return {f.slope * g.slope, g.slope * f.shift + g.shift}; }
};
struct compose_and_mark : compose {
  affine finish(affine f, int ranks) const { return {f.slope, f.shift + 1000U * static_cast<std::uint32_t>(ranks)}; }
};

template <class Cell, std::size_t Size>
struct matrix {
  Cell cells[Size * Size];
};
struct multiply {
  static constexpr bool is_commutative = false;
  template <class Cell, std::size_t Size>
  matrix<Cell, Size> operator()(matrix<Cell, Size> const& a, matrix<Cell, Size> const& b) const {
    matrix<Cell, Size> product{};
    for (std::size_t i = 0; i < Size; ++i)
      for (std::size_t k = 0; k < Size; ++k)
        for (std::size_t j = 0; j < Size; ++j)
          product.cells[i * Size + k] = static_cast<Cell>(product.cells[i * Size + k] + a.cells[i * Size + j] * b.cells[j * Size + k]);
    return product;
  }
};

template <class T>
void fill(guarded<T>& buffer, std::size_t n, std::uint64_t seed) {
  if constexpr (std::is_arithmetic_v<T> || !std::is_same_v<cx::accumulator_t<T>, T>)
    buffer.fill(seed);
  else if constexpr (std::is_same_v<T, affine>)
    for (std::size_t i = 0; i < n; ++i)
      buffer[i] = {static_cast<std::uint32_t>(next_random(seed)), static_cast<std::uint32_t>(next_random(seed))};
  else
    for (std::size_t i = 0; i < n; ++i)
      for (auto& cell : buffer[i].cells) cell = static_cast<std::remove_reference_t<decltype(cell)>>(next_random(seed) % 4);
}

struct shape {
  int sources, sinks;
  unsigned lefts;          // bit s: source s stands on the left
  unsigned finished;       // bit k: sink k gets finish
  int first_sink_is = -1;  // the source whose memory sink 0 is
  int own = -1;            // the source that is the rank's own
};

template <class T, class Op, class Fold>
bool folds_right(shape const& s, std::size_t n, int offset, Op const& op, Fold const& fold) {
  constexpr int ranks = 3;
  std::vector<guarded<T>> sources, sinks;
  std::vector<cx::kernel::operand> from;
  std::vector<cx::kernel::sink> to;
  for (int k = 0; k < s.sources; ++k) {
    sources.emplace_back(n, (offset + 3 * k) % offsets);
    fill(sources.back(), n, static_cast<std::uint64_t>(k) + n);
    from.push_back({sources.back().data(), (s.lefts >> k & 1U) != 0, s.own == k});
  }
  auto const element = [&](int k, std::size_t i) {
    T const value = sources[static_cast<std::size_t>(k)][i];
    if constexpr (cx::has_prepare<Op, T>)
      if (s.own == k) return static_cast<T>(op.prepare(value, ranks));
    return value;
  };
  std::vector<T> plain(n, n != 0 ? sources[0][0] : T{}), finished = plain;
  for (std::size_t i = 0; i < n; ++i) {
    using wide = cx::folded_in<Op, T>;
    wide value = static_cast<wide>(element(0, i));
    for (int k = 1; k < s.sources; ++k) {
      wide const next = static_cast<wide>(element(k, i));
      value = from[static_cast<std::size_t>(k)].left ? op(next, value) : op(value, next);
    }
    plain[i] = s.sources == 1 ? element(0, i) : static_cast<T>(value);  // what is only copied keeps its bits, if it is a NaN
    finished[i] = plain[i];
    if constexpr (cx::has_finish<Op, T>) finished[i] = static_cast<T>(cx::detail::finish_fold<T>(op, value, ranks));
  }
  for (int k = 0; k < s.sinks; ++k) {
    sinks.emplace_back(n, (offset + 5 * k + 1) % offsets);
    void* const data = k == 0 && s.first_sink_is >= 0 ? sources[static_cast<std::size_t>(s.first_sink_is)].data() : sinks.back().data();
    to.push_back({data, (s.finished >> k & 1U) != 0});
  }
  fold(to.data(), s.sinks, from.data(), s.sources, n, op, ranks);

  bool good = true;
  for (auto const& sink : to)
    for (std::size_t i = 0; i < n; ++i) good = good && equal(static_cast<T const*>(sink.data)[i], sink.finish ? finished[i] : plain[i]);
  for (auto& buffer : sources) good = good && buffer.intact();
  for (auto& buffer : sinks) good = good && buffer.intact();
  return good;
}

inline std::vector<std::size_t> const telling_sizes = [] {
  std::vector<std::size_t> all{0, 1, 2, 7, 8, 9, 15, 16, 31, 33, 64, 67};
  add_long_ones(all);
  return all;
}();

/// How many of all shapes `fold(sinks, sink_count, sources, source_count, count, op, ranks)` gets wrong.
template <class T, class Op, class Fold>
int wrong_folds(Op const& op, std::vector<std::size_t> const& sizes, Fold const& fold) {
  int wrong = 0;
  for (std::size_t const n : sizes)
    for (int sources = 1; sources <= 4; ++sources)
      for (int sinks = 1; sinks <= 3; ++sinks)
        for (unsigned finished = 0; finished < 1U << sinks; ++finished)
          for (int alias = -1; alias < sources; ++alias) {
            unsigned const lefts = static_cast<unsigned>(n + static_cast<std::size_t>(3 * sources + sinks + alias));
            int const own = static_cast<int>((n + finished) % 5) - 1, offset = (sources * 5 + sinks + alias + 1) % offsets;
            wrong += folds_right<T>({sources, sinks, lefts, finished, alias, own}, n, offset, op, fold) ? 0 : 1;
          }
  return wrong;
}

}  // namespace support
