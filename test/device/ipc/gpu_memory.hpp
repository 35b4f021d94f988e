// SPDX-License-Identifier: Apache-2.0
/// What ranks of tests have on their device.
#pragma once

#include <collectx/status.hpp>
#include <collectx/transport/device_calls.cuh>

#include <cuda_runtime_api.h>

#include <span>
#include <vector>

namespace gpu {

namespace cx = collectx;

/// What the runtime says, as a status that ends the group.
template <class Comm>
cx::status ok(Comm& comm, cudaError_t e, char const* what) {
  return e == cudaSuccess ? cx::status{} : comm.abort(cx::detail::device_failure(e, comm.rank(), what));
}

/// What a test finds wrong, likewise.
template <class Comm>
cx::status failed(Comm& comm, char const* what) {
  return comm.abort(cx::status::failure(cx::errc::system, comm.rank(), "rank %d: %s", comm.rank(), what));
}

/// Device memory of a test.
template <class T>
class buffer {
 public:
  buffer(std::size_t count) : count_(count) { error_ = cudaMalloc(reinterpret_cast<void**>(&at_), count * sizeof(T)); }
  buffer(buffer const&) = delete;
  ~buffer() { (void)cudaFree(at_); }
  cudaError_t error() const { return error_; }
  std::span<T> all() const { return {at_, count_}; }
  std::span<T> first(std::size_t count) const { return {at_, count}; }
  cudaError_t fill(std::vector<T> const& from) { return cudaMemcpy(at_, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice); }
  cudaError_t read(std::vector<T>& to) const { return cudaMemcpy(to.data(), at_, to.size() * sizeof(T), cudaMemcpyDeviceToHost); }

 private:
  std::size_t count_;
  T* at_ = nullptr;
  cudaError_t error_;
};

class stream {
 public:
  stream() { error_ = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); }
  stream(stream const&) = delete;
  ~stream() {
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }
  cudaError_t error() const { return error_; }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
  cudaError_t error_;
};

}  // namespace gpu
