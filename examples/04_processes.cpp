// SPDX-License-Identifier: Apache-2.0
/// Ranks that are processes, started by whomever: all they know of each other is a path. Here the program forks them itself.
#include <collectx/collectx.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace cx = collectx;

namespace {

// [processes]
/// What each process does, with nothing shared but the arguments.
cx::status be_rank(char const* path, int rank, int size) {
  auto meeting = cx::file_rendezvous::create(path, rank, size);
  if (!meeting) return meeting.error();
  auto comm = cx::shared_memory::join(*meeting);
  if (!comm) return comm.error();

  std::vector<int> everybody(static_cast<std::size_t>(size));
  if (cx::status s = comm->all_gather(std::vector{10 * rank}, everybody); !s) return s;
  for (int r = 0; r < size; ++r)
    if (everybody[static_cast<std::size_t>(r)] != 10 * r) return comm->abort(cx::status::failure(cx::errc::aborted, rank, "wrong"));
  return {};
}
// [processes]

int fail(char const* what) { return std::perror(what), 1; }

}  // namespace

int main() {
  constexpr int size = 2;
  char folder[] = "/tmp/collectx-example-XXXXXX";
  if (::mkdtemp(folder) == nullptr) return fail("mkdtemp");
  std::string const path = std::string(folder) + "/meeting";

  int failed = 0;
  for (int rank = 0; rank < size; ++rank) {
    ::pid_t const child = ::fork();
    if (child < 0) return fail("fork");
    if (child > 0) continue;
    cx::status const s = be_rank(path.c_str(), rank, size);
    if (!s) std::fprintf(stderr, "rank %d: %s\n", rank, s.what());
    ::_exit(s ? 0 : 1);
  }
  for (int rank = 0; rank < size; ++rank) {
    int state = 0;
    while (::wait(&state) < 0 && errno == EINTR) {
    }
    failed += WIFEXITED(state) && WEXITSTATUS(state) == 0 ? 0 : 1;
  }
  if (::rmdir(folder) != 0) return fail("the meeting left something behind");
  if (failed != 0) return 1;
  std::printf("%d processes met at a path and told each other their numbers\n", size);
  return 0;
}
