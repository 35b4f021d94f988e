// SPDX-License-Identifier: Apache-2.0
/// Vector bytes per second of the host kernels, against the loop that a user would write at the same flags and against memcpy.
#include "collectx/reduce/functors.hpp"
#include "collectx/reduce/host_kernels.hpp"
#include "collectx/reduce/small_floats.hpp"

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace cx = collectx;

namespace {

constexpr std::size_t huge_page = std::size_t{1} << 21;

struct release {
  void operator()(void* p) const { ::operator delete (p, std::align_val_t{huge_page}); }
};

/// count elements, touched.
template <class T>
std::unique_ptr<T[], release> vector_of(std::size_t count, float value) {
  auto* p = static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{huge_page}));
  for (std::size_t i = 0; i < count; ++i) p[i] = static_cast<T>(value);
  return std::unique_ptr<T[], release>(p);
}

template <class T = float, class F>
void measure(benchmark::State& state, F f) {
  auto const bytes = static_cast<std::size_t>(state.range(0));
  constexpr std::size_t apart = 1024 / sizeof(T);
  std::size_t const n = bytes / sizeof(T);
  // A few lines apart modulo 4 KiB, or loads wait for stores to addresses that look alike.
  auto const a = vector_of<T>(n, 1.0F), b = vector_of<T>(n + apart, 2.0F), c = vector_of<T>(n + 2 * apart, 0.0F),
             d = vector_of<T>(n + 3 * apart, 0.0F);
  for (auto _ : state) {
    f(c.get() + 2 * apart, d.get() + 3 * apart, a.get(), b.get() + apart, n);
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

template <class Op, int Sources, int Sinks, bool Stream, bool Finish = false, class T = float>
void fold(benchmark::State& state) {
  measure<T>(state, [](T* c, T* d, T const* a, T const* b, std::size_t n) {
    cx::kernel::sink const sinks[] = {{c, Finish}, {d, Finish}};
    cx::kernel::operand const sources[] = {{a, false}, {b, true}, {a, false}, {b, false}};
    cx::kernel::fold<T>(sinks, Sinks, sources, Sources, n, Op{}, 2, Stream);
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

#define OF_SMALL_FLOATS(type)                                                                       \
  BENCHMARK(fold<cx::sum, 2, 1, false, false, cx::type>)->Name("add_" #type)->Apply(sizes);         \
  BENCHMARK(fold<cx::sum, 2, 1, true, false, cx::type>)->Name("add_streamed_" #type)->Apply(sizes); \
  BENCHMARK(fold<cx::sum, 4, 1, false, false, cx::type>)->Name("add_four_" #type)->Apply(sizes);    \
  BENCHMARK(fold<cx::max, 2, 1, false, false, cx::type>)->Name("maximum_" #type)->Apply(sizes)
OF_SMALL_FLOATS(bfloat16);
OF_SMALL_FLOATS(float16);
OF_SMALL_FLOATS(float8_e4m3);
OF_SMALL_FLOATS(float8_e5m2);

BENCHMARK_MAIN();
