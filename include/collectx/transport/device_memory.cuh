// SPDX-License-Identifier: Apache-2.0
/// Device memory that another process can map: what its owner says of it, and how the other gets at it.
///
/// Memory of `cudaMalloc` travels as a legacy IPC handle, memory of `cuMemCreate` (expandable segments of PyTorch, for one) as a descriptor
/// for each physical piece. Handles stand for whole allocations, so where a buffer begins in its allocation travels along.
#pragma once

#include "collectx/process.hpp"
#include "collectx/transport/device_calls.cuh"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace collectx {
inline namespace v0 {
namespace detail {

/// What a rank says of memory that others shall map. Trivially copyable: it travels.
struct memory_ticket {
  enum kind : std::uint32_t { nothing, legacy, pieces, host };

  std::uint32_t how = nothing;
  std::uint32_t parts = 0;  ///< descriptors that come by mail
  process_identity process;
  std::uint64_t base = 0;                ///< of the allocation, in its owner's addresses
  std::uint64_t bytes = 0;               ///< of the allocation
  std::uint64_t id = 0;                  ///< differs from that of any other allocation that ever was at `base`
  std::uint64_t offset = 0, length = 0;  ///< of the buffer in the allocation
  cudaIpcMemHandle_t handle{};
  char bus[16] = {};  ///< of the device: the same device has other numbers in other processes

  bool same_memory(memory_ticket const& other) const noexcept {
    return process == other.process && base == other.base && bytes == other.bytes && id == other.id && how == other.how;
  }
};

/// A piece of physical memory on its way to other processes.
struct memory_part {
  descriptor file;
  std::uint64_t bytes = 0;
};

struct shared_memory_offer {
  memory_ticket ticket;
  std::vector<memory_part> parts;
};

inline status bus_of(int device, int rank, char (&text)[16]) noexcept {
  char whole[32] = {};
  status const s = device_status(cudaDeviceGetPCIBusId(whole, sizeof whole, device), rank, "the bus address of this rank's device");
  std::memcpy(text, whole, sizeof text - 1);
  return s;
}

template <class T>
status attribute(driver_calls const& driver, CUpointer_attribute which, CUdeviceptr at, T& value, int rank) noexcept {
  return driver_status(driver.attribute_of(&value, which, at), rank, "what memory a buffer lies in");
}

/// Mixes in a number that the driver gives each allocation, and no other after it.
inline status add_identity(driver_calls const& driver, CUdeviceptr at, memory_ticket& ticket, int rank) noexcept {
  unsigned long long id = 0;
  CUresult asked = driver.attribute_of(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, at);
  if (asked == CUDA_ERROR_NOT_SUPPORTED || asked == CUDA_ERROR_INVALID_VALUE) {  // not every kind of memory has one
    asked = driver.attribute_of(&id, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, at);
  }
  if (status s = driver_status(asked, rank, "which allocation a buffer is of"); !s) return s;
  ticket.id = (ticket.id ^ id) * 0x9e3779b97f4a7c15u;
  return {};
}

/// A descriptor for the piece of physical memory that is mapped at `at`.
inline result<memory_part> export_part(driver_calls const& driver, CUdeviceptr at, int rank) {
  memory_part part;
  std::size_t bytes = 0;
  if (status s = attribute(driver, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, at, bytes, rank); !s) return s;
  part.bytes = bytes;
  CUmemGenericAllocationHandle handle{};
  int file = -1;
  CUresult done = driver.retain(&handle, reinterpret_cast<void*>(at));
  if (done == CUDA_SUCCESS) {
    done = driver.export_handle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    CUresult const released = driver.release(handle);
    if (done == CUDA_SUCCESS) done = released;
    part.file = descriptor(file);
  }
  if (done == CUDA_SUCCESS) return result<memory_part>(std::move(part));
  return status::foreign(errc::not_supported, rank, static_cast<int>(done),
                         "rank %d: the memory at %p cannot be shared with other processes (error %d of the CUDA driver): use cudaMalloc, "
                         "cuMemCreate with requestedHandleTypes for descriptors, or allocate() of the communicator",
                         rank, reinterpret_cast<void*>(at), static_cast<int>(done));
}

/// Offers `bytes` from `at` on to other processes. Errors: not_supported where the memory cannot be shared; the text says which can.
inline result<shared_memory_offer> offer_memory(driver_calls const& driver, void const* at, std::size_t bytes, int rank) {
  cudaPointerAttributes facts{};
  if (status s = device_status(cudaPointerGetAttributes(&facts, at), rank, "what kind of memory a buffer is in"); !s) return s;
  if (facts.type != cudaMemoryTypeDevice) {
    return status::failure(errc::invalid_argument, rank, "rank %d: a registered buffer has to be device memory, and %p is %s", rank, at,
                           facts.type == cudaMemoryTypeHost ? "pinned host memory" : "no device memory");
  }
  shared_memory_offer out;
  memory_ticket& t = out.ticket;
  t.process = this_process();
  if (status s = bus_of(facts.device, rank, t.bus); !s) return s;
  CUdeviceptr const begin = reinterpret_cast<CUdeviceptr>(at), end = begin + bytes;
  CUdeviceptr base = 0;
  std::size_t whole = 0;
  int legacy = 0;
  status s = attribute(driver, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, begin, legacy, rank);
  if (s.ok() && legacy != 0) s = driver_status(driver.range_of(&base, &whole, begin), rank, "where the allocation of a buffer begins");
  if (s.ok() && legacy == 0) s = attribute(driver, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, begin, base, rank);
  if (!s) return s;
  t.base = base;
  t.offset = begin - base;
  t.length = bytes;
  if (legacy != 0) {
    if (base + whole < end) {
      return status::failure(errc::invalid_argument, rank, "rank %d: a buffer of %zu bytes at %p reaches beyond its allocation", rank,
                             bytes, at);
    }
    t.how = memory_ticket::legacy;
    t.bytes = whole;
    s = add_identity(driver, base, t, rank);
    if (s.ok()) s = device_status(cudaIpcGetMemHandle(&t.handle, reinterpret_cast<void*>(base)), rank, "a handle for a buffer");
    if (!s) return s;
    return result<shared_memory_offer>(std::move(out));
  }
  t.how = memory_ticket::pieces;
  for (CUdeviceptr next = base; next < end; next += out.parts.back().bytes) {
    result<memory_part> part = export_part(driver, next, rank);
    if (!part) return part.error();
    if (s = add_identity(driver, next, t, rank); !s) return s;
    t.bytes += part->bytes;
    out.parts.push_back(std::move(*part));
  }
  t.parts = static_cast<std::uint32_t>(out.parts.size());
  return result<shared_memory_offer>(std::move(out));
}

/// Memory of another rank in this process's addresses, until it goes. Where that rank is a thread here, its own addresses.
class mapped_memory {
 public:
  mapped_memory() = default;
  mapped_memory(mapped_memory&& other) noexcept
      : driver_(other.driver_), how_(std::exchange(other.how_, memory_ticket::nothing)), at_(other.at_), bytes_(other.bytes_) {}
  mapped_memory& operator=(mapped_memory&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(how_, other.how_);
    std::swap(at_, other.at_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  /// A failure here has nobody to hear of it; memory that stays mapped goes with the process.
  ~mapped_memory() {
    if (how_ == memory_ticket::legacy) (void)cudaIpcCloseMemHandle(reinterpret_cast<void*>(at_));
    if (how_ == memory_ticket::pieces) {
      (void)driver_.unmap(at_, bytes_);
      (void)driver_.free_addresses(at_, bytes_);
    }
  }

  /// Maps what `ticket` speaks of, for `device`. @pre the owner keeps it until this has gone
  static result<mapped_memory> map(driver_calls const& driver, memory_ticket const& ticket, std::vector<memory_part> const& parts,
                                   int device, int rank) {
    if (ticket.process == this_process()) return map_here(ticket, device, rank);
    mapped_memory m;
    m.driver_ = driver;
    m.bytes_ = ticket.bytes;
    if (ticket.how == memory_ticket::legacy) {
      void* at = nullptr;
      cudaError_t const opened = cudaIpcOpenMemHandle(&at, ticket.handle, cudaIpcMemLazyEnablePeerAccess);
      if (status s = device_status(opened, rank, "mapping the memory of another rank"); !s) return s;
      m.how_ = memory_ticket::legacy;
      m.at_ = reinterpret_cast<CUdeviceptr>(at);
      return result<mapped_memory>(std::move(m));
    }
    CUresult const reserved = driver.reserve(&m.at_, m.bytes_, 0, 0, 0);
    if (status s = driver_status(reserved, rank, "addresses for the memory of another rank"); !s) return s;
    m.how_ = memory_ticket::pieces;
    std::uint64_t offset = 0;
    for (memory_part const& part : parts) {
      if (status s = m.map_part(part, offset, rank); !s) return s;
      offset += part.bytes;
    }
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUresult const granted = driver.set_access(m.at_, m.bytes_, &access, 1);
    if (status s = driver_status(granted, rank, "access to the memory of another rank"); !s) return s;
    return result<mapped_memory>(std::move(m));
  }

  std::byte* at() const noexcept { return reinterpret_cast<std::byte*>(at_); }

 private:
  static result<mapped_memory> map_here(memory_ticket const& ticket, int device, int rank) {
    int owner = device;
    if (status s = device_status(cudaDeviceGetByPCIBusId(&owner, ticket.bus), rank, "which device another rank uses"); !s) return s;
    if (owner != device) {
      cudaError_t const enabled = cudaDeviceEnablePeerAccess(owner, 0);
      if (enabled != cudaErrorPeerAccessAlreadyEnabled) {
        if (status s = device_status(enabled, rank, "access to another rank's device"); !s) return s;
      } else {
        (void)cudaGetLastError();
      }
    }
    mapped_memory m;
    m.at_ = ticket.base;
    m.bytes_ = ticket.bytes;
    return result<mapped_memory>(std::move(m));
  }

  status map_part(memory_part const& part, std::uint64_t offset, int rank) {
    CUmemGenericAllocationHandle handle{};
    void* const file = reinterpret_cast<void*>(static_cast<std::uintptr_t>(part.file.get()));
    CUresult const imported = driver_.import_handle(&handle, file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (status s = driver_status(imported, rank, "a handle out of another rank's descriptor"); !s) return s;
    CUresult const mapped = driver_.map(at_ + offset, part.bytes, 0, handle, 0);
    CUresult const released = driver_.release(handle);
    if (status s = driver_status(mapped, rank, "mapping a piece of another rank's memory"); !s) return s;
    return driver_status(released, rank, "giving back a handle");
  }

  driver_calls driver_;
  memory_ticket::kind how_ = memory_ticket::nothing;
  CUdeviceptr at_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
