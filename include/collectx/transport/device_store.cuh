// SPDX-License-Identifier: Apache-2.0
/// Memory that a rank keeps for its device, freed when it goes: on the device, pinned on the host, and the images of its plans; and
/// which kernels it may launch.
///
/// What is copied goes over a stream of the library's own: a copy without a stream would wait for other ranks' calls where ranks are
/// threads.
#pragma once

#include "collectx/device/block.cuh"
#include "collectx/exec/plan_image.hpp"
#include "collectx/transport/device_calls.cuh"
#include "collectx/transport/shared_memory.hpp"

#include <cstdint>
#include <cstdio>
#include <list>
#include <new>
#include <utility>
#include <vector>

namespace collectx {
inline namespace v0 {
namespace detail {

/// Copies to the device, and waits until that is done.
inline status copy_now(void* to, void const* from, std::size_t bytes, cudaStream_t errand, int rank) noexcept {
  status const s = device_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, errand), rank, "copying to the device");
  if (!s) return s;
  return device_status(cudaStreamSynchronize(errand), rank, "copying to the device");
}

/// Whether a device can read and write what a call is given.
inline status reachable(void const* at, char const* what, int rank) noexcept {
  if (at == nullptr) return {};
  cudaPointerAttributes facts{};
  if (status s = device_status(cudaPointerGetAttributes(&facts, at), rank, "what kind of memory a buffer is in"); !s) return s;
  if (facts.type != cudaMemoryTypeUnregistered) return {};
  return status::failure(errc::invalid_argument, rank,
                         "rank %d: %.40s on a stream needs memory that the device reaches, and %p is none: pass "
                         "device or pinned memory, or call it without a stream",
                         rank, what, at);
}

/// Device memory that is freed when it goes. A failure to free has nobody to hear of it.
class device_allocation {
 public:
  device_allocation() = default;
  device_allocation(device_allocation&& other) noexcept : at_(std::exchange(other.at_, nullptr)) {}
  device_allocation& operator=(device_allocation&& other) noexcept {
    std::swap(at_, other.at_);
    return *this;
  }
  ~device_allocation() {
    if (at_ != nullptr) (void)cudaFree(at_);
  }
  static result<device_allocation> of(std::size_t bytes, int rank) {
    device_allocation a;
    void* at = nullptr;
    char what[64];
    std::snprintf(what, sizeof what, "allocating %zu bytes of device memory", bytes);
    if (status s = device_status(cudaMalloc(&at, bytes), rank, what); !s) return s;
    a.at_ = static_cast<std::byte*>(at);
    return result<device_allocation>(std::move(a));
  }
  /// The same, and zero.
  static result<device_allocation> zeroed(std::size_t bytes, cudaStream_t errand, int rank) {
    result<device_allocation> a = of(bytes, rank);
    if (!a) return a;
    status s = device_status(cudaMemsetAsync(a->at(), 0, bytes, errand), rank, "clearing device memory");
    if (s.ok()) s = device_status(cudaStreamSynchronize(errand), rank, "clearing device memory");
    if (!s) return s;
    return a;
  }
  std::byte* at() const noexcept { return at_; }

 private:
  std::byte* at_ = nullptr;
};

/// Memory of the host that the device reaches as long as this lives.
class pinned_range {
 public:
  pinned_range() = default;
  pinned_range(pinned_range&& other) noexcept : host_(std::exchange(other.host_, nullptr)), at_(other.at_) {}
  pinned_range& operator=(pinned_range&& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(at_, other.at_);
    return *this;
  }
  ~pinned_range() {
    if (host_ != nullptr) (void)cudaHostUnregister(host_);
  }
  static result<pinned_range> of(std::byte* host, std::size_t bytes, int rank) noexcept {
    pinned_range p;
    if (status s = device_status(cudaHostRegister(host, bytes, cudaHostRegisterMapped), rank, "pinning memory of the host"); !s) return s;
    p.host_ = host;
    void* at = nullptr;
    if (status s = device_status(cudaHostGetDevicePointer(&at, host, 0), rank, "the device's address of host memory"); !s) return s;
    p.at_ = static_cast<std::byte*>(at);
    return result<pinned_range>(std::move(p));
  }
  std::byte* at() const noexcept { return at_; }

 private:
  std::byte* host_ = nullptr;
  std::byte* at_ = nullptr;
};

/// A file in memory that this process and its device have mapped.
class pinned_mapping {
 public:
  static result<pinned_mapping> of(int file, std::size_t bytes, int rank) {
    result<mapping> memory = map_file(file, bytes);
    if (!memory) return memory.error();
    result<pinned_range> range = pinned_range::of(memory->address(), bytes, rank);
    if (!range) return range.error();
    pinned_mapping p;
    p.memory_ = std::move(*memory);
    p.range_ = std::move(*range);
    return result<pinned_mapping>(std::move(p));
  }
  std::byte* at() const noexcept { return range_.at(); }

