// SPDX-License-Identifier: Apache-2.0
/// Memory of a device that a network card may read and write (GPUDirect RDMA), and what a kernel needs to see what has come.
#pragma once

#include "collectx/transport/device_calls.cuh"
#include "collectx/transport/device_store.cuh"
#include "collectx/transport/fabric.hpp"

#include <cstddef>
#include <memory>
#include <utility>

namespace collectx {
inline namespace v0 {
namespace detail {

class rdma_memory {
 public:
  /// Errors: what the runtime says. @pre `device` is the thread's
  static result<std::unique_ptr<rdma_memory>> of(int device, int rank) {
    auto self = std::make_unique<rdma_memory>();
    int supported = 0, ordering = 0, flushes = 0;
    status s;
    auto const ask = [&](cudaDeviceAttr what, int& answer) {
      if (s.ok()) s = device_status(cudaDeviceGetAttribute(&answer, what, device), rank, "what networks may do with the device");
    };
    ask(cudaDevAttrGPUDirectRDMASupported, supported);
    ask(cudaDevAttrGPUDirectRDMAWritesOrdering, ordering);
    ask(cudaDevAttrGPUDirectRDMAFlushWritesOptions, flushes);
    if (!s) return s;
    result<device_context> context = device_context::of(device, rank);
    if (!context) return context.error();
    self->context_ = *context;
    self->number_ = device;
    self->in_order_ = ordering >= cudaGPUDirectRDMAWritesOrderingOwner;
    self->usable_ = supported != 0 && (self->in_order_ || (flushes & cudaFlushGPUDirectRDMAWritesOptionHost) != 0);
    return result<std::unique_ptr<rdma_memory>>(std::move(self));
  }

  std::byte* at() const noexcept { return memory_.at(); }
  /// For a network that goes before this does. One that has no memory, where the device allows no access or has no way to let a running
  /// kernel see what has come.
  fabric_device device() noexcept {
    fabric_device d;
    d.kind = FI_HMEM_CUDA;
    d.number = number_;
    if (usable_) d.allocate = allocate;
    if (!in_order_) d.make_visible = flush;
    d.context = this;
    return d;
  }

 private:
  static result<std::byte*> allocate(void* context, std::size_t bytes) {
    rdma_memory& self = *static_cast<rdma_memory*>(context);
    result<device_allocation> memory = device_allocation::of(bytes, self.context_.rank);
    if (!memory) return memory.error();
    self.memory_ = std::move(*memory);
    return self.at();
  }
  static status flush(void* context) noexcept {
    rdma_memory const& self = *static_cast<rdma_memory*>(context);
    device_guard here(self.context_);
    if (!here.held()) return here.held();
    status const s = device_status(
        cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTargetCurrentDevice, cudaFlushGPUDirectRDMAWritesToOwner),
        self.context_.rank, "letting the device see what the network has written");
    return s.ok() ? here.give_back() : s;
  }

  device_context context_;
  device_allocation memory_;
  int number_ = 0;
  bool in_order_ = false, usable_ = false;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
