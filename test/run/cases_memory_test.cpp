// SPDX-License-Identifier: Apache-2.0
// compile: -O0
/// In place, out of place, at odd addresses, alone: what calls may do to memory and what they may not.
#include <collectx/algo/hierarchical.hpp>
#include <collectx/launch.hpp>

#include <doctest/doctest.h>

#include <sys/mman.h>
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "support/algorithms.hpp"
#include "support/buffers.hpp"
#include "support/elements.hpp"
#include "support/ranks.hpp"

namespace cx = collectx;
using support::algorithms_for;
using support::all_succeed;
using support::guarded;
using support::wrong;

namespace {
using two_nodes = cx::algo::hierarchical<cx::algo::ring, cx::algo::recursive_halving, cx::algo::sizes<2, 2>>;
}

TEST_CASE("INP-01: in place, a rank's own share is in slot r: before an all-gather, after a reduce-scatter") {
  all_succeed(4, [](auto& comm) -> cx::status {
    int const r = comm.rank();
    std::size_t const mine = 2 * static_cast<std::size_t>(r);
    for (auto const& a : algorithms_for<cx::all_gather>()) {
      std::vector<int> all(8, -1);
      all[mine] = 10 * r, all[mine + 1] = 10 * r + 1;
      if (cx::status s = comm.all_gather(cx::in_place(all), a.erased()); !s) return s;
      if (all != std::vector<int>{0, 1, 10, 11, 20, 21, 30, 31}) return wrong(r, ("wrong gather by " + a.name).c_str());
    }
    for (auto const& a : algorithms_for<cx::reduce_scatter>()) {
      std::vector<int> all(8);
      for (int i = 0; i < 8; ++i) all[static_cast<std::size_t>(i)] = r + i;
      if (cx::status s = comm.reduce_scatter(cx::in_place(all), cx::sum{}, a.erased()); !s) return s;
      if (all[mine] != 6 + 8 * r || all[mine + 1] != 10 + 8 * r) return wrong(r, ("wrong sum by " + a.name).c_str());
    }
    return {};
  });
}

TEST_CASE("INP-04: the input of a large reduce-scatter stays as it was, 30 times") {
  all_succeed(2, [](auto& comm) -> cx::status {
    constexpr std::size_t share = 524288;
    std::vector<double> in(2 * share), out(share);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = (comm.rank() + 1) * static_cast<double>(i % 1000);
    std::uint64_t const before = support::hash_of(in.data(), in.size() * sizeof(double));
    for (int repeat = 0; repeat < 30; ++repeat) {
      if (cx::status s = comm.reduce_scatter(in, out, cx::sum{}); !s) return s;
      if (support::hash_of(in.data(), in.size() * sizeof(double)) != before) return wrong(comm.rank(), "input changed");
      for (std::size_t i = 0; i < share; ++i)
        if (out[i] < 3.0 * static_cast<double>((i + static_cast<std::size_t>(comm.rank()) * share) % 1000) ||
            out[i] > 3.0 * static_cast<double>((i + static_cast<std::size_t>(comm.rank()) * share) % 1000))
          return wrong(comm.rank(), "wrong sum");
    }
    return {};
  });
}

TEST_CASE("INP-05: who is not the root of a reduce keeps input and output") {
  all_succeed(2, [](auto& comm) -> cx::status {
    for (auto const& a : algorithms_for<cx::reduce>()) {
      std::vector<int> const given = comm.rank() == 0 ? std::vector<int>{1, 2, 3, 4} : std::vector<int>{4, 5, 6, 7};
      std::vector<int> in = given, out(4, -9);
      if (cx::status s = comm.reduce(in, out, cx::sum{}, 0, a.erased()); !s) return s;
      std::vector<int> const expected = comm.rank() == 0 ? std::vector<int>{5, 7, 9, 11} : std::vector<int>(4, -9);
      if (in != given) return wrong(comm.rank(), ("input changed by " + a.name).c_str());
      if (out != expected) return wrong(comm.rank(), ("wrong output by " + a.name).c_str());
    }
    return {};
  });
}

