// SPDX-License-Identifier: Apache-2.0
/// Two hosts of two ranks each, joined by a slow link: what a hierarchical all-reduce gains over a flat ring, and what the bytes over the
/// link predict.
#include <collectx/collectx.hpp>
#include <collectx/libfabric.hpp>

#include <sys/mman.h>
#include <sys/wait.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "delay_link.hpp"

namespace cx = collectx;

namespace {

// In stripes, since each step of a ring waits for the delay of the link. The groups of two levels are the hosts.
using flat = cx::algo::striped<cx::algo::ring>;
using two_levels = cx::algo::striped<cx::algo::hierarchical<cx::algo::ring, cx::algo::ring>>;

struct wishes {
  std::size_t bytes = std::size_t{16} << 20;
  int rounds = 5;
  double megabits = 1000, delay_us = 100;
  std::size_t slot_bytes = cx::composite::options{}.between.slot_bytes;
  std::string csv;
};

/// What the ranks hand to the parent.
struct sheet {
  static constexpr int most_rounds = 64;
  double seconds[2][most_rounds][4];  // flat, hierarchical
  int wrong;
};

struct placement {
  char const* name;
  int host[4];
  double predicted;
};
/// Each way over the link, in vectors: the ring 1.5 for A,A,B,B and 3 for A,B,A,B; two levels 1 for both.
constexpr placement placements[] = {{"A,A,B,B", {0, 0, 1, 1}, 1.5}, {"A,B,A,B", {0, 1, 0, 1}, 3.0}};

/// The two hosts and the cable between them, as long as this lives.
class setting {
 public:
  explicit setting(wishes const& w) {
    good_ = std::system(("ip netns add " + space(0) + " && ip netns add " + space(1)).c_str()) == 0;
    if (!good_) return;
    int plugged[2];
    if (::pipe2(plugged, O_CLOEXEC) != 0) return;
    cable_ = ::fork();
    if (cable_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      slow_link::delay_link link(w.delay_us * 1e3, w.megabits * 1e6);
      if (!link.attach(0, space(0), "10.78.0.1") || !link.attach(1, space(1), "10.78.0.2")) ::_exit(1);
      static_cast<void>(!::write(plugged[1], "", 1));
      link.run();
    }
    ::close(plugged[1]);
    char byte;
    good_ = ::read(plugged[0], &byte, 1) == 1;
    ::close(plugged[0]);
  }
  setting(setting const&) = delete;
  ~setting() {
    if (cable_ > 0) {
      ::kill(cable_, SIGKILL);
      ::waitpid(cable_, nullptr, 0);
    }
    for (int host : {0, 1}) static_cast<void>(std::system(("ip netns del " + space(host)).c_str()));
  }
  bool good() const { return good_; }
  std::string space(int host) const { return "cxslow" + std::to_string(maker_) + "h" + std::to_string(host); }

