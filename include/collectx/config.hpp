// SPDX-License-Identifier: Apache-2.0
/// The macros of the library, all of them. Each has a value tested by `#if`, so that a typo warns under -Wundef.
#pragma once

#if !defined(__cplusplus) || __cplusplus < 202002L
#error "collectx: C++20 or newer is required (compile with -std=c++20)"
#endif
#if !defined(__linux__)
#error "collectx: Linux is required"
#endif
#if defined(__clang__)
#if __clang_major__ < 16
#error "collectx: clang 16 or newer is required"
#endif
#elif defined(__GNUC__) && __GNUC__ < 12
#error "collectx: g++ 12 or newer is required"
#endif

/// 10000 * major + 100 * minor + patch; checked against CMakeLists.txt by a test.
#define COLLECTX_VERSION 100

/// 1 where `.value()` may throw `collectx::error`; 0 removes that door and every use of exceptions.
#if !defined(COLLECTX_EXCEPTIONS)
#if defined(__cpp_exceptions)
#define COLLECTX_EXCEPTIONS 1
#else
#define COLLECTX_EXCEPTIONS 0
#endif
#endif

/// For the few functions whose call would cost more than their body.
#if !defined(COLLECTX_FORCEINLINE)
#define COLLECTX_FORCEINLINE inline __attribute__((always_inline))
#endif
