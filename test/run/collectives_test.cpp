// SPDX-License-Identifier: Apache-2.0
// compile: -O1
// labels: sanitize
/// A little of every collective by every algorithm on threads: what race detectors look at, where the sweeps would take them hours.
#include <collectx/communicator.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>

#include "support/sweep.hpp"

namespace cx = collectx;

namespace {

/// The references are made before the threads start, so that nothing but the library orders what the ranks do.
template <class C, class T, bool Automatic, class Op>
void a_little(Op const& op) {
  for (int n : {2, 3, 5, 6}) {
    CAPTURE(n);
    support::selection chosen;
    chosen.keep_order_only = !cx::is_commutative_v<Op, T>;
    chosen.automatic = Automatic;
    std::vector<support::task> tasks = support::tasks_for<C>(n, chosen);
    std::erase_if(tasks, [](support::task const& t) { return t.what.count > 5000; });
    if (tasks.size() > 60) tasks.resize(60);
    std::size_t const slot_bytes = support::slot_bytes_for<C>(n, tasks, sizeof(T), 128);
    for (cx::loopback::options const& o : {cx::loopback::options{}, support::small_slots(2, slot_bytes)}) {
      cx::status const s = support::sweep<C, T, Automatic>(n, tasks, o, op);
      CHECK_MESSAGE(s.ok(), std::string(s.what()));
    }
  }
}

}  // namespace

TEST_CASE("all_reduce") {
  a_little<cx::all_reduce, std::int32_t, true>(cx::sum{});
  a_little<cx::all_reduce, support::affine, false>(support::compose{});
}
TEST_CASE("reduce_scatter") { a_little<cx::reduce_scatter, std::int32_t, true>(cx::sum{}); }
TEST_CASE("all_gather") { a_little<cx::all_gather, std::int32_t, true>(cx::sum{}); }
TEST_CASE("broadcast") { a_little<cx::broadcast, std::int32_t, true>(cx::sum{}); }
TEST_CASE("reduce") { a_little<cx::reduce, std::int32_t, true>(cx::sum{}); }

TEST_CASE("ORD-08: large messages round after round with fresh data leave nothing stale") {
  constexpr int rounds = 300;
  cx::status const s = cx::loopback::run(3, support::small_slots(4, 4096), [](auto& comm) -> cx::status {
    std::vector<std::int32_t> in(65536), out(65536);
    support::random_stream random(support::seed() + static_cast<std::uint64_t>(comm.rank()));
    for (std::int32_t round = 0; round < rounds; ++round) {
      std::size_t const count = std::size_t{256} << (round % 9);
      std::span<std::int32_t> const mine = std::span(in).first(count), result = std::span(out).first(count);
      std::fill(mine.begin(), mine.end(), round * 3 + comm.rank());
      for (std::size_t spin = random.below(2000); spin > 0; --spin) cx::detail::relax();
      if (cx::status failed = comm.all_reduce(mine, result, cx::sum{}); !failed) return failed;
      if (std::count(result.begin(), result.end(), 9 * round + 3) != static_cast<std::ptrdiff_t>(count))
        return cx::status::failure(cx::errc::system, comm.rank(), "stale element in round %d", static_cast<int>(round));
    }
    return {};
  });
  CHECK_MESSAGE(s.ok(), std::string(s.what()));
}
