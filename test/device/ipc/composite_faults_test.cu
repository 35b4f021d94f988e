// SPDX-License-Identifier: Apache-2.0
// Devices on several hosts, of which one fails at a call of CUDA, is killed or late, or a cable is cut: all ranks end in an error.
#include <atomic>

#include "gpu_work.hpp"
#include "host_ranks.hpp"

namespace {

namespace cx = collectx;
using host_ranks::check, host_ranks::communicator, host_ranks::ring;

/// Ranks on the hosts that `where` names.
auto joining(network::hosts const& hosts, std::vector<int> const& where) {
  return [&](cx::in_process_rendezvous& table, int rank) -> cx::result<communicator> {
    if (!hosts.enter(where[static_cast<std::size_t>(rank)])) return cx::status::system(errno, "cannot enter a host");
    return cx::cuda_composite::join(table.of(rank), host_ranks::small());
  };
}

constexpr int size = 3;
constexpr long step = 7;

}  // namespace

TEST_CASE("a call of CUDA fails on a rank: ranks on all hosts end in an error that names it, and nothing is left") {
  auto const hosts = network::hosts::make(2);
  if (!hosts) return;
  std::vector<int> const two{0, 1, 0}, one{0, 0, 0};
  gpu::calls_fail(size, 0, step, joining(*hosts, two));
  gpu::calls_fail(size, 1, step, joining(*hosts, two));
  gpu::calls_fail(size, 2, step, joining(*hosts, one));
}

TEST_CASE("a rank is killed at a call of CUDA: ranks on all hosts end in an error that names it") {
  auto const hosts = network::hosts::make(2);
  if (!hosts) return;
  std::vector<int> const where{0, 1, 0};
  gpu::calls_kill(size, 1, step, joining(*hosts, where));
  gpu::calls_kill(size, 2, step, joining(*hosts, where));
}

TEST_CASE("a cut cable: kernels on each side end, name the ranks beyond, and their side goes on by itself") {
  std::vector<int> const where{0, 1, 1, 0};
  auto const hosts = network::hosts::make(2);
  if (!hosts) return;
  constexpr int n = 4;
  auto table = cx::in_process_rendezvous::create(n);
  REQUIRE(table.has_value());
  std::atomic<int>* const calling = processes::shared<std::atomic<int>>();
  processes::group ranks(n);
  cx::cuda_composite::options options = host_ranks::small();
  options.host.between.link_timeout = std::chrono::seconds(2);
  host_ranks::start(
      ranks, *table, *hosts, where, options, [](int) {},
      [&](communicator& comm) -> cx::status {
        gpu::buffer<int> both(5000);
        gpu::stream stream;
        cx::status s;
        cx::nanoseconds begun = 0;
        for (int calls = 0; s.ok(); ++calls) {
          if (calls == 3) ++*calling;
          begun = cx::detail::monotonic_now();
          s = gpu::one_sum(comm, both, 1, stream);
        }
        double const seconds = static_cast<double>(cx::detail::monotonic_now() - begun) * 1e-9;
        std::vector<int> const beyond = comm.rank() == 1 || comm.rank() == 2 ? std::vector{0, 3} : std::vector{1, 2};
        if (s.code() != cx::errc::peer_lost || comm.lost() != beyond || s.rank() != beyond.front()) return check(false, comm, s.what());
        if (seconds > 5) return check(false, comm, "this took longer than the cable may be cut");
        auto rest = comm.shrink(beyond);
        if (!rest) return rest.error();
        if (cx::status end = gpu::one_sum(*rest, both, 5, stream); !end) return end;
        return rest->barrier(ring);
      });
  for (int looks = 0; *calling < n && looks < 50'000; ++looks) cx::detail::nap(1'000'000);
  hosts->cut(1);
  ranks.wait();
  for (int r = 0; r < n; ++r) CHECK_MESSAGE(ranks[r].code == 0, std::string(ranks[r].text));
  ::munmap(calling, sizeof *calling);
}

TEST_CASE("a rank that is killed while kernels on other hosts wait for it: all end, and name it") {
  auto const hosts = network::hosts::make(2);
  if (!hosts) return;
  auto table = cx::in_process_rendezvous::create(size);
  REQUIRE(table.has_value());
  processes::group ranks(size);
  host_ranks::start(ranks, *table, *hosts, {0, 1, 0}, host_ranks::small(), host_ranks::nothing, [](communicator& comm) -> cx::status {
    gpu::buffer<int> both(5000);
    gpu::stream stream;
    if (cx::status s = gpu::one_sum(comm, both, 1, stream); !s) return s;
    if (comm.rank() == 1) ::raise(SIGKILL);
    return gpu::one_sum(comm, both, 1, stream);
  });
  ranks.wait();
  for (int r : {0, 2}) {
    INFO(ranks[r].text);
    CHECK(ranks[r].code == static_cast<int>(cx::errc::peer_lost));
    CHECK(ranks[r].rank == 1);
    CHECK(ranks[r].seconds < 20);
  }
}

TEST_CASE("a rank on another host that makes no call: kernels are late, and the rank is named") {
  auto const hosts = network::hosts::make(3);
  if (!hosts) return;
  auto table = cx::in_process_rendezvous::create(size);
  REQUIRE(table.has_value());
  processes::group ranks(size);
  host_ranks::start(ranks, *table, *hosts, {0, 1, 2}, host_ranks::small(), host_ranks::nothing, [](communicator& comm) -> cx::status {
    gpu::buffer<int> both(5000);
    gpu::stream stream;
    if (cx::status s = gpu::one_sum(comm, both, 1, stream); !s) return s;
    cx::call_options const briefly{.timeout = std::chrono::milliseconds(500)};
    if (comm.rank() != 2)
      if (cx::status s = comm.barrier(cudaStream_t{stream}, ring, briefly); !s) return s;
    for (int looks = 0; looks < 10'000 && comm.status().ok(); ++looks) cx::detail::nap(1'000'000);
    return comm.status();
  });
  ranks.wait();
  for (int r = 0; r < size; ++r) {
    INFO(ranks[r].text);
    CHECK(ranks[r].code == static_cast<int>(cx::errc::timeout));
    CHECK(ranks[r].rank == 2);
  }
}
