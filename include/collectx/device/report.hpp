// SPDX-License-Identifier: Apache-2.0
/// How a call on a device ends, as the device writes it down and as the host puts it into words. Include it by name.
#pragma once

#include "collectx/status.hpp"
#include "collectx/transport.hpp"

#include <cstdint>

namespace collectx {
inline namespace v0 {
namespace device {

enum class outcome : std::uint32_t {
  done = 0,
  aborted,   ///< the group's abort word was set
  late,      ///< the deadline passed
  conflict,  ///< a message does not belong to this call
};

/// What the abort word says: how the call of rank `reporter` ended, and whose fault that is (-1: nobody's in particular).
struct verdict {
  outcome what = outcome::done;
  int reporter = 0;
  int culprit = -1;

  /// 0 only where nothing is wrong.
  constexpr std::uint64_t word() const {
    return static_cast<std::uint64_t>(what) | static_cast<std::uint64_t>(static_cast<std::uint32_t>(reporter) & 0xffffffu) << 8 |
           static_cast<std::uint64_t>(static_cast<std::uint32_t>(culprit)) << 32;
  }
  static constexpr verdict of(std::uint64_t word) {
    return {static_cast<outcome>(word & 0xffu), static_cast<int>(word >> 8 & 0xffffffu),
            static_cast<int>(static_cast<std::uint32_t>(word >> 32))};
  }
};

/// How a call failed, as one block saw it.
struct failure {
  device::verdict verdict;
  std::int32_t block = 0;
  std::int32_t peer = -1;  ///< whom this block waited for
  std::int32_t step = 0;
  std::int32_t chunk = 0;
  std::uint32_t expected_tag = 0, seen_tag = 0;
  std::uint64_t expected_bytes = 0, seen_bytes = 0;
  nanoseconds waited = 0;
};

/// The first failure of one block; one writer. `call` is stored last, with release, so the host may look at any time.
struct report : failure {
  std::uint64_t call = 0;  ///< number of the failed call, from 1; 0: none has failed
};

/// A failure in words, as rank `rank` tells it. `what`: the call, "all_reduce float32 sum ring".
inline status describe(report const& r, int rank, char const* what) {
  unsigned long long const call = r.call;
  int const culprit = r.verdict.culprit;
  switch (r.verdict.what) {
    case outcome::done:
      return {};
    case outcome::late:
      if (r.verdict.reporter != rank) break;
      return status::failure(
          errc::timeout, culprit,
          "timeout: rank %d waited %.3f s for rank %d in %.40s, call %llu on the device, step %d, chunk %d, block %d; the "
          "waits end at rank %d",
          rank, static_cast<double>(r.waited) * 1e-9, r.peer, what, call, r.step, r.chunk, r.block, culprit);
    case outcome::conflict:
      if (r.verdict.reporter != rank) break;
      return status::failure(
          errc::mismatch, culprit,
          "ranks %d and %d make different calls: in %.40s, call %llu on the device, step %d, rank %d waits for %llu bytes "
          "with tag %08x and sees %llu bytes with tag %08x",
          rank, r.peer, what, call, r.step, rank, static_cast<unsigned long long>(r.expected_bytes), r.expected_tag,
          static_cast<unsigned long long>(r.seen_bytes), r.seen_tag);
    case outcome::aborted:
      break;
  }
  constexpr errc codes[] = {errc::ok, errc::aborted, errc::timeout, errc::mismatch};
  constexpr char const* reasons[] = {"", "aborts", "is past its deadline", "sees a message of another call"};
  std::size_t const index = static_cast<std::size_t>(r.verdict.what) & 3;
  return status::failure(codes[index], culprit,
                         "rank %d %s, so rank %d stops in %.40s, call %llu on the device; the one to look at is rank %d",
                         r.verdict.reporter, reasons[index], rank, what, call, culprit);
}

}  // namespace device
}  // namespace v0
}  // namespace collectx
