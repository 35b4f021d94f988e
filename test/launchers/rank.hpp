// SPDX-License-Identifier: Apache-2.0
/// What a process that a launcher has started does in these tests, and how it tells them.
#pragma once

#include <collectx/launch.hpp>
#include <collectx/process.hpp>
#include <collectx/status.hpp>

#include <unistd.h>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

namespace launchers {

namespace cx = collectx;

inline cx::status wrong(int rank, char const* what) { return cx::status::failure(cx::errc::system, rank, "%s", what); }

template <class Meeting>
cx::status add_up(Meeting& meeting) {
  auto comm = cx::shared_memory::join(meeting);
  if (!comm) return comm.error();
  int const n = comm->size();
  std::vector<int> sum(7, comm->rank() + 1);
  if (cx::status s = comm->all_reduce(cx::in_place(sum), cx::sum{}); !s) return s;
  for (int v : sum)
    if (v != n * (n + 1) / 2) return wrong(comm->rank(), "a sum is wrong");
  return comm->barrier();
}

/// Several rendezvous one after the other, each joined twice; rank 0 comes last to every second one.
template <class Create>
cx::status join(int rank, int size, Create create) {
  for (int round = 0; round < 4; ++round) {
    if (rank == 0 && round % 2 == 1) cx::detail::nap(50'000'000);
    auto meeting = create(std::chrono::seconds(40));
    if (!meeting) return meeting.error();
    if (meeting->rank() != rank || meeting->size() != size) return wrong(rank, "rank and size are not the launcher's");
    for (int again = 0; again < 2; ++again)
      if (cx::status s = add_up(*meeting); !s) return s;
  }
  return {};
}

/// `absent` never comes; the others are to be told who it is, long before the launcher loses patience.
template <class Create>
cx::status miss(int rank, int absent, char const* sentence, Create create) {
  if (rank == absent) return {};
  auto meeting = create(std::chrono::milliseconds(700));
  cx::status s = meeting.error();
  if (meeting) s = meeting->get("never", cx::detail::monotonic_now() + 30'000'000'000).error();
  if (s.code() != cx::errc::timeout || s.rank() != absent || std::strstr(s.what(), sentence) == nullptr)
    return cx::status::failure(cx::errc::system, rank, "expected `%s`, got: %s", sentence, s.what());
  return {};
}

inline int leave(int rank, cx::status const& s) {
  if (!s) std::fprintf(stderr, "rank %d: %s\n", rank, s.what());
  if (s) std::printf("rank %d is content\n", rank);
  return s ? 0 : 1;
}

}  // namespace launchers
