// SPDX-License-Identifier: Apache-2.0
// Registered buffers: kinds of memory, parts of allocations, what is freed and allocated anew, and how many mappings are kept.
#include "gpu_ranks.hpp"
#include "gpu_registered.hpp"

#include <doctest/doctest.h>

#include <string>
#include <thread>

namespace {

namespace cx = collectx;
using gpu::direct, gpu::expandable, gpu::failed, gpu::piece, gpu::see_one_another;

template <class F>
void ranks(int size, F f, cx::cuda_ipc::options const& options = gpu::small()) {
  cx::status const s = cx::cuda_ipc::run(size, options, [&](gpu::communicator& comm) -> cx::status {
    if (cx::status s = gpu::ok(comm, cudaSetDevice(comm.transport().options().device), "its device"); !s) return s;
    return f(comm);
  });
  CHECK_MESSAGE(s.ok(), std::string(s.what()));
}

cx::status twenty_rounds(gpu::communicator& comm, std::size_t most_mappings) {
  std::size_t const count = (std::size_t{1} << 20) / sizeof(int);
  void* first = nullptr;
  int reused = 0;
  for (int round = 1; round <= 20; ++round) {
    gpu::buffer<int> memory(count);
    reused += memory.all().data() == first;
    first = memory.all().data();
    auto registered = comm.register_buffer(memory.all());
    if (!registered) return registered.error();
    if (cx::status s = see_one_another(comm, *registered, 2 * round * 100); !s) return s;
    if (comm.transport().side().mappings() > most_mappings) return failed(comm, "mappings pile up");
  }
  return reused > 0 || ON_GPU ? cx::status{} : failed(comm, "no address was ever given out again, so this shows nothing");
}

}  // namespace

TEST_CASE("MEM-03: memory freed and allocated anew at the same address is seen as it is, and mappings do not pile up") {
  for (std::size_t idle : {std::size_t{0}, std::size_t{4}}) {
    CAPTURE(idle);
    cx::cuda_ipc::options options = gpu::small();
    options.idle_mappings = idle;
    ranks(
        2, [idle](gpu::communicator& comm) { return twenty_rounds(comm, idle + 1); }, options);
  }
}

TEST_CASE("MEM-04: with a cache of four, 64 buffers of two kinds of memory are each mapped as what they are") {
  cx::cuda_ipc::options options = gpu::small();
  options.idle_mappings = 4;
  ranks(
      2,
      [](gpu::communicator& comm) -> cx::status {
        for (int i = 0; i < 64; ++i) {
          gpu::buffer<int> plain(300);
          expandable pieces(2, true);
          if (!pieces.good()) return failed(comm, "no memory by pieces");
          bool const by_pieces = i % 2 == 1;
          auto registered = comm.register_buffer(by_pieces ? pieces.part(10, 300) : plain.all());
          if (!registered) return registered.error();
          if (cx::status s = see_one_another(comm, *registered, 1000 * i); !s) return s;
          if (comm.transport().side().mappings() > 5) return failed(comm, "more mappings than the cache may hold");
        }
        return {};
      },
      options);
}

#if !ON_GPU  // two devices are to be had of the stand-in only
TEST_CASE("MEM-04: a rank that is a thread needs no mapping, and a registration without a handle lives and ends as any other") {
  ::setenv("STANDIN_DEVICES", "2", 1);
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  cx::status ends[2];
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      (void)cudaSetDevice(r);
      auto mine = table->of(r);
      cx::cuda_ipc::options options = gpu::small();
      options.device = r;
      auto comm = cx::cuda_ipc::join(mine, options);
      if (!comm) return void(ends[r] = comm.error());
      gpu::buffer<int> memory(1000);
      for (int round = 0; round < 3; ++round) {
        auto registered = comm->register_buffer(memory.first(700));
        ends[r] = registered ? see_one_another(*comm, *registered, round) : registered.error();
        if (!ends[r]) return;
      }
      ends[r] = comm->barrier(direct);
    });
  for (std::thread& t : threads) t.join();
  ::unsetenv("STANDIN_DEVICES");
  for (cx::status const& s : ends) CHECK_MESSAGE(s.ok(), std::string(s.what()));
  CHECK(standin::standin_mappings() == 0);
}
#endif

