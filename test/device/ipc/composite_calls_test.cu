// SPDX-License-Identifier: Apache-2.0
// What calls on streams can do on one host, among devices on several: every collective, types, staging, graphs, groups, forked children.
#include <collectx/reduce/bitwise.hpp>

#include <atomic>

#include "host_ranks.hpp"

namespace {

namespace cx = collectx;
using gpu::one_sum;
using host_ranks::check, host_ranks::communicator, host_ranks::ring;

template <class T, class Op>
cx::status combine(communicator& comm, Op const& op, T (*of_rank)(int), T wanted) {
  standin::plans<T, Op>();
  constexpr std::size_t count = 9001;
  gpu::buffer<T> both(count);
  gpu::stream stream;
  std::vector<T> values(count, of_rank(comm.rank()));
  if (cx::status s = gpu::ok(comm, both.fill(values), "fill"); !s) return s;
  if (cx::status s = comm.all_reduce(cx::in_place(both.all()), op, cudaStream_t{stream}, ring); !s) return s;
  if (cx::status s = gpu::ok(comm, cudaStreamSynchronize(stream), "synchronise"); !s) return s;
  if (cx::status s = comm.status(); !s) return s;
  if (cx::status s = gpu::ok(comm, both.read(values), "read"); !s) return s;
  for (T const& v : values)
    if (std::memcmp(&v, &wanted, sizeof v) != 0) return gpu::failed(comm, "a wrong element");
  return {};
}

/// Several pieces by each way of going through the ranks.
cx::status every_way(communicator& comm) {
  for (std::size_t count : {std::size_t{1}, std::size_t{63}, std::size_t{9000}})
    if (cx::status s = gpu::every_collective(comm, count, ring); !s) return s;
  if (cx::status s = gpu::every_collective(comm, 5000, cx::algo::hierarchical<cx::algo::ring, cx::algo::ring>{}); !s) return s;
  if (cx::status s = gpu::every_collective(comm, 777, cx::algo::recursive_halving{}); !s) return s;
  return gpu::every_collective(comm, 777, gpu::direct);
}

}  // namespace

TEST_CASE("every collective among devices on one, two and three hosts") {
  for (std::vector<int> const& where : {std::vector{0, 0}, std::vector{0, 1, 1, 0}, std::vector{2, 0, 1}}) {
    CAPTURE(where.size());
    if (!host_ranks::run(where, every_way)) return;
  }
}

TEST_CASE("with one slot of low latency, and more of others, a plan that needs two is refused, and does not wait for ever") {
  cx::cuda_composite::options options = host_ranks::small();
  options.low_latency = {1, 1024};
  host_ranks::run(
      {0, 0, 0},
      [](communicator& comm) -> cx::status {
        gpu::buffer<int> both(100);
        gpu::stream stream;
        cx::status const refused = comm.all_reduce(cx::in_place(both.all()), cx::sum{}, cudaStream_t{stream}, ring);
        if (refused.code() != cx::errc::invalid_configuration) return check(false, comm, "this was not refused");
        return one_sum(comm, both, 1, stream);
      },
      options);
}

TEST_CASE("a call on a stream that needs more lanes than there are between devices is refused, though the host has them") {
  host_ranks::run({0, 1, 0}, [](communicator& comm) -> cx::status {
    gpu::buffer<int> both(5000);
    gpu::stream stream;
    cx::algo::striped<cx::algo::ring, 3> const three;
    if (comm.transport().lanes() < 3) return check(false, comm, "the host has too few lanes for this test");
    cx::status const refused = comm.all_reduce(cx::in_place(both.all()), cx::sum{}, cudaStream_t{stream}, three);
    if (refused.code() != cx::errc::invalid_configuration) return check(false, comm, "this was not refused");
    return one_sum(comm, both, 1, stream);
  });
}

TEST_CASE("types and operations among devices on two hosts") {
  host_ranks::run({0, 1, 0}, [](communicator& comm) -> cx::status {
    using narrow = cx::bfloat16;
    using word = std::uint64_t;
    using byte = std::int8_t;
    auto const halves = [](int r) { return narrow(static_cast<float>(r) + 0.5F); };
    cx::status s = combine<narrow>(comm, cx::sum{}, halves, narrow(4.5F));
    if (s.ok())
      s = combine<double>(
          comm, cx::prod{}, [](int r) { return r + 1.5; }, 1.5 * 2.5 * 3.5);
    if (s.ok())
      s = combine<word>(
          comm, cx::bor{}, [](int r) { return word(1) << 20 * r; }, 1 + (word(1) << 20) + (word(1) << 40));
    if (s.ok())
      s = combine<byte>(
          comm, cx::max{}, [](int r) { return static_cast<byte>(-r); }, byte(0));
    return s;
  });
}

TEST_CASE("ranks of a host go through its memory, by the option stage or where their devices do not reach one another") {
  for (bool by_choice : {true, false}) {
    CAPTURE(by_choice);
    cx::cuda_composite::options options = host_ranks::small();
    options.stage = by_choice;
    options.device = cx::cuda_composite::options::by_rank;
    if (!by_choice) ::setenv("STANDIN_NO_PEER", "1", 1);
    host_ranks::run(
        {0, 1, 0, 1},
        [](communicator& comm) -> cx::status {
          auto& side = comm.transport().side();
          if (side.device() != comm.rank() / 2) return check(false, comm, "the device is not that of the place on the host");
          if (!side.staged()) return check(false, comm, "not staged");
          return every_way(comm);
        },
        options);
    ::unsetenv("STANDIN_NO_PEER");
  }
}

