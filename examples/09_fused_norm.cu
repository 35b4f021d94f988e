// SPDX-License-Identifier: Apache-2.0
/// All-reduce, residual and RMSNorm in one kernel, by two ranks that share a GPU: each rank a grid on a stream of its own. Without a GPU it
/// says so; the kernel's body is tested on the CPU in test/run/fused_norm_test.cpp.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "fused_norm.cuh"

namespace cx = collectx;
using fused::number;

namespace {

constexpr int ranks = 2, rows = 64, hidden = 4096, blocks = 8, threads = 512;

// [kernel]
__global__ void __launch_bounds__(cx::device::most_threads, cx::device::blocks_per_processor)
    fused_kernel(cx::device::world const group, fused::layer const what) {
  cx::device::cuda_block block = cx::device::this_block();
  static_cast<void>(fused::all_reduce_and_normalize(block, group, what));
}
// [kernel]

bool good(cudaError_t e, char const* what) {
  if (e != cudaSuccess) std::printf("%s: %s\n", what, cudaGetErrorString(e));
  return e == cudaSuccess;
}

/// Zeros that host and device reach; never freed, since the process ends soon.
template <class T>
T* shared_zeros(std::size_t count) {
  void* memory = nullptr;
  if (!good(cudaMallocManaged(&memory, count * sizeof(T)), "cudaMallocManaged")) return nullptr;
  std::memset(memory, 0, count * sizeof(T));
  return static_cast<T*>(memory);
}

number some(std::size_t i, std::size_t salt) { return number(static_cast<float>((i * 37 + salt * 101) % 257) / 64.0F - 2.0F); }

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return std::puts("skipped: no GPU"), 77;

  std::size_t const width = hidden, count = rows * width;
  cx::device::layout layout;
  layout.ranks = ranks;
  layout.blocks = blocks;
  layout.slots = layout.low_latency = {1, 64};
  auto** const windows = shared_zeros<std::byte*>(ranks);
  auto** const inputs = shared_zeros<number const*>(ranks);
  auto* const weight = shared_zeros<number>(width);
  if (windows == nullptr || inputs == nullptr || weight == nullptr) return 1;
  for (std::size_t i = 0; i < width; ++i) weight[i] = some(i, 200);

  std::vector<cx::device::world> worlds(ranks);
  std::vector<fused::layer> layers(ranks);
  for (int r = 0; r < ranks; ++r) {
    auto* const in = shared_zeros<number>(count);
    auto* const residual = shared_zeros<number>(count);
    windows[r] = shared_zeros<std::byte>(layout.window_bytes());
    worlds[r].layout = layout;
    worlds[r].rank = r;
    worlds[r].windows = windows;
    worlds[r].calls = shared_zeros<std::uint64_t>(blocks);
    worlds[r].reports = shared_zeros<cx::device::report>(blocks);
    worlds[r].timeout = 10'000'000'000;
    layers[r] = {inputs, residual, weight, shared_zeros<number>(count), rows, hidden, 1e-6F};
    if (in == nullptr || residual == nullptr || layers[r].output == nullptr || worlds[r].reports == nullptr) return 1;
    for (std::size_t i = 0; i < count; ++i) in[i] = some(i, static_cast<std::size_t>(r) + 1), residual[i] = some(i, 100);
    inputs[r] = in;
  }
  for (int r = 0; r < ranks; ++r) {
    cudaStream_t stream{};
    if (!good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate")) return 1;
    fused_kernel<<<blocks, threads, fused::shared_bytes(ranks, threads), stream>>>(worlds[r], layers[r]);
    if (!good(cudaGetLastError(), "launch")) return 1;
  }
  if (!good(cudaDeviceSynchronize(), "cudaDeviceSynchronize")) return 1;

  int wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    number const sum = static_cast<float>(some(i, 1)) + static_cast<float>(some(i, 2)) + static_cast<float>(some(i, 100));
    for (int r = 0; r < ranks; ++r)
      wrong += layers[r].residual[i].bits == sum.bits && layers[r].output[i].bits == layers[0].output[i].bits ? 0 : 1;
  }
  std::printf("fused all-reduce, residual and RMSNorm of %d x %d: %d wrong\n", rows, hidden, wrong);
  return wrong == 0 ? 0 : 1;
}
