// SPDX-License-Identifier: Apache-2.0
// Types x operations x counts x alignments: what a kernel folds is, bit for bit, what the host folds by the same functors in the same
// order. Of the small floating-point types all bit patterns, so that the device's conversions are those of the host.
#include <collectx/reduce/device.cuh>
#include <collectx/reduce/functors.hpp>
#include <collectx/reduce/small_floats.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace cx = collectx;

namespace {

constexpr int operands = 3;

template <class T>
struct task {
  T const* in[operands];
  T* out;
  std::size_t count;
};

template <class T, class Op>
__global__ void __launch_bounds__(cx::device::most_threads) fold_kernel(task<T> const what, Op const op) {
  cx::device::cuda_block block = cx::device::this_block();
  __shared__ cx::kernel::operand sources[operands];
  __shared__ cx::kernel::sink sinks[1];
  if (block.rank() == 0) {
    for (int i = 0; i < operands; ++i) sources[i] = {what.in[i], i == 2, true};
    sinks[0] = {what.out, true};
  }
  block.sync();
  cx::device::fold<T>(block, sinks, 1, sources, operands, what.count, op, operands);
}

int wrong = 0, folds = 0;

bool good(cudaError_t e) {
  if (e != cudaSuccess && wrong++ < 10) std::printf("%s\n", cudaGetErrorString(e));
  return e == cudaSuccess;
}

template <class T>
T value(int operand, std::size_t i) {
  if constexpr (!std::is_arithmetic_v<T>)
    return T::from_bits(static_cast<decltype(T::bits)>(operand == 0 ? i : i * 40503 + static_cast<std::size_t>(operand) * 7919));
  else
    return static_cast<T>(static_cast<double>((i * 7 + static_cast<std::size_t>(operand) * 13) % 31) / (std::is_integral_v<T> ? 7 : 3) + 1);
}

template <class T, class Op>
void one(std::size_t count, std::size_t shift, Op const& op, char const* name) {
  // With a shift of 2 the operands are not equally far from a multiple of 16 bytes, else they are.
  std::size_t const room = (count + shift + 16) / 16 * 16 + (shift == 2 ? 1 : 0);
  std::vector<T> host[operands], seen(room), expected(room);
  T* memory = nullptr;
  if (!good(cudaMalloc(&memory, room * sizeof(T) * (operands + 1)))) return;
  task<T> what{{}, memory + operands * room + shift, count};
  for (int o = 0; o < operands; ++o) {
    for (std::size_t i = 0; i < room; ++i) host[o].push_back(value<T>(o, i));
    what.in[o] = memory + static_cast<std::size_t>(o) * room + shift;
    good(cudaMemcpy(memory + static_cast<std::size_t>(o) * room, host[o].data(), room * sizeof(T), cudaMemcpyHostToDevice));
  }
  fold_kernel<<<1, cx::device::most_threads>>>(what, op);
  good(cudaGetLastError());
  good(cudaMemcpy(seen.data(), memory + operands * room, room * sizeof(T), cudaMemcpyDeviceToHost));
  good(cudaFree(memory));
  cx::kernel::operand sources[operands];
  for (int o = 0; o < operands; ++o) sources[o] = {host[o].data() + shift, o == 2, true};
  cx::kernel::sink sinks[1] = {{expected.data() + shift, true}};
  cx::kernel::fold<T>(sinks, 1, sources, operands, count, op, operands, false);
  ++folds;
  if (std::memcmp(seen.data() + shift, expected.data() + shift, count * sizeof(T)) == 0) return;
  if (wrong++ < 10) std::printf("%s of %zu elements of %zu bytes, %zu beyond alignment, differs\n", name, count, sizeof(T), shift);
}

template <class T>
void all_of() {
  constexpr std::size_t vector = 16 / sizeof(T);
  for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{77}, vector - 1, vector, vector + 1, (std::size_t{1} << 20) + 3})
    for (std::size_t shift : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
      one<T>(count, shift, cx::sum{}, "sum");
      one<T>(count, shift, cx::prod{}, "prod");
      one<T>(count, shift, cx::min{}, "min");
      one<T>(count, shift, cx::max{}, "max");
      one<T>(count, shift, cx::avg{}, "avg");
    }
}

}  // namespace

int main() {
  all_of<std::int8_t>();
  all_of<std::uint8_t>();
  all_of<std::int16_t>();
  all_of<std::int32_t>();
  all_of<std::uint32_t>();
  all_of<std::int64_t>();
  all_of<float>();
  all_of<double>();
  all_of<cx::bfloat16>();
  all_of<cx::float16>();
  all_of<cx::float8_e4m3>();
  all_of<cx::float8_e5m2>();
  std::printf("%d folds, %d wrong\n", folds, wrong);
  return wrong == 0 ? 0 : 1;
}
