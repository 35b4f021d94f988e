// SPDX-License-Identifier: Apache-2.0
// All-reduces by kernels, among ranks that share one GPU: each rank a grid on a stream of its own. Without a GPU, what is tested is that
// they compile, with neither spills nor warnings; their bodies run on the CPU in test/run/blocks*.
#include "collectx/algo/double_binary_tree.hpp"
#include "collectx/algo/ring.hpp"
#include "collectx/exec/direct_device.cuh"
#include "collectx/exec/passes.hpp"
#include "collectx/exec/run_device.cuh"
#include "collectx/reduce/functors.hpp"

#include <cstdio>
#include <vector>

namespace cx = collectx;

namespace {

constexpr int n = 3, blocks = 2;

bool good(cudaError_t e, char const* what) {
  if (e != cudaSuccess) std::printf("%s: %s\n", what, cudaGetErrorString(e));
  return e == cudaSuccess;
}

/// Zeroed memory of the device; never freed, since the process ends soon.
template <class E>
E* on_device(std::size_t count) {
  void* memory = nullptr;
  if (!good(cudaMalloc(&memory, count * sizeof(E) + 16), "cudaMalloc")) return nullptr;
  if (!good(cudaMemset(memory, 0, count * sizeof(E) + 16), "cudaMemset")) return nullptr;
  return static_cast<E*>(memory);
}
template <class E>
E* on_device(std::vector<E> const& values) {
  E* const memory = on_device<E>(values.size());
  if (!good(cudaMemcpy(memory, values.data(), values.size() * sizeof(E), cudaMemcpyHostToDevice), "cudaMemcpy")) return nullptr;
  return memory;
}

/// What every kernel of a group needs.
struct group {
  cx::device::layout layout;
  std::vector<cx::device::world> worlds;
  std::vector<cudaStream_t> streams;
  std::vector<std::byte*> windows;

  group() {
    layout.ranks = n;
    layout.blocks = blocks;
    layout.slots = layout.low_latency = {4, 4096};
    for (int r = 0; r < n; ++r) windows.push_back(on_device<std::byte>(layout.window_bytes()));
    for (int r = 0; r < n; ++r) {
      cx::device::world w;
      w.layout = layout;
      w.rank = r;
      w.windows = on_device(windows);
      w.calls = on_device<std::uint64_t>(blocks);
      w.reports = on_device<cx::device::report>(blocks);
      w.timeout = 10'000'000'000;
      worlds.push_back(w);
      streams.emplace_back();
      static_cast<void>(good(cudaStreamCreateWithFlags(&streams.back(), cudaStreamNonBlocking), "cudaStreamCreate"));
    }
  }
};

template <class Protocol>
cx::device::wires<Protocol> wires_of(group const& g, int rank) {
  std::vector<typename Protocol::sender> senders(g.layout.channels());
  std::vector<typename Protocol::receiver> receivers(g.layout.channels());
  cx::device::make_wires<Protocol>(g.layout, g.windows.data(), rank, on_device<std::byte>(cx::device::staging_bytes<Protocol>(g.layout)),
                                   {senders.data(), receivers.data()});
  return {on_device(senders), on_device(receivers)};
}

/// Inputs and outputs of all ranks.
struct buffers {
  std::size_t count;
  std::vector<float*> in, out;
  explicit buffers(std::size_t elements) : count(elements) {
    for (int r = 0; r < n; ++r) {
      std::vector<float> mine(count);
      for (std::size_t i = 0; i < count; ++i) mine[i] = static_cast<float>(i % 1000) + static_cast<float>(r);
      in.push_back(on_device(mine));
      out.push_back(on_device<float>(count));
    }
  }
  int wrong() const {
    int elements = 0;
    std::vector<float> result(count);
    for (float* from : out) {
      if (!good(cudaMemcpy(result.data(), from, count * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy")) return -1;
      for (std::size_t i = 0; i < count; ++i) elements += result[i] == static_cast<float>(i % 1000) * n + 3 ? 0 : 1;
    }
    return elements;
  }
};

template <class Protocol, class Family>
int run_plans(group const& g, Family const& family, std::size_t count) {
  buffers memory(count);
  auto const schedule = cx::schedule_of(family, cx::all_reduce{});
  std::vector<cx::device::wires<Protocol>> wires;
  for (int r = 0; r < n; ++r) wires.push_back(wires_of<Protocol>(g, r));
  for (int r = 0; r < n; ++r) {
    cx::exec::plan plan = cx::exec::make_plan(schedule, cx::all_reduce{}, n, r);
    plan.largest_message = cx::exec::largest_message(schedule, plan.form);
    cx::exec::plan_image const image(plan);
    cx::exec::device_call<float> call;
    call.image = on_device(std::vector<std::int32_t>(image.words().begin(), image.words().end()));
    call.memory = {memory.in[r], 0, memory.out[r], 0, count, 0};
    call.scratch = on_device<float>(count);
    call.scratch_elements = count / blocks;
    cx::exec::plan_kernel<Protocol, float, cx::sum>
        <<<blocks, cx::device::most_threads, cx::exec::shared_bytes(image.view()), g.streams[r]>>>(g.worlds[r], wires[r], call, cx::sum{});
  }
  if (!good(cudaDeviceSynchronize(), "plan_kernel")) return -1;
  return memory.wrong();
}

int run_direct(group const& g, std::size_t count, bool two_shots) {
  buffers memory(count);
  std::vector<float*> scratch;
  for (int r = 0; r < n; ++r) scratch.push_back(on_device<float>(cx::exec::two_shot_scratch(count, sizeof(float), n, blocks)));
  for (int r = 0; r < n; ++r) {
    cx::exec::direct_call<float> call;
    call.inputs = on_device(std::vector<float const*>(memory.in.begin(), memory.in.end()));
    call.scratch = on_device(scratch);
    call.output = memory.out[r];
    call.count = count;
    (two_shots
         ? cx::exec::two_shot_kernel<float, cx::sum>
         : cx::exec::one_shot_kernel<float, cx::sum>)<<<blocks, cx::device::most_threads, cx::exec::direct_shared_bytes(n), g.streams[r]>>>(
        g.worlds[r], call, cx::sum{});
  }
  if (!good(cudaDeviceSynchronize(), "a direct kernel")) return -1;
  return memory.wrong();
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no GPU");
    return 77;
  }
  int failed = 0;
  auto const expect = [&](int wrong, char const* what, std::size_t count) {
    if (wrong != 0) std::printf("%s of %zu: %d wrong elements\n", what, count, wrong), ++failed;
  };
  for (std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{100'003}}) {
    expect(run_plans<cx::device::flagged<>>(group(), cx::algo::ring{}, count), "ring, flags", count);
    expect(run_plans<cx::device::low_latency<>>(group(), cx::algo::ring{}, count), "ring, low latency", count);
    expect(run_plans<cx::device::flagged<>>(group(), cx::algo::double_binary_tree{}, count), "trees, flags", count);
    expect(run_direct(group(), count, false), "one shot", count);
    expect(run_direct(group(), count, true), "two shots", count);
  }
  return failed;
}
