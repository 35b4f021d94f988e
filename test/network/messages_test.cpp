// SPDX-License-Identifier: Apache-2.0
// compile: -O0
// labels: sanitize
// timeout: 120
/// Messages, groups of groups and calls that differ, over libfabric by each provider and over a mixed wire.
#include <collectx/libfabric.hpp>

#include <doctest/doctest.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "network/ready.hpp"
#include "processes.hpp"
#include "support/effort.hpp"
#include "support/in_background.hpp"
#include "support/sanitizers.hpp"

namespace cx = collectx;

namespace {

cx::status wrong(int rank, char const* what) { return cx::status::failure(cx::errc::system, rank, "rank %d: %s", rank, what); }

std::vector<std::int32_t> numbers(std::size_t count, int salt) {
  std::vector<std::int32_t> v(count);
  for (std::size_t i = 0; i < count; ++i) v[i] = static_cast<std::int32_t>(i * 7) + salt;
  return v;
}

/// f on three ranks, by each provider, and by a mixed wire.
template <class F>
void everywhere(F&& f) {
  std::vector<char const*> providers{"net"};
  if (!support::under_thread_sanitizer)
    providers.insert(providers.end(), {"tcp;ofi_rxm", "shm"});  // the library's own threads are the same
  for (char const* provider : providers) {
    CAPTURE(std::string(provider));
    cx::libfabric::options options;
    options.provider = provider;
    cx::status const s = cx::libfabric::run(3, options, f);
    CHECK_MESSAGE(s.ok(), std::string(s.what()));
  }
  cx::status const s = cx::composite::run(3, f);
  CHECK_MESSAGE(s.ok(), std::string(s.what()));
}

}  // namespace

TEST_CASE("messages of any size, in order per pair, round the ranks and back") {
  everywhere([](auto& comm) -> cx::status {
    int const next = (comm.rank() + 1) % comm.size(), previous = (comm.rank() + comm.size() - 1) % comm.size();
    for (std::size_t count : std::vector<std::size_t>{0, 1, 3, 40, 17000, 800000}) {
      for (int round = 0; round < 3; ++round) {
        std::vector<std::int32_t> const out = numbers(count, comm.rank() + round);
        std::vector<std::int32_t> in(count);
        if (cx::status s = comm.send_recv(out, next, in, previous); !s) return s;
        if (in != numbers(count, previous + round)) return wrong(comm.rank(), "another message arrived");
      }
    }
    return comm.barrier();
  });
}

TEST_CASE("a short message needs no receiver, and is there for one who comes late, after its sender has left") {
  everywhere([](auto& comm) -> cx::status {
    std::vector<std::int32_t> const out = numbers(5, 1);
    if (comm.rank() == 0) return comm.send(out, 2);
    if (comm.rank() == 1) return {};
    cx::detail::nap(300'000'000);
    std::vector<std::int32_t> in(5);
    if (cx::status s = comm.recv(in, 0); !s) return s;
    return in == out ? cx::status{} : wrong(comm.rank(), "another message arrived");
  });
}

TEST_CASE("who waits for a message of one that has left hears so") {
  everywhere([](auto& comm) -> cx::status {
    if (comm.rank() != 2) return {};
    std::vector<std::int32_t> in(5);
    cx::status const s = comm.recv(in, 0);
    if (s.code() == cx::errc::peer_lost && s.rank() == 0) return {};
    return wrong(comm.rank(), s.what());
  });
}

TEST_CASE("SPL: groups of a group do not mix their messages, and leave no descriptor behind") {
  everywhere([](auto& comm) -> cx::status {
    std::size_t descriptors = 0;
    for (int round = 0, rounds = support::everything() ? 100 : 12; round < rounds; ++round) {
      auto pair = comm.split(comm.rank() == 1 ? 1 : 0, -comm.rank());
      if (!pair) return pair.error();
      auto twin = comm.duplicate();
      if (!twin) return twin.error();
      std::vector<std::int32_t> few(100, comm.rank()), all(100, comm.rank());
      if (cx::status s = twin->all_reduce(cx::in_place(all), cx::sum{}); !s) return s;
      if (cx::status s = pair->all_reduce(cx::in_place(few), cx::sum{}); !s) return s;
      if (all[99] != 3 || few[99] != (comm.rank() == 1 ? 1 : 2)) return wrong(comm.rank(), "a wrong sum");
      if (comm.rank() != 1 && pair->rank() != (comm.rank() == 2 ? 0 : 1)) return wrong(comm.rank(), "the order of the keys is not kept");
      if (round == 3) descriptors = processes::count_in("/proc/self/fd");
    }
    if (processes::count_in("/proc/self/fd") > descriptors) return wrong(comm.rank(), "descriptors are left");
    return comm.barrier();
  });
}

