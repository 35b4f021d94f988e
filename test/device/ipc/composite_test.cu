// SPDX-License-Identifier: Apache-2.0
// Devices on several hosts: within one by memory of devices, between them by libfabric.
#include "host_ranks.hpp"

namespace {

namespace cx = collectx;
using host_ranks::check, host_ranks::communicator, host_ranks::ring;

void use_kernels(int) { standin::plans<float, cx::sum>(); }

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
    host_ranks::start(ranks, *table, *hosts, where, host_ranks::small(), use_kernels, sums);
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
  host_ranks::start(ranks, *table, *hosts, where, host_ranks::small(), use_kernels, [](communicator& comm) -> cx::status {
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

TEST_CASE("a rank on another host that makes no call: kernels are late, and the rank is named") {
  auto const hosts = network::hosts::make(3);
  if (!hosts) return;
  auto table = cx::in_process_rendezvous::create(3);
  REQUIRE(table.has_value());
  processes::group ranks(3);
  host_ranks::start(ranks, *table, *hosts, {0, 1, 2}, host_ranks::small(), use_kernels, [](communicator& comm) -> cx::status {
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
