// SPDX-License-Identifier: Apache-2.0
#include "on_devices.hpp"

#include <collectx/cuda_ipc.cuh>

#include "agree.hpp"
#include "measure_type.hpp"

namespace perf {

/// Buffers in managed memory, which the host fills and reads between measurements and which stays on the device during one; calls on a
/// stream.
template <>
class stage<collectx::cuda_ipc_transport> {
 public:
  using communicator = collectx::communicator<collectx::cuda_ipc_transport>;

  explicit stage(communicator& comm) : comm_(comm), status_(check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking))) {}
  stage(stage const&) = delete;
  ~stage() {
    if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
  }
  auto caller() { return comm_.on(stream_); }
  collectx::status finish() {
    if (!status_) return status_;
    if (collectx::status s = check(cudaStreamSynchronize(stream_)); !s) return s;
    return comm_.status();
  }

  static void* allocate(std::size_t bytes) {
    void* memory = nullptr;
    return cudaMallocManaged(&memory, bytes) == cudaSuccess ? memory : nullptr;
  }
  static void release(void* memory) { static_cast<void>(cudaFree(memory)); }

 private:
  collectx::status check(cudaError_t e) { return collectx::detail::device_status(e, comm_.rank(), "measuring on a stream"); }

  communicator& comm_;
  cudaStream_t stream_ = nullptr;
  collectx::status status_;
};

collectx::transport_options defaults_on_devices() {
  collectx::cuda_ipc::options const theirs;
  collectx::transport_options chosen;
  chosen.slots = theirs.slots.slots;
  chosen.slot_bytes = theirs.slots.bytes;
  chosen.lanes = theirs.lanes;
  return chosen;
}

collectx::status measure_on_devices(job const& what, collectx::environment_rendezvous* meeting, row_taker take, void* context) {
  collectx::cuda_ipc::options options;
  options.device = collectx::cuda_ipc::options::by_rank;
  auto const ranks = [&](stage<collectx::cuda_ipc_transport>::communicator& comm) -> collectx::status {
    return bench<collectx::cuda_ipc_transport, float, collectx::sum>(comm, what).run(take, context);
  };
  if (meeting == nullptr) return collectx::cuda_ipc::run(what.all->ranks, options, ranks);
  auto comm = collectx::cuda_ipc::join(*meeting, options);
  if (!comm) return comm.error();
  collectx::status const s = ranks(*comm);
  return s ? s : comm->abort(s);
}

}  // namespace perf
