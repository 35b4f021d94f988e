// SPDX-License-Identifier: Apache-2.0
#include "group.hpp"

#include <collectx/cuda_ipc.cuh>
#if COLLECTX_PERF_LIBFABRIC
#include <collectx/cuda_composite.cuh>
#endif

#include "reductions.cuh"

namespace perf {
namespace {

namespace cx = collectx;

template <class Tr>
class group_over final : public device_group {
 public:
  explicit group_over(cx::communicator<Tr>& comm) : comm_(comm) {}
  group_over(group_over const&) = delete;
  ~group_over() {
    if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
  }
  /// Makes the rank's device that of this thread, for the stream and the buffers.
  cx::status open() {
    cx::status const s = check(cudaSetDevice(comm_.transport().options().device));
    return s.ok() ? check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)) : s;
  }

  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }
  int slots() override { return comm_.transport().slots(); }
  std::size_t slot_bytes() override { return comm_.transport().side().layout().slots.bytes; }

  cx::status put(datatype d, operation o, collective_call<std::byte> const& call) override {
    if (reduces(call.what)) return reduction_on<Tr>(d, o)(comm_, stream_, call);
    auto caller = comm_.on(stream_);
    return make_move(caller, call);
  }
  cx::status finish() override {
    if (cx::status s = check(cudaStreamSynchronize(stream_)); !s) return s;
    return comm_.status();
  }

  cx::status exchange(std::span<std::byte const> mine, std::span<std::byte> all) override {
    return comm_.all_gather(mine, all, cx::algo::direct{});
  }

 private:
  cx::status check(cudaError_t e) { return cx::detail::device_status(e, comm_.rank(), "measuring on a stream"); }

  cx::communicator<Tr>& comm_;
  cudaStream_t stream_ = nullptr;
};

template <class Options>
cx::transport_options shape_of(Options const& theirs) {
  cx::transport_options shape;
  shape.slots = theirs.slots.slots;
  shape.slot_bytes = theirs.slots.bytes;
  shape.lanes = theirs.lanes;
  return shape;
}

}  // namespace

void* allocate_on_device(std::size_t bytes) {
  void* memory = nullptr;
  return cudaMallocManaged(&memory, bytes) == cudaSuccess ? memory : nullptr;
}
void release_on_device(void* memory) { static_cast<void>(cudaFree(memory)); }

bool reduces_on_devices(datatype d, operation o) { return reduction_on<cx::cuda_ipc_transport>(d, o) != nullptr; }

cx::transport_options defaults_on_devices(wire w) {
#if COLLECTX_PERF_LIBFABRIC
  if (w == wire::cuda_composite) return shape_of(cx::cuda_composite::options{});
#endif
  static_cast<void>(w);
  return shape_of(cx::cuda_ipc::options{});
}

cx::status measure_on_devices(job const& what, cx::environment_rendezvous* meeting, row_taker take, void* context) {
  auto const ranks = [&]<class Tr>(cx::communicator<Tr>& comm) -> cx::status {
    group_over<Tr> group(comm);
    cx::status const s = group.open();
    return s.ok() ? measure_group(group, what, take, context) : s;
  };
#if COLLECTX_PERF_LIBFABRIC
  if (what.all->transport == wire::cuda_composite) {
    cx::cuda_composite::options options;
    options.device = options.by_rank;
    options.host.between.provider = what.all->provider.empty() ? nullptr : what.all->provider.c_str();
    return meeting == nullptr ? cx::cuda_composite::run(what.all->ranks, options, ranks)
                              : take_part(cx::cuda_composite::join(*meeting, options), ranks);
  }
#endif
  cx::cuda_ipc::options options;
  options.device = options.by_rank;
  return meeting == nullptr ? cx::cuda_ipc::run(what.all->ranks, options, ranks) : take_part(cx::cuda_ipc::join(*meeting, options), ranks);
}

}  // namespace perf