TEST_CASE("a buffer may be any part of its allocation, and two of one allocation share a mapping") {
  ranks(3, [](gpu::communicator& comm) -> cx::status {
    gpu::buffer<int> memory(5000);
    std::size_t const begin = static_cast<std::size_t>(comm.rank()) * 100 + 7;  // elsewhere on each rank
    auto low = comm.register_buffer(memory.all().subspan(begin, 1000));
    if (!low) return low.error();
    auto high = comm.register_buffer(memory.all().subspan(begin + 2000, 1000));
    if (!high) return high.error();
    if (comm.transport().side().mappings() != 2) return failed(comm, "an allocation was mapped twice");
    if (cx::status s = see_one_another(comm, *low, 100); !s) return s;
    return see_one_another(comm, *high, 200);
  });
}

TEST_CASE("a buffer in expandable memory may lie in any of its pieces, and across them") {
  ranks(3, [](gpu::communicator& comm) -> cx::status {
    expandable memory(3, true);
    if (!memory.good()) return failed(comm, "no memory by pieces");
    std::size_t const per_piece = piece / sizeof(int);
    for (std::size_t first : {std::size_t{5}, per_piece - 10, per_piece + 3, 2 * per_piece - 1}) {
      auto registered = comm.register_buffer(memory.part(first, per_piece));
      if (!registered) return registered.error();
      if (cx::status s = see_one_another(comm, *registered, static_cast<int>(first)); !s) return s;
    }
    return {};
  });
}

TEST_CASE("memory of the library's own is given out again") {
  ranks(2, [](gpu::communicator& comm) -> cx::status {
    int const before = standin::standin_allocations();
    for (int round = 0; round < 10; ++round) {
      auto registered = comm.allocate<int>(900);
      if (!registered) return registered.error();
      if (cx::status s = see_one_another(comm, *registered, round); !s) return s;
    }
    return standin::standin_allocations() <= before + 2 ? cx::status{} : failed(comm, "every round has allocated");
  });
}

TEST_CASE("MEM-03: all-reduces read registered buffers where they lie, out of place and in place, in graphs, and large ones by slots") {
  for (int n = 2; n <= 4; ++n) ranks(n, [](gpu::communicator& comm) { return gpu::sums_of_registered(comm); });
}

TEST_CASE("a buffer that cannot be registered is an error on all ranks, and the group goes on") {
  ranks(2, [](gpu::communicator& comm) -> cx::status {
    if (cx::status s = gpu::refusals(comm); !s) return s;
    gpu::buffer<int> memory(100);
    auto whole = comm.register_buffer(memory.all());
    return whole ? see_one_another(comm, *whole, 1) : whole.error();
  });
}

#if !ON_GPU  // devices that do not reach one another are to be had of the stand-in only
TEST_CASE("registered buffers out of one another's reach, or by the option stage, are read by slots, and refused for the same reasons") {
  for (bool by_choice : {true, false}) {
    CAPTURE(by_choice);
    cx::cuda_ipc::options options = gpu::small();
    options.stage = by_choice;
    if (!by_choice) options.device = cx::cuda_ipc::options::by_rank;
    if (!by_choice) ::setenv("STANDIN_NO_PEER", "1", 1);
    ranks(
        2,
        [](gpu::communicator& comm) -> cx::status {
          if (comm.transport().reads_directly(1000, sizeof(int))) return failed(comm, "this is read in a wrong way");
          if (cx::status s = gpu::refusals(comm); !s) return s;
          return gpu::sums_of_registered(comm);
        },
        options);
    ::unsetenv("STANDIN_NO_PEER");
  }
}

TEST_CASE("a group out of a group keeps a device that was chosen by rank, or that the thread had then") {
  ::setenv("STANDIN_DEVICES", "2", 1);
  for (int device : {cx::cuda_ipc::options::by_rank, cx::cuda_ipc::options::current}) {
    CAPTURE(device);
    cx::cuda_ipc::options options = gpu::small();
    options.device = device;
    ranks(
        4,
        [](gpu::communicator& comm) -> cx::status {
          int const mine = comm.transport().side().device();
          if (cudaSetDevice(1) != cudaSuccess) return failed(comm, "no second device");
          auto half = comm.split(comm.rank() % 2);
          if (!half) return half.error();
          if (half->transport().side().device() != mine) return failed(comm, "another device than before");
          return half->barrier(direct);
        },
        options);
  }
  ::unsetenv("STANDIN_DEVICES");
}
#endif
