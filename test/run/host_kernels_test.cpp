// SPDX-License-Identifier: Apache-2.0
// labels: address
#include "collectx/reduce/host_kernels.hpp"

#include "collectx/reduce/functors.hpp"
#include "collectx/reduce/small_floats.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "support/folds.hpp"

namespace cx = collectx;
using namespace support;

namespace {

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

struct counting {
  static constexpr bool is_commutative = true;
  std::atomic<std::size_t>* combined;
  std::atomic<std::size_t>* finished;
  int operator()(int a, int b) const { return ++*combined, a + b; }
  int finish(int a, int) const { return ++*finished, a; }
};

/// By the host's kernel, through the cache and around it.
template <class T, class Op>
int wrong_folds(Op const& op, std::vector<std::size_t> const& sizes = support::telling_sizes) {
  int wrong = 0;
  for (bool const stream : {false, true})
    wrong += support::wrong_folds<T>(op, sizes, [stream](auto... arguments) { cx::kernel::fold<T>(arguments..., stream); });
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

TEST_CASE("combine: every functor on small floating-point types, at every count and alignment, to the bit") {
  every_functor<cx::bfloat16>();
  every_functor<cx::float16>();
  every_functor<cx::float8_e4m3>();
  every_functor<cx::float8_e5m2>();
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

TEST_CASE("fold: small floating-point types are folded in float, and rounded where they are stored") {
  CHECK(wrong_folds<cx::bfloat16>(cx::sum{}) == 0);
  CHECK(wrong_folds<cx::float16>(cx::avg{}) == 0);
  CHECK(wrong_folds<cx::float8_e4m3>(cx::prod{}) == 0);
  CHECK(wrong_folds<cx::float16>(cx::non_commutative([](auto a, auto b) { return a - b; })) == 0);
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
