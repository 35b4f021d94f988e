// SPDX-License-Identifier: Apache-2.0
/// The door to the vendor: all that device code needs beyond C++ is named here, once, and by its plain names everywhere else.
///
/// Under nvcc a function marked COLLECTX_DEVICE is compiled for host and device; under any other compiler the mark is empty, so that each
/// body of a kernel is an ordinary function too, which a CPU runs under its race detector. COLLECTX_UNROLL stands before a loop over what
/// is to be in registers, COLLECTX_ROLL before one whose turns would need registers of their own. Another vendor's compiler needs another
/// branch here, in device/block.cuh and in device/pack.cuh.
#pragma once

#include "collectx/config.hpp"

#include <cstdint>

#if defined(__CUDACC__)
#if !defined(__CUDACC_RELAXED_CONSTEXPR__)
#error "collectx: compile CUDA code with --expt-relaxed-constexpr (linking collectx::cuda adds it)"
#endif
#define COLLECTX_DEVICE __host__ __device__
#define COLLECTX_UNROLL _Pragma("unroll")
#define COLLECTX_ROLL _Pragma("unroll 1")
#else
#define COLLECTX_DEVICE
#define COLLECTX_UNROLL
#define COLLECTX_ROLL
#endif

namespace collectx {
inline namespace v0 {
namespace device {

#if defined(__CUDACC__)
using stream = ::cudaStream_t;
using error = ::cudaError_t;
#endif

/// Two words that are stored in one access of 16 bytes. Each half arrives whole; nothing is promised of both together.
struct alignas(16) word_pair {
  std::uint64_t low = 0, high = 0;
};

/// The one way by which blocks, devices and hosts talk: words of 64 bits in system scope, each with one writer. What `slot_ring` and the
/// protocols of device/slots.cuh take as their policy, so that a test can put a faulty one in its place.
struct system_atomics {
  COLLECTX_DEVICE static std::uint64_t load_acquire(std::uint64_t& word) noexcept {
#if defined(__CUDA_ARCH__)
    return __nv_atomic_load_n(&word, __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_SYSTEM);
#else
    return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
#endif
  }
  COLLECTX_DEVICE static void store_release(std::uint64_t& word, std::uint64_t value) noexcept {
#if defined(__CUDA_ARCH__)
    __nv_atomic_store_n(&word, value, __NV_ATOMIC_RELEASE, __NV_THREAD_SCOPE_SYSTEM);
#else
    __atomic_store_n(&word, value, __ATOMIC_RELEASE);
#endif
  }

  /// Both halves, unordered with anything: for words that say themselves whether they are new.
  COLLECTX_DEVICE static word_pair load_pair(word_pair& from) noexcept {
    word_pair seen;
#if defined(__CUDA_ARCH__)
    asm volatile("ld.relaxed.sys.v2.u64 {%0, %1}, [%2];" : "=l"(seen.low), "=l"(seen.high) : "l"(&from) : "memory");
#else
    seen.low = __atomic_load_n(&from.low, __ATOMIC_RELAXED);
    seen.high = __atomic_load_n(&from.high, __ATOMIC_RELAXED);
#endif
    return seen;
  }
  COLLECTX_DEVICE static void store_pair(word_pair& to, word_pair value) noexcept {
#if defined(__CUDA_ARCH__)
    asm volatile("st.relaxed.sys.v2.u64 [%0], {%1, %2};" ::"l"(&to), "l"(value.low), "l"(value.high) : "memory");
#else
    __atomic_store_n(&to.low, value.low, __ATOMIC_RELAXED);
    __atomic_store_n(&to.high, value.high, __ATOMIC_RELAXED);
#endif
  }
};

}  // namespace device
}  // namespace v0
}  // namespace collectx
