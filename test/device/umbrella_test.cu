// SPDX-License-Identifier: Apache-2.0
// nvcc takes the umbrella header, and a kernel calls the constexpr core as it stands: `share` must cut a vector alike on host and device.
#include "collectx/collectx.hpp"

#include <cstdio>
#include <vector>

namespace {

constexpr int parts = 7;

__global__ void cut(std::size_t total, collectx::extent* shares) {
  int const part = static_cast<int>(threadIdx.x);
  if (part < parts) shares[part] = collectx::share(total, parts, part);
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no GPU");
    return 77;
  }
  std::size_t const total = (std::size_t{1} << 33) + 3;
  collectx::extent* shares = nullptr;
  std::vector<collectx::extent> seen(parts);
  if (cudaMalloc(&shares, parts * sizeof(collectx::extent)) != cudaSuccess) return std::puts("cudaMalloc failed"), 1;
  cut<<<1, 32>>>(total, shares);
  cudaError_t const copied = cudaMemcpy(seen.data(), shares, parts * sizeof(collectx::extent), cudaMemcpyDeviceToHost);
  if (cudaFree(shares) != cudaSuccess || copied != cudaSuccess) return std::puts(cudaGetErrorString(copied)), 1;
  for (int part = 0; part < parts; ++part)
    if (!(seen[static_cast<std::size_t>(part)] == collectx::share(total, parts, part))) return std::printf("share %d differs\n", part), 1;
  return 0;
}
