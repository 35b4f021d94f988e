// SPDX-License-Identifier: Apache-2.0
// Every call of CUDA is made to fail once, and every rank is killed at every one of its calls: every run ends, in an error on every rank.
#include "gpu_ranks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace {

namespace cx = collectx;
constexpr std::size_t count = 6000;
constexpr cx::algo::direct direct;  // named, since the automatic choice would have all families compiled

/// What happened to a rank that was to fail, as its parent sees it.
struct marks {
  int struck;   // before its work was done
  int unheard;  // by a destructor: it gives back what is not needed any more, and nobody hears of it
  int finished;
  int left_over;    // allocations and mappings
  int descriptors;  // more than before
};

/// Names that are none of libfabric's, whose tests may run beside this one.
std::size_t names_in_shm() {
  std::vector<std::string> const names = processes::names_in("/dev/shm");
  return static_cast<std::size_t>(std::count_if(names.begin(), names.end(), [](std::string const& n) { return n.find(':') == n.npos; }));
}

cx::status capture_and_replay(gpu::communicator& comm, gpu::buffer<float>& in, gpu::buffer<float>& out, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  if (cx::status s = gpu::ok(comm, cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin"); !s) return s;
  cx::status const called = comm.all_reduce(in.all(), out.all(), cx::sum{}, stream, direct);
  cudaError_t const captured = cudaStreamEndCapture(stream, &graph);
  if (!called) return called;
  if (cx::status s = gpu::ok(comm, captured, "end of capture"); !s) return s;
  cx::status s = gpu::ok(comm, cudaGraphInstantiate(&ready, graph, 0), "instantiate");
  if (s.ok()) s = gpu::ok(comm, cudaGraphDestroy(graph), "destroy the graph");
  if (s.ok()) s = gpu::ok(comm, cudaGraphLaunch(ready, stream), "replay");
  if (s.ok()) s = gpu::ok(comm, cudaStreamSynchronize(stream), "end of replay");
  if (s.ok()) s = gpu::ok(comm, cudaGraphExecDestroy(ready), "destroy the replay");
  return s;
}

/// A bit of everything, and a barrier at the end, without which a rank could be gone before another one fails.
cx::status work(gpu::communicator& comm, bool& struck) {
  gpu::buffer<float> in(count), out(count);
  gpu::stream stream, other;
  for (cudaError_t e : {in.error(), out.error(), stream.error(), other.error()})
    if (cx::status s = gpu::ok(comm, e, "buffers"); !s) return s;
  std::vector<float> values(count, static_cast<float>(comm.rank() + 1));
  if (cx::status s = gpu::ok(comm, in.fill(values), "fill"); !s) return s;
  if (cx::status s = comm.all_reduce(in.first(10), out.first(10), cx::sum{}, cudaStream_t{stream}, direct); !s) return s;
  if (cx::status s = comm.all_reduce(in.all(), out.all(), cx::sum{}, cudaStream_t{other}, cx::algo::recursive_halving{}); !s) return s;
  if (cx::status s = comm.barrier(cudaStream_t{stream}, direct); !s) return s;
  if (cx::status s = gpu::ok(comm, cudaStreamSynchronize(stream), "synchronise"); !s) return s;
  if (cx::status s = comm.all_reduce(in.all(), out.all(), cx::sum{}, cudaStream_t{stream}, direct); !s) return s;
  if (cx::status s = capture_and_replay(comm, in, out, stream); !s) return s;
  {
    auto registered = comm.register_buffer(in.first(2000));
    if (!registered) return comm.abort(registered.error());  // a failure on all ranks, which leaves the group as it was
    if (cx::status s = comm.all_reduce(*registered, out.first(2000), cx::sum{}, cudaStream_t{stream}); !s) return s;
    if (cx::status s = gpu::ok(comm, cudaStreamSynchronize(stream), "synchronise"); !s) return s;
    if (cx::status s = comm.status(); !s) return s;
    if (cx::status s = comm.barrier(direct); !s) return s;  // nobody's memory is still being read
  }
  if (cx::status s = gpu::ok(comm, out.read(values), "read"); !s) return s;
  float const expected = static_cast<float>(comm.size() * (comm.size() + 1) / 2);
  for (float v : values)
    if (v != expected) return comm.abort(cx::status::failure(cx::errc::system, comm.rank(), "a sum is %g", static_cast<double>(v)));
  cx::status const last = comm.barrier(direct);
  struck = standin::standin_failed() != nullptr;
  return last;
}

/// One run in which rank `odd` meets what `arm` has laid for it. Gives the marks of that rank.
template <class Arm>
marks one_run(int size, int odd, processes::group& group, Arm arm) {
  marks* const seen = processes::shared<marks>();
  auto table = cx::in_process_rendezvous::create(size);
  REQUIRE(table.has_value());
  cx::cuda_ipc::options const options = gpu::small();
  for (int r = 0; r < size; ++r)
    group.start([&, r]() -> cx::status {
      standin::plans<float, cx::sum>();
      standin::plans<std::uint8_t, cx::sum>();
      standin::direct_all_reduces<float, cx::sum>();
      if (r == odd) arm();
      cx::status s;
      bool struck = true;
      std::size_t const before = processes::count_in("/proc/self/fd");
      {
        auto mine = table->of(r);
        auto comm = cx::cuda_ipc::join(mine, options);
        s = comm ? work(*comm, struck) : comm.error();
      }
      if (r == odd) {
        seen->struck = struck;
        seen->unheard = standin::standin_failed() != nullptr && std::strcmp(standin::standin_failed(), "cudaIpcCloseMemHandle") == 0;
        seen->finished = 1;
        seen->descriptors = static_cast<int>(processes::count_in("/proc/self/fd") - before);
        seen->left_over = standin::standin_allocations() + standin::standin_mappings();
      }
      return s;
    });
  group.wait();
  marks const m = *seen;
  ::munmap(seen, sizeof *seen);
  return m;
}

void every_call_fails(int size) {
  std::size_t const names = names_in_shm();
  for (int odd = 0; odd < size; ++odd) {
    bool more = true;
    for (long k = 1; more; ++k) {
      CAPTURE(odd);
      CAPTURE(k);
      REQUIRE(k < 1000);
      processes::group group(size);
      marks const m = one_run(size, odd, group, [k] { standin::standin_fail_at(k); });
      REQUIRE(m.finished == 1);
      more = m.struck != 0;
      bool const fails = more && m.unheard == 0;
      for (int r = 0; r < size; ++r) {
        CAPTURE(r);
        INFO(group[r].text);
        REQUIRE((group[r].code != 0) == fails);
        CHECK(group[r].seconds < 10);
        if (fails) CHECK(group[r].names(("rank " + std::to_string(odd)).c_str()));
      }
      CHECK(m.descriptors == 0);
      if (fails) CHECK(m.left_over == 0);
    }
  }
  CHECK(names_in_shm() == names);
}

void every_call_kills(int size) {
  std::size_t const names = names_in_shm();
  int const odd = size - 1;
  for (long k = 1;; ++k) {
    CAPTURE(k);
    REQUIRE(k < 1000);
    processes::group group(size);
    marks const m = one_run(size, odd, group, [k] { standin::standin_kill_at(k); });
    if (m.finished == 1) break;
    bool const late = group[0].code == 0;  // it was killed when the work was done
    for (int r = 0; r < odd; ++r) {
      CAPTURE(r);
      INFO(group[r].text);
      REQUIRE((group[r].code == 0) == late);
      CHECK(group[r].seconds < 10);
      if (late) continue;
      CHECK(group[r].code == static_cast<int>(cx::errc::peer_lost));
      CHECK(group[r].rank == odd);
    }
  }
  CHECK(names_in_shm() == names);
}

}  // namespace

TEST_CASE("every call of CUDA fails once on each of two ranks: both end in an error that names the rank, and nothing is left") {
  every_call_fails(2);
}
TEST_CASE("every call of CUDA fails once on each of three ranks") { every_call_fails(3); }
TEST_CASE("a rank is killed at every call that it makes: the others end in an error that names it") {
  every_call_kills(2);
  every_call_kills(4);
}
