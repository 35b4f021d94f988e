// SPDX-License-Identifier: Apache-2.0
// compile: -O0
/// Counts that have broken other libraries: none, fewer than ranks, uneven, too many for 32 bits.
#include <collectx/algo/hierarchical.hpp>
#include <collectx/chunk.hpp>
#include <collectx/exec/geometry.hpp>
#include <collectx/launch.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "support/algorithms.hpp"
#include "support/buffers.hpp"
#include "support/ranks.hpp"
#include "support/sanitizers.hpp"

namespace cx = collectx;
using support::algorithms_for;
using support::all_succeed;
using support::wrong;

namespace {

template <class T>
bool all_are(std::span<T> values, T wanted) {
  return std::all_of(values.begin(), values.end(), [&](T v) { return v == wanted; });
}

/// The same all-reduce by every algorithm; `input(rank, i)` and `result(i)` say what goes in and what comes out.
template <class T, class Op, class Input, class Result>
void all_reduce_by_all(int n, std::size_t count, Op const& op, Input const& input, Result const& result) {
  all_succeed(n, [&](auto& comm) -> cx::status {
    for (support::algorithm const& a : algorithms_for<cx::all_reduce>()) {
      support::guarded<T> in(count), out(count);
      for (std::size_t i = 0; i < count; ++i) in[i] = input(comm.rank(), i);
      if (cx::status s = comm.all_reduce(in.span(), out.span(), op, a.erased()); !s) return s;
      if (!in.intact() || !out.intact()) return wrong(comm.rank(), ("writes beside the buffers by " + a.name).c_str());
      for (std::size_t i = 0; i < count; ++i)
        if (!result(i, out[i])) return wrong(comm.rank(), ("wrong result by " + a.name).c_str());
    }
    return {};
  });
}

using on_nodes_of_6 = cx::algo::hierarchical<cx::algo::ring, cx::algo::double_binary_tree, cx::algo::uniform<6>>;

}  // namespace

TEST_CASE("ZER-01: every collective by every algorithm with no elements and no buffers, then a sum") {
  for (int n : {1, 2, 3, 4, 5}) {
    CAPTURE(n);
    all_succeed(n, [](auto& comm) -> cx::status {
      std::span<int> const nothing;
      cx::status s;
      for (auto const& a : algorithms_for<cx::all_reduce>())
        if (s.ok()) s = comm.all_reduce(nothing, nothing, cx::sum{}, a.erased());
      for (auto const& a : algorithms_for<cx::reduce_scatter>())
        if (s.ok()) s = comm.reduce_scatter(nothing, nothing, cx::sum{}, a.erased());
      for (auto const& a : algorithms_for<cx::all_gather>())
        if (s.ok()) s = comm.all_gather(nothing, nothing, a.erased());
      for (int root = 0; root < comm.size(); ++root) {
        for (auto const& a : algorithms_for<cx::broadcast>())
          if (s.ok()) s = comm.broadcast(nothing, root, a.erased());
        for (auto const& a : algorithms_for<cx::reduce>())
          if (s.ok()) s = comm.reduce(nothing, nothing, cx::sum{}, root, a.erased());
      }
      if (s.ok()) s = comm.all_reduce(cx::in_place(nothing), cx::sum{});
      if (s.ok()) s = comm.reduce_scatter(cx::in_place(nothing), cx::sum{});
      if (s.ok()) s = comm.all_gather(cx::in_place(nothing));
      std::vector<int> one{comm.rank() + 1};
      if (s.ok()) s = comm.all_reduce(cx::in_place(one), cx::sum{});
      if (s.ok() && one[0] != comm.size() * (comm.size() + 1) / 2) return wrong(comm.rank(), "wrong sum");
      return s;
    });
  }
}

TEST_CASE("SML-01: fewer elements than ranks, by every algorithm") {
  for (std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{4}}) {
    all_reduce_by_all<int>(
        5, count, cx::sum{}, [](int rank, std::size_t i) { return (rank + 1) * (static_cast<int>(i) + 1); },
        [](std::size_t i, int value) { return value == 15 * (static_cast<int>(i) + 1); });
  }
}