TEST_CASE("ranks that make different calls all hear of both") {
  everywhere([](auto& comm) -> cx::status {
    std::vector<std::int32_t> in(1000), out(1000);
    cx::status s;
    for (int calls = 0; s.ok() && calls < 4; ++calls) {  // who is still in the first, which is alike, may hear of the second there
      s = comm.rank() == 1 && calls > 0 ? comm.all_reduce(std::span(in).first(999), std::span(out).first(999), cx::sum{}, cx::algo::ring{})
                                        : comm.all_reduce(in, out, cx::sum{}, cx::algo::ring{});
    }
    std::string const text = s.what();
    bool const both = text.find("999") != text.npos && text.find("1000") != text.npos;
    return s.code() == cx::errc::mismatch && both ? cx::status{} : wrong(comm.rank(), text.c_str());
  });
}

TEST_CASE("abort ends everybody's call, with the reason") {
  everywhere([](auto& comm) -> cx::status {
    if (comm.rank() == 2) {
      cx::detail::nap(50'000'000);
      static_cast<void>(comm.abort(cx::status::failure(cx::errc::aborted, 2, "no more rice")));
      return {};
    }
    cx::status const s = comm.barrier();
    return s.code() == cx::errc::aborted && std::string(s.what()).find("no more rice") != std::string::npos ? cx::status{}
                                                                                                            : wrong(comm.rank(), s.what());
  });
}

TEST_CASE("DIE: abort from another thread ends everybody's call") {
  everywhere([](auto& comm) -> cx::status {
    std::thread other;
    if (comm.rank() == 0) {
      other = std::thread([&] {
        cx::detail::nap(50'000'000);
        static_cast<void>(comm.abort(cx::status::failure(cx::errc::aborted, 0, "enough")));
      });
    }
    std::vector<std::int32_t> in(3);
    cx::status const s = comm.rank() == 1 ? comm.recv(in, 2) : comm.barrier();
    if (other.joinable()) other.join();
    return s.code() == cx::errc::aborted ? cx::status{} : wrong(comm.rank(), s.what());
  });
}

TEST_CASE("what was started goes on by itself with a helper, whatever its rank does meanwhile") {
  std::atomic<int>* const through = processes::shared<std::atomic<int>>();
  everywhere([&](auto& comm) -> cx::status {
    if (cx::status s = support::computes_meanwhile(comm, *through); !s) return s;
    if (cx::status s = comm.barrier(); !s) return s;
    *through = 0;
    return support::calls_beside_a_helper(comm, 10);
  });
  ::munmap(through, sizeof *through);
}

TEST_CASE("FRK-01: a forked child that calls is told so, and one that lets go of its parent's communicator takes nothing with it") {
  everywhere([](auto& comm) -> cx::status {
    std::vector<std::int32_t> both(100, 1);
    if (cx::status s = comm.all_reduce(cx::in_place(both), cx::sum{}); !s) return s;
    auto child_owns = comm.duplicate();
    if (!child_owns) return child_owns.error();
    if (cx::status s = child_owns->barrier(); !s) return s;
    ::pid_t const child = ::fork();
    if (child == 0) {
      ::alarm(30);
      cx::status const s = child_owns->all_reduce(cx::in_place(both), cx::sum{});
      bool const told =
          s.code() == cx::errc::invalid_argument && std::string(s.what()).find("a forked child has to join anew") != std::string::npos;
      { auto gone = std::move(*child_owns); }
      ::_exit(told ? 0 : 1);
    }
    int state = 0;
    ::waitpid(child, &state, 0);
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0) return wrong(comm.rank(), "the child was not told");
    cx::call_options options;
    options.timeout = std::chrono::seconds(10);
    for (int round = 0; round < 100; ++round) {
      both.assign(100, comm.rank() + round);
      if (cx::status s = child_owns->all_reduce(cx::in_place(both), cx::sum{}, cx::algo::automatic{}, options); !s) return s;
      if (both[99] != 3 + 3 * round) return wrong(comm.rank(), "a wrong sum");
    }
    return {};
  });
}

