// SPDX-License-Identifier: Apache-2.0
// Collective calls on streams between processes and threads: results, order, graphs, staging, groups, and what callers get wrong.
#include "gpu_calls.hpp"
#include "gpu_ranks.hpp"

#include <doctest/doctest.h>

#include <thread>

namespace {

namespace cx = collectx;
using gpu::compare, gpu::direct, gpu::every_collective, gpu::one_sum, gpu::use_kernels;

cx::status every_size(gpu::communicator& comm) {
  for (std::size_t count : {std::size_t{1}, std::size_t{63}, std::size_t{5000}, std::size_t{40000}})
    if (cx::status s = every_collective(comm, count, cx::algo::ring{}); !s) return s;
  return every_collective(comm, 777, direct);
}

template <class F>
void ranks(int size, F f, cx::cuda_ipc::options const& options = gpu::small()) {
  cx::status const s = cx::cuda_ipc::run(size, options, [&](gpu::communicator& comm) -> cx::status {
    use_kernels();
    return f(comm);
  });
  CHECK_MESSAGE(s.ok(), std::string(s.what()));
}

}  // namespace

TEST_CASE("every collective on a stream, among 2 to 4 processes on one device and on two") {
  for (int n = 2; n <= 4; ++n) ranks(n, every_size);
  cx::cuda_ipc::options spread = gpu::small();
  spread.device = cx::cuda_ipc::options::by_rank;
  cx::status const s = cx::cuda_ipc::run(2, spread, [](gpu::communicator& comm) -> cx::status {
    use_kernels();
    if (cx::status bad = gpu::ok(comm, cudaSetDevice(comm.transport().options().device), "its device"); !bad) return bad;
    return every_size(comm);
  });
  CHECK_MESSAGE(s.ok(), std::string(s.what()));
}

#if !ON_GPU  // that many devices are to be had of the stand-in only
TEST_CASE("ranks on devices that do not reach one another go through the host, and say so") {
  ::setenv("STANDIN_NO_PEER", "1", 1);
  processes::group group(2);
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  for (int r = 0; r < 2; ++r)
    group.start([&table, r]() -> cx::status {
      use_kernels();
      cx::cuda_ipc::options options = gpu::small();
      options.device = r;
      auto mine = table->of(r);
      auto comm = cx::cuda_ipc::join(mine, options);
      if (!comm) return comm.error();
      if (cx::status used = gpu::ok(*comm, cudaSetDevice(r), "its device"); !used) return used;
      if (!comm->transport().side().staged()) return cx::status::failure(cx::errc::system, r, "not staged");
      if (cx::status s = every_size(*comm); !s) return s;
      gpu::buffer<int> own(100);
      auto registered = comm->register_buffer(own.all());
      if (!registered) return comm->abort(cx::status::failure(cx::errc::system, r, "%s", registered.error().what()));
      if (comm->transport().reads_directly(100, sizeof(int))) return cx::status::failure(cx::errc::system, r, "read out of reach");
      return registered->where().reach();
    });
  group.wait();
  ::unsetenv("STANDIN_NO_PEER");
  for (int r = 0; r < 2; ++r) {
    INFO(std::string(group[r].text));
    CHECK(group[r].code == static_cast<int>(cx::errc::not_supported));
    CHECK(group[r].names("rank 0"));
    CHECK(group[r].names("rank 1"));
  }
}

TEST_CASE("ranks may be threads of one process, with a device each") {
  ::setenv("STANDIN_DEVICES", "3", 1);
  use_kernels();
  auto table = cx::in_process_rendezvous::create(3);
  REQUIRE(table.has_value());
  std::vector<std::thread> threads;
  cx::status ends[3];
  for (int r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      auto mine = table->of(r);
      cx::cuda_ipc::options options = gpu::small();
      options.device = r;
      (void)cudaSetDevice(r);
      auto comm = cx::cuda_ipc::join(mine, options);
      ends[r] = comm ? every_size(*comm) : comm.error();
    });
  for (std::thread& t : threads) t.join();
  ::unsetenv("STANDIN_DEVICES");
  for (cx::status const& s : ends) CHECK_MESSAGE(s.ok(), std::string(s.what()));
  CHECK(standin::standin_allocations() == 0);
}
#endif

TEST_CASE("the option stage goes through the host where devices reach one another") {
  cx::cuda_ipc::options options = gpu::small();
  options.stage = true;
  ranks(3, every_size, options);
}

TEST_CASE("a graph of calls is replayed, each time with what the buffers hold then; a call not made before is refused") {
  ranks(2, [](gpu::communicator& comm) { return gpu::replay(comm, 3000, cx::algo::ring{}); });
}

