// SPDX-License-Identifier: Apache-2.0
/// Whether this build runs ten times slower than others, so that tests may do fewer of the same.
#pragma once

namespace support {

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define COLLECTX_TEST_THREADS 1
#elif __has_feature(address_sanitizer)
#define COLLECTX_TEST_ADDRESSES 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(COLLECTX_TEST_THREADS)
inline constexpr bool under_thread_sanitizer = true;
#else
inline constexpr bool under_thread_sanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(COLLECTX_TEST_ADDRESSES)
inline constexpr bool under_sanitizer = true;
#else
inline constexpr bool under_sanitizer = under_thread_sanitizer;
#endif

}  // namespace support
