// SPDX-License-Identifier: Apache-2.0
// compile: -O0
/// Small floating-point types, bits and truth, places of extremes and premultiplied sums in collectives, by every algorithm.
#include <collectx/launch.hpp>
#include <collectx/reduce/bitwise.hpp>
#include <collectx/reduce/located.hpp>
#include <collectx/reduce/premultiplied_sum.hpp>
#include <collectx/reduce/small_floats.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>
#include <set>
#include <vector>

#include "support/by_all.hpp"
#include "support/seed.hpp"
#include "support/sweep.hpp"

namespace cx = collectx;
using support::algorithms_for;
using support::all_succeed;
using support::by_all;
using support::wrong;

namespace {

template <class T>
auto one_value(std::vector<float> const& of_rank, std::size_t count) {
  return [of_rank, count](int rank) { return std::vector<T>(count, T(of_rank[static_cast<std::size_t>(rank)])); };
}
template <class T>
auto all_are(float expected) {
  return [expected](std::vector<T> const& out) {
    for (T const v : out)
      if (v.bits != T(expected).bits) return false;
    return true;
  };
}

template <class T>
T rough(int rank, std::size_t i) {
  support::random_stream random(i * 1000 + static_cast<std::uint64_t>(rank));
  return T(static_cast<float>(random.below(20001)) / 1000.0F - 10.0F);
}

}  // namespace

TEST_CASE("all_reduce of bfloat16: every algorithm, count and placement") {
  for (int n : {2, 3, 5, 8}) {
    CAPTURE(n);
    support::sweep_some<cx::all_reduce, cx::bfloat16, true>(n, 8);
  }
}

TEST_CASE("reduce_scatter and reduce of an 8-bit type") {
  for (int n : {2, 3, 5, 8}) {
    CAPTURE(n);
    support::sweep_some<cx::reduce_scatter, cx::float8_e4m3>(n, 6);
    support::sweep_some<cx::reduce, cx::float8_e4m3>(n, 6);
  }
}

TEST_CASE("small types have the same bits on all ranks, by every algorithm, although a hop rounds (DET-01, LPA-01)") {
  for (int n : {2, 3, 4, 5, 6, 7, 8, 9}) {
    for (support::algorithm const& a : algorithms_for<cx::all_reduce>()) {
      if (!a.face->admits(0, n)) continue;
      CAPTURE(n);
      CAPTURE(a.name);
      std::mutex mutex;
      std::set<std::vector<std::uint16_t>> seen;
      all_succeed(n, [&](auto& comm) -> cx::status {
        std::vector<cx::bfloat16> in(300), out(300);
        for (std::size_t i = 0; i < in.size(); ++i) in[i] = rough<cx::bfloat16>(comm.rank(), i);
        if (cx::status s = comm.all_reduce(in, out, cx::sum{}, a.erased()); !s) return s;
        std::vector<std::uint16_t> bits;
        for (cx::bfloat16 v : out) bits.push_back(v.bits);
        std::lock_guard const lock(mutex);
        seen.insert(bits);
        return {};
      });
      CHECK(seen.size() == 1);
    }
  }
}

TEST_CASE("LPA-01, LPA-05: one fold keeps small terms, hops may round, and all ranks agree on what") {
  std::vector<float> values(9, 1.0F);
  for (std::size_t place = 0; place < 9; ++place) {
    std::fill(values.begin(), values.end(), 1.0F);
    values[place] = 256;
    by_all<cx::bfloat16>(9, cx::sum{}, one_value<cx::bfloat16>(values, 3),
                         [](std::vector<cx::bfloat16> const& out) { return out[0] >= 256.0F && out[0] <= 266.0F; });
    all_succeed(9, [&](auto& comm) -> cx::status {
      std::vector<cx::bfloat16> const in(40, cx::bfloat16(values[static_cast<std::size_t>(comm.rank())]));
      std::vector<cx::bfloat16> direct(40), two_shot(40);
      if (cx::status s = comm.all_reduce(in, direct, cx::sum{}, cx::algo::direct{}); !s) return s;
      if (cx::status s = comm.all_reduce(in, two_shot, cx::sum{}, cx::algo::two_shot{}); !s) return s;
      bool const exact = all_are<cx::bfloat16>(264)(direct) && all_are<cx::bfloat16>(264)(two_shot);
      return exact ? cx::status{} : wrong(comm.rank(), "not 264 in one fold");
    });
  }
}

TEST_CASE("AVG-02, AVG-04: averages of half precision do not overflow, and are exact by every algorithm") {
  by_all<cx::float16>(2, cx::avg{}, one_value<cx::float16>({65504, 65504}, 5), all_are<cx::float16>(65504));
  by_all<cx::float16>(3, cx::avg{}, one_value<cx::float16>({60000, 60000, 60000}, 40), all_are<cx::float16>(60000));
  by_all<cx::float8_e4m3>(4, cx::avg{}, one_value<cx::float8_e4m3>({448, 448, 448, 448}, 40), all_are<cx::float8_e4m3>(448));
  for (std::size_t count = 1; count <= 40; count += 3) {
    by_all<cx::float16>(3, cx::avg{}, one_value<cx::float16>({1, 2, 6}, count), all_are<cx::float16>(3));
    by_all<cx::bfloat16>(3, cx::avg{}, one_value<cx::bfloat16>({1, 2, 6}, count), all_are<cx::bfloat16>(3));
  }
}