TEST_CASE("INP-07: two nodes of two, in place as out of place") {
  all_succeed(4, [](auto& comm) -> cx::status {
    for (std::size_t count : {std::size_t{1}, std::size_t{5}, std::size_t{1000}}) {
      std::vector<int> both(count, comm.rank() + 1), out(count);
      if (cx::status s = comm.all_reduce(both, out, cx::sum{}, two_nodes{}); !s) return s;
      if (cx::status s = comm.all_reduce(cx::in_place(both), cx::sum{}, two_nodes{}); !s) return s;
      if (out != std::vector<int>(count, 10) || both != out) return wrong(comm.rank(), "wrong sum");
    }
    return {};
  });
}

namespace {

/// ALN-01: buffers that begin 0 to 15 elements behind a boundary, 1 to 33 elements long.
template <class T>
cx::status at_all_offsets(cx::communicator<cx::loopback_transport>& comm) {
  std::size_t const n = static_cast<std::size_t>(comm.size()), me = static_cast<std::size_t>(comm.rank());
  auto const value = [](std::size_t rank, std::size_t i) { return static_cast<T>((i % 10) + rank); };
  auto const total = [&](std::size_t i) { return static_cast<T>(n * (i % 10) + n * (n - 1) / 2); };
  auto const same = [](T a, T b) { return !(a < b) && !(b < a); };
  for (std::size_t offset = 0; offset < 16; ++offset) {
    for (std::size_t count = 1; count <= 33; ++count) {
      guarded<T> in(count, offset), out(count, 15 - offset), wide(n * count, offset), gathered(n * count, offset);
      for (std::size_t i = 0; i < count; ++i) in[i] = value(me, i);
      for (std::size_t i = 0; i < n * count; ++i) wide[i] = value(me, i);
      if (cx::status s = comm.all_reduce(in.span(), out.span(), cx::sum{}); !s) return s;
      for (std::size_t i = 0; i < count; ++i)
        if (!same(out[i], total(i))) return wrong(comm.rank(), "wrong sum");
      if (cx::status s = comm.reduce_scatter(wide.span(), out.span(), cx::sum{}); !s) return s;
      for (std::size_t i = 0; i < count; ++i)
        if (!same(out[i], total(me * count + i))) return wrong(comm.rank(), "wrong share of the sum");
      if (cx::status s = comm.all_gather(in.span(), gathered.span()); !s) return s;
      for (std::size_t i = 0; i < n * count; ++i)
        if (!same(gathered[i], value(i / count, i % count))) return wrong(comm.rank(), "wrong share");
      if (!in.intact() || !out.intact() || !wide.intact() || !gathered.intact()) return wrong(comm.rank(), "writes beside the buffers");
    }
  }
  return {};
}

}  // namespace

TEST_CASE("ALN-01: buffers at every offset from a 64-byte boundary") {
  for (int n : {2, 4}) {
    all_succeed(n, [](auto& comm) -> cx::status {
      cx::status s = at_all_offsets<std::int8_t>(comm);
      if (s.ok()) s = at_all_offsets<float>(comm);
      if (s.ok()) s = at_all_offsets<double>(comm);
      return s;
    });
  }
}

