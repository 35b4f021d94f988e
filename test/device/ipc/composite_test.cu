// SPDX-License-Identifier: Apache-2.0
// Devices on several hosts: within one by memory of devices, between them by libfabric.
#include <collectx/cuda_composite.cuh>

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "../standin/serial_block.hpp"
#include "network/hosts.hpp"
#include "network/ready.hpp"

namespace cx = collectx;
using communicator = cx::communicator<cx::cuda_composite_transport>;

namespace {

constexpr cx::algo::ring ring;

cx::cuda_composite::options small() {
  cx::cuda_composite::options o;
  o.blocks = 2;
  o.slots = {4, 4096};
  o.low_latency = {2, 1024};
  o.device = 0;
  o.host.between.slots = 4;
  o.host.between.slot_bytes = 4096;
  o.host.join_timeout = std::chrono::seconds(30);
  return o;
}

/// f(communicator&) -> status on as many ranks as `where` names hosts for.
template <class F>
void start(processes::group& ranks, cx::in_process_rendezvous& table, network::hosts const& hosts, std::vector<int> const& where, F f,
           int odd = -1, long fails_at = 0) {
  for (int r = 0; r < static_cast<int>(where.size()); ++r)
    ranks.start([&, f, r, odd, fails_at]() -> cx::status {
      if (!hosts.enter(where[static_cast<std::size_t>(r)])) return cx::status::system(errno, "cannot enter a host");
      standin::plans<float, cx::sum>();
      standin::plans<std::byte, cx::detail::moves_only>();
      standin::plans<std::uint8_t, cx::sum>();
      if (r == odd) standin::standin_fail_at(fails_at);
      auto comm = cx::cuda_composite::join(table.of(r), small());
      if (!comm) return comm.error();
      cx::status const s = f(*comm);
      return s.ok() ? s : comm->abort(s);
    });
}

cx::status check(bool good, communicator& comm, char const* what) {
  return good ? cx::status{} : cx::status::failure(cx::errc::system, comm.rank(), "rank %d: %s", comm.rank(), what);
}

cx::status sums(communicator& comm) {
  cudaStream_t stream = nullptr;
  float *in = nullptr, *out = nullptr;
  constexpr std::size_t most = 20'000;
  if (cx::status s = check(
          cudaStreamCreate(&stream) == cudaSuccess && cudaMalloc(&in, most * 4) == cudaSuccess && cudaMalloc(&out, most * 4) == cudaSuccess,
          comm, "no memory");
      !s)
    return s;
  for (std::size_t count : {std::size_t{1}, std::size_t{13}, std::size_t{3000}, most}) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 1000) + static_cast<float>(comm.rank());
    bool good = cudaMemcpy(in, values.data(), count * 4, cudaMemcpyHostToDevice) == cudaSuccess;
    if (cx::status s = comm.all_reduce(std::span<float>(in, count), std::span<float>(out, count), cx::sum{}, stream, ring); !s) return s;
    if (cx::status s = comm.broadcast(std::span<float>(in, count), 0, stream, ring); !s) return s;
    good = good && cudaStreamSynchronize(stream) == cudaSuccess;
    if (cx::status s = comm.status(); !s) return s;
    good = good && cudaMemcpy(values.data(), out, count * 4, cudaMemcpyDeviceToHost) == cudaSuccess;
    float const n = static_cast<float>(comm.size());
    for (std::size_t i = 0; i < count; ++i) good = good && values[i] == n * static_cast<float>(i % 1000) + n * (n - 1) / 2;
    good = good && cudaMemcpy(values.data(), in, count * 4, cudaMemcpyDeviceToHost) == cudaSuccess;
    for (std::size_t i = 0; i < count; ++i) good = good && values[i] == static_cast<float>(i % 1000);
    if (cx::status s = check(good, comm, "a wrong result"); !s) return s;
  }
  if (cx::status s = comm.barrier(stream, ring); !s) return s;
  bool const good = cudaStreamSynchronize(stream) == cudaSuccess && cudaFree(in) == cudaSuccess && cudaFree(out) == cudaSuccess &&
                    cudaStreamDestroy(stream) == cudaSuccess;
  if (cx::status s = check(good, comm, "the end"); !s) return s;
  return comm.barrier(ring);
}

}  // namespace