TEST_CASE("a group with the options as they are") {
  cx::status const s = cx::cuda_ipc::run(2, [](gpu::communicator& comm) -> cx::status {
    use_kernels();
    return every_collective(comm, 100'000, direct);
  });
  CHECK_MESSAGE(s.ok(), std::string(s.what()));
}

TEST_CASE("a call on another stream comes behind the one before, and calls without a stream mix with those on one") {
  ranks(3, [](gpu::communicator& comm) { return gpu::two_streams(comm, direct); });
}

TEST_CASE("a group out of a group has devices too, and goes on without the dead") {
  ranks(4, [](gpu::communicator& comm) -> cx::status {
    auto half = comm.split(comm.rank() / 2);
    if (!half) return half.error();
    gpu::buffer<int> both(500);
    gpu::stream stream;
    if (cx::status s = one_sum(*half, both, 7, stream); !s) return s;
    return one_sum(comm, both, 3, stream);
  });
  processes::group group(3);
  auto table = cx::in_process_rendezvous::create(3);
  REQUIRE(table.has_value());
  cx::cuda_ipc::options const options = gpu::small();
  gpu::start(
      group, *table, 3, options, [](int) { use_kernels(); },
      [](gpu::communicator& comm) -> cx::status {
        gpu::buffer<int> both(500);
        gpu::stream stream;
        cx::status died;
        for (int calls = 0; died.ok() && calls < 1000; ++calls) {
          if (comm.rank() == 1 && calls == 3) ::raise(SIGKILL);
          died = one_sum(comm, both, 2, stream);
        }
        if (died.code() != cx::errc::peer_lost || died.rank() != 1)
          return cx::status::failure(cx::errc::system, comm.rank(), "%s", died.what());
        auto rest = comm.shrink(std::vector<int>{1});
        return rest ? one_sum(*rest, both, 5, stream) : rest.error();
      });
  group.wait();
  for (int r : {0, 2}) CHECK_MESSAGE(group[r].code == 0, std::string(group[r].text));
}

TEST_CASE("calls that differ, a rank that does not come, and memory of the host are errors that say so") {
  ranks(2, [](gpu::communicator& comm) -> cx::status {
    std::vector<int> on_host(100, 1);
    gpu::buffer<int> both(100);
    gpu::stream stream;
    cx::status const refused = comm.all_reduce(cx::in_place(on_host), cx::sum{}, cudaStream_t{stream}, direct);
    if (refused.code() != cx::errc::invalid_argument) return cx::status::failure(cx::errc::system, comm.rank(), "%s", refused.what());
    return one_sum(comm, both, 1, stream);  // that was this rank's own affair
  });
  for (bool differ : {true, false}) {
    CAPTURE(differ);
    processes::group group(2);
    auto table = cx::in_process_rendezvous::create(2);
    REQUIRE(table.has_value());
    cx::cuda_ipc::options const options = gpu::small();
    gpu::start(
        group, *table, 2, options, [](int) { use_kernels(); },
        [differ](gpu::communicator& comm) -> cx::status {
          gpu::buffer<int> both(400);
          gpu::stream stream;
          cx::call_options hurry;
          hurry.timeout = std::chrono::milliseconds(300);
          cx::status s;
          if (differ)
            s = comm.all_reduce(cx::in_place(both.first(comm.rank() == 0 ? 400 : 200)), cx::sum{}, cudaStream_t{stream}, direct, hurry);
          if (!differ && comm.rank() == 0) s = comm.all_reduce(cx::in_place(both.all()), cx::sum{}, cudaStream_t{stream}, direct, hurry);
          if (!s) return s;
          if (s = gpu::ok(comm, cudaStreamSynchronize(stream), "synchronise"); !s) return s;
          for (int looks = 0; comm.status().ok() && looks < 5000; ++looks) cx::detail::nap(1'000'000);
          return comm.status();
        });
    group.wait();
    for (int r = 0; r < 2; ++r) {
      INFO(std::string(group[r].text));
      CHECK(group[r].code == static_cast<int>(differ ? cx::errc::mismatch : cx::errc::timeout));
      if (!differ) CHECK(group[r].rank == 1);
    }
  }
}

TEST_CASE("communicators come and go fifty times, in either order, and leave nothing") {
  processes::group group(2);
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  for (int r = 0; r < 2; ++r)
    group.start([&table, r]() -> cx::status {
      use_kernels();
      std::size_t descriptors = 0, free = 0, free_at_first = 0, all = 0;
      for (int round = 0; round < 50; ++round) {
        if (round == 5) {  // what a runtime keeps for itself, it has by now
          descriptors = processes::count_in("/proc/self/fd");
          if (cudaMemGetInfo(&free_at_first, &all) != cudaSuccess) return cx::status::failure(cx::errc::system, r, "no memory info");
        }
        auto mine = table->of(r);
        auto comm = cx::cuda_ipc::join(mine, gpu::small());
        if (!comm) return comm.error();
        {
          gpu::buffer<int> both(300);
          gpu::stream stream;
          if (cx::status s = one_sum(*comm, both, round, stream); !s) return s;
        }
        if (round % 2 == r) cx::detail::nap(3'000'000);
      }
      if (cudaMemGetInfo(&free, &all) != cudaSuccess) return cx::status::failure(cx::errc::system, r, "no memory info");
      constexpr std::size_t others = std::size_t{64} << 20;  // on a GPU that ranks share, the other may be at another point of its round
      if (free + others < free_at_first)
        return cx::status::failure(cx::errc::out_of_memory, r, "%zu bytes were lost", free_at_first - free);
      if (standin::standin_allocations() + standin::standin_mappings() == 0 && processes::count_in("/proc/self/fd") == descriptors)
        return {};
      return cx::status::failure(cx::errc::system, r, "%d allocations and %d mappings are left", standin::standin_allocations(),
                                 standin::standin_mappings());
    });
  group.wait();
  for (int r = 0; r < 2; ++r) CHECK_MESSAGE(group[r].code == 0, std::string(group[r].text));
}
