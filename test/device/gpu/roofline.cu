// SPDX-License-Identifier: Apache-2.0
// c = a + b on arrays of 1 GiB by the library's fold, beside a copy on the device in the same run: bytes moved per second, of the copy's.
#include <collectx/reduce/device.cuh>
#include <collectx/reduce/functors.hpp>
#include <collectx/reduce/small_floats.hpp>

#include <cstdio>

namespace cx = collectx;

namespace {

constexpr std::size_t bytes = std::size_t{1} << 30;
constexpr int rounds = 10;

template <class T>
__global__ void __launch_bounds__(cx::device::most_threads) add(T const* a, T const* b, T* c, std::size_t per_block) {
  cx::device::cuda_block block = cx::device::this_block();
  __shared__ cx::kernel::operand sources[2];
  __shared__ cx::kernel::sink sinks[1];
  std::size_t const first = static_cast<std::size_t>(block.index()) * per_block;
  if (block.rank() == 0) {
    sources[0] = {a + first, false};
    sources[1] = {b + first, false};
    sinks[0] = {c + first, false};
  }
  block.sync();
  cx::device::fold<T>(block, sinks, 1, sources, 2, per_block, cx::sum{}, 2);
}

bool good(cudaError_t e) {
  if (e != cudaSuccess) std::printf("%s\n", cudaGetErrorString(e));
  return e == cudaSuccess;
}

/// Seconds of the fastest of several rounds.
template <class F>
double fastest(cudaEvent_t begin, cudaEvent_t end, F const& f) {
  float best = 1e30f;
  for (int i = 0; i < rounds; ++i) {
    float now = 0;
    if (!good(cudaEventRecord(begin))) return -1;
    f();
    if (!good(cudaEventRecord(end)) || !good(cudaEventSynchronize(end)) || !good(cudaEventElapsedTime(&now, begin, end))) return -1;
    best = now < best ? now : best;
  }
  return static_cast<double>(best) * 1e-3;
}

/// Whether sums of T move 90 % of the bytes per second of a copy that took `copy` seconds.
template <class T>
bool reaches(char const* name, cudaEvent_t begin, cudaEvent_t end, unsigned blocks, double copy, std::byte* a, std::byte* b, std::byte* c) {
  std::size_t const per_block = bytes / blocks / 16 * 16 / sizeof(T);
  double const sum = fastest(begin, end, [&] {
    add<T><<<blocks, cx::device::most_threads>>>(reinterpret_cast<T*>(a), reinterpret_cast<T*>(b), reinterpret_cast<T*>(c), per_block);
  });
  if (!good(cudaGetLastError()) || copy <= 0 || sum <= 0) return false;
  double const copied = 2.0 * static_cast<double>(bytes) / copy;
  double const folded = 3.0 * static_cast<double>(per_block * blocks * sizeof(T)) / sum;
  std::printf("copy %.0f GB/s, %s sum %.0f GB/s, %.0f %% of the copy\n", copied * 1e-9, name, folded * 1e-9, 100 * folded / copied);
  return folded >= 0.9 * copied;
}

}  // namespace

int main() {
  std::byte *a = nullptr, *b = nullptr, *c = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  int processors = 0;
  bool ready = good(cudaMalloc(&a, bytes)) && good(cudaMalloc(&b, bytes)) && good(cudaMalloc(&c, bytes));
  ready = ready && good(cudaMemset(a, 0, bytes)) && good(cudaMemset(b, 0, bytes));
  ready = ready && good(cudaEventCreate(&begin)) && good(cudaEventCreate(&end));
  ready = ready && good(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  if (!ready) return 1;
  double const copy = fastest(begin, end, [&] { good(cudaMemcpyAsync(c, a, bytes, cudaMemcpyDeviceToDevice)); });
  unsigned const blocks = static_cast<unsigned>(processors) * cx::device::blocks_per_processor;
  bool const floats = reaches<float>("float", begin, end, blocks, copy, a, b, c);
  bool const halves = reaches<cx::bfloat16>("bfloat16", begin, end, blocks, copy, a, b, c);
  return floats && halves ? 0 : 1;
}
