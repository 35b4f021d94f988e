// SPDX-License-Identifier: Apache-2.0
/// Ranks as forked processes on hosts that are network namespaces, each with a device of the stand-in.
#pragma once

#include <collectx/cuda_composite.cuh>

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "gpu_calls.hpp"
#include "network/hosts.hpp"
#include "network/ready.hpp"

namespace host_ranks {

namespace cx = collectx;
using communicator = cx::communicator<cx::cuda_composite_transport>;

constexpr cx::algo::ring ring;

/// Small, so that a few thousand elements take several pieces on several blocks.
inline cx::cuda_composite::options small() {
  cx::cuda_composite::options o;
  o.blocks = 2;
  o.slots = {4, 4096};
  o.low_latency = {2, 1024};
  o.device = 0;
  o.host.between.slots = 4;
  o.host.between.slot_bytes = 4096;
  o.host.join_timeout = std::chrono::seconds(30);
  return o;
}

/// Starts a rank on the host that `where` names for each: `before(rank)`, then it joins, and f(communicator&) -> status, whose failure ends
/// the group.
template <class Before, class F>
void start(processes::group& ranks, cx::in_process_rendezvous& table, network::hosts const& hosts, std::vector<int> const& where,
           cx::cuda_composite::options const& options, Before before, F f) {
  for (int r = 0; r < static_cast<int>(where.size()); ++r)
    ranks.start([&, before, f, r]() -> cx::status {
      if (!hosts.enter(where[static_cast<std::size_t>(r)])) return cx::status::system(errno, "cannot enter a host");
      gpu::use_kernels();
      before(r);
      auto comm = cx::cuda_composite::join(table.of(r), options);
      if (!comm) return comm.error();
      if (cudaSetDevice(comm->transport().options().device) != cudaSuccess) return comm->abort();  // streams are of this thread's device
      cx::status const s = f(*comm);
      if (!s) (void)comm->abort(s);
      return s;
    });
}

inline void nothing(int) {}

/// The same to the end, which has to be a good one. False where there are no hosts.
template <class F, class Before = void (*)(int)>
bool run(std::vector<int> const& where, F f, cx::cuda_composite::options const& options = small(), Before before = nothing) {
  int most = 0;
  for (int h : where) most = most < h ? h : most;
  auto const hosts = network::hosts::make(most + 1);
  if (!hosts) return false;
  auto table = cx::in_process_rendezvous::create(static_cast<int>(where.size()));
  REQUIRE(table.has_value());
  processes::group ranks(static_cast<int>(where.size()));
  // Behind a barrier nobody leaves while another is still at its last call.
  auto const together = [f](communicator& comm) -> cx::status {
    cx::status const s = f(comm);
    return s.ok() ? comm.barrier(gpu::direct) : s;
  };
  start(ranks, *table, *hosts, where, options, before, together);
  ranks.wait();
  for (int r = 0; r < static_cast<int>(where.size()); ++r) {
    CAPTURE(r);
    INFO(ranks[r].text);
    CHECK(ranks[r].code == 0);
    CHECK(ranks[r].seconds < 20);
  }
  return true;
}

inline cx::status check(bool good, communicator& comm, char const* what) {
  return good ? cx::status{} : cx::status::failure(cx::errc::system, comm.rank(), "rank %d: %s", comm.rank(), what);
}

}  // namespace host_ranks
