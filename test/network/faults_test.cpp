// SPDX-License-Identifier: Apache-2.0
// compile: -O0
// labels: faults
// timeout: 300
/// Somebody is killed or stopped at every message of every collective, or a cable is cut: everybody else says who, and goes on without.
#include <collectx/libfabric.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "network/hosts.hpp"
#include "network/ready.hpp"
#include "processes.hpp"
#include "support/doomed.hpp"
#include "support/effort.hpp"
#include "support/seed.hpp"

namespace cx = collectx;

namespace {

enum class collective { all_reduce, reduce_scatter, all_gather, broadcast, reduce, barrier };
constexpr collective all_collectives[] = {collective::all_reduce, collective::reduce_scatter, collective::all_gather,
                                          collective::broadcast,  collective::reduce,         collective::barrier};
constexpr char const* collective_names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "barrier"};

template <class Tr>
cx::status perform(cx::communicator<Tr>& comm, collective what, cx::call_options const& options) {
  std::size_t const n = static_cast<std::size_t>(comm.size()), count = 3000;
  std::vector<std::int32_t> few(count, comm.rank()), many(count * n, comm.rank()), result(count);
  switch (what) {
    case collective::all_reduce:
      return comm.all_reduce(cx::in_place(few), cx::sum{}, cx::algo::ring{}, options);
    case collective::reduce_scatter:
      return comm.reduce_scatter(many, few, cx::sum{}, cx::algo::ring{}, options);
    case collective::all_gather:
      return comm.all_gather(few, many, cx::algo::recursive_halving{}, options);
    case collective::broadcast:
      return comm.broadcast(few, 0, cx::algo::double_binary_tree{}, options);
    case collective::reduce:
      return comm.reduce(few, result, cx::sum{}, 0, cx::algo::double_binary_tree{}, options);
    default:
      return comm.barrier(cx::algo::direct{}, options);
  }
}

/// The sum over all ranks of their first rank numbers, right everywhere.
template <class Tr>
cx::status all_is_well(cx::communicator<Tr>& comm) {
  std::vector<std::int32_t> in(5000, comm.rank() + 1), out(5000);
  if (cx::status s = comm.all_reduce(in, out, cx::sum{}); !s) return s;
  std::int32_t const right = comm.size() * (comm.size() + 1) / 2;
  if (std::count(out.begin(), out.end(), right) == 5000) return {};
  return cx::status::failure(cx::errc::system, comm.rank(), "rank %d has a wrong sum", comm.rank());
}

struct end {
  collective what;
  int victim;
  int at;      ///< message
  int signal;  ///< SIGKILL or SIGSTOP
};
constexpr double stop_deadline = 0.5;

/// A survivor, from the first call to the last.
template <class Tr>
cx::status survive(cx::communicator<Tr>& comm, end const& e) {
  cx::call_options options;
  if (e.signal == SIGSTOP) options.timeout = std::chrono::milliseconds(500);
  cx::status s;
  std::int64_t begun = 0;
  // Who has done its part before the end does not hear of it in this call, but in the next.
  for (int calls = 0; s.ok() && calls < 100; ++calls) {
    begun = cx::detail::monotonic_now();
    s = perform(comm, e.what, options);
  }
  double const seconds = static_cast<double>(cx::detail::monotonic_now() - begun) * 1e-9;
  cx::errc const expected = e.signal == SIGSTOP ? cx::errc::timeout : cx::errc::peer_lost;
  if (s.code() != expected || s.rank() != e.victim) {
    return cx::status::failure(cx::errc::system, comm.rank(), "rank %d blames %d: %.250s", comm.rank(), s.rank(), s.what());
  }
  if (seconds > 1 + (e.signal == SIGSTOP ? stop_deadline : 0)) {
    return cx::status::failure(cx::errc::system, comm.rank(), "rank %d heard of it after %.2f s: %.250s", comm.rank(), seconds, s.what());
  }
  auto rest = comm.shrink(std::vector<int>{e.victim});
  if (!rest) return rest.error();
  return all_is_well(*rest);
}

