// SPDX-License-Identifier: Apache-2.0
// Devices on several hosts whose network reaches their memory, or says so and does not.
#include "gpu_work.hpp"
#include "host_ranks.hpp"
#include "network/pretended_rdma.hpp"

namespace {

namespace cx = collectx;
using host_ranks::check, host_ranks::communicator, host_ranks::ring;

cx::cuda_composite::options over_rdma() {
  cx::cuda_composite::options o = host_ranks::small();
  o.host.between.provider = "verbs;ofi_rxm";
  return o;
}

/// Whether slots are where they should be, and short and long calls give the right sums.
cx::status sums(communicator& comm, bool gpu_direct, int registered) {
  cx::cuda_composite_transport& wire = comm.transport();
  if (cx::status s = check(wire.gpu_direct() == gpu_direct, comm, gpu_direct ? "slots are in pinned memory" : "slots are on the device");
      !s)
    return s;
  if (cx::status s = check(pretended_rdma::registered == registered, comm, "memory of a device was registered as something else"); !s)
    return s;
  constexpr std::size_t most = 20'000;
  gpu::stream stream;
  gpu::buffer<int> in(most), out(most);
  for (cudaError_t e : {stream.error(), in.error(), out.error()})
    if (cx::status s = gpu::ok(comm, e, "buffers"); !s) return s;
  for (int round = 0; round < 3; ++round)
    for (std::size_t count : {std::size_t{1}, std::size_t{12}, std::size_t{13}, most}) {
      std::vector<int> values(count);
      for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<int>(i) * 3 + comm.rank() + round;
      if (cx::status s = gpu::ok(comm, in.fill(values), "fill"); !s) return s;
      if (cx::status s = comm.all_reduce(in.first(count), out.first(count), cx::sum{}, cudaStream_t{stream}, ring); !s) return s;
      if (cx::status s = comm.broadcast(in.first(count), round % comm.size(), cudaStream_t{stream}, ring); !s) return s;
      if (cx::status s = gpu::ok(comm, cudaStreamSynchronize(stream), "synchronise"); !s) return s;
      if (cx::status s = comm.status(); !s) return s;
      std::vector<int> sent(count);
      if (cx::status s = gpu::ok(comm, out.read(values), "read"); !s) return s;
      if (cx::status s = gpu::ok(comm, in.read(sent), "read"); !s) return s;
      int const n = comm.size();
      bool good = true;
      for (std::size_t i = 0; i < count; ++i) {
        good = good && values[i] == n * (static_cast<int>(i) * 3 + round) + n * (n - 1) / 2;
        good = good && sent[i] == static_cast<int>(i) * 3 + round % n + round;
      }
      if (cx::status s = check(good, comm, "a wrong result"); !s) return s;
    }
  return {};
}

std::vector<int> const where{0, 1, 1, 0};

/// The device gives no order to what networks write, so a kernel sees it after a call of the runtime.
void take_unordered_devices(int) { ::setenv("STANDIN_RDMA_UNORDERED", "1", 1); }

}  // namespace

TEST_CASE("slots lie in memory of devices where the network reaches it") {
  host_ranks::run(
      where, [](communicator& comm) { return sums(comm, true, 1); }, over_rdma());
  auto const flushed = [](communicator& comm) {
    cx::status const s = sums(comm, true, 1);
    return s.ok() ? check(standin::standin_flushes() > 0, comm, "nobody let the device see what had come") : s;
  };
  host_ranks::run(where, flushed, over_rdma(), take_unordered_devices);
}

TEST_CASE("a rank whose device the network does not reach after all takes pinned memory, and the others need not know") {
  auto const without_module = [](int rank) { pretended_rdma::refuses = rank == 1; };
  host_ranks::run(
      where,
      [](communicator& comm) {
        bool const reached = comm.rank() != 1;
        return sums(comm, reached, reached ? 1 : 0);
      },
      over_rdma(), without_module);
}

TEST_CASE("slots lie in pinned memory where nobody wants anything else, and where all are on one host") {
  cx::cuda_composite::options o = over_rdma();
  o.gpu_direct = false;
  host_ranks::run(
      where, [](communicator& comm) { return sums(comm, false, 0); }, o);
  host_ranks::run(
      {0, 0}, [](communicator& comm) { return sums(comm, false, 0); }, over_rdma());
}

TEST_CASE("calls of CUDA fail, each once, on a rank whose slots are on its device: all end in an error that names it") {
  auto const hosts = network::hosts::make(2);
  if (!hosts) return;
  gpu::calls_fail(2, 0, 5, [&](cx::in_process_rendezvous& table, int rank) -> cx::result<communicator> {
    take_unordered_devices(rank);
    if (!hosts->enter(rank)) return cx::status::system(errno, "cannot enter a host");
    return cx::cuda_composite::join(table.of(rank), over_rdma());
  });
}
