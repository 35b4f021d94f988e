// SPDX-License-Identifier: Apache-2.0
// Two processes, a GPU each or both on one, add up what they have in device memory, in the order of a stream.
#include <collectx/cuda_ipc.cuh>

#include <cstdio>
#include <vector>

namespace cx = collectx;

// [gpu]
cx::status add_up(cx::communicator<cx::cuda_ipc_transport>& comm, float* gradients, std::size_t count, cudaStream_t stream) {
  std::span<float> const mine(gradients, count);  // any device memory
  if (cx::status s = comm.all_reduce(cx::in_place(mine), cx::sum{}, stream); !s) return s;

  auto small = comm.allocate<float>(256);  // or register_buffer: others read it where it lies
  if (!small) return small.error();
  if (cudaMemsetAsync(small->data(), 0, 256 * sizeof(float), stream) != cudaSuccess) return comm.abort();
  if (cx::status s = comm.all_reduce(*small, mine.first(256), cx::sum{}, stream); !s) return s;

  cudaStreamSynchronize(stream);
  return comm.status();  // what became of the calls on the stream
}
// [gpu]

/// Runs `add_up`, and looks at what comes of it.
cx::status be_rank(cx::communicator<cx::cuda_ipc_transport>& comm) {
  if (cudaSetDevice(comm.transport().options().device) != cudaSuccess)
    return cx::status::failure(cx::errc::system, comm.rank(), "rank %d does not get at its device", comm.rank());
  std::size_t const count = 100000;
  std::vector<float> values(count, static_cast<float>(comm.rank() + 1));
  float* gradients = nullptr;
  cudaStream_t stream = nullptr;
  bool good = cudaMalloc(&gradients, count * sizeof(float)) == cudaSuccess && cudaStreamCreate(&stream) == cudaSuccess &&
              cudaMemcpy(gradients, values.data(), count * sizeof(float), cudaMemcpyHostToDevice) == cudaSuccess;
  if (!good) return cx::status::failure(cx::errc::system, comm.rank(), "rank %d has no memory or no stream", comm.rank());
  if (cx::status s = add_up(comm, gradients, count, stream); !s) return s;

  good = cudaMemcpy(values.data(), gradients, count * sizeof(float), cudaMemcpyDeviceToHost) == cudaSuccess;
  for (std::size_t i = 0; i < count; ++i) good = good && values[i] == (i < 256 ? 0.0f : 3.0f);
  good = cudaStreamDestroy(stream) == cudaSuccess && cudaFree(gradients) == cudaSuccess && good;
  return good ? cx::status{} : cx::status::failure(cx::errc::system, comm.rank(), "a sum on rank %d is wrong", comm.rank());
}

int main() {
  cx::cuda_ipc::options options;
  options.device = cx::cuda_ipc::options::by_rank;
  cx::status const s = cx::cuda_ipc::run(2, options, be_rank);
  if (s.native() == 35 || s.native() == 100) return std::puts("skipped: no GPU"), 77;
  if (!s) return std::puts(s.what()), 1;
  std::puts("two ranks have added up what was on their devices");
  return 0;
}