TEST_CASE("a group with the options as they are") {
  cx::status const s = cx::cuda_composite::run(2, [](communicator& comm) -> cx::status {
    gpu::use_kernels();
    return gpu::every_collective(comm, 100'000, ring);
  });
  CHECK_MESSAGE(s.ok(), std::string(s.what()));
}

TEST_CASE("a graph of calls among hosts is replayed, each time with what the buffers hold then") {
  host_ranks::run({0, 1, 0}, [](communicator& comm) { return gpu::replay(comm, 5000, ring); });
}

TEST_CASE("calls on two streams come one behind the other, and mix with calls without a stream") {
  host_ranks::run({0, 1, 0}, [](communicator& comm) { return gpu::two_streams(comm, ring); });
}

TEST_CASE("groups out of a group, along hosts and across them, keep the devices, whatever these are named by") {
  cx::cuda_composite::options options = host_ranks::small();
  options.device = cx::cuda_composite::options::by_rank;
  host_ranks::run(
      {0, 1, 1, 0},
      [](communicator& comm) -> cx::status {
        int const host = comm.rank() == 1 || comm.rank() == 2, place = comm.rank() / 2, device = comm.transport().side().device();
        if (device != place) return check(false, comm, "a wrong device");
        gpu::buffer<int> both(500);
        for (int color : {host, place, 0}) {
          auto part = comm.split(color, -comm.rank());
          if (!part) return part.error();
          if (part->transport().side().device() != device) return check(false, comm, "another device than before");
          gpu::stream stream;
          if (cx::status s = one_sum(*part, both, 7, stream); !s) return s;
          if (cx::status s = one_sum(comm, both, 3, stream); !s) return s;
        }
        return {};
      },
      options);
}

TEST_CASE("a group goes on without a rank that was killed, on whatever host") {
  auto const hosts = network::hosts::make(2);
  if (!hosts) return;
  std::vector<int> const where{0, 1, 0, 1};
  auto table = cx::in_process_rendezvous::create(4);
  REQUIRE(table.has_value());
  processes::group ranks(4);
  host_ranks::start(
      ranks, *table, *hosts, where, host_ranks::small(), [](int) {},
      [](communicator& comm) -> cx::status {
        gpu::buffer<int> both(5000);
        gpu::stream stream;
        cx::status died;
        for (int calls = 0; died.ok() && calls < 1000; ++calls) {
          if (comm.rank() == 1 && calls == 3) ::raise(SIGKILL);
          died = one_sum(comm, both, 2, stream);
        }
        if (died.code() != cx::errc::peer_lost || died.rank() != 1) return check(false, comm, died.what());
        auto rest = comm.shrink(std::vector<int>{1});
        if (!rest) return rest.error();
        if (cx::status s = one_sum(*rest, both, 5, stream); !s) return s;
        return rest->barrier(ring);
      });
  ranks.wait();
  for (int r : {0, 2, 3}) CHECK_MESSAGE(ranks[r].code == 0, std::string(ranks[r].text));
}

TEST_CASE("a rank that is stopped while its group founds another: the others end at the deadline of that call") {
  auto const hosts = network::hosts::make(2);
  if (!hosts) return;
  auto table = cx::in_process_rendezvous::create(3);
  REQUIRE(table.has_value());
  std::atomic<int>* const ended = processes::shared<std::atomic<int>>();
  processes::group ranks(3);
  host_ranks::start(
      ranks, *table, *hosts, {0, 1, 0}, host_ranks::small(), [](int) {},
      [ended](communicator& comm) -> cx::status {
        cx::call_options hurry;
        hurry.timeout = std::chrono::milliseconds(500);
        if (comm.rank() == 1) standin::standin_kill_at(1, SIGSTOP);
        auto other = comm.split(0, 0, hurry);
        ++*ended;
        return other.error();
      });
  for (int looks = 0; *ended < 2 && looks < 50'000; ++looks) cx::detail::nap(1'000'000);
  ranks.kill(1);
  ranks.wait();
  for (int r : {0, 2}) {
    INFO(std::string(ranks[r].text));
    CHECK(ranks[r].code == static_cast<int>(cx::errc::timeout));
    CHECK(ranks[r].rank == 1);
    CHECK(ranks[r].seconds < 10);
  }
  ::munmap(ended, sizeof *ended);
}

TEST_CASE("FRK-01: a forked child that calls is told so, and one that lets go of its parent's communicator takes nothing with it") {
  host_ranks::run({0, 1, 0}, [](communicator& comm) -> cx::status {
    gpu::buffer<int> both(500);
    gpu::stream stream;
    if (cx::status s = one_sum(comm, both, 1, stream); !s) return s;
    auto sub = comm.duplicate();
    if (!sub) return sub.error();
    processes::group child(1);
    child.start([&]() -> cx::status {
      cx::status const s = comm.all_reduce(cx::in_place(both.all()), cx::sum{}, cudaStream_t{stream}, ring);
      { auto gone = std::move(*sub); }
      auto gone = std::move(comm);
      return s;
    });
    child.wait();
    bool const told = child[0].code == static_cast<int>(cx::errc::invalid_argument) && child[0].names("a forked child has to join anew");
    if (!told) return check(false, comm, child[0].text);
    for (int round = 0; round < 20; ++round) {
      if (cx::status s = one_sum(*sub, both, round, stream); !s) return s;
      if (cx::status s = one_sum(comm, both, round, stream); !s) return s;
    }
    return {};
  });
}