TEST_CASE("calls on streams among devices on one, two and three hosts") {
  auto const hosts = network::hosts::make(3);
  if (!hosts) return;
  for (std::vector<int> const& where : {std::vector{0, 0}, std::vector{0, 1}, std::vector{0, 1, 1, 0}, std::vector{2, 0, 1}}) {
    CAPTURE(where.size());
    auto table = cx::in_process_rendezvous::create(static_cast<int>(where.size()));
    REQUIRE(table.has_value());
    processes::group ranks(static_cast<int>(where.size()));
    start(ranks, *table, *hosts, where, sums);
    ranks.wait();
    for (int r = 0; r < static_cast<int>(where.size()); ++r) {
      INFO(ranks[r].text);
      CHECK(ranks[r].code == 0);
      CHECK(ranks[r].seconds < 20);
    }
  }
}

TEST_CASE("a rank that is killed while kernels on other hosts wait for it: all end, and name it") {
  auto const hosts = network::hosts::make(2);
  if (!hosts) return;
  std::vector<int> const where{0, 1, 0};
  auto table = cx::in_process_rendezvous::create(3);
  REQUIRE(table.has_value());
  processes::group ranks(3);
  start(ranks, *table, *hosts, where, [](communicator& comm) -> cx::status {
    if (cx::status s = sums(comm); !s) return s;
    if (comm.rank() == 1) ::raise(SIGKILL);
    cudaStream_t stream = nullptr;
    if (cx::status s = check(cudaStreamCreate(&stream) == cudaSuccess, comm, "no stream"); !s) return s;
    if (cx::status s = comm.barrier(stream, ring); !s) return s;
    (void)cudaStreamSynchronize(stream);
    return comm.status();
  });
  ranks.wait();
  for (int r : {0, 2}) {
    INFO(ranks[r].text);
    CHECK(ranks[r].code == static_cast<int>(cx::errc::peer_lost));
    CHECK(ranks[r].rank == 1);
    CHECK(ranks[r].seconds < 20);
  }
}

TEST_CASE("every call of CUDA fails once on a rank: ranks on all hosts end in an error, and none hangs") {
  auto const hosts = network::hosts::make(2);
  if (!hosts) return;
  std::vector<int> const where{0, 1, 0};
  struct marks {
    int struck;
    char what[64];
  };
  marks* const seen = processes::shared<marks>();
  bool more = true;
  for (long k = 1; more; ++k) {
    CAPTURE(k);
    REQUIRE(k < 1000);
    *seen = {1, ""};
    auto table = cx::in_process_rendezvous::create(3);
    REQUIRE(table.has_value());
    processes::group ranks(3);
    auto const work = [seen](communicator& comm) -> cx::status {
      cx::status const s = sums(comm);
      char const* const failed = standin::standin_failed();
      if (comm.rank() == 0) seen->struck = failed != nullptr;
      if (comm.rank() == 0 && failed != nullptr) std::snprintf(seen->what, sizeof seen->what, "%s", failed);
      return s;
    };
    start(ranks, *table, *hosts, where, work, 0, k);
    ranks.wait();
    more = seen->struck != 0;
    for (int r = 0; r < 3; ++r) {
      CAPTURE(r);
      INFO(ranks[r].text);
      INFO(seen->what);
      REQUIRE((ranks[r].code != 0) == more);
      CHECK(ranks[r].seconds < 10);
      if (more) CHECK(ranks[r].names("rank 0"));
    }
  }
  ::munmap(seen, sizeof *seen);
}

TEST_CASE("a rank on another host that makes no call: kernels are late, and the rank is named") {
  auto const hosts = network::hosts::make(3);
  if (!hosts) return;
  auto table = cx::in_process_rendezvous::create(3);
  REQUIRE(table.has_value());
  processes::group ranks(3);
  start(ranks, *table, *hosts, {0, 1, 2}, [](communicator& comm) -> cx::status {
    if (cx::status s = sums(comm); !s) return s;
    cudaStream_t stream = nullptr;
    if (cx::status s = check(cudaStreamCreate(&stream) == cudaSuccess, comm, "no stream"); !s) return s;
    if (comm.rank() == 2) {
      for (int looks = 0; looks < 10'000 && comm.status().ok(); ++looks) cx::detail::nap(1'000'000);
      return comm.status();
    }
    if (cx::status s = comm.barrier(stream, ring, cx::call_options{.timeout = std::chrono::milliseconds(500)}); !s) return s;
    (void)cudaStreamSynchronize(stream);
    for (int looks = 0; looks < 10'000 && comm.status().ok(); ++looks) cx::detail::nap(1'000'000);
    return comm.status();
  });
  ranks.wait();
  for (int r = 0; r < 3; ++r) {
    INFO(ranks[r].text);
    CHECK(ranks[r].code == static_cast<int>(cx::errc::timeout));
    CHECK(ranks[r].rank == 2);
  }
}
