// SPDX-License-Identifier: Apache-2.0
/// Buffers of devices that ranks of any kind register, and what becomes of them.
#pragma once

#include <cstring>

#include "gpu_calls.hpp"

namespace gpu {

constexpr std::size_t piece = ON_GPU ? std::size_t{2} << 20 : std::size_t{64} << 10;  // the granularity of memory by pieces

/// Physical memory as PyTorch's expandable segments have it: one range of addresses, mapped piece by piece.
class expandable {
 public:
  expandable(int pieces, bool shareable) : bytes_(static_cast<std::size_t>(pieces) * piece) {
    cx::result<cx::detail::driver_calls> driver = cx::detail::driver_calls::load(0);
    void* create = nullptr;
    cudaDriverEntryPointQueryResult found{};
    (void)cudaGetDriverEntryPointByVersion("cuMemCreate", &create, 12000, cudaEnableDefault, &found);
    auto const make = reinterpret_cast<decltype(&::cuMemCreate)>(create);
    driver_ = *driver;
    CUmemAllocationProp how{};
    how.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    how.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    how.requestedHandleTypes = shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    good_ = driver_.reserve(&at_, bytes_, 0, 0, 0) == CUDA_SUCCESS;
    for (int i = 0; i < pieces; ++i) {
      CUmemGenericAllocationHandle handle{};
      good_ = good_ && make(&handle, piece, &how, 0) == CUDA_SUCCESS &&
              driver_.map(at_ + static_cast<std::size_t>(i) * piece, piece, 0, handle, 0) == CUDA_SUCCESS &&
              driver_.release(handle) == CUDA_SUCCESS;
    }
    CUmemAccessDesc access{};
    access.location = how.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    good_ = good_ && driver_.set_access(at_, bytes_, &access, 1) == CUDA_SUCCESS;
  }
  expandable(expandable const&) = delete;
  ~expandable() {
    (void)driver_.unmap(at_, bytes_);
    (void)driver_.free_addresses(at_, bytes_);
  }
  bool good() const { return good_; }
  std::span<int> part(std::size_t first, std::size_t count) const {
    return std::span<int>(reinterpret_cast<int*>(at_), bytes_ / sizeof(int)).subspan(first, count);
  }

 private:
  cx::detail::driver_calls driver_;
  CUdeviceptr at_ = 0;
  std::size_t bytes_;
  bool good_;
};

/// Every rank fills its buffer with `mark` + rank, and finds the others' where the registration says they are.
template <class Comm, class Buffer>
cx::status see_one_another(Comm& comm, Buffer const& registered, int mark) {
  std::vector<int> values(registered.size(), mark + comm.rank());
  std::vector<int*> where(static_cast<std::size_t>(comm.size()));
  cudaError_t e = cudaMemcpy(registered.data(), values.data(), values.size() * sizeof(int), cudaMemcpyHostToDevice);
  if (e == cudaSuccess) e = cudaMemcpy(where.data(), registered.where().addresses(), where.size() * sizeof(int*), cudaMemcpyDeviceToHost);
  if (cx::status s = ok(comm, e, "copies"); !s) return s;
  if (cx::status s = comm.barrier(direct); !s) return s;
  for (int r = 0; r < comm.size(); ++r) {
    e = cudaMemcpy(values.data(), where[static_cast<std::size_t>(r)], values.size() * sizeof(int), cudaMemcpyDeviceToHost);
    if (cx::status s = ok(comm, e, "reading another rank's memory"); !s) return s;
    for (int v : values)
      if (v != mark + r)
        return comm.abort(cx::status::failure(cx::errc::system, r, "rank %d sees %d of rank %d, not %d", comm.rank(), v, r, mark + r));
  }
  return comm.barrier(direct);
}

/// All-reduces of registered buffers, out of place and in place.
template <class Comm>
cx::status sums_of_registered(Comm& comm) {
  standin::direct_all_reduces<int, cx::sum>();
  standin::plans<int, cx::sum>();
  buffer<int> memory(200000), out(200000);
  stream stream;
  cudaStream_t const on = stream;
  int const size = comm.size(), sum = size * (size + 1) / 2;
  for (std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{60000}, std::size_t{200000}}) {
    auto in = comm.register_buffer(memory.first(count));
    if (!in) return in.error();
    for (bool in_place : {false, true}) {
      std::span<int> const to = in_place ? std::span<int>(*in) : out.first(count);
      std::vector<int> values(count, comm.rank() + 1);
      if (cx::status s = ok(comm, memory.fill(values), "fill"); !s) return s;
      if (cx::status s = comm.all_reduce(*in, to, cx::sum{}, on); !s) return s;
      if (!in_place)  // again, while others may be at the first one still
        if (cx::status s = comm.all_reduce(*in, to, cx::sum{}, on); !s) return s;
      if (cx::status s = ok(comm, cudaStreamSynchronize(on), "synchronise"); !s) return s;
      if (cx::status s = comm.status(); !s) return s;
      if (cx::status s = ok(comm, cudaMemcpy(values.data(), to.data(), count * sizeof(int), cudaMemcpyDeviceToHost), "read"); !s) return s;
      for (int v : values)
        if (v != sum) return failed(comm, "a sum is wrong");
      if (cx::status s = comm.barrier(direct); !s) return s;
    }
  }
  return {};
}

/// What cannot be registered: not on one rank, so on none.
template <class Comm>
cx::status refusals(Comm& comm) {
  std::vector<int> on_host(100);
  buffer<int> memory(100);
  expandable closed(1, false);
  auto const expect = [&](auto const& made, cx::errc code, char const* part) -> cx::status {
    if (made) return failed(comm, "this was registered");
    if (made.error().code() == code && std::strstr(made.error().what(), part) != nullptr) return {};
    return failed(comm, made.error().what());
  };
  bool const odd = comm.rank() == 1;
  auto const host = comm.register_buffer(odd ? std::span<int>(on_host) : memory.all());
  if (cx::status s = expect(host, cx::errc::invalid_argument, odd ? "device memory" : "rank 1 cannot share"); !s) return s;
  auto const unequal = comm.register_buffer(memory.first(odd ? 50 : 100));
  if (cx::status s = expect(unequal, cx::errc::mismatch, "rank 1 registers a buffer of 200 bytes, rank 0 one of 400"); !s) return s;
  auto const unshared = comm.register_buffer(closed.part(0, 100));
  if (cx::status s = expect(unshared, cx::errc::not_supported, "cannot be shared with other processes"); !s) return s;
  return {};
}

}  // namespace gpu
