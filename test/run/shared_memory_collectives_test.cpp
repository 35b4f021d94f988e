// SPDX-License-Identifier: Apache-2.0
// compile: -O1
// labels: sanitize
// timeout: 240
#include <collectx/launch.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "processes.hpp"
#include "support/on_processes.hpp"
#include "support/sanitizers.hpp"

namespace cx = collectx;

namespace {

/// Names in a folder that are the library's; what tests make for themselves is called collectx_test.
std::set<std::string> names_of_ours(char const* folder) {
  std::set<std::string> ours;
  for (std::string const& name : processes::names_in(folder))
    if (name.find("collectx") != std::string::npos && name.find("collectx_test") == std::string::npos) ours.insert(name);
  return ours;
}

/// What the ranks of one round share with the parent.
struct scene {
  std::atomic<int> calling;
  std::atomic<std::int64_t> killed_at;
};

/// Four processes all-reduce until one of them is killed. `calls` of each go by before the parent looks for its moment.
void kill_one(support::algorithm const& how, int victim, std::int64_t after) {
  constexpr int n = 4;
  auto table = cx::in_process_rendezvous::create(n);
  REQUIRE(table.has_value());
  scene* const shared = processes::shared<scene>();
  REQUIRE(shared != nullptr);
  processes::group ranks(n);
  for (int r = 0; r < n; ++r) {
    ranks.start([&, r]() -> cx::status {
      auto comm = cx::shared_memory::join(table->of(r));
      if (!comm) return comm.error();
      std::vector<std::int32_t> in(20000), out(20000);
      for (std::int32_t i = 0;; ++i) {
        std::size_t const count = i % 3 == 0 ? 1 : i % 3 == 1 ? 300 : in.size();
        std::fill(in.begin(), in.end(), i + r);
        std::span<std::int32_t> const result = std::span(out).first(count);
        if (cx::status s = comm->all_reduce(std::span(in).first(count), result, cx::sum{}, how.erased()); !s) {
          // Whatever is wrong with the clock of a busy machine, it is not five seconds.
          if (cx::detail::monotonic_now() - shared->killed_at > 5'000'000'000)
            return cx::status::failure(cx::errc::timeout, s.rank(), "heard of it too late: %.200s", s.what());
          return s;
        }
        if (*std::min_element(result.begin(), result.end()) != 4 * i + 6 || *std::max_element(result.begin(), result.end()) != 4 * i + 6)
          return cx::status::failure(cx::errc::system, r, "wrong sum in call %d", static_cast<int>(i));
        if (i == 5) ++shared->calling;
      }
    });
  }
  for (int looks = 0; shared->calling < n && looks < 30000; ++looks) cx::detail::nap(1'000'000);
  REQUIRE(shared->calling == n);
  cx::detail::nap(after);
  shared->killed_at = cx::detail::monotonic_now();
  ranks.kill(victim);
  ranks.wait();
  for (int r = 0; r < n; ++r) {
    if (r == victim) continue;
    CHECK_MESSAGE(ranks[r].code == static_cast<int>(cx::errc::peer_lost), std::string(ranks[r].text));
    CHECK(ranks[r].rank == victim);
  }
  ::munmap(shared, sizeof *shared);
}

}  // namespace

TEST_CASE("every collective between processes: every algorithm, count, placement and root") {
  auto const run = [](int n, auto& f) { return cx::shared_memory::run(n, f); };
  std::vector<std::size_t> counts{0, 1, 5, 1000};
  if (!support::under_sanitizer) counts.insert(counts.end(), {65537, std::size_t{1} << 20});
  for (int n : {2, 3, 4}) {
    CAPTURE(n);
    support::every_collective(run, n, counts, {1, 7, 3000});
  }
}

TEST_CASE("DIE-02: SIGKILL in a loop of all-reduces: the others hear who died, and nothing is left behind") {
  std::set<std::string> const in_shm = names_of_ours("/dev/shm"), in_tmp = names_of_ours("/tmp");
  std::size_t const descriptors = processes::count_in("/proc/self/fd");
  support::random_stream random(support::seed());
  int rounds = 0;
  for (support::algorithm const& a : support::algorithms_for<cx::all_reduce>()) {
    if (a.name != "ring" && a.name != "direct" && a.name != "double_binary_tree") continue;
    for (int victim = 0; victim < 4; ++victim, ++rounds) {
      CAPTURE(a.name);
      CAPTURE(victim);
      kill_one(a, victim, static_cast<std::int64_t>(random.below(10'000'000)));
    }
  }
  for (; rounds < 20; ++rounds)
    kill_one(random.pick(support::algorithms_for<cx::all_reduce>()), static_cast<int>(random.below(4)),
             static_cast<std::int64_t>(random.below(10'000'000)));
  CHECK(names_of_ours("/dev/shm") == in_shm);
  CHECK(names_of_ours("/tmp") == in_tmp);
  CHECK(processes::count_in("/proc/self/fd") == descriptors);
}

TEST_CASE("a process that dies is what run says, with its rank") {
  cx::status const s = cx::shared_memory::run(3, [](auto& comm) -> cx::status {
    if (cx::status first = comm.barrier(); !first) return first;
    if (comm.rank() == 1) ::raise(SIGKILL);
    return comm.barrier();
  });
  CHECK(s.code() == cx::errc::peer_lost);
  CHECK(s.rank() == 1);
}
