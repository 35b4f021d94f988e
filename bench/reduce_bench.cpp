// SPDX-License-Identifier: Apache-2.0
/// Vector bytes per second of the host kernels, against the loop that a user would write at the same flags and against memcpy.
#include "collectx/reduce/functors.hpp"
#include "collectx/reduce/host_kernels.hpp"

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace cx = collectx;

namespace {

constexpr std::size_t huge_page = std::size_t{1} << 21;

struct release {
  void operator()(float* p) const { ::operator delete(p, std::align_val_t{huge_page}); }
};

/// count floats, touched.
std::unique_ptr<float[], release> vector_of(std::size_t count, float value) {
  auto* p = static_cast<float*>(::operator new(count * sizeof(float), std::align_val_t{huge_page}));
  for (std::size_t i = 0; i < count; ++i) p[i] = value;
  return std::unique_ptr<float[], release>(p);
}

template <class F>
void measure(benchmark::State& state, F f) {
  auto const bytes = static_cast<std::size_t>(state.range(0));
  std::size_t const n = bytes / sizeof(float);
  // A few lines apart modulo 4 KiB, or loads wait for stores to addresses that look alike.
  auto const a = vector_of(n, 1.0F), b = vector_of(n + 256, 2.0F), c = vector_of(n + 512, 0.0F), d = vector_of(n + 768, 0.0F);
  for (auto _ : state) {
    f(c.get() + 512, d.get() + 768, a.get(), b.get() + 256, n);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * state.range(0));
}

void copy_memcpy(benchmark::State& state) {
  measure(state, [](float* c, float*, float const* a, float const*, std::size_t n) { std::memcpy(c, a, n * sizeof(float)); });
}
void copy_streamed(benchmark::State& state) {
  measure(state, [](float* c, float*, float const* a, float const*, std::size_t n) { cx::kernel::copy(c, a, n * sizeof(float), true); });
}
void copy_to_two(benchmark::State& state) {
  measure(state, [](float* c, float* d, float const* a, float const*, std::size_t n) {
    cx::kernel::sink const sinks[] = {{c, false}, {d, false}};
    cx::kernel::operand const source{a, false};
    cx::kernel::fold<float>(sinks, 2, &source, 1, n, cx::sum{}, 2, false);
  });
}
void add_plain_loop(benchmark::State& state) {
  measure(state, [](float* c, float*, float const* a, float const* b, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) c[i] = a[i] + b[i];
  });
}

template <class Op, int Sources, int Sinks, bool Stream, bool Finish = false>
void fold(benchmark::State& state) {
  measure(state, [](float* c, float* d, float const* a, float const* b, std::size_t n) {
    cx::kernel::sink const sinks[] = {{c, Finish}, {d, Finish}};
    cx::kernel::operand const sources[] = {{a, false}, {b, true}, {a, false}, {b, false}};
    cx::kernel::fold<float>(sinks, Sinks, sources, Sources, n, Op{}, 2, Stream);
  });
}

void sizes(benchmark::internal::Benchmark* b) {
  for (std::int64_t bytes : {4, 32, 64, 128, 1024, 16 << 10, 256 << 10, 4 << 20, 64 << 20}) b->Arg(bytes);
}

}  // namespace

BENCHMARK(copy_memcpy)->Apply(sizes);
BENCHMARK(copy_streamed)->Apply(sizes);
BENCHMARK(copy_to_two)->Apply(sizes);
BENCHMARK(add_plain_loop)->Apply(sizes);
BENCHMARK(fold<cx::sum, 2, 1, false>)->Name("add")->Apply(sizes);
BENCHMARK(fold<cx::sum, 2, 1, true>)->Name("add_streamed")->Apply(sizes);
BENCHMARK(fold<cx::sum, 2, 2, false>)->Name("add_to_two")->Apply(sizes);
BENCHMARK(fold<cx::sum, 2, 2, true>)->Name("add_to_two_streamed")->Apply(sizes);
BENCHMARK(fold<cx::avg, 2, 2, false, true>)->Name("average_to_two")->Apply(sizes);
BENCHMARK(fold<cx::sum, 3, 1, false>)->Name("add_three")->Apply(sizes);
BENCHMARK(fold<cx::sum, 4, 1, false>)->Name("add_four")->Apply(sizes);
BENCHMARK(fold<cx::max, 2, 1, false>)->Name("maximum")->Apply(sizes);

BENCHMARK_MAIN();