TEST_CASE("SML-03: shares are contiguous, complete, and differ by one element at most") {
  struct cut {
    std::size_t total;
    int parts;
    std::size_t longer, length;
  };
  for (cut const& c : {cut{13, 8, 5, 2}, cut{100000, 1024, 672, 98}, cut{2147483655, 4, 3, 536870914}, cut{7, 1, 1, 7}, cut{0, 3, 0, 1}}) {
    std::size_t next = 0, longer = 0;
    for (int i = 0; i < c.parts; ++i) {
      cx::extent const e = cx::share(c.total, c.parts, i);
      CHECK(e.first == next);
      CHECK((e.count == c.length || e.count + 1 == c.length));
      longer += e.count == c.length ? 1 : 0;
      next = e.first + e.count;
    }
    CHECK(next == c.total);
    CHECK(longer == c.longer);
  }
}

TEST_CASE("SML-04: one node of six and two of six, eight elements: the layout is not rounded up beyond the buffers") {
  for (int n : {6, 12}) {
    all_succeed(n, [](auto& comm) -> cx::status {
      support::guarded<float> in(8), out(8);
      std::fill(in.begin(), in.end(), static_cast<float>(comm.rank() + 1));
      if (cx::status s = comm.all_reduce(in.span(), out.span(), cx::sum{}, on_nodes_of_6{}); !s) return s;
      if (cx::status s = comm.all_reduce(cx::in_place(in.span()), cx::sum{}, on_nodes_of_6{}); !s) return s;
      float const sum = comm.size() == 6 ? 21.0F : 78.0F;
      if (!all_are(in.span(), sum) || !all_are(out.span(), sum)) return wrong(comm.rank(), "wrong sum");
      return in.intact() && out.intact() ? cx::status{} : wrong(comm.rank(), "writes beside the buffers");
    });
  }
}

TEST_CASE("SML-05: counts that no vector width divides, up to the last three elements of ten million") {
  for (std::size_t count : {std::size_t{1}, std::size_t{3}, std::size_t{31}, std::size_t{32}, std::size_t{33}}) {
    all_reduce_by_all<float>(
        8, count, cx::sum{}, [](int, std::size_t) { return 1.0F; }, [](std::size_t, float v) { return std::abs(v - 8.0F) <= 0.0F; });
  }
  all_succeed(8, [](auto& comm) -> cx::status {
    support::guarded<float> both(support::under_sanitizer ? 100003 : 10556587);
    std::fill(both.begin(), both.end(), 1.0F);
    if (cx::status s = comm.all_reduce(cx::in_place(both.span()), cx::sum{}); !s) return s;
    if (!all_are(both.span(), 8.0F)) return wrong(comm.rank(), "wrong sum of many");
    return both.intact() ? cx::status{} : wrong(comm.rank(), "writes beside the buffer");
  });
  all_succeed(8, [](auto& comm) -> cx::status {
    for (std::size_t count = 1; count <= 257; ++count) {
      support::guarded<std::int8_t> in(count), out(count);
      std::fill(in.begin(), in.end(), std::int8_t{1});
      if (cx::status s = comm.all_reduce(in.span(), out.span(), cx::sum{}, cx::algo::two_shot{}); !s) return s;
      if (!all_are(out.span(), std::int8_t{8}) || !out.intact()) return wrong(comm.rank(), "wrong sum of bytes");
    }
    return {};
  });
}

TEST_CASE("SML-07: one element per rank: reduce-scatter of r + i") {
  for (int n = 1; n <= 9; ++n) {
    CAPTURE(n);
    all_succeed(n, [](auto& comm) -> cx::status {
      for (support::algorithm const& a : algorithms_for<cx::reduce_scatter>()) {
        std::vector<int> in(static_cast<std::size_t>(comm.size())), out(1);
        for (int i = 0; i < comm.size(); ++i) in[static_cast<std::size_t>(i)] = comm.rank() + i;
        if (cx::status s = comm.reduce_scatter(in, out, cx::sum{}, a.erased()); !s) return s;
        if (out[0] != comm.size() * comm.rank() + comm.size() * (comm.size() - 1) / 2)
          return wrong(comm.rank(), ("wrong sum by " + a.name).c_str());
      }
      return {};
    });
  }
}

