// SPDX-License-Identifier: Apache-2.0
// compile: -O0
/// What numbers become: order of operands, agreement to the bit, NaN and signed zero, extremes of integers, averages.
#include <collectx/launch.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "support/algorithms.hpp"
#include "support/by_all.hpp"
#include "support/elements.hpp"
#include "support/ranks.hpp"
#include "support/seed.hpp"

namespace cx = collectx;
using support::algorithms_for;
using support::all_succeed;
using support::by_all;
using support::wrong;

namespace {

template <class T>
using bits_of = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

template <class T>
bool same_bits(T a, T b) {
  return std::bit_cast<bits_of<T>>(a) == std::bit_cast<bits_of<T>>(b);
}

/// 3 x 3, row by row.
using matrix = std::array<int, 9>;
struct multiply {
  static constexpr bool is_commutative = false;
  constexpr matrix operator()(matrix const& l, matrix const& r) const {
    matrix out{};
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < 3; ++j)
        for (std::size_t k = 0; k < 3; ++k) out[3 * i + j] += l[3 * i + k] * r[3 * k + j];
    return out;
  }
};

/// Up to 15 characters and how many.
using word = std::array<char, 16>;
struct concatenate {
  static constexpr bool is_commutative = false;
  constexpr word operator()(word const& l, word const& r) const {
    word out = l;
    for (char i = 0; i < r[15]; ++i) out[static_cast<std::size_t>(out[15]++)] = r[static_cast<std::size_t>(i)];
    return out;
  }
};

using support::affine;
using support::compose;

}  // namespace

TEST_CASE("NCO-01: reduce-scatter of maps in rank order") {
  all_succeed(4, [](auto& comm) -> cx::status {
    std::uint64_t const r = static_cast<std::uint64_t>(comm.rank());
    for (support::algorithm const& a : algorithms_for<cx::reduce_scatter>()) {
      if (!a.keeps_rank_order()) continue;
      std::vector<affine> in, out(1);
      for (std::uint64_t j = 0; j < 4; ++j) in.push_back({2, 10 * (r + 1) + j, 0});
      if (cx::status s = comm.reduce_scatter(in, out, compose{}, a.template erased<true>()); !s) return s;
      if (!(out[0] == affine{16, 260 + 15 * r, 0})) return wrong(comm.rank(), ("out of order by " + a.name).c_str());
    }
    return {};
  });
}

TEST_CASE("NCO-02: products of matrices, 2 to 9 ranks, in place and not") {
  constexpr matrix a{1, 0, 0, 0, 0, 1, 0, 1, 0}, b{0, 1, 0, 1, 0, 0, 0, 0, 1}, one{1, 0, 0, 0, 1, 0, 0, 0, 1},
      ab{0, 1, 0, 0, 0, 1, 1, 0, 0};
  static_assert(multiply{}(a, b) == ab && multiply{}(b, a) != ab);
  for (int n = 2; n <= 9; ++n) {
    CAPTURE(n);
    all_succeed(n, [&](auto& comm) -> cx::status {
      int const holds_a = n == 2 ? 0 : n / 4, holds_b = n == 2 ? 1 : 3 * n / 4;
      matrix const mine = comm.rank() == holds_a ? a : comm.rank() == holds_b ? b : one;
      for (support::algorithm const& how : algorithms_for<cx::all_reduce>()) {
        if (!how.keeps_rank_order()) continue;
        for (std::size_t count = 1; count < static_cast<std::size_t>(n); ++count) {
          std::vector<matrix> both(count, mine), out(count);
          if (cx::status s = comm.all_reduce(both, out, multiply{}, how.template erased<true>()); !s) return s;
          if (cx::status s = comm.all_reduce(cx::in_place(both), multiply{}, how.template erased<true>()); !s) return s;
          if (out != std::vector<matrix>(count, ab) || both != out) return wrong(comm.rank(), ("out of order by " + how.name).c_str());
        }
      }
      std::vector<matrix> in(1, mine), out(1);
      if (cx::status s = comm.all_reduce(in, out, multiply{}); !s) return s;
      return out[0] == ab ? cx::status{} : wrong(comm.rank(), "out of order by the default");
    });
  }
}

TEST_CASE("NCO-04: reduce to every root begins with rank 0, not with the root") {
  for (int root = 0; root < 3; ++root) {
    CAPTURE(root);
    all_succeed(3, [&](auto& comm) -> cx::status {
      std::uint64_t const r = static_cast<std::uint64_t>(comm.rank());
      for (support::algorithm const& a : algorithms_for<cx::reduce>()) {
        if (!a.keeps_rank_order()) continue;
        std::vector<affine> in{{2, r + 1, 0}}, out(1);
        if (cx::status s = comm.reduce(in, out, compose{}, root, a.template erased<true>()); !s) return s;
        if (comm.rank() == root && !(out[0] == affine{8, 11, 0})) return wrong(comm.rank(), ("out of order by " + a.name).c_str());
        word letter{};
        letter[0] = static_cast<char>('a' + comm.rank());
        letter[15] = 1;
        std::vector<word> mine{letter}, all(1);
        if (cx::status s = comm.reduce(mine, all, concatenate{}, root, a.template erased<true>()); !s) return s;
        if (comm.rank() == root && std::string(all[0].data()) != "abc") return wrong(comm.rank(), ("not abc by " + a.name).c_str());
      }
      return {};
    });
  }
}

