// SPDX-License-Identifier: Apache-2.0
/// Ranks that own a GPU each, on any hosts, started by whatever starts processes: an all-reduce in two levels, in the order of a stream.
/// Without a GPU it says so.
#include <collectx/cuda_composite.cuh>  // link collectx::cuda and collectx::libfabric
#include <collectx/rendezvous/environment.hpp>
#ifdef WITH_PMIX
#include <collectx/rendezvous/pmix.hpp>
#endif

#include <cstdio>
#include <vector>

namespace cx = collectx;

namespace {

auto meet() {
#ifdef WITH_PMIX
  return cx::environment_rendezvous::create<cx::pmix_rendezvous>();
#else
  return cx::environment_rendezvous::create();
#endif
}

/// Whether `sums` on the device are what `size` ranks give that put in 1.
bool are_right(cx::registered_buffer<float, cx::cuda_composite_transport> const& sums, int size) {
  std::vector<float> values(sums.size());
  if (cudaMemcpy(values.data(), sums.data(), values.size() * sizeof(float), cudaMemcpyDeviceToHost) != cudaSuccess) return false;
  bool good = true;
  for (float sum : values) good = good && sum == static_cast<float>(size);
  return good;
}

// [cluster]
using two_levels = cx::algo::hierarchical<cx::algo::ring, cx::algo::ring>;  // groups: the hosts

cx::status add_up() {
  auto meeting = meet();  // RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; or PMIx; or alone
  if (!meeting) return meeting.error();
  cx::cuda_composite::options options;
  options.device = cx::cuda_composite::options::by_rank;  // the first rank of a host has its first device
  auto comm = cx::cuda_composite::join(*meeting, options);
  if (!comm) return comm.error();
  cudaSetDevice(comm->transport().options().device);

  auto gradients = comm->allocate<float>(1 << 20);  // or any device memory, as a span
  if (!gradients) return gradients.error();
  std::vector<float> const ones(gradients->size(), 1.0f);
  cudaMemcpy(gradients->data(), ones.data(), ones.size() * sizeof(float), cudaMemcpyHostToDevice);
  cudaStream_t stream = nullptr;
  cudaStreamCreate(&stream);
  if (cx::status s = comm->all_reduce(*gradients, *gradients, cx::sum{}, stream, two_levels{}); !s) return s;
  cudaStreamSynchronize(stream);
  if (cx::status s = comm->status(); !s) return s;  // what became of the calls on the stream
  // [cluster]
  if (cudaStreamDestroy(stream) != cudaSuccess || !are_right(*gradients, comm->size()))
    return comm->abort(cx::status::failure(cx::errc::system, comm->rank(), "a sum on rank %d is wrong", comm->rank()));
  if (comm->rank() == 0) std::printf("%d ranks on %d host(s)\n", comm->size(), comm->nodes().count(comm->size()));
  return comm->barrier(two_levels{});
}

}  // namespace

int main() {
  cx::status const s = add_up();
  if (s.native() == 35 || s.native() == 100) return std::puts("skipped: no GPU"), 77;
  if (!s) std::fprintf(stderr, "%s\n", s.what());
  return s ? 0 : 1;
}