template <class Tr, class Options>
void meet_end(int n, Options const& options, end const& e) {
  CAPTURE(std::string(collective_names[static_cast<int>(e.what)]));
  CAPTURE(e.victim);
  CAPTURE(e.at);
  CAPTURE(e.signal);
  auto table = cx::in_process_rendezvous::create(n);
  REQUIRE(table.has_value());
  std::atomic<int>* const survivors = processes::shared<std::atomic<int>>();
  processes::group ranks(n);
  for (int r = 0; r < n; ++r) {
    ranks.start([&, r]() -> cx::status {
      auto rendezvous = table->of(r);
      cx::result<Tr> wire = Tr::join(rendezvous, options);
      if (!wire) return wire.error();
      if (r == e.victim) {
        cx::communicator<support::doomed<Tr>> comm(support::doomed<Tr>(std::move(*wire), e.at, e.signal));
        cx::status s;
        for (int calls = 0; s.ok() && calls < 100; ++calls) s = perform(comm, e.what, {});
        return s;
      }
      cx::communicator<Tr> comm(std::move(*wire));
      cx::status const s = survive(comm, e);
      ++*survivors;
      return s;
    });
  }
  // A stopped process ends when the others have gone on without it.
  for (int looks = 0; *survivors < n - 1 && looks < 50'000; ++looks) cx::detail::nap(1'000'000);
  ranks.kill(e.victim);
  ranks.wait();
  for (int r = 0; r < n; ++r) {
    if (r != e.victim) CHECK_MESSAGE(ranks[r].code == 0, std::string(ranks[r].text));
  }
  ::munmap(survivors, sizeof *survivors);
}

/// Names of segments that a provider of libfabric has made.
std::size_t segments() {
  std::vector<std::string> const names = processes::names_in("/dev/shm");
  return static_cast<std::size_t>(std::count_if(names.begin(), names.end(), [](std::string const& n) { return n.find(':') != n.npos; }));
}

/// Every collective, victim and message; or some of them, by the seed.
template <class Tr, class Options>
void matrix(Options const& options) {
  constexpr int n = 4, messages = 12;
  std::size_t const names_before = segments(), descriptors = processes::count_in("/proc/self/fd");
  support::random_stream random(support::seed());
  for (collective what : all_collectives) {
    for (int signal : {SIGKILL, SIGSTOP}) {
      for (int victim = 0; victim < n; ++victim) {
        for (int at = 0; at < messages; ++at) {
          if (!support::everything() && random.below(signal == SIGKILL ? 48 : 96) != 0) continue;
          meet_end<Tr>(n, options, {what, victim, at, signal});
        }
      }
    }
  }
  CHECK(segments() == names_before);
  CHECK(processes::count_in("/proc/self/fd") == descriptors);
}

/// Two hosts, `where` says which rank is on which; the cable is pulled while all are calling.
template <class Tr, class Options>
void pull_the_cable(std::vector<int> const& where, Options const& options, collective what) {
  auto const hosts = network::hosts::make(2);
  if (!hosts) return;
  int const n = static_cast<int>(where.size());
  CAPTURE(std::string(collective_names[static_cast<int>(what)]));
  auto table = cx::in_process_rendezvous::create(n);
  REQUIRE(table.has_value());
  std::atomic<int>* const calling = processes::shared<std::atomic<int>>();
  processes::group ranks(n);
  for (int r = 0; r < n; ++r) {
    ranks.start([&, r]() -> cx::status {
      if (!hosts->enter(where[static_cast<std::size_t>(r)])) return cx::status::system(errno, "no host");
      auto rendezvous = table->of(r);
      cx::result<Tr> wire = Tr::join(rendezvous, options);
      if (!wire) return wire.error();
      cx::communicator<Tr> comm(std::move(*wire));
      cx::status s;
      for (int calls = 0; s.ok(); ++calls) {
        if (calls == 3) ++*calling;
        s = perform(comm, what, {});
      }
      std::vector<int> beyond;
      for (int q = 0; q < n; ++q)
        if (where[static_cast<std::size_t>(q)] != where[static_cast<std::size_t>(r)]) beyond.push_back(q);
      if (s.code() != cx::errc::peer_lost || comm.lost() != beyond || s.rank() != beyond.front()) {
        return cx::status::failure(cx::errc::system, r, "rank %d has lost %zu: %.250s", r, comm.lost().size(), s.what());
      }
      auto rest = comm.shrink(beyond);
      if (!rest) return rest.error();
      return all_is_well(*rest);
    });
  }
  for (int looks = 0; *calling < n && looks < 50'000; ++looks) cx::detail::nap(1'000'000);
  hosts->cut(1);
  ranks.wait();
  for (int r = 0; r < n; ++r) CHECK_MESSAGE(ranks[r].code == 0, std::string(ranks[r].text));
  ::munmap(calling, sizeof *calling);
}

cx::libfabric_options by(char const* provider) {
  cx::libfabric_options options;
  options.provider = provider;
  return options;
}

}  // namespace

TEST_CASE("DIE: shared memory, every collective, a rank killed or stopped at a message") {
  matrix<cx::shared_memory_transport>(cx::transport_options{});
}
TEST_CASE("DIE: libfabric net, every collective, a rank killed or stopped at a message") { matrix<cx::libfabric_transport>(by("net")); }
TEST_CASE("DIE: libfabric tcp;ofi_rxm, every collective, a rank killed or stopped at a message") {
  matrix<cx::libfabric_transport>(by("tcp;ofi_rxm"));
}
TEST_CASE("DIE: libfabric shm, every collective, a rank killed or stopped at a message") { matrix<cx::libfabric_transport>(by("shm")); }
TEST_CASE("DIE: composite, every collective, a rank killed or stopped at a message") {
  matrix<cx::composite_transport>(cx::composite_options{});
}

TEST_CASE("DIE-01: a process leaves without a word between two communicators: the other hears of it on the second, at once") {
  for (char const* provider : {"net", "tcp;ofi_rxm", "shm"}) {
    for (int gone : {0, 1}) {
      CAPTURE(std::string(provider));
      CAPTURE(gone);
      auto first = cx::in_process_rendezvous::create(2), second = cx::in_process_rendezvous::create(2);
      REQUIRE((first && second));
      processes::group ranks(2);
      for (int r : {0, 1}) {
        ranks.start([&, r]() -> cx::status {
          auto one = cx::libfabric::join(first->of(r), by(provider));
          auto two = cx::libfabric::join(second->of(r), by(provider));
          if (!one) return one.error();
          if (!two) return two.error();
          if (cx::status s = one->barrier(); !s) return s;
          if (r == gone) ::_exit(86);
          std::vector<std::int32_t> both(1000);
          return two->all_reduce(cx::in_place(both), cx::sum{});  // the first that travels here
        });
      }
      ranks.wait();
      CHECK_MESSAGE(ranks[1 - gone].code == static_cast<int>(cx::errc::peer_lost), std::string(ranks[1 - gone].text));
      CHECK(ranks[1 - gone].rank == gone);
      CHECK(ranks[1 - gone].seconds < 20);  // long before any deadline
    }
  }
}

TEST_CASE("a cut cable: each side names the ranks beyond, and goes on by itself") {
  cx::libfabric_options wire = by("net");
  wire.link_timeout = std::chrono::seconds(2);
  cx::composite_options mixed;
  mixed.between = wire;
  for (collective what : all_collectives) {
    if (!support::everything() && what != collective::all_reduce && what != collective::broadcast) continue;
    pull_the_cable<cx::composite_transport>({0, 1, 1, 0}, mixed, what);
    pull_the_cable<cx::libfabric_transport>({0, 1, 0}, wire, what);
  }
}