TEST_CASE("NCO-06: a user's sum meets each element once per combination") {
  for (int n = 2; n <= 7; ++n) {
    CAPTURE(n);
    std::atomic<std::uint64_t> combinations{0};
    auto const counting = cx::commutative([&](double l, double r) {
      combinations.fetch_add(1, std::memory_order_relaxed);
      return l + r;
    });
    std::uint64_t expected = 0;
    for (std::size_t count = 1; count <= 4096; count *= 2) expected += count * static_cast<std::uint64_t>(n - 1);
    all_succeed(n, [&](auto& comm) -> cx::status {
      for (std::size_t count = 1; count <= 4096; count *= 2) {
        std::vector<double> in(count, comm.rank() % 2 == 0 ? -1.0 : 1.0), out(count, 9.0);
        if (cx::status s = comm.all_reduce(in, out, counting, cx::algo::ring{}); !s) return s;
        double const sum = n % 2 == 0 ? 0.0 : -1.0;
        for (double v : out)
          if (v < sum || v > sum) return wrong(comm.rank(), "wrong sum");
      }
      return {};
    });
    CHECK(combinations == expected);  // reduce-scatter: n - 1 per element in all
  }
}

namespace {

template <class T>
void nan_wins_wherever_it_is() {
  for (int p = 0; p < 4; ++p) {
    auto const input = [p](int rank) {
      T const values[] = {1, 4, 3, 2};
      return std::vector<T>(9, rank == p ? std::numeric_limits<T>::quiet_NaN() : values[rank]);
    };
    auto const all_nan = [](std::vector<T> const& out) { return std::all_of(out.begin(), out.end(), [](T v) { return std::isnan(v); }); };
    by_all<T>(4, cx::max{}, input, all_nan);
    by_all<T>(4, cx::min{}, input, all_nan);
  }
}

}  // namespace

TEST_CASE("NAN-01: NaN wins, whichever rank has it and whatever the algorithm") {
  nan_wins_wherever_it_is<float>();
  nan_wins_wherever_it_is<double>();
}

TEST_CASE("NAN-03: of zeros, the minimum is -0 and the maximum +0 if there is one, on all ranks") {
  for (unsigned signs = 0; signs < 16; ++signs) {
    auto const input = [signs](int rank) { return std::vector<double>(3, (signs >> rank & 1) != 0 ? -0.0 : 0.0); };
    by_all<double>(4, cx::min{}, input, [&](std::vector<double> const& out) { return same_bits(out[2], signs == 0 ? 0.0 : -0.0); });
    by_all<double>(4, cx::max{}, input, [&](std::vector<double> const& out) { return same_bits(out[2], signs == 15 ? -0.0 : 0.0); });
  }
}

TEST_CASE("NAN-04: extremes are not mistaken for an identity") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  auto const always = [](auto value) { return [value](int) { return std::vector<decltype(value)>(5, value); }; };
  by_all<double>(2, cx::min{}, always(std::nan("")), [](std::vector<double> const& out) { return std::isnan(out[4]); });
  by_all<double>(2, cx::max{}, always(-infinity), [](std::vector<double> const& out) { return same_bits(out[4], -infinity); });
  by_all<double>(2, cx::min{}, always(infinity), [](std::vector<double> const& out) { return same_bits(out[4], infinity); });
  by_all<int>(2, cx::max{}, always(std::numeric_limits<int>::lowest()),
              [](std::vector<int> const& out) { return out[4] == std::numeric_limits<int>::lowest(); });
  by_all<std::uint8_t>(2, cx::min{}, always(std::uint8_t{255}), [](std::vector<std::uint8_t> const& out) { return out[4] == 255; });
}

namespace {

template <class T>
void extremes_of_unsigned() {
  static constexpr T most = (std::numeric_limits<T>::max)();
  for (std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{15}, std::size_t{16}, std::size_t{17}, std::size_t{31},
                            std::size_t{33}, std::size_t{64}, std::size_t{67}}) {
    auto const input = [count](int rank) {
      std::vector<T> values(count);
      for (std::size_t i = 0; i < count; ++i) values[i] = (i + static_cast<std::size_t>(rank)) % 2 == 0 ? T{0} : most;
      return values;
    };
    by_all<T>(2, cx::min{}, input, [](std::vector<T> const& out) {
      return std::count(out.begin(), out.end(), T{0}) == static_cast<std::ptrdiff_t>(out.size());
    });
    by_all<T>(2, cx::max{}, input, [](std::vector<T> const& out) {
      return std::count(out.begin(), out.end(), most) == static_cast<std::ptrdiff_t>(out.size());
    });
  }
}

}  // namespace

