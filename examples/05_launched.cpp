// SPDX-License-Identifier: Apache-2.0
/// One program, however its ranks are started: `mpirun -np 4`, `torchrun`, `srun`, RANK and WORLD_SIZE by hand, or alone.
#include <collectx/collectx.hpp>
#include <collectx/rendezvous/environment.hpp>
#ifdef WITH_PMIX  // link collectx::pmix
#include <collectx/rendezvous/pmix.hpp>
#endif

#include <cstdio>
#include <vector>

namespace cx = collectx;

namespace {

// [launched]
auto meet() {
#ifdef WITH_PMIX
  return cx::environment_rendezvous::create<cx::pmix_rendezvous>();
#else
  return cx::environment_rendezvous::create();
#endif
}

cx::status add_up() {
  auto meeting = meet();
  if (!meeting) return meeting.error();
  auto comm = cx::shared_memory::join(*meeting);
  if (!comm) return comm.error();

  std::vector<long> numbers(1000, comm->rank() + 1);
  if (cx::status s = comm->all_reduce(cx::in_place(numbers), cx::sum{}); !s) return s;
  // [launched]
  long const n = comm->size();
  for (long sum : numbers)
    if (sum != n * (n + 1) / 2) return comm->abort(cx::status::failure(cx::errc::aborted, comm->rank(), "a sum is %ld", sum));
  if (comm->rank() == 0) std::printf("%ld ranks have added up 1 to %ld\n", n, n);
  return {};
}

}  // namespace

int main() {
  cx::status const s = add_up();
  if (!s) std::fprintf(stderr, "%s\n", s.what());
  return s ? 0 : 1;
}
