// SPDX-License-Identifier: Apache-2.0
/// Ranks on any hosts: shared memory inside a host, libfabric between them, and an all-reduce in two levels that knows which is which.
#include <collectx/collectx.hpp>
#include <collectx/rendezvous/environment.hpp>
#include <collectx/libfabric.hpp>  // link collectx::libfabric
#ifdef WITH_PMIX
#include <collectx/rendezvous/pmix.hpp>
#endif

#include <cstdio>
#include <vector>

namespace cx = collectx;

namespace {

auto meet() {
#ifdef WITH_PMIX
  return cx::environment_rendezvous::create<cx::pmix_rendezvous>();
#else
  return cx::environment_rendezvous::create();
#endif
}

// [cluster]
using two_levels = cx::algo::striped<cx::algo::hierarchical<cx::algo::ring, cx::algo::ring>>;  // groups: the hosts

cx::status add_up() {
  auto meeting = meet();  // RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; or PMIx; or alone
  if (!meeting) return meeting.error();
  auto comm = cx::composite::join(*meeting);
  if (!comm) return comm.error();
  std::vector<float> gradients(1 << 20, 1.0f);
  if (cx::status s = comm->all_reduce(cx::in_place(gradients), cx::sum{}, two_levels{}); !s) return s;
  // [cluster]
  for (float sum : gradients)
    if (sum != static_cast<float>(comm->size())) {
      return comm->abort(cx::status::failure(cx::errc::aborted, comm->rank(), "a sum is %g", static_cast<double>(sum)));
    }
  if (comm->rank() == 0) std::printf("%d ranks on %d host(s)\n", comm->size(), comm->nodes().count(comm->size()));
  return {};
}

}  // namespace

int main() {
  cx::status const s = add_up();
  if (!s) std::fprintf(stderr, "%s\n", s.what());
  return s ? 0 : 1;
}