TEST_CASE("ORD-02: a long message that is not of the length its receiver expects is not written, and named to all") {
  everywhere([](auto& comm) -> cx::status {
    std::vector<std::int32_t> const out = numbers(17000, 1);
    std::vector<std::int32_t> in(17000, -1);
    cx::status s;
    if (comm.rank() == 0) s = comm.send(out, 1);
    if (comm.rank() == 1) s = comm.recv(std::span(in).first(800), 0);
    if (s.ok()) s = comm.barrier();
    if (std::count(in.begin(), in.end(), -1) != 17000) return wrong(comm.rank(), "it has written");
    bool const both = std::string(s.what()).find("(17000 int32), rank 1 expects 3200 bytes (800 int32)") != std::string::npos;
    return s.code() == cx::errc::mismatch && both ? cx::status{} : wrong(comm.rank(), s.what());
  });
}

TEST_CASE("DIE-07: a short send that was started has left, even if its communicator goes at once") {
  everywhere([](auto& comm) -> cx::status {
    for (int round = 0; round < 3; ++round) {
      std::vector<std::int32_t> const out = numbers(16, round);
      auto twin = comm.duplicate();
      if (!twin) return twin.error();
      if (comm.rank() == 0) {
        auto sending = twin->plan_send(out, 1);
        if (cx::status s = sending.start(); !s) return s;
        auto gone = std::move(*twin);
      }
      if (comm.rank() != 1) continue;
      cx::detail::nap(round * 30'000'000);
      std::vector<std::int32_t> in(16);
      if (cx::status s = twin->recv(in, 0); !s) return s;
      if (in != out) return wrong(1, "another message arrived");
    }
    return comm.barrier();
  });
}

TEST_CASE("NET-08: signals without SA_RESTART every millisecond disturb neither a founding nor 16 MiB each way") {
  everywhere([](auto& comm) -> cx::status {
    struct ::sigaction quiet {};
    quiet.sa_handler = [](int) {};
    ::sigaction(SIGALRM, &quiet, nullptr);
    ::itimerval const often{{0, 1000}, {0, 1000}};
    ::setitimer(ITIMER_REAL, &often, nullptr);
    constexpr std::size_t count = std::size_t{4} << 20, page = 1024;
    int const next = (comm.rank() + 1) % comm.size(), previous = (comm.rank() + comm.size() - 1) % comm.size();
    std::vector<std::int32_t> out(count), expected(count), in(count, -1);
    auto const number = [](std::vector<std::int32_t>& v, int rank) {
      for (std::size_t i = 0; i < count; i += page) v[i + static_cast<std::size_t>(rank)] = static_cast<std::int32_t>(i);
    };
    number(out, comm.rank());
    number(expected, previous);
    auto twin = comm.duplicate();
    if (!twin) return twin.error();
    if (cx::status s = twin->send_recv(out, next, in, previous); !s) return s;
    if (std::memcmp(in.data(), expected.data(), count * sizeof in[0]) != 0) return wrong(comm.rank(), "another message arrived");
    for (int round = 0; round < 100; ++round) {
      std::vector<std::int32_t> both(5, comm.rank() + round);
      if (cx::status s = twin->all_reduce(cx::in_place(both), cx::sum{}); !s) return s;
      if (both[4] != 3 + 3 * round) return wrong(comm.rank(), "a wrong sum");
    }
    return {};
  });
}

