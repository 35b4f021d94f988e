// SPDX-License-Identifier: Apache-2.0
/// Messages, calls under way, groups out of groups, and going on when a rank has died.
#include <collectx/collectx.hpp>

#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

namespace cx = collectx;

namespace {

template <class Comm>
cx::status wrong(Comm& comm, char const* what) {
  return cx::status::failure(cx::errc::system, comm.rank(), "rank %d: %s", comm.rank(), what);
}

/// Each rank gives its value to the next one round a ring; a sum of all ranks' values is under way beside it.
template <class Comm>
cx::status overlap(Comm& comm) {
  std::vector<float> mine(1000, static_cast<float>(comm.rank())), theirs(1000), sums(1000);
  int const right = (comm.rank() + 1) % comm.size(), left = (comm.rank() + comm.size() - 1) % comm.size();
  // [operations]
  auto sum = comm.plan_all_reduce(mine, sums, cx::sum{});  // made ready once
  auto pass = comm.plan_send_recv(mine, right, theirs, left);
  for (int step = 0; step < 10; ++step) {
    if (cx::status s = sum.start(); !s) return s;  // started again and again
    if (cx::status s = pass.start(); !s) return s;
    // ... what needs neither `theirs` nor `sums` ...
    if (cx::status s = pass.wait(); !s) return s;
    if (cx::status s = sum.wait(); !s) return s;
  }
  // [operations]
  float const all = static_cast<float>(comm.size() * (comm.size() - 1) / 2);
  return theirs[999] == static_cast<float>(left) && sums[999] == all ? cx::status{} : wrong(comm, "wrong values");
}

/// Four ranks as two rows of two.
template <class Comm>
cx::status rows(Comm& comm) {
  std::vector<int> mine{comm.rank()}, in_row(2);
  // [split]
  auto row = comm.split(comm.rank() / 2);
  if (!row) return row.error();
  if (cx::status s = row->all_gather(mine, in_row); !s) return s;
  // [split]
  int const first = comm.rank() / 2 * 2;
  return in_row == std::vector<int>{first, first + 1} ? cx::status{} : wrong(comm, "wrong row");
}

/// Rank 2 is killed in the middle of its work.
template <class Comm>
cx::status survive(Comm& comm) {
  std::vector<int> both{1};
  if (comm.rank() == 2) ::kill(::getpid(), SIGKILL);
  // [shrink]
  cx::status s = comm.all_reduce(cx::in_place(both), cx::sum{});  // "rank 2 (process 4711) is dead"
  if (s.code() == cx::errc::peer_lost) {
    auto rest = comm.shrink(comm.lost());
    if (!rest) return rest.error();
    both = {1};
    s = rest->all_reduce(cx::in_place(both), cx::sum{});  // of the three that are left
  }
  // [shrink]
  if (!s) return s;
  return both[0] == 3 ? cx::status{} : wrong(comm, "wrong sum");
}

}  // namespace

int main() {
  cx::status s = cx::shared_memory::run(4, [](auto& comm) -> cx::status {
    if (cx::status failed = overlap(comm); !failed) return failed;
    return rows(comm);
  });
  if (!s) return std::fprintf(stderr, "%s\n", s.what()), 1;
  // The one failure that is left is that of the rank which was killed.
  s = cx::shared_memory::run(4, [](auto& comm) -> cx::status { return survive(comm); });
  if (s.code() != cx::errc::peer_lost || std::string(s.what()).find("rank 2 was ended by signal 9") == std::string::npos)
    return std::fprintf(stderr, "%s\n", s.what()), 1;
  std::printf("messages and a sum went together, rows of two gathered, and three of four went on\n");
  return 0;
}
