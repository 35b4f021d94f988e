// SPDX-License-Identifier: Apache-2.0
/// Ranks as threads, each of which has an end of its own to tell.
#pragma once

#include <collectx/launch.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

namespace support {

namespace cx = collectx;

/// doctest prints a char const* as an address.
inline std::string text(cx::status const& s) { return s.what(); }

/// What f(comm) came to on every rank.
template <class F>
std::vector<cx::status> on_each_rank(int n, cx::loopback::options const& options, F&& f) {
  std::vector<cx::status> ends(static_cast<std::size_t>(n));
  cx::status const s = cx::loopback::run(n, options, [&](auto& comm) -> cx::status {
    ends[static_cast<std::size_t>(comm.rank())] = f(comm);
    return {};
  });
  REQUIRE_MESSAGE(s.ok(), text(s));
  return ends;
}
template <class F>
std::vector<cx::status> on_each_rank(int n, F&& f) {
  return on_each_rank(n, cx::loopback::options{}, f);
}

/// f(comm) succeeds on all ranks.
template <class F>
void all_succeed(int n, cx::loopback::options const& options, F&& f) {
  cx::status const s = cx::loopback::run(n, options, f);
  CHECK_MESSAGE(s.ok(), text(s));
}
template <class F>
void all_succeed(int n, F&& f) {
  all_succeed(n, cx::loopback::options{}, f);
}

inline bool says(cx::status const& s, char const* part) { return std::strstr(s.what(), part) != nullptr; }

/// The status of a rank that has found something wrong.
inline cx::status wrong(int rank, char const* what) { return cx::status::failure(cx::errc::system, rank, "rank %d: %s", rank, what); }

}  // namespace support