TEST_CASE("a premultiplied sum takes each rank's own factor once, by every algorithm, in place and not") {
  for (int n : {1, 2, 3, 5, 8}) {
    CAPTURE(n);
    all_succeed(n, [n](auto& comm) -> cx::status {
      int expected = 0;
      for (int r = 0; r < n; ++r) expected += (r + 2) * (r + 1);
      cx::premultiplied_sum const op{comm.rank() + 2};
      for (std::size_t const count : {std::size_t{1}, std::size_t{700}}) {
        for (support::algorithm const& a : algorithms_for<cx::all_reduce>()) {
          if (!a.face->admits(0, n)) continue;
          std::vector<int> both(count, comm.rank() + 1), out(count);
          if (cx::status s = comm.all_reduce(both, out, op, a.erased()); !s) return s;
          if (cx::status s = comm.all_reduce(cx::in_place(both), op, a.erased()); !s) return s;
          if (out != std::vector<int>(count, expected) || both != out) return wrong(comm.rank(), ("wrong sum by " + a.name).c_str());
        }
        for (support::algorithm const& a : algorithms_for<cx::reduce_scatter>()) {
          if (!a.face->admits(0, n)) continue;
          std::vector<int> all(count * static_cast<std::size_t>(n), comm.rank() + 1), mine(count);
          if (cx::status s = comm.reduce_scatter(all, mine, op, a.erased()); !s) return s;
          if (mine != std::vector<int>(count, expected)) return wrong(comm.rank(), ("wrong share by " + a.name).c_str());
        }
        for (support::algorithm const& a : algorithms_for<cx::reduce>())
          for (int root = 0; root < n; ++root) {
            if (!a.face->admits(root, n)) continue;
            std::vector<int> const in(count, comm.rank() + 1);
            std::vector<int> out(count);
            if (cx::status s = comm.reduce(in, out, op, root, a.erased()); !s) return s;
            if (comm.rank() == root && out != std::vector<int>(count, expected))
              return wrong(comm.rank(), ("wrong sum at the root by " + a.name).c_str());
          }
      }
      return {};
    });
  }
}

TEST_CASE("NAN-01: a NaN of half precision wins, whichever rank has it and whatever the algorithm") {
  for (std::size_t p = 0; p < 4; ++p) {
    std::vector<float> values{1, 4, 3, 2};
    values[p] = std::numeric_limits<float>::quiet_NaN();
    by_all<cx::float16>(4, cx::max{}, one_value<cx::float16>(values, 9),
                        [](std::vector<cx::float16> const& out) { return out[0].bits == 0x7fff && out[8].bits == 0x7fff; });
  }
}

TEST_CASE("INT-04: truth and bits by every algorithm, 1 to 3 ranks") {
  for (int n : {1, 2, 3}) {
    auto const input = [](int rank) { return std::vector<int>(9, rank == 0 ? 2 : 4); };
    auto const is = [](int expected) { return [expected](std::vector<int> const& out) { return out == std::vector<int>(9, expected); }; };
    by_all<int>(n, cx::land{}, input, is(1));
    by_all<int>(n, cx::lxor{}, input, is(n % 2));
    by_all<int>(n, cx::bor{}, input, is(n == 1 ? 2 : 6));
  }
}

TEST_CASE("INT-05: the place of the extreme is the lowest rank that has it, by every algorithm") {
  using place = cx::located<double>;
  auto const ones = [](int rank) { return std::vector<place>(7, {1.0, rank}); };
  auto const ranks = [](int rank) { return std::vector<place>(7, {static_cast<double>(rank), rank}); };
  auto const is = [](place expected) {
    return [expected](std::vector<place> const& out) { return out == std::vector<place>(7, expected); };
  };
  by_all<place>(5, cx::max_located{}, ones, is({1.0, 0}));
  by_all<place>(5, cx::max_located{}, ranks, is({4.0, 4}));
  by_all<place>(5, cx::min_located{}, ones, is({1.0, 0}));
}

TEST_CASE("small types between processes") {
  auto const sums = [](auto& comm) -> cx::status {
    std::vector<cx::bfloat16> const in(5000, cx::bfloat16(static_cast<float>(comm.rank() + 1)));
    std::vector<cx::bfloat16> out(in.size());
    if (cx::status s = comm.all_reduce(in, out, cx::sum{}, cx::algo::ring{}); !s) return s;
    return all_are<cx::bfloat16>(6)(out) ? cx::status{} : wrong(comm.rank(), "a sum is wrong");
  };
  cx::status const processes = cx::shared_memory::run(3, sums);
  CHECK_MESSAGE(processes.ok(), support::text(processes));
}
