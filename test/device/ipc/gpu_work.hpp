// SPDX-License-Identifier: Apache-2.0
/// What a rank does that may be struck at any call of CUDA, and what is left of it.
#pragma once

#include <collectx/rendezvous/in_process.hpp>

#include <doctest/doctest.h>

#include <sys/mman.h>
#include <sys/socket.h>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "../../run/processes.hpp"
#include "gpu_calls.hpp"
#include "support/effort.hpp"
#include "support/seed.hpp"

namespace gpu {

/// What happened to a rank that was to fail, as its parent sees it.
struct marks {
  int struck;   // before its work was done
  int unheard;  // by a destructor: it gives back what is not needed any more, and nobody hears of it
  int finished;
  int left_over;    // allocations and mappings
  int descriptors;  // more than before
};

/// Names that are none of libfabric's, whose tests may run beside this one.
inline std::size_t names_in_shm() {
  std::vector<std::string> const names = processes::names_in("/dev/shm");
  return static_cast<std::size_t>(std::count_if(names.begin(), names.end(), [](std::string const& n) { return n.find(':') == n.npos; }));
}

/// Calls are struck one after the other, or every so many, beginning with one by the seed.
struct strokes {
  long step, next;
  explicit strokes(long usual)
      : step(support::everything() ? 1 : usual), next(1 + static_cast<long>(support::seed() % static_cast<std::uint64_t>(step))) {}
};

template <class Comm>
cx::status capture_and_replay(Comm& comm, buffer<float>& in, buffer<float>& out, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  if (cx::status s = ok(comm, cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin"); !s) return s;
  cx::status const called = comm.all_reduce(in.all(), out.all(), cx::sum{}, stream, direct);
  cudaError_t const captured = cudaStreamEndCapture(stream, &graph);
  if (!called) return called;
  if (cx::status s = ok(comm, captured, "end of capture"); !s) return s;
  cx::status s = ok(comm, cudaGraphInstantiate(&ready, graph, 0), "instantiate");
  if (s.ok()) s = ok(comm, cudaGraphDestroy(graph), "destroy the graph");
  if (s.ok()) s = ok(comm, cudaGraphLaunch(ready, stream), "replay");
  if (s.ok()) s = ok(comm, cudaStreamSynchronize(stream), "end of replay");
  if (s.ok()) s = ok(comm, cudaGraphExecDestroy(ready), "destroy the replay");
  return s;
}

/// A bit of everything, and a barrier at the end, without which a rank could be gone before another one fails.
template <class Comm>
cx::status work(Comm& comm, bool& struck) {
  constexpr std::size_t count = 6000;
  buffer<float> in(count), out(count);
  stream stream, other;
  for (cudaError_t e : {in.error(), out.error(), stream.error(), other.error()})
    if (cx::status s = ok(comm, e, "buffers"); !s) return s;
  std::vector<float> values(count, static_cast<float>(comm.rank() + 1));
  if (cx::status s = ok(comm, in.fill(values), "fill"); !s) return s;
  if (cx::status s = comm.all_reduce(in.first(10), out.first(10), cx::sum{}, cudaStream_t{stream}, direct); !s) return s;
  if (cx::status s = comm.all_reduce(in.all(), out.all(), cx::sum{}, cudaStream_t{other}, cx::algo::recursive_halving{}); !s) return s;
  if (cx::status s = comm.barrier(cudaStream_t{stream}, direct); !s) return s;
  if (cx::status s = ok(comm, cudaStreamSynchronize(stream), "synchronise"); !s) return s;
  if (cx::status s = comm.all_reduce(in.all(), out.all(), cx::sum{}, cudaStream_t{stream}, direct); !s) return s;
  if (cx::status s = capture_and_replay(comm, in, out, stream); !s) return s;
  {
    auto registered = comm.register_buffer(in.first(2000));
    if (!registered) return comm.abort(registered.error());  // a failure on all ranks, which leaves the group as it was
    if (cx::status s = comm.all_reduce(*registered, out.first(2000), cx::sum{}, cudaStream_t{stream}); !s) return s;
    if (cx::status s = ok(comm, cudaStreamSynchronize(stream), "synchronise"); !s) return s;
    if (cx::status s = comm.status(); !s) return s;
    if (cx::status s = comm.barrier(direct); !s) return s;  // nobody's memory is still being read
  }
  if (cx::status s = ok(comm, out.read(values), "read"); !s) return s;
  float const expected = static_cast<float>(comm.size() * (comm.size() + 1) / 2);
  for (float v : values)
    if (v != expected) return comm.abort(cx::status::failure(cx::errc::system, comm.rank(), "a sum is %g", static_cast<double>(v)));
  cx::status const last = comm.barrier(direct);
  struck = standin::standin_failed() != nullptr;
  return last;
}

/// Descriptors of this process, but for connections: libfabric 1.17 may keep one that has come while its endpoint closes.
inline int descriptors() {
  int n = 0;
  for (std::string const& name : processes::names_in("/proc/self/fd")) {
    int domain = 0;
    ::socklen_t bytes = sizeof domain;
    bool const socket = ::getsockopt(std::atoi(name.c_str()), SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0;
    n += !socket || (domain != AF_INET && domain != AF_INET6);
  }
  return n;
}

/// A rank from joining to its end; `arm` lays what it is to meet. join() -> result<communicator>.
template <class Arm, class Join>
cx::status live(marks* seen, Arm arm, Join join) {
  standin::plans<float, cx::sum>();
  standin::plans<std::uint8_t, cx::sum>();
  standin::direct_all_reduces<float, cx::sum>();
  arm();
  cx::status s;
  bool struck = true;
  int const before = descriptors();
  {
    auto comm = join();
    s = comm ? work(*comm, struck) : comm.error();
  }
  if (seen == nullptr) return s;
  seen->struck = struck;
  seen->unheard = standin::standin_failed() != nullptr && std::strcmp(standin::standin_failed(), "cudaIpcCloseMemHandle") == 0;
  seen->finished = 1;
  seen->descriptors = descriptors() - before;
  seen->left_over = standin::standin_allocations() + standin::standin_mappings();
  return s;
}

/// One run in which rank `odd` meets what `arm` has laid for it; join(table, rank) -> result<communicator>. Gives the marks of that rank.
template <class Arm, class Join>
marks one_run(int size, int odd, processes::group& group, Arm arm, Join join) {
  marks* const seen = processes::shared<marks>();
  auto table = cx::in_process_rendezvous::create(size);
  REQUIRE(table.has_value());
  for (int r = 0; r < size; ++r)
    group.start([&, r]() -> cx::status {
      auto const armed = [&] {
        if (r == odd) arm();
      };
      return live(r == odd ? seen : nullptr, armed, [&] { return join(*table, r); });
    });
  group.wait();
  marks const m = *seen;
  ::munmap(seen, sizeof *seen);
  return m;
}

/// Calls of rank `odd` fail, one in each run: all ranks end in an error that names it, and nothing is left.
template <class Join>
void calls_fail(int size, int odd, long step, Join join) {
  std::size_t const names = names_in_shm();
  CAPTURE(odd);
  bool more = true;
  for (strokes at(step); more; at.next += at.step) {
    CAPTURE(at.next);
    REQUIRE(at.next < 1000);
    processes::group group(size);
    marks const m = one_run(
        size, odd, group, [&at] { standin::standin_fail_at(at.next); }, join);
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
    if (more) CHECK(m.descriptors == 0);  // else it was a destructor that could not give something back
    if (fails) CHECK(m.left_over == 0);
  }
  CHECK(names_in_shm() == names);
}

/// Rank `odd` is killed at its calls, one in each run: the others end in an error that names it.
template <class Join>
void calls_kill(int size, int odd, long step, Join join) {
  std::size_t const names = names_in_shm();
  CAPTURE(odd);
  for (strokes at(step);; at.next += at.step) {
    CAPTURE(at.next);
    REQUIRE(at.next < 1000);
    processes::group group(size);
    marks const m = one_run(
        size, odd, group, [&at] { standin::standin_kill_at(at.next); }, join);
    if (m.finished == 1) break;
    bool const late = group[odd == 0 ? 1 : 0].code == 0;  // it was killed when the work was done
    for (int r = 0; r < size; ++r) {
      if (r == odd) continue;
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

}  // namespace gpu
