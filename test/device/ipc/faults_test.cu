// SPDX-License-Identifier: Apache-2.0
// Every call of CUDA is made to fail once, and every rank is killed at every one of its calls: every run ends, in an error on every rank.
#include "gpu_ranks.hpp"
#include "gpu_work.hpp"

namespace {

namespace cx = collectx;

cx::result<gpu::communicator> join(cx::in_process_rendezvous& table, int rank) {
  auto mine = table.of(rank);
  return cx::cuda_ipc::join(mine, gpu::small());
}

void every_call_fails(int size) {
  for (int odd = 0; odd < size; ++odd) gpu::calls_fail(size, odd, 1, join);
}

}  // namespace

TEST_CASE("every call of CUDA fails once on each of two ranks: both end in an error that names the rank, and nothing is left") {
  every_call_fails(2);
}
TEST_CASE("every call of CUDA fails once on each of three ranks") { every_call_fails(3); }
TEST_CASE("a rank is killed at every call that it makes: the others end in an error that names it") {
  gpu::calls_kill(2, 1, 1, join);
  gpu::calls_kill(4, 3, 1, join);
}
