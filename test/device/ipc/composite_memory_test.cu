// SPDX-License-Identifier: Apache-2.0
// Registered buffers among devices on any hosts: the same program and the same errors as on one, read where they lie on one only.
#include "gpu_registered.hpp"
#include "host_ranks.hpp"

namespace {

namespace cx = collectx;
using host_ranks::check, host_ranks::communicator, host_ranks::ring;

bool is_on_one_host(communicator& comm) {
  for (int r = 0; r < comm.size(); ++r)
    if (comm.transport().node_of(r) != comm.transport().node_of(0)) return false;
  return true;
}

}  // namespace

TEST_CASE("all-reduces of registered buffers: read where they lie on one host, by slots on several") {
  for (std::vector<int> const& where : {std::vector{0, 0, 0}, std::vector{0, 1}, std::vector{0, 1, 1, 0}}) {
    CAPTURE(where.size());
    bool const ran = host_ranks::run(where, [](communicator& comm) -> cx::status {
      bool const directly = is_on_one_host(comm);
      if (comm.transport().reads_directly(1000, 4) != directly) return check(false, comm, "this is read in a wrong way");
      if (cx::status s = gpu::sums_of_registered(comm); !s) return s;
      gpu::buffer<int> memory(100);
      auto registered = comm.register_buffer(memory.all());
      if (!registered) return registered.error();
      if (directly) return gpu::see_one_another(comm, *registered, 7);
      cx::status const& reach = registered->where().reach();
      if (reach.code() != cx::errc::not_supported || reach.rank() != 1) return check(false, comm, "it does not say who is elsewhere");
      std::vector<int*> all(static_cast<std::size_t>(comm.size()));
      cudaError_t const e = cudaMemcpy(all.data(), registered->where().addresses(), all.size() * sizeof(int*), cudaMemcpyDeviceToHost);
      if (cx::status s = gpu::ok(comm, e, "copy"); !s) return s;
      for (int r = 0; r < comm.size(); ++r)
        if (all[static_cast<std::size_t>(r)] != (r == comm.rank() ? memory.all().data() : nullptr)) return check(false, comm, "an address");
      return {};
    });
    if (!ran) return;
  }
}

TEST_CASE("other calls take registered buffers, a graph records them, and groups by hosts read them where they lie") {
  host_ranks::run({0, 1, 0, 1}, [](communicator& comm) -> cx::status {
    standin::direct_all_reduces<int, cx::sum>();
    gpu::stream stream;
    cudaStream_t const on = stream;
    auto own = comm.allocate<int>(3000);
    if (!own) return own.error();
    std::vector<int> values(own->size(), comm.rank());
    if (cx::status s = gpu::ok(comm, cudaMemcpy(own->data(), values.data(), values.size() * 4, cudaMemcpyHostToDevice), "fill"); !s)
      return s;
    if (cx::status s = comm.broadcast(*own, 3, on, ring); !s) return s;
    if (cx::status s = gpu::compare(comm, on, "broadcast", own->data(), own->size(), [](std::size_t) { return 3; }); !s) return s;
    if (cx::status s = comm.all_reduce(*own, *own, cx::sum{}, on); !s) return s;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    if (cx::status s = gpu::ok(comm, cudaStreamBeginCapture(on, cudaStreamCaptureModeGlobal), "begin"); !s) return s;
    if (cx::status s = comm.all_reduce(*own, *own, cx::sum{}, on); !s) return s;
    if (cx::status s = gpu::ok(comm, cudaStreamEndCapture(on, &graph), "end"); !s) return s;
    if (cx::status s = gpu::ok(comm, cudaGraphInstantiate(&ready, graph, 0), "instantiate"); !s) return s;
    for (int round = 0; round < 5; ++round)
      if (cx::status s = gpu::ok(comm, cudaGraphLaunch(ready, on), "replay"); !s) return s;
    auto const sum = [](std::size_t) { return 3 << 12; };
    if (cx::status s = gpu::compare(comm, on, "replayed sums", own->data(), own->size(), sum); !s) return s;
    if (cx::status s = gpu::ok(comm, cudaGraphExecDestroy(ready), "destroy"); !s) return s;
    if (cx::status s = gpu::ok(comm, cudaGraphDestroy(graph), "destroy"); !s) return s;

    auto host = comm.split(comm.rank() % 2);
    if (!host) return host.error();
    gpu::buffer<int> memory(300);
    auto near = host->register_buffer(memory.all());
    if (!near) return near.error();
    if (!host->transport().reads_directly(300, 4) || !near->where().reach()) return check(false, comm, "a host is not one");
    return gpu::see_one_another(*host, *near, 5);
  });
}

TEST_CASE("memory of the library's own is given out again, and registrations among hosts map nothing") {
  host_ranks::run({0, 1, 0}, [](communicator& comm) -> cx::status {
    int before = 0;
    for (int round = 0; round < 10; ++round) {
      auto registered = comm.allocate<int>(900);
      if (!registered) return registered.error();
      gpu::expandable pieces(2, true);
      auto by_pieces = comm.register_buffer(pieces.part(10, 300));
      if (!by_pieces) return by_pieces.error();
      if (comm.transport().side().mappings() != 0) return check(false, comm, "something was mapped");
      if (round == 0) before = standin::standin_allocations();
    }
    return check(standin::standin_allocations() == before, comm, "every round has allocated");
  });
}

TEST_CASE("by the option stage buffers are registered and read by slots") {
  cx::cuda_composite::options options = host_ranks::small();
  options.stage = true;
  host_ranks::run(
      {0, 0},
      [](communicator& comm) -> cx::status {
        if (comm.transport().reads_directly(1000, 4)) return check(false, comm, "this is read in a wrong way");
        return gpu::sums_of_registered(comm);
      },
      options);
}

TEST_CASE("a buffer that cannot be registered is an error on all ranks of all hosts, and the group goes on") {
  for (std::vector<int> const& where : {std::vector{0, 0}, std::vector{0, 1}}) {
    bool const ran = host_ranks::run(where, [](communicator& comm) -> cx::status {
      if (cx::status s = gpu::refusals(comm); !s) return s;
      return gpu::sums_of_registered(comm);
    });
    if (!ran) return;
  }
}

TEST_CASE("a rank that registers nothing, or is dead: the others on all hosts name it") {
  auto const hosts = network::hosts::make(2);
  if (!hosts) return;
  for (bool dies : {false, true}) {
    CAPTURE(dies);
    auto table = cx::in_process_rendezvous::create(3);
    REQUIRE(table.has_value());
    processes::group ranks(3);
    host_ranks::start(
        ranks, *table, *hosts, {0, 1, 0}, host_ranks::small(), [](int) {},
        [dies](communicator& comm) -> cx::status {
          cx::call_options hurry;
          hurry.timeout = std::chrono::milliseconds(500);
          if (comm.rank() == 1 && dies) ::raise(SIGKILL);
          if (comm.rank() != 1) return comm.allocate<int>(100, hurry).error();
          for (int looks = 0; looks < 10'000 && comm.status().ok(); ++looks) cx::detail::nap(1'000'000);
          return comm.status();
        });
    ranks.wait();
    for (int r = 0; r < 3; ++r) {
      if (dies && r == 1) continue;
      INFO(std::string(ranks[r].text));
      CHECK(ranks[r].code == static_cast<int>(dies ? cx::errc::peer_lost : cx::errc::timeout));
      CHECK(ranks[r].rank == 1);
    }
  }
}