TEST_CASE("INT-01: unsigned numbers compare as unsigned, in vectors and in what is left over") {
  extremes_of_unsigned<std::uint8_t>();
  extremes_of_unsigned<std::uint16_t>();
  extremes_of_unsigned<std::uint32_t>();
  extremes_of_unsigned<std::uint64_t>();
  constexpr std::uint64_t half = std::uint64_t{1} << 63;
  auto const around_half = [](int rank) { return std::vector<std::uint64_t>{rank == 0 ? half - 1 : half}; };
  by_all<std::uint64_t>(2, cx::min{}, around_half, [](auto const& out) { return out[0] == half - 1; });
  by_all<std::uint64_t>(2, cx::max{}, around_half, [](auto const& out) { return out[0] == half; });
}

TEST_CASE("INT-03: the average of integers is truncated toward zero, and exact in 64 bits") {
  auto const among_four = [](std::array<int, 4> const& values, int expected) {
    by_all<int>(
        4, cx::avg{}, [&](int rank) { return std::vector<int>(5, values[static_cast<std::size_t>(rank)]); },
        [&](std::vector<int> const& out) { return out == std::vector<int>(5, expected); });
  };
  among_four({1, 2, 3, 5}, 2);
  among_four({-1, -2, -3, -5}, -2);
  among_four({4, 8, 4, 8}, 6);
  constexpr std::int64_t odd = (std::int64_t{1} << 53) + 1;
  by_all<std::int64_t>(
      4, cx::avg{}, [](int) { return std::vector<std::int64_t>{odd}; }, [](auto const& out) { return out[0] == odd; });
}

TEST_CASE("INT-04: truth values") {
  auto const first_false = [](int rank) { return std::vector<std::uint8_t>{static_cast<std::uint8_t>(rank)}; };
  all_succeed(2, [&](auto& comm) -> cx::status {
    std::array<bool, 3> in{comm.rank() == 1, comm.rank() == 1, true}, out{};
    auto const one = [&](std::size_t i) { return std::span(in).subspan(i, 1); };
    auto const result = [&](std::size_t i) { return std::span(out).subspan(i, 1); };
    if (cx::status s = comm.all_reduce(one(0), result(0), cx::max{}); !s) return s;
    if (cx::status s = comm.all_reduce(one(1), result(1), cx::min{}); !s) return s;
    if (cx::status s = comm.all_reduce(one(2), result(2), cx::sum{}); !s) return s;
    return out[0] && !out[1] && out[2] ? cx::status{} : wrong(comm.rank(), "wrong truth");
  });
  by_all<std::uint8_t>(2, cx::max{}, first_false, [](auto const& out) { return out[0] == 1; });
}

TEST_CASE("AVG-01: 10 is the average of 4, 8, 12 and 16 by every collective that reduces, and every algorithm") {
  all_succeed(4, [](auto& comm) -> cx::status {
    std::vector<float> const in(20, 4.0F * static_cast<float>(comm.rank() + 1));
    auto const is_ten = [](std::vector<float> const& v) {
      return std::all_of(v.begin(), v.end(), [](float x) { return same_bits(x, 10.0F); });
    };
    for (auto const& a : algorithms_for<cx::all_reduce>()) {
      std::vector<float> out(20), both = in;
      if (cx::status s = comm.all_reduce(in, out, cx::avg{}, a.erased()); !s) return s;
      if (cx::status s = comm.all_reduce(cx::in_place(both), cx::avg{}, a.erased()); !s) return s;
      if (!is_ten(out) || !is_ten(both)) return wrong(comm.rank(), ("all_reduce by " + a.name).c_str());
    }
    for (auto const& a : algorithms_for<cx::reduce_scatter>()) {
      std::vector<float> out(5);
      if (cx::status s = comm.reduce_scatter(in, out, cx::avg{}, a.erased()); !s) return s;
      if (!is_ten(out)) return wrong(comm.rank(), ("reduce_scatter by " + a.name).c_str());
    }
    for (auto const& a : algorithms_for<cx::reduce>()) {
      for (int root = 0; root < 4; ++root) {
        std::vector<float> out(20);
        if (cx::status s = comm.reduce(in, out, cx::avg{}, root, a.erased()); !s) return s;
        if (comm.rank() == root && !is_ten(out)) return wrong(comm.rank(), ("reduce by " + a.name).c_str());
      }
    }
    return {};
  });
}