 private:
  mapping memory_;
  pinned_range range_;  // goes first
};

/// Pinned memory of the host that the device writes into.
template <class T>
class pinned_array {
 public:
  pinned_array() = default;
  pinned_array(pinned_array&& other) noexcept : host_(std::exchange(other.host_, nullptr)), device_(other.device_) {}
  pinned_array& operator=(pinned_array&& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(device_, other.device_);
    return *this;
  }
  ~pinned_array() {
    if (host_ != nullptr) (void)cudaFreeHost(host_);
  }
  static result<pinned_array> of(std::size_t count, int rank) {
    pinned_array p;
    void *host = nullptr, *device = nullptr;
    status s = device_status(cudaHostAlloc(&host, count * sizeof(T), cudaHostAllocMapped), rank, "allocating pinned memory");
    if (!s) return s;
    p.host_ = static_cast<T*>(host);
    for (std::size_t i = 0; i < count; ++i) ::new (static_cast<void*>(p.host_ + i)) T{};
    s = device_status(cudaHostGetDevicePointer(&device, host, 0), rank, "the device's address of pinned memory");
    if (!s) return s;
    p.device_ = static_cast<T*>(device);
    return result<pinned_array>(std::move(p));
  }
  T* host() const noexcept { return host_; }
  T* device() const noexcept { return device_; }

 private:
  T* host_ = nullptr;
  T* device_ = nullptr;
};

/// A plan as the device has it, with the memory that running it there needs.
struct device_image {
  void const* plan = nullptr;  // whose it is
  exec::plan_image host;
  device_allocation memory;
  device_allocation scratch;
  std::size_t scratch_bytes = 0;
  int lanes = 0;  // that it sends and receives on

  explicit device_image(exec::plan const& p) : plan(&p), host(p) {
    exec::image_view const view = host.view();
    for (int e = 0; e < view.endpoints(); ++e) lanes = greater(lanes, view.end(e).lane + 1);
  }
};

/// The plans that a rank has called on its device. Copied once; nothing is freed before the store goes, since a graph may have recorded it.
class image_store {
 public:
  image_store() = default;
  image_store(int rank, cudaStream_t errand) noexcept : rank_(rank), errand_(errand) {}

  result<device_image*> find(exec::plan const& plan, char const* what, bool captured) {
    for (device_image& known : images_)
      if (known.plan == &plan) return &known;
    if (captured) return before_capture(what);
    device_image fresh(plan);
    std::size_t const bytes = static_cast<std::size_t>(fresh.host.words().size()) * sizeof(std::int32_t);
    result<device_allocation> memory = device_allocation::of(bytes, rank_);
    if (!memory) return memory.error();
    fresh.memory = std::move(*memory);
    if (status s = copy_now(fresh.memory.at(), fresh.host.words().begin(), bytes, errand_, rank_); !s) return s;
    images_.push_back(std::move(fresh));
    return &images_.back();
  }

  /// At least `bytes` for one call at a time.
  result<std::byte*> scratch(device_image& image, std::size_t bytes, char const* what, bool captured) {
    if (bytes <= image.scratch_bytes) return image.scratch.at();
    if (captured) return before_capture(what);
    std::size_t const more = greater(bytes, 2 * image.scratch_bytes);  // so that what is outgrown is no more than what is used
    result<device_allocation> memory = device_allocation::of(more, rank_);
    if (!memory) return memory.error();
    outgrown_.push_back(std::exchange(image.scratch, std::move(*memory)));
    image.scratch_bytes = more;
    return image.scratch.at();
  }

 private:
  status before_capture(char const* what) const noexcept {
    return status::failure(errc::not_supported, rank_,
                           "rank %d: %.40s is captured before it has been called: call it once, as large, before the capture, which "
                           "copies its plan to the device",
                           rank_, what);
  }

  int rank_ = 0;
  cudaStream_t errand_ = nullptr;
  std::list<device_image> images_;
  std::list<device_allocation> outgrown_;
};

/// Which kernels are known to run with all their blocks at once: a grid waits for grids of other devices, so it must.
class resident_kernels {
 public:
  /// Asked once per kernel. Errors: invalid_configuration where the device runs fewer than `blocks` at once.
  status fit(void const* stub, std::size_t shared, int blocks, int device, int rank) {
    for (auto const& [known, bytes] : asked_)
      if (known == stub && shared <= bytes) return {};
    int per_processor = 0, processors = 0;
    status s;
    if (shared > (std::size_t{48} << 10)) {
      s = device_status(cudaFuncSetAttribute(stub, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)), rank,
                        "shared memory for a plan this long");
    }
    if (s.ok()) {
      s = device_status(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, stub, device::most_threads, shared), rank,
                        "how many blocks run at once (was this compiled for the device at hand?)");
    }
    if (s.ok())
      s = device_status(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), rank, "processors of the device");
    if (!s) return s;
    if (per_processor * processors < blocks) {
      return status::failure(errc::invalid_configuration, rank,
                             "rank %d: the device runs %d blocks at once, and the option blocks is %d: lower it", rank,
                             per_processor * processors, blocks);
    }
    asked_.push_back({stub, shared});
    return {};
  }

 private:
  std::vector<std::pair<void const*, std::size_t>> asked_;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
