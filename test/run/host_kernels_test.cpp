// SPDX-License-Identifier: Apache-2.0
// labels: address
#include "collectx/reduce/host_kernels.hpp"

#include "collectx/reduce/functors.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace cx = collectx;

namespace {

constexpr int offsets = 16;

std::vector<std::size_t> counts() {
  std::vector<std::size_t> all;
  for (std::size_t n = 0; n <= 67; ++n) all.push_back(n);
  all.push_back(1000);
  all.push_back(4099);
  return all;
}

std::uint64_t next_random(std::uint64_t& state) {
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

template <class T, class Op>
int wrong_combinations(Op const& op) {
  int wrong = 0;
  for (std::size_t const n : counts())
    for (int offset = 0; offset < offsets; ++offset) {
      guarded<T> left(n, offset), right(n, (offset * 7 + 3) % offsets), out(n, (offset * 5 + 1) % offsets);
      left.fill(n + 1);
      right.fill(n + 2);
      cx::kernel::combine(out.data(), left.data(), right.data(), n, op);
      bool good = out.intact();
      for (std::size_t i = 0; i < n; ++i) good = good && equal(out[i], static_cast<T>(op(left[i], right[i])));
      wrong += good ? 0 : 1;
    }
  return wrong;
}

template <class T>
void every_functor() {
  CAPTURE(sizeof(T));
  CHECK(wrong_combinations<T>(cx::sum{}) == 0);
  CHECK(wrong_combinations<T>(cx::prod{}) == 0);
  CHECK(wrong_combinations<T>(cx::min{}) == 0);
  CHECK(wrong_combinations<T>(cx::max{}) == 0);
  if constexpr (!std::is_same_v<T, bool>) CHECK(wrong_combinations<T>(cx::avg{}) == 0);
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
  if constexpr (std::is_arithmetic_v<T>)
    buffer.fill(seed);
  else if constexpr (std::is_same_v<T, affine>)
    for (std::size_t i = 0; i < n; ++i)
      buffer[i] = {static_cast<std::uint32_t>(next_random(seed)), static_cast<std::uint32_t>(next_random(seed))};
  else
    for (std::size_t i = 0; i < n; ++i)
      for (auto& cell : buffer[i].cells) cell = static_cast<std::remove_reference_t<decltype(cell)>>(next_random(seed) % 4);
}

struct counting {
  static constexpr bool is_commutative = true;
  std::atomic<std::size_t>* combined;
  std::atomic<std::size_t>* finished;
  int operator()(int a, int b) const { return ++*combined, a + b; }
  int finish(int a, int) const { return ++*finished, a; }
};

struct shape {
  int sources, sinks;
  unsigned lefts;          // bit s: source s stands on the left
  unsigned finished;       // bit k: sink k gets finish
  int first_sink_is = -1;  // the source whose memory sink 0 is
  bool stream = false;
};

template <class T, class Op>
bool folds_right(shape const& s, std::size_t n, int offset, Op const& op) {
  constexpr int ranks = 3;
  std::vector<guarded<T>> sources, sinks;
  std::vector<cx::kernel::operand> from;
  std::vector<cx::kernel::sink> to;
  for (int k = 0; k < s.sources; ++k) {
    sources.emplace_back(n, (offset + 3 * k) % offsets);
    fill(sources.back(), n, static_cast<std::uint64_t>(k) + n);
    from.push_back({sources.back().data(), (s.lefts >> k & 1U) != 0});
  }
  std::vector<T> plain(n, n != 0 ? sources[0][0] : T{}), finished = plain;
  for (std::size_t i = 0; i < n; ++i) {
    plain[i] = sources[0][i];
    for (int k = 1; k < s.sources; ++k) {
      T const& next = sources[static_cast<std::size_t>(k)][i];
      plain[i] = from[static_cast<std::size_t>(k)].left ? op(next, plain[i]) : op(plain[i], next);
    }
    finished[i] = plain[i];
    if constexpr (cx::has_finish<Op, T>) finished[i] = op.finish(plain[i], ranks);
  }
  for (int k = 0; k < s.sinks; ++k) {
    sinks.emplace_back(n, (offset + 5 * k + 1) % offsets);
    void* const data = k == 0 && s.first_sink_is >= 0 ? sources[static_cast<std::size_t>(s.first_sink_is)].data() : sinks.back().data();
    to.push_back({data, (s.finished >> k & 1U) != 0});
  }
  cx::kernel::fold<T>(to.data(), s.sinks, from.data(), s.sources, n, op, ranks, s.stream);

  bool good = true;
  for (auto const& sink : to)
    for (std::size_t i = 0; i < n; ++i) good = good && equal(static_cast<T const*>(sink.data)[i], sink.finish ? finished[i] : plain[i]);
  for (auto& buffer : sources) good = good && buffer.intact();
  for (auto& buffer : sinks) good = good && buffer.intact();
  return good;
}

template <class T, class Op>
int wrong_folds(Op const& op, std::vector<std::size_t> const& sizes = {0, 1, 2, 7, 8, 9, 15, 16, 31, 33, 64, 67, 1000, 4099}) {
  int wrong = 0;
  for (std::size_t const n : sizes)
    for (int sources = 1; sources <= 4; ++sources)
      for (int sinks = 1; sinks <= 3; ++sinks)
        for (unsigned finished = 0; finished < 1U << sinks; ++finished)
          for (bool stream : {false, true})
            for (int alias = -1; alias < sources; ++alias) {
              unsigned const lefts = static_cast<unsigned>(n + static_cast<std::size_t>(3 * sources + sinks + alias));
              wrong += folds_right<T>({sources, sinks, lefts, finished, alias, stream}, n, (sources * 5 + sinks + alias + 1) % offsets, op)
                           ? 0
                           : 1;
            }
  return wrong;
}

}  // namespace

TEST_CASE("combine: every functor on every integer type, at every count and alignment, to the bit") {
  every_functor<bool>();
  every_functor<std::int8_t>();
  every_functor<std::uint8_t>();
  every_functor<std::int16_t>();
  every_functor<std::uint16_t>();
  every_functor<std::int32_t>();
  every_functor<std::uint32_t>();
  every_functor<std::int64_t>();
  every_functor<std::uint64_t>();
}

TEST_CASE("combine: every functor on floating-point types, at every count and alignment, to the bit") {
  every_functor<float>();
  every_functor<double>();
}

TEST_CASE("combine: the output may be the left operand, the right one, or both") {
  for (std::size_t const n : counts()) {
    std::vector<std::int32_t> a(n), b(n), expected(n);
    std::uint64_t seed = n;
    for (std::size_t i = 0; i < n; ++i) {
      a[i] = random_value<std::int32_t>(seed);
      b[i] = random_value<std::int32_t>(seed);
      expected[i] = cx::sum{}(a[i], b[i]);
    }
    auto on_left = a, on_right = b, on_both = a;
    cx::kernel::combine(on_left.data(), on_left.data(), b.data(), n, cx::sum{});
    cx::kernel::combine(on_right.data(), a.data(), on_right.data(), n, cx::sum{});
    cx::kernel::combine(on_both.data(), on_both.data(), on_both.data(), n, cx::sum{});
    CHECK(on_left == expected);
    CHECK(on_right == expected);
    bool doubled = true;
    for (std::size_t i = 0; i < n; ++i) doubled = doubled && on_both[i] == cx::sum{}(a[i], a[i]);
    CHECK(doubled);
  }
}

TEST_CASE("fold: any sources, sinks, sides, finishes, streams and shared memory give the fold of each element") {
  CHECK(wrong_folds<float>(cx::sum{}) == 0);
  CHECK(wrong_folds<float>(cx::avg{}) == 0);
  CHECK(wrong_folds<std::int8_t>(cx::avg{}) == 0);
  CHECK(wrong_folds<double>(cx::max{}) == 0);
}

TEST_CASE("fold: a user's reduction that does not commute keeps its sides") {
  CHECK(wrong_folds<affine>(compose{}) == 0);
  CHECK(wrong_folds<affine>(compose_and_mark{}) == 0);
}

TEST_CASE("fold: elements of odd and of large sizes") {
  std::vector<std::size_t> const sizes{0, 1, 3, 8, 9, 17, 130};
  CHECK(sizeof(matrix<float, 3>) == 36);
  CHECK(wrong_folds<matrix<float, 3>>(multiply{}, sizes) == 0);
  CHECK(wrong_folds<matrix<std::uint8_t, 3>>(multiply{}, sizes) == 0);
  CHECK(wrong_folds<matrix<double, 24>>(multiply{}, {0, 1, 9}) == 0);  // larger than a tile
}

TEST_CASE("fold: a lambda with state sees its state although outputs are written meanwhile") {
  std::vector<float> left(1000, 3.0F), right(1000, 5.0F), out(1000);
  float scale = 2.0F;
  auto const by_value = cx::non_commutative([scale](float a, float b) { return a + scale * b; });
  cx::kernel::combine(out.data(), left.data(), right.data(), out.size(), by_value);
  CHECK(out == std::vector<float>(1000, 13.0F));
  auto const by_reference = cx::non_commutative([&scale](float a, float b) { return a + scale * b; });
  scale = 4.0F;
  cx::kernel::combine(out.data(), left.data(), right.data(), out.size(), by_reference);
  CHECK(out == std::vector<float>(1000, 23.0F));
}

TEST_CASE("fold: the operation is called once per element and source, finish once per element") {
  for (std::size_t const n : counts())
    for (int source_count = 1; source_count <= 4; ++source_count)
      for (bool stream : {false, true}) {
        std::atomic<std::size_t> combined = 0, finished = 0;
        std::vector<int> in(n, 1), out(n), out_too(n);
        std::vector<cx::kernel::operand> const sources(static_cast<std::size_t>(source_count), {in.data(), false});
        cx::kernel::sink const sinks[] = {{out.data(), true}, {out_too.data(), true}};
        cx::kernel::fold<int>(sinks, 2, sources.data(), source_count, n, counting{&combined, &finished}, 2, stream);
        CHECK(combined == n * static_cast<std::size_t>(source_count - 1));
        CHECK(finished == n);
        CHECK(out == std::vector<int>(n, source_count));
        CHECK(out_too == out);
      }
}

TEST_CASE("the loop for processors without AVX2 gives the same bits") {
  using value = cx::detail::kernels::combined<float, cx::avg>;
  for (std::size_t const n : counts()) {
    guarded<float> left(n, 3), right(n, 7), out(n, 1), expected(n, 0);
    left.fill(n);
    right.fill(n + 1);
    cx::kernel::combine(expected.data(), left.data(), right.data(), n, cx::avg{});
    cx::detail::kernels::for_all_baseline<sizeof(float)>(
        n, cx::detail::kernels::to_one<float, value>{out.data(), {left.data(), right.data(), {}}});
    CHECK(std::memcmp(out.data(), expected.data(), n * sizeof(float)) == 0);
    CHECK(out.intact());
  }
}

TEST_CASE("copy: every size and alignment, around the cache or through it, and onto itself") {
  for (std::size_t bytes = 0; bytes <= 300; ++bytes)
    for (int offset = 0; offset < offsets; ++offset)
      for (bool stream : {false, true}) {
        guarded<unsigned char> from(bytes, offset), to(bytes, (offset * 7 + 3) % offsets);
        from.fill(bytes);
        cx::kernel::copy(to.data(), from.data(), bytes, stream);
        bool good = to.intact() && from.intact();
        for (std::size_t i = 0; i < bytes; ++i) good = good && to[i] == from[i];
        cx::kernel::copy(to.data(), to.data(), bytes, stream);
        for (std::size_t i = 0; i < bytes; ++i) good = good && to[i] == from[i];
        REQUIRE(good);
      }
}