TEST_CASE("AVG-01: also where a vector falls into many pieces, and in scratch memory") {
  cx::loopback::options narrow;
  narrow.slots = 4;
  narrow.slot_bytes = 64;
  for (int n : {3, 4, 6}) {
    all_succeed(n, narrow, [n](auto& comm) -> cx::status {
      for (auto const& a : algorithms_for<cx::all_reduce>()) {
        std::vector<double> in(333, comm.rank() + 1.0), out(333);
        if (cx::status s = comm.all_reduce(in, out, cx::avg{}, a.erased()); !s) return s;
        for (double v : out)
          if (!same_bits(v, (n + 1) / 2.0)) return wrong(comm.rank(), ("wrong average by " + a.name).c_str());
      }
      return {};
    });
  }
}

namespace {

/// Results of all ranks, kept apart by what they are.
class witnesses {
 public:
  void add(std::vector<float> const& result) {
    std::vector<std::uint32_t> bits;
    for (float v : result) bits.push_back(std::bit_cast<std::uint32_t>(v));
    std::lock_guard const lock(mutex_);
    seen_.insert(bits);
  }
  std::size_t different() const { return seen_.size(); }
  float first() const { return std::bit_cast<float>(seen_.begin()->front()); }

 private:
  std::mutex mutex_;
  std::set<std::vector<std::uint32_t>> seen_;
};

float rough(int rank, std::size_t i) {
  support::random_stream random(i * 1000 + static_cast<std::uint64_t>(rank));
  return static_cast<float>(static_cast<double>(random.next() % 2000001) / 1000.0 - 1000.0);
}
std::vector<float> rough_numbers(int rank, std::size_t count) {
  std::vector<float> in(count);
  for (std::size_t i = 0; i < count; ++i) in[i] = rough(rank, i);
  return in;
}

}  // namespace

TEST_CASE("DET-01: all ranks have the same bits, by every algorithm") {
  for (support::algorithm const& a : algorithms_for<cx::all_reduce>()) {
    CAPTURE(a.name);
    witnesses of_four, of_many;
    all_succeed(4, [&](auto& comm) -> cx::status {
      float const four[] = {1e8F, 1.0F, -1e8F, 1.0F};
      std::vector<float> in{four[comm.rank()]}, out(1);
      if (cx::status s = comm.all_reduce(in, out, cx::sum{}, a.erased()); !s) return s;
      of_four.add(out);
      std::vector<float> const many = rough_numbers(comm.rank(), 10000);
      std::vector<float> sums(many.size());
      if (cx::status s = comm.all_reduce(many, sums, cx::sum{}, a.erased()); !s) return s;
      of_many.add(sums);
      return {};
    });
    CHECK(of_four.different() == 1);
    CHECK(of_many.different() == 1);
    float const v = of_four.first();
    CHECK((same_bits(v, 0.0F) || same_bits(v, 1.0F) || same_bits(v, 2.0F)));
  }
}

TEST_CASE("DET-03: 100 repeats with ranks that start at odd times give one result") {
  for (support::algorithm const& a : algorithms_for<cx::all_reduce>()) {
    CAPTURE(a.name);
    witnesses seen;
    all_succeed(4, [&](auto& comm) -> cx::status {
      std::vector<float> const in = rough_numbers(comm.rank(), 4099);
      std::vector<float> out(in.size());
      support::random_stream random(support::seed() + static_cast<std::uint64_t>(comm.rank()));
      for (int repeat = 0; repeat < 100; ++repeat) {
        if (random.below(8) == 0) cx::detail::nap(static_cast<std::int64_t>(random.below(200'000)));
        if (cx::status s = comm.all_reduce(in, out, cx::sum{}, a.erased()); !s) return s;
        seen.add(out);
      }
      return {};
    });
    CHECK(seen.different() == 1);
  }
}

TEST_CASE("DET-04: one shot and two shots add from left to right in rank order") {
  for (std::size_t count : {std::size_t{64}, std::size_t{65536}}) {
    all_succeed(4, [count](auto& comm) -> cx::status {
      std::vector<float> const in = rough_numbers(comm.rank(), count);
      std::vector<float> direct(count), two_shot(count);
      if (cx::status s = comm.all_reduce(in, direct, cx::sum{}, cx::algo::direct{}); !s) return s;
      if (cx::status s = comm.all_reduce(in, two_shot, cx::sum{}, cx::algo::two_shot{}); !s) return s;
      for (std::size_t i = 0; i < count; ++i) {
        float const sum = ((rough(0, i) + rough(1, i)) + rough(2, i)) + rough(3, i);
        if (!same_bits(direct[i], sum) || !same_bits(two_shot[i], sum)) return wrong(comm.rank(), "another order");
      }
      return {};
    });
  }
}
