// SPDX-License-Identifier: Apache-2.0
// compile: -O0
// labels: sanitize
/// A thread that moves on what is under way.
#include <collectx/launch.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <optional>

#include "processes.hpp"
#include "support/in_background.hpp"

namespace cx = collectx;
using support::text;

namespace {

/// f(communicator&, counter) on threads and on processes, which all have the counter.
template <class F>
void on_threads_and_processes(int n, F const& f) {
  std::atomic<int>* const counter = processes::shared<std::atomic<int>>();
  REQUIRE(counter != nullptr);
  auto const each = [&](auto& comm) { return f(comm, *counter); };
  cx::status const threads = cx::loopback::run(n, each);
  CHECK_MESSAGE(threads.ok(), text(threads));
  *counter = 0;
  cx::status const forked = cx::shared_memory::run(n, each);
  CHECK_MESSAGE(forked.ok(), text(forked));
  ::munmap(counter, sizeof *counter);
}

}  // namespace

TEST_CASE("a call that was started ends, whatever its rank does meanwhile") {
  on_threads_and_processes(3, [](auto& comm, std::atomic<int>& through) { return support::computes_meanwhile(comm, through); });
}

TEST_CASE("calls are made beside a helper as without it") {
  on_threads_and_processes(3, [](auto& comm, std::atomic<int>&) { return support::calls_beside_a_helper(comm, 50); });
}

TEST_CASE("a helper may come and go, outlive its communicator, and help an empty one") {
  cx::status const s = cx::loopback::run(2, [](auto& comm) -> cx::status {
    for (int i = 0; i < 20; ++i) {
      cx::background_progress helper(comm), another(comm);
      if (cx::status failed = comm.barrier(); !failed) return failed;
    }
    auto left = comm.split(comm.rank() == 0 ? 0 : -1);
    if (!left) return left.error();
    cx::background_progress helper(*left);
    using group = std::remove_reference_t<decltype(comm)>;
    auto twin = comm.duplicate();
    if (!twin) return twin.error();
    std::optional<group> owned(std::move(*twin));
    cx::background_progress longer(*owned);
    cx::status const last = owned->barrier();
    owned.reset();
    return last;
  });
  CHECK_MESSAGE(s.ok(), text(s));
}

TEST_CASE("a failure that a helper meets is said by the next call") {
  cx::status const s = cx::loopback::run(2, [](auto& comm) -> cx::status {
    cx::background_progress helper(comm);
    std::vector<int> both(100000, 1);
    auto sum = comm.plan_all_reduce(cx::in_place(both), cx::sum{});
    if (comm.rank() == 1) return comm.abort(cx::status::failure(cx::errc::aborted, 1, "no more rice"));
    cx::status failed = sum.start();
    for (int looks = 0; failed.ok() && looks < 60'000; ++looks) {
      cx::result<bool> const ended = sum.test();
      if (!ended) failed = ended.error();
      cx::detail::nap(1'000'000);
    }
    return failed.code() == cx::errc::aborted ? cx::status{} : support::wrong(0, text(failed).c_str());
  });
  CHECK(s.code() == cx::errc::aborted);  // what rank 1 returns
  CHECK(s.rank() == 1);
}