 private:
  ::pid_t maker_ = ::getpid();
  ::pid_t cable_ = -1;
  bool good_ = false;
};

cx::status measure(cx::communicator<cx::composite_transport>& comm, wishes const& w, sheet& out) {
  std::size_t const count = w.bytes / sizeof(float);
  std::vector<float> in(count), result(count);
  for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<float>(comm.rank() + static_cast<int>(i % 5));
  for (int round = -1; round < w.rounds; ++round) {  // the first warms up
    for (int kind : {0, 1}) {
      if (cx::status s = comm.barrier(); !s) return s;
      std::int64_t const begun = cx::detail::monotonic_now();
      cx::status const s =
          kind == 0 ? comm.all_reduce(in, result, cx::sum{}, flat{}) : comm.all_reduce(in, result, cx::sum{}, two_levels{});
      if (!s) return s;
      double const seconds = static_cast<double>(cx::detail::monotonic_now() - begun) * 1e-9;
      if (round >= 0) out.seconds[kind][round][comm.rank()] = seconds;
      for (std::size_t i = 0; i < count; ++i) out.wrong += result[i] != static_cast<float>(6 + 4 * static_cast<int>(i % 5));
    }
  }
  return {};
}

double median_of_slowest(double const (&rounds)[sheet::most_rounds][4], int count) {
  std::vector<double> slowest;
  for (int r = 0; r < count; ++r) slowest.push_back(*std::max_element(rounds[r], rounds[r] + 4));
  std::sort(slowest.begin(), slowest.end());
  return slowest[slowest.size() / 2];
}

bool run(setting const& hosts, placement const& where, wishes const& w, sheet& out) {
  auto table = cx::in_process_rendezvous::create(4);
  if (!table) return false;
  std::vector<::pid_t> ranks;
  for (int r = 0; r < 4; ++r) {
    ::pid_t const rank = ::fork();
    if (rank == 0) {
      ::alarm(300);
      if (!slow_link::enter(hosts.space(where.host[r]))) ::_exit(1);
      cx::status failed;
      {
        cx::composite::options options;
        options.between.slot_bytes = w.slot_bytes;
        auto comm = cx::composite::join(table->of(r), options);
        failed = comm ? measure(*comm, w, out) : comm.error();
        if (!failed && comm) static_cast<void>(comm->abort(failed));
      }
      if (!failed) std::fprintf(stderr, "slow_link: %s\n", failed.what());
      ::_exit(failed.ok() ? 0 : 1);
    }
    ranks.push_back(rank);
  }
  bool good = true;
  for (::pid_t rank : ranks) {
    int state = 0;
    ::waitpid(rank, &state, 0);
    good = good && state == 0;
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  wishes w;
  CLI::App app("all-reduce of four ranks on two hosts over a slow link: flat ring against two levels");
  app.add_option("--bytes", w.bytes, "of the vector")->check(CLI::Range(4096, 1 << 28))->capture_default_str();
  app.add_option("--rounds", w.rounds, "interleaved; the median counts")->check(CLI::Range(1, sheet::most_rounds))->capture_default_str();
  app.add_option("--mbit", w.megabits, "rate of the link, each way")->check(CLI::Range(10.0, 10000.0))->capture_default_str();
  app.add_option("--delay-us", w.delay_us, "of the link, one way")->check(CLI::Range(0.0, 1e6))->capture_default_str();
  app.add_option("--slot-bytes", w.slot_bytes, "of the transport")->capture_default_str();
  app.add_option("--csv", w.csv, "a file for the table");
  CLI11_PARSE(app, argc, argv);
  if (::geteuid() != 0) {
    std::fprintf(stderr, "slow_link: network namespaces need root\n");
    return 1;
  }

  void* const shared = ::mmap(nullptr, sizeof(sheet), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  sheet& out = *static_cast<sheet*>(shared);

  setting const hosts(w);
  if (!hosts.good()) {
    std::fprintf(stderr, "slow_link: network namespaces or TUN devices cannot be made here\n");
    return 1;
  }
  std::string table = "placement,bytes,flat_ms,two_level_ms,ratio,predicted\n";
  std::printf("# all_reduce of %zu bytes, 4 ranks on 2 hosts, %g Mbit/s each way, %g us one way; median of %d rounds\n", w.bytes,
              w.megabits, w.delay_us, w.rounds);
  std::printf("%-10s %12s %14s %8s %10s\n", "placement", "ring (ms)", "two levels (ms)", "ratio", "predicted");
  bool good = true;
  for (placement const& where : placements) {
    if (!run(hosts, where, w, out)) return 1;
    double const flat = median_of_slowest(out.seconds[0], w.rounds) * 1e3, levels = median_of_slowest(out.seconds[1], w.rounds) * 1e3;
    std::printf("%-10s %12.1f %14.1f %8.2f %10.2f\n", where.name, flat, levels, flat / levels, where.predicted);
    char line[160];
    std::snprintf(line, sizeof line, "\"%s\",%zu,%.3f,%.3f,%.3f,%.2f\n", where.name, w.bytes, flat, levels, flat / levels, where.predicted);
    table += line;
    good = good && out.wrong == 0;
  }
  std::printf("# wrong elements: %d\n", out.wrong);
  if (!w.csv.empty()) std::ofstream(w.csv) << table;
  return good ? 0 : 1;
}