TEST_CASE("memory of a call that has failed is its caller's again") {
  everywhere([](auto& comm) -> cx::status {
    std::size_t const bytes = std::size_t{8} << 20;
    cx::call_options options;
    options.timeout = std::chrono::milliseconds(300);
    if (comm.rank() != 0) {
      cx::detail::nap(400'000'000);  // and takes nothing of it
      std::vector<std::byte> in(bytes);
      cx::status const s = comm.rank() == 1 ? comm.recv(in, 0) : comm.barrier();
      return s.code() == cx::errc::timeout ? cx::status{} : wrong(comm.rank(), s.what());
    }
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) return wrong(0, "no memory");
    cx::status const s = comm.send(std::span(static_cast<std::byte const*>(memory), bytes), 1, options);
    ::munmap(memory, bytes);  // whoever still read from it would end here
    return s.code() == cx::errc::timeout ? cx::status{} : wrong(0, s.what());
  });
}

TEST_CASE("what a planned call has sent may be changed when test() says that it has ended, and not earlier has it said so") {
  everywhere([](auto& comm) -> cx::status {
    std::size_t const count = 400'000;
    std::vector<std::int32_t> mine = numbers(count, comm.rank()), theirs(count);
    if (cx::status s = comm.barrier(); !s) return s;
    if (comm.rank() == 0) {
      auto message = comm.plan_send(mine, 1);
      if (cx::status s = message.start(); !s) return s;
      for (bool ended = false; !ended;) {
        cx::result<bool> now = message.test();
        if (!now) return now.error();
        ended = now.value();
      }
      std::fill(mine.begin(), mine.end(), -1);
    } else if (comm.rank() == 1) {
      cx::detail::nap(100'000'000);  // takes nothing off the network meanwhile
      if (cx::status s = comm.recv(theirs, 0); !s) return s;
      if (theirs != numbers(count, 0)) return wrong(1, "what was written after the end of the call has come");
    }
    auto sum = comm.plan_all_reduce(mine, theirs, cx::sum{}, cx::algo::direct{});
    std::fill(mine.begin(), mine.end(), comm.rank() + 1);
    if (comm.rank() == 2) cx::detail::nap(100'000'000);
    if (cx::status s = sum.start(); !s) return s;
    for (bool ended = false; !ended;) {
      cx::result<bool> now = sum.test();
      if (!now) return now.error();
      ended = now.value();
    }
    std::fill(mine.begin(), mine.end(), -1);
    return std::count(theirs.begin(), theirs.end(), 6) == static_cast<std::ptrdiff_t>(count) ? comm.barrier() : wrong(comm.rank(), "sum");
  });
}

TEST_CASE("MEM-01: what is sent, and what is received, comes and goes at one address") {
  everywhere([](auto& comm) -> cx::status {
    std::size_t const count = std::size_t{1} << 16;
    void* const place = ::mmap(nullptr, count * 4, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::munmap(place, count * 4);
    int const next = (comm.rank() + 1) % comm.size(), previous = (comm.rank() + comm.size() - 1) % comm.size();
    for (std::int32_t i = 1; i <= 50; ++i) {
      void* const memory =
          ::mmap(place, count * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_POPULATE, -1, 0);
      if (memory == MAP_FAILED) return wrong(comm.rank(), "the address is taken");
      std::span<std::int32_t> const mine(static_cast<std::int32_t*>(memory), count / 2), theirs(mine.data() + count / 2, count / 2);
      std::fill(mine.begin(), mine.end(), i * 10 + comm.rank());
      if (cx::status s = comm.send_recv(mine, next, theirs, previous); !s) return s;
      bool right = std::count(theirs.begin(), theirs.end(), i * 10 + previous) == static_cast<std::ptrdiff_t>(theirs.size());
      if (cx::status s = comm.all_reduce(cx::in_place(mine), cx::sum{}); !s) return s;
      right = right && std::count(mine.begin(), mine.end(), i * 30 + 3) == static_cast<std::ptrdiff_t>(mine.size());
      if (cx::status s = comm.all_reduce(mine, theirs, cx::sum{}); !s) return s;
      right = right && std::count(theirs.begin(), theirs.end(), i * 90 + 9) == static_cast<std::ptrdiff_t>(theirs.size());
      ::munmap(memory, count * 4);
      if (!right) return wrong(comm.rank(), "old data");
    }
    return {};
  });
}