TEST_CASE("ALN-03: the algorithm changes at a number of bytes, whatever they are bytes of") {
  auto const bytes_of = []<class T>(T, std::size_t count) {
    std::vector<T> in(count), out(count);
    cx::detail::shape_of_call call;
    REQUIRE(call.fit(cx::all_reduce{}, 8, 0, std::span<T const>(in), std::span<T>(out)).ok());
    return call.total_bytes;
  };
  auto const direct = [](std::size_t bytes) { return cx::algo::choose({.reduces = true}, 8, bytes) == cx::algo::choice::direct; };
  std::size_t last = 0;
  while (direct(2 * last + 1)) last = 2 * last + 1;
  for (std::size_t step = last + 1; step > 0; step /= 2)
    if (direct(last + step)) last += step;
  REQUIRE(last % 8 == 0);
  CHECK(direct(bytes_of(float{}, last / 4)));
  CHECK_FALSE(direct(bytes_of(float{}, last / 4 + 1)));
  CHECK(direct(bytes_of(std::int8_t{}, last)));
  CHECK_FALSE(direct(bytes_of(std::int8_t{}, last + 1)));
  CHECK(direct(bytes_of(double{}, last / 8)));
  CHECK_FALSE(direct(bytes_of(double{}, last / 8 + 1)));
}

TEST_CASE("MEM-01: memory that comes back at the same address is new memory") {
  constexpr std::size_t bytes = std::size_t{1} << 16;
  // One address per rank, found once; from then on mapped and unmapped there.
  all_succeed(2, [](auto& comm) -> cx::status {
    void* place = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 1; i <= 50; ++i) {
      void* const now = ::mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      if (now != place) return wrong(comm.rank(), "no memory at the address");
      std::span<int> const both(static_cast<int*>(place), bytes / sizeof(int));
      std::fill(both.begin(), both.end(), i);
      if (cx::status s = comm.all_reduce(cx::in_place(both), cx::sum{}); !s) return s;
      if (std::count(both.begin(), both.end(), 2 * i) != static_cast<std::ptrdiff_t>(both.size())) return wrong(comm.rank(), "old data");
      ::mmap(place, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
    ::munmap(place, bytes);
    return {};
  });
}

TEST_CASE("ONE-01: alone, every collective gives back what it got, in place and not") {
  all_succeed(1, [](auto& comm) -> cx::status {
    auto const with = [&](auto const& op, std::size_t count) -> cx::status {
      std::vector<float> in(count), out(count, -1.0F);
      for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<float>(i) + 0.5F;
      std::vector<float> const given = in;
      auto const check = [&](cx::status s, std::vector<float>& result) -> cx::status {
        if (s.ok() && result != given) return wrong(0, "another output than input");
        if (&result == &out) std::fill(out.begin(), out.end(), -1.0F);
        return s;
      };
      for (auto const& a : algorithms_for<cx::all_reduce>()) {
        if (cx::status s = check(comm.all_reduce(in, out, op, a.erased()), out); !s) return s;
        if (cx::status s = check(comm.all_reduce(cx::in_place(in), op, a.erased()), in); !s) return s;
      }
      for (auto const& a : algorithms_for<cx::reduce_scatter>()) {
        if (cx::status s = check(comm.reduce_scatter(in, out, op, a.erased()), out); !s) return s;
        if (cx::status s = check(comm.reduce_scatter(cx::in_place(in), op, a.erased()), in); !s) return s;
      }
      for (auto const& a : algorithms_for<cx::all_gather>()) {
        if (cx::status s = check(comm.all_gather(in, out, a.erased()), out); !s) return s;
        if (cx::status s = check(comm.all_gather(cx::in_place(in), a.erased()), in); !s) return s;
      }
      for (auto const& a : algorithms_for<cx::reduce>()) {
        if (cx::status s = check(comm.reduce(in, out, op, 0, a.erased()), out); !s) return s;
        if (cx::status s = check(comm.reduce(cx::in_place(in), op, 0, a.erased()), in); !s) return s;
      }
      for (auto const& a : algorithms_for<cx::broadcast>())
        if (cx::status s = check(comm.broadcast(in, 0, a.erased()), in); !s) return s;
      return comm.barrier();
    };
    for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}}) {
      if (cx::status s = with(cx::sum{}, count); !s) return s;
      if (cx::status s = with(cx::max{}, count); !s) return s;
      if (cx::status s = with(cx::avg{}, count); !s) return s;
    }
    return {};
  });
}