TEST_CASE("NP2-01: scatter and gather make a broadcast of 1 to 64 bytes, from every root") {
  for (int n : {3, 5, 6, 7, 9, 12}) {
    CAPTURE(n);
    all_succeed(n, [](auto& comm) -> cx::status {
      for (int root = 0; root < comm.size(); ++root) {
        for (std::size_t bytes = 1; bytes <= 64; ++bytes) {
          support::guarded<std::uint8_t> both(bytes);
          auto const byte = [&](std::size_t i) { return static_cast<std::uint8_t>(7 * i + static_cast<std::size_t>(root)); };
          for (std::size_t i = 0; comm.rank() == root && i < bytes; ++i) both[i] = byte(i);
          cx::status const s = bytes % 2 == 0 ? comm.broadcast(both.span(), root, cx::algo::two_shot{})
                                              : comm.broadcast(both.span(), root, cx::algo::recursive_halving{});
          if (!s) return s;
          for (std::size_t i = 0; i < bytes; ++i)
            if (both[i] != byte(i)) return wrong(comm.rank(), "wrong byte");
          if (!both.intact()) return wrong(comm.rank(), "writes beside the buffer");
        }
      }
      return {};
    });
  }
}

TEST_CASE("NP2-03: an average among 15 and 28 ranks is divided once, by their number") {
  for (int n : {15, 28}) {
    CAPTURE(n);
    all_reduce_by_all<float>(
        n, 10, cx::avg{}, [](int rank, std::size_t) { return static_cast<float>(rank + 1); },
        [n](std::size_t, float v) { return std::abs(v - (n == 15 ? 8.0F : 14.5F)) <= 1e-5F; });
  }
}

TEST_CASE("NP2-04: a plan is used again with other data") {
  for (int n = 1; n <= 17; ++n) {
    CAPTURE(n);
    all_succeed(n, [](auto& comm) -> cx::status {
      for (support::algorithm const& a : algorithms_for<cx::all_gather>()) {
        for (int t = 0; t < 3; ++t) {
          std::vector<int> in{comm.rank() + 10 * t}, out(static_cast<std::size_t>(comm.size()));
          if (cx::status s = comm.all_gather(in, out, a.erased()); !s) return s;
          for (int r = 0; r < comm.size(); ++r)
            if (out[static_cast<std::size_t>(r)] != r + 10 * t) return wrong(comm.rank(), ("wrong share by " + a.name).c_str());
        }
      }
      return {};
    });
  }
}

TEST_CASE("OVF-01, OVF-06: where blocks of more than 2^31 elements begin") {
  auto const begin_of_block = [](int ranks, int block, std::size_t per_block) {
    auto const schedule = cx::schedule_of(cx::algo::ring{}, cx::reduce_scatter{});
    cx::exec::geometry places(cx::exec::shape_of(schedule, cx::reduce_scatter{}, ranks), 1, per_block, 65536);
    places.select(0);
    std::size_t first = 0;
    places.for_each(cx::chunk(block), [&](std::size_t element, std::size_t, std::size_t) { first = element; });
    return first;
  };
  CHECK(begin_of_block(3, 2, 1073741825) == 2147483650);
  CHECK(begin_of_block(8, 7, 306783379) == 2147483653);

  // And where the last piece of a vector longer than that lies.
  auto const schedule = cx::schedule_of(cx::algo::ring{}, cx::all_reduce{});
  std::size_t const count = (std::size_t{1} << 33) + 5;
  cx::exec::geometry places(cx::exec::shape_of(schedule, cx::all_reduce{}, 4), 1, count, 65536);
  places.select(places.pieces() - 1);
  std::size_t end = 0;
  places.for_each({0, 4}, [&](std::size_t element, std::size_t, std::size_t length) { end = element + length; });
  CHECK(end == count);
}
