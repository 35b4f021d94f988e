// SPDX-License-Identifier: Apache-2.0
/// Calls on streams among ranks of any kind that own a device, and whether their results are right.
#pragma once

#include <collectx/communicator.hpp>

#include "gpu_memory.hpp"
#if ON_GPU
#include "../gpu/standin.hpp"
#else
#include "../standin/serial_block.hpp"
#endif

#include <cstddef>
#include <cstdint>

namespace gpu {

constexpr cx::algo::direct direct;  // named, since the automatic choice would have all families compiled

inline void use_kernels() {
  standin::plans<int, cx::sum>();
  standin::plans<std::byte, cx::detail::moves_only>();
  standin::plans<std::uint8_t, cx::sum>();
}

template <class Comm>
cx::status wrong(Comm& comm, char const* what, std::size_t at, int seen, int wanted) {
  return comm.abort(cx::status::failure(cx::errc::system, comm.rank(), "%s: element %zu is %d, not %d", what, at, seen, wanted));
}

/// Waits for a stream, and compares `count` elements of the device with what `wanted(i)` says.
template <class Comm, class F>
cx::status compare(Comm& comm, cudaStream_t stream, char const* what, int const* at, std::size_t count, F wanted) {
  if (cx::status s = ok(comm, cudaStreamSynchronize(stream), what); !s) return s;
  if (cx::status s = comm.status(); !s) return s;
  std::vector<int> seen(count);
  if (cx::status s = ok(comm, cudaMemcpy(seen.data(), at, count * sizeof(int), cudaMemcpyDeviceToHost), what); !s) return s;
  for (std::size_t i = 0; i < count; ++i)
    if (seen[i] != wanted(i)) return wrong(comm, what, i, seen[i], wanted(i));
  return {};
}

inline int value(int rank, std::size_t i) { return rank * 1000 + static_cast<int>(i % 997); }
inline int sum_of(int size, std::size_t i) { return size * (size - 1) / 2 * 1000 + size * static_cast<int>(i % 997); }

inline std::vector<int> mine(int rank, std::size_t count) {
  std::vector<int> v(count);
  for (std::size_t i = 0; i < count; ++i) v[i] = value(rank, i);
  return v;
}

template <class Comm, class A>
cx::status every_collective(Comm& comm, std::size_t count, A const& algorithm) {
  int const n = comm.size(), r = comm.rank();
  std::size_t const ranks = static_cast<std::size_t>(n), all = ranks * count;
  buffer<int> one(count), result(count), many(all), gathered(all);
  stream stream;
  cudaStream_t const on = stream;
  if (cx::status s = ok(comm, one.fill(mine(r, count)), "fill"); !s) return s;
  if (cx::status s = ok(comm, many.fill(mine(r, all)), "fill"); !s) return s;

  if (cx::status s = comm.all_reduce(one.all(), result.all(), cx::sum{}, on, algorithm); !s) return s;
  if (cx::status s = compare(comm, on, "all_reduce", result.all().data(), count, [&](std::size_t i) { return sum_of(n, i); }); !s) return s;

  if (cx::status s = comm.all_gather(one.all(), gathered.all(), on, algorithm); !s) return s;
  auto const from = [&](std::size_t i) { return value(static_cast<int>(i / count), i % count); };
  if (cx::status s = compare(comm, on, "all_gather", gathered.all().data(), all, from); !s) return s;

  if (cx::status s = comm.reduce_scatter(many.all(), result.all(), cx::sum{}, on, algorithm); !s) return s;
  auto const share = [&](std::size_t i) { return sum_of(n, static_cast<std::size_t>(r) * count + i); };
  if (cx::status s = compare(comm, on, "reduce_scatter", result.all().data(), count, share); !s) return s;

  int const root = n - 1;
  if (cx::status s = comm.reduce(one.all(), result.all(), cx::sum{}, root, on, algorithm); !s) return s;
  auto const reduced = [&](std::size_t i) { return r == root ? sum_of(n, i) : share(i); };
  if (cx::status s = compare(comm, on, "reduce", result.all().data(), count, reduced); !s) return s;

  if (cx::status s = comm.broadcast(result.all(), root, on, algorithm); !s) return s;
  if (cx::status s = compare(comm, on, "broadcast", result.all().data(), count, [&](std::size_t i) { return sum_of(n, i); }); !s) return s;

  if (cx::status s = comm.all_reduce(cx::in_place(one.all()), cx::sum{}, on, algorithm); !s) return s;
  if (cx::status s = compare(comm, on, "in place", one.all().data(), count, [&](std::size_t i) { return sum_of(n, i); }); !s) return s;
  return comm.barrier(on, direct);
}

template <class Comm>
cx::status one_sum(Comm& comm, buffer<int>& both, int factor, cudaStream_t on) {
  std::size_t const count = both.all().size();
  if (cx::status s = ok(comm, both.fill(std::vector<int>(count, factor)), "fill"); !s) return s;
  if (cx::status s = comm.all_reduce(cx::in_place(both.all()), cx::sum{}, on, direct); !s) return s;
  return compare(comm, on, "sum", both.all().data(), count, [&](std::size_t) { return comm.size() * factor; });
}

/// A graph of three calls is replayed with what the buffer holds then, and calls come between. A call not made before is refused.
template <class Comm, class A>
cx::status replay(Comm& comm, int count, A const& never_made) {
  buffer<int> both(static_cast<std::size_t>(count));
  stream stream;
  cudaStream_t const on = stream;
  if (cx::status s = one_sum(comm, both, 1, on); !s) return s;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  if (cx::status s = ok(comm, cudaStreamBeginCapture(on, cudaStreamCaptureModeGlobal), "begin"); !s) return s;
  for (int i = 0; i < 3; ++i)
    if (cx::status s = comm.all_reduce(cx::in_place(both.all()), cx::sum{}, on, direct); !s) return s;
  cx::status const unknown = comm.all_reduce(cx::in_place(both.all()), cx::sum{}, on, never_made);
  if (unknown.code() != cx::errc::not_supported) return failed(comm, unknown.what());
  if (cx::status s = ok(comm, cudaStreamEndCapture(on, &graph), "end"); !s) return s;
  if (cx::status s = ok(comm, cudaGraphInstantiate(&ready, graph, 0), "instantiate"); !s) return s;
  int const thrice = comm.size() * comm.size() * comm.size();
  for (int round = 1; round <= 20; ++round) {
    if (cx::status s = ok(comm, both.fill(std::vector<int>(both.all().size(), round)), "fill"); !s) return s;
    if (cx::status s = ok(comm, cudaGraphLaunch(ready, on), "replay"); !s) return s;
    auto const wanted = [&](std::size_t) { return thrice * round; };
    if (cx::status s = compare(comm, on, "replay", both.all().data(), both.all().size(), wanted); !s) return s;
    if (cx::status s = one_sum(comm, both, round, on); !s) return s;
  }
  if (cx::status s = ok(comm, cudaGraphExecDestroy(ready), "destroy"); !s) return s;
  return ok(comm, cudaGraphDestroy(graph), "destroy");
}

/// A call on another stream comes behind the one before, and calls without a stream mix with those on one.
template <class Comm, class A>
cx::status two_streams(Comm& comm, A const& algorithm) {
  buffer<int> both(2000);
  stream a, b;
  std::vector<int> on_host(100, 1);
  if (cx::status s = ok(comm, both.fill(std::vector<int>(2000, 1)), "fill"); !s) return s;
  int expected = 1;
  for (int i = 0; i < 8; ++i, expected *= comm.size()) {
    cudaStream_t const on = i % 2 == 0 ? a : b;
    if (cx::status s = comm.all_reduce(cx::in_place(both.all()), cx::sum{}, on, algorithm); !s) return s;
    if (cx::status s = comm.all_reduce(cx::in_place(on_host), cx::sum{}, algorithm); !s) return s;
  }
  if (cx::status s = compare(comm, b, "two streams", both.all().data(), 2000, [&](std::size_t) { return expected; }); !s) return s;
  return on_host[99] == expected ? cx::status{} : wrong(comm, "on the host", 99, on_host[99], expected);
}

}  // namespace gpu
