// SPDX-License-Identifier: Apache-2.0
#include "collectx/chunk.hpp"

#include <type_traits>

namespace chunk_test {

namespace cx = collectx;

// Contiguous, no gap, nothing lost, sizes differ by at most one, the longer ones in front.
constexpr bool fair(std::size_t total, int parts) {
  std::size_t at = 0, last = cx::share(total, parts, 0).count;
  std::size_t const least = total / static_cast<std::size_t>(parts);
  for (int i = 0; i < parts; ++i) {
    cx::extent const mine = cx::share(total, parts, i);
    if (mine.first != at || mine.count > last || (mine.count != least && mine.count != least + 1)) return false;
    at += mine.count;
    last = mine.count;
  }
  return at == total;
}
// SML-03
constexpr bool fair_everywhere() {
  for (int total = 0; total <= 300; total += 7)
    for (int parts = 1; parts <= 64; ++parts)
      if (!fair(static_cast<std::size_t>(total), parts)) return false;
  return true;
}
static_assert(fair_everywhere());
static_assert(fair(13, 8) && cx::share(13, 8, 4).count == 2 && cx::share(13, 8, 5).count == 1 && cx::share(13, 8, 7).count == 1);
static_assert(fair(100000, 1024) && cx::share(100000, 1024, 671).count == 98 && cx::share(100000, 1024, 672).count == 97);
static_assert(fair(2147483655, 4) && cx::share(2147483655, 4, 2).count == 536870914 && cx::share(2147483655, 4, 3).count == 536870913);

// Fewer elements than parts: the last ones have none, at the end and not beyond it.
static_assert(fair(3, 5) && cx::share(3, 5, 4) == cx::extent{3, 0});
static_assert(fair(0, 3) && cx::share(0, 3, 2) == cx::extent{0, 0});

// OVF-01, OVF-04, OVF-06: places are 64-bit, names are not places.
static_assert(sizeof(cx::extent::first) >= 8 && sizeof(cx::extent::count) >= 8 && std::is_unsigned_v<decltype(cx::extent::first)>);
static_assert(cx::share(3221225475, 3, 2) == cx::extent{2147483650, 1073741825});
static_assert(cx::share(4294967298, 3, 1).first == 1431655766 && cx::share(4294967298, 3, 2).first == 2863311532);
static_assert(cx::share(std::size_t{306783379} * 8, 8, 7) == cx::extent{2147483653, 306783379});

static_assert(cx::chunk(5) == cx::chunks{5, 1} && cx::chunks{} == cx::chunks{0, 1});
constexpr int runs_in(cx::chunks run) {
  int count = 0;
  run.for_each([&](cx::chunks given) { count += given == run ? 1 : 100; });
  return count;
}
static_assert(runs_in({3, 2}) == 1 && runs_in({3, 0}) == 0 && runs_in({-1, 1}) == 1);

}  // namespace chunk_test
