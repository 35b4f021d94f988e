// SPDX-License-Identifier: Apache-2.0
// The driver's calls that the runtime has none of: memory by handles, and what an address belongs to. Got by cudaGetDriverEntryPoint*.
#include "state.hpp"

#include <cuda.h>

using namespace standin;

namespace {

#define STANDIN_CALL \
  if (strikes(__func__)) return CUDA_ERROR_UNKNOWN

constexpr std::size_t granularity = std::size_t{64} << 10;

void drop(state& s, std::uint64_t handle) {
  auto const found = s.handles.find(handle);
  if (found == s.handles.end() || --found->second.users > 0) return;
  ::close(found->second.file);
  s.handles.erase(found);
}

CUresult get_address_range(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr at) {
  STANDIN_CALL;
  state& s = state::get();
  std::lock_guard const held(s.lock);
  auto const found = s.find(at);
  if (found == s.regions.end()) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = found->first;
  if (bytes != nullptr) *bytes = found->second.bytes;
  return CUDA_SUCCESS;
}

CUresult pointer_get_attribute(void* out, CUpointer_attribute attribute, CUdeviceptr at) {
  STANDIN_CALL;
  state& s = state::get();
  std::lock_guard const held(s.lock);
  auto const found = s.find(at);
  if (found == s.regions.end()) return CUDA_ERROR_INVALID_VALUE;
  region const& r = found->second;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      *static_cast<unsigned long long*>(out) = r.id;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *static_cast<int*>(out) = r.from == origin::device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<int*>(out) = r.from == origin::host || r.from == origin::registered ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      *static_cast<CUdeviceptr*>(out) = found->first;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      *static_cast<std::size_t*>(out) = r.bytes;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(out) = r.device;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult mem_get_allocation_granularity(std::size_t* out, CUmemAllocationProp const*, CUmemAllocationGranularity_flags) {
  STANDIN_CALL;
  *out = granularity;
  return CUDA_SUCCESS;
}

CUresult add(CUmemGenericAllocationHandle* out, physical const& p) {
  state& s = state::get();
  std::lock_guard const held(s.lock);
  *out = s.next_id;
  s.handles[s.next_id] = p;
  s.handles[s.next_id].id = s.next_id;
  ++s.next_id;
  return CUDA_SUCCESS;
}

CUresult mem_create(CUmemGenericAllocationHandle* out, std::size_t bytes, CUmemAllocationProp const* how, unsigned long long) {
  STANDIN_CALL;
  if (bytes == 0 || bytes % granularity != 0) return CUDA_ERROR_INVALID_VALUE;
  int const file = ::memfd_create("standin-vmm", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<::off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  physical p;
  p.file = file, p.bytes = bytes, p.shareable = how->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return add(out, p);
}
CUresult mem_release(CUmemGenericAllocationHandle handle) {
  STANDIN_CALL;
  std::lock_guard const held(state::get().lock);
  if (state::get().handles.count(handle) == 0) return CUDA_ERROR_INVALID_VALUE;
  drop(state::get(), handle);
  return CUDA_SUCCESS;
}
CUresult mem_retain(CUmemGenericAllocationHandle* out, void* at) {
  STANDIN_CALL;
  state& s = state::get();
  std::lock_guard const held(s.lock);
  auto const found = s.find(number(at));
  if (found == s.regions.end() || found->second.from != origin::mapped) return CUDA_ERROR_INVALID_VALUE;
  ++s.handles[*out = found->second.handle].users;
  return CUDA_SUCCESS;
}
CUresult mem_address_reserve(CUdeviceptr* out, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
  STANDIN_CALL;
  void* const at = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard const held(state::get().lock);
  state::get().reserved[*out = number(at)] = bytes;
  return CUDA_SUCCESS;
}
CUresult mem_address_free(CUdeviceptr at, std::size_t bytes) {
  STANDIN_CALL;
  state& s = state::get();
  std::lock_guard const held(s.lock);
  auto const found = s.reserved.find(at);
  if (found == s.reserved.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  ::munmap(pointer(at), bytes);
  s.reserved.erase(found);
  return CUDA_SUCCESS;
}
CUresult mem_map(CUdeviceptr at, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle, unsigned long long) {
  STANDIN_CALL;
  state& s = state::get();
  std::lock_guard const held(s.lock);
  auto const found = s.handles.find(handle);
  if (found == s.handles.end() || offset != 0 || bytes > found->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  // No access yet: that is what cuMemSetAccess gives.
  if (::mmap(pointer(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, found->second.file, 0) == MAP_FAILED) return CUDA_ERROR_UNKNOWN;
  ++found->second.users;
  region r;
  r.bytes = bytes, r.from = origin::mapped, r.id = s.next_id++, r.handle = handle;
  s.regions[at] = r;
  return CUDA_SUCCESS;
}
CUresult mem_set_access(CUdeviceptr at, std::size_t bytes, CUmemAccessDesc const*, std::size_t) {
  STANDIN_CALL;
  return ::mprotect(pointer(at), bytes, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult mem_unmap(CUdeviceptr at, std::size_t bytes) {
  STANDIN_CALL;
  state& s = state::get();
  std::lock_guard const held(s.lock);
  for (auto next = s.regions.lower_bound(at); next != s.regions.end() && next->first < at + bytes;) {
    ::mmap(pointer(next->first), next->second.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    drop(s, next->second.handle);
    next = s.regions.erase(next);
  }
  return CUDA_SUCCESS;
}
CUresult mem_export(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType kind, unsigned long long) {
  STANDIN_CALL;
  state& s = state::get();
  std::lock_guard const held(s.lock);
  auto const found = s.handles.find(handle);
  if (found == s.handles.end() || kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  if (!found->second.shareable) return CUDA_ERROR_NOT_PERMITTED;
  *static_cast<int*>(out) = ::fcntl(found->second.file, F_DUPFD_CLOEXEC, 0);
  return CUDA_SUCCESS;
}
CUresult mem_import(CUmemGenericAllocationHandle* out, void* file, CUmemAllocationHandleType kind) {
  STANDIN_CALL;
  struct ::stat facts {};
  int const copy = ::fcntl(static_cast<int>(number(file)), F_DUPFD_CLOEXEC, 0);
  if (kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || copy < 0 || ::fstat(copy, &facts) != 0) return CUDA_ERROR_INVALID_VALUE;
  physical p;
  p.file = copy, p.bytes = static_cast<std::size_t>(facts.st_size), p.shareable = true;
  return add(out, p);
}

/// Contexts are the devices; null is none yet, which the runtime takes for device 0.
CUcontext context_of(int device) {
  static char contexts[64];
  return device < 0 ? nullptr : reinterpret_cast<CUcontext>(contexts + device);
}
CUresult current(CUcontext* out) {
  STANDIN_CALL;
  *out = context_of(chosen_device);
  return CUDA_SUCCESS;
}
CUresult make_current(CUcontext context) {
  STANDIN_CALL;
  chosen_device = -1;
  for (int device = 0; device < 64 && context != nullptr; ++device)
    if (context == context_of(device)) chosen_device = device;
  return CUDA_SUCCESS;
}

struct entry {
  char const* name;
  void* function;
};
template <class F>
void* erased(F* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(char const* name, void** out, unsigned, unsigned long long,
                                                        cudaDriverEntryPointQueryResult* found) {
  if (strikes(__func__)) return cudaErrorUnknown;
  entry const all[] = {{"cuMemGetAddressRange", erased(&get_address_range)},
                       {"cuPointerGetAttribute", erased(&pointer_get_attribute)},
                       {"cuMemGetAllocationGranularity", erased(&mem_get_allocation_granularity)},
                       {"cuMemCreate", erased(&mem_create)},
                       {"cuMemRelease", erased(&mem_release)},
                       {"cuMemRetainAllocationHandle", erased(&mem_retain)},
                       {"cuMemAddressReserve", erased(&mem_address_reserve)},
                       {"cuMemAddressFree", erased(&mem_address_free)},
                       {"cuMemMap", erased(&mem_map)},
                       {"cuMemSetAccess", erased(&mem_set_access)},
                       {"cuMemUnmap", erased(&mem_unmap)},
                       {"cuCtxGetCurrent", erased(&current)},
                       {"cuCtxSetCurrent", erased(&make_current)},
                       {"cuMemExportToShareableHandle", erased(&mem_export)},
                       {"cuMemImportFromShareableHandle", erased(&mem_import)}};
  *out = nullptr;
  for (entry const& e : all)
    if (std::strcmp(e.name, name) == 0) *out = e.function;
  if (found != nullptr) *found = *out != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
