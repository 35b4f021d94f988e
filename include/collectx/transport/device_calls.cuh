// SPDX-License-Identifier: Apache-2.0
/// What the host asks of a GPU's runtime and driver, with failures as statuses. Include it by name; needs the CUDA toolkit.
#pragma once

#include "collectx/status.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cstddef>
#include <utility>

namespace collectx {
inline namespace v0 {
namespace detail {

/// What a call of the runtime came to. `native()` is the runtime's number; 35 and 100 stand for a machine without a GPU.
[[gnu::noinline]] inline status device_failure(cudaError_t error, int rank, char const* what) noexcept {
  (void)cudaGetLastError();  // or the next launch would be blamed for it
  int const number = static_cast<int>(error);
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver) {
    return status::foreign(errc::not_supported, rank, number, "rank %d: there is no GPU that the driver of this machine knows (error %d)",
                           rank, number);
  }
  errc const code = error == cudaErrorMemoryAllocation ? errc::out_of_memory : errc::system;
  return status::foreign(code, rank, number, "rank %d: %s: %s (error %d of the CUDA runtime)", rank, what, cudaGetErrorString(error),
                         number);
}
inline status device_status(cudaError_t error, int rank, char const* what) noexcept {
  return error == cudaSuccess ? status{} : device_failure(error, rank, what);
}
inline status driver_status(CUresult error, int rank, char const* what) noexcept {
  if (error == CUDA_SUCCESS) return {};
  int const number = static_cast<int>(error);
  errc const code = error == CUDA_ERROR_OUT_OF_MEMORY ? errc::out_of_memory : errc::system;
  return status::foreign(code, rank, number, "rank %d: %s: error %d of the CUDA driver", rank, what, number);
}

/// Calls of the driver that the runtime has none of. Asked for by name, so that nothing has to be linked.
struct driver_calls {
  decltype(&::cuMemGetAddressRange) range_of = nullptr;
  decltype(&::cuPointerGetAttribute) attribute_of = nullptr;
  decltype(&::cuMemRetainAllocationHandle) retain = nullptr;
  decltype(&::cuMemRelease) release = nullptr;
  decltype(&::cuMemExportToShareableHandle) export_handle = nullptr;
  decltype(&::cuMemImportFromShareableHandle) import_handle = nullptr;
  decltype(&::cuMemAddressReserve) reserve = nullptr;
  decltype(&::cuMemAddressFree) free_addresses = nullptr;
  decltype(&::cuMemMap) map = nullptr;
  decltype(&::cuMemUnmap) unmap = nullptr;
  decltype(&::cuMemSetAccess) set_access = nullptr;
  decltype(&::cuCtxGetCurrent) current = nullptr;
  decltype(&::cuCtxSetCurrent) make_current = nullptr;

  static result<driver_calls> load(int rank) noexcept {
    driver_calls d;
    status s;
    auto const find = [&](char const* name, auto& function) {
      if (!s) return;
      void* found = nullptr;
      cudaDriverEntryPointQueryResult known{};
      s = device_status(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &known), rank, name);
      if (s.ok() && (found == nullptr || known != cudaDriverEntryPointSuccess)) {
        s = status::failure(errc::not_supported, rank, "rank %d: the driver of this machine has no %s: it needs CUDA 12 or newer", rank,
                            name);
      }
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
    };
    find("cuMemGetAddressRange", d.range_of);
    find("cuPointerGetAttribute", d.attribute_of);
    find("cuMemRetainAllocationHandle", d.retain);
    find("cuMemRelease", d.release);
    find("cuMemExportToShareableHandle", d.export_handle);
    find("cuMemImportFromShareableHandle", d.import_handle);
    find("cuMemAddressReserve", d.reserve);
    find("cuMemAddressFree", d.free_addresses);
    find("cuMemMap", d.map);
    find("cuMemUnmap", d.unmap);
    find("cuMemSetAccess", d.set_access);
    find("cuCtxGetCurrent", d.current);
    find("cuCtxSetCurrent", d.make_current);
    if (!s) return s;
    return d;
  }
};

/// A device as this process uses it: its primary context. Changing between devices by cudaSetDevice would set up a context, with its
/// memory, on whatever device a thread is given back to.
struct device_context {
  driver_calls driver;
  CUcontext context = nullptr;
  int rank = 0;

  static result<device_context> of(int device, int rank) noexcept {
    result<driver_calls> driver = driver_calls::load(rank);
    if (!driver) return driver.error();
    device_context self{*driver, nullptr, rank};
    CUcontext before = nullptr;
    status s = driver_status(self.driver.current(&before), rank, "which device this thread uses");
    if (s.ok()) s = device_status(cudaSetDevice(device), rank, "using this rank's device");
    if (s.ok()) s = driver_status(self.driver.current(&self.context), rank, "the context of this rank's device");
    if (s.ok()) s = driver_status(self.driver.make_current(before), rank, "going back to the device of this thread");
    if (!s) return s;
    return self;
  }
};

/// In place of a device's number: that of the thread that asks, or the rank's place on its host modulo devices.
inline constexpr int current_device = -1, device_by_rank = -2;

/// The number of a rank's device, which `wanted` gives or describes. `place`: the rank's among those of its host.
inline result<int> chosen_device(int wanted, int place, int rank) noexcept {
  int device = wanted, devices = 0;
  status s = device_status(cudaGetDeviceCount(&devices), rank, "asking for devices");
  if (s.ok() && device == device_by_rank) device = place % devices;
  if (s.ok() && device < 0) s = device_status(cudaGetDevice(&device), rank, "which device this thread uses");
  if (!s) return s;
  return device;
}

/// Makes a device the calling thread's, until it goes.
class device_guard {
 public:
  explicit device_guard(device_context const& wanted) noexcept : driver_(wanted.driver) {
    status_ = driver_status(driver_.current(&before_), wanted.rank, "which device this thread uses");
    if (!status_ || before_ == wanted.context) return;
    status_ = driver_status(driver_.make_current(wanted.context), wanted.rank, "using this rank's device");
    changed_ = status_.ok();
    rank_ = wanted.rank;
  }
  device_guard(device_guard const&) = delete;
  device_guard& operator=(device_guard const&) = delete;
  ~device_guard() {
    (void)give_back();  // where nobody has asked, something else has failed before
  }
  status const& held() const noexcept { return status_; }
  status give_back() noexcept {
    if (!std::exchange(changed_, false)) return {};
    return driver_status(driver_.make_current(before_), rank_, "going back to the device of this thread");
  }

 private:
  driver_calls const& driver_;
  CUcontext before_ = nullptr;
  bool changed_ = false;
  int rank_ = 0;
  status status_;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
