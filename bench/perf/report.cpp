// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <fstream>

namespace perf {
namespace {

char const* redop(job const& what) { return reduces(what.what) ? name(what.op) : "none"; }
std::string wire_of(settings const& all) { return name(all.transport) + (all.provider.empty() ? "" : ":" + all.provider); }
int root(job const& what) { return has_root(what.what) ? what.root : -1; }

void print_measurement(settings const& all, row const& r, collective what, measurement const& m) {
  if (!m.offered) {
    std::printf("  %9s %7s %7s %6s", "N/A", "N/A", "N/A", "N/A");
    return;
  }
  bandwidth const b = bandwidth_of(what, all.ranks, r.bytes, m.seconds);
  std::printf("  %9.2f %7.2f %7.2f ", m.seconds * 1e6, b.algorithm, b.bus);
  if (all.checked == 0)
    std::printf("%6s", "N/A");
  else
    std::printf("%6lld", static_cast<long long>(m.wrong));
}

nlohmann::json to_json(settings const& all, row const& r, collective what, measurement const& m) {
  if (!m.offered) return nullptr;
  bandwidth const b = bandwidth_of(what, all.ranks, r.bytes, m.seconds);
  nlohmann::json out{{"time_us", m.seconds * 1e6}, {"algbw", b.algorithm}, {"busbw", b.bus}, {"wrong", nullptr}};
  if (all.checked > 0) out["wrong"] = m.wrong;
  return out;
}

/// Runs the interpreter with `input` on its standard input; true if it left with 0. Silent where `quiet`.
bool run_python(std::string const& python, std::vector<std::string> const& arguments, std::string const& input, bool quiet) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  std::fflush(nullptr);
  ::pid_t const child = ::fork();
  if (child == 0) {
    ::dup2(ends[0], 0);
    if (quiet) {
      int const nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
      ::dup2(nowhere, 1);
      ::dup2(nowhere, 2);
    }
    std::vector<char*> words{const_cast<char*>(python.c_str())};
    for (std::string const& a : arguments) words.push_back(const_cast<char*>(a.c_str()));
    words.push_back(nullptr);
    ::execv(python.c_str(), words.data());
    ::_exit(127);
  }
  ::close(ends[0]);
  for (std::size_t at = 0; child > 0 && at < input.size();) {
    ssize_t const written = ::write(ends[1], input.data() + at, input.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) break;
    at += static_cast<std::size_t>(written);
  }
  ::close(ends[1]);
  int state = -1;
  while (child > 0 && ::waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  return child > 0 && WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

}  // namespace

surroundings look_around(collectx::transport_options const& chosen) {
  surroundings here{"unknown processor", 1, chosen.slots, chosen.slot_bytes, chosen.lanes};
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    std::size_t const colon = line.find(": ");
    if (line.rfind("model name", 0) != 0 || colon == std::string::npos) continue;
    here.processor = line.substr(colon + 2);
    break;
  }
  ::cpu_set_t mine;
  if (::sched_getaffinity(0, sizeof mine, &mine) == 0) here.cores = static_cast<unsigned>(CPU_COUNT(&mine));
  return here;
}

void print_header(settings const& all, surroundings const& here) {
  int const version = COLLECTX_VERSION;
  std::printf("# collectx_perf %d.%d.%d on %s, %u cores\n", version / 10000, version / 100 % 100, version % 100, here.processor.c_str(),
              here.cores);
  std::printf("# %s, %d ranks (%s), %d slots of %zu bytes per channel, %d lanes\n", wire_of(all).c_str(), all.ranks,
              all.transport == wire::loopback ? "threads" : "processes", here.slots, here.slot_bytes, here.lanes);
  char iterations[32];
  std::snprintf(iterations, sizeof iterations, "%d", all.iterations);
  std::printf("# median of %d batches of %s calls after %d to warm up, slowest rank; %d checked\n", all.batches,
              all.iterations > 0 ? iterations : "about 5 ms of", all.warmup, all.checked);
}

void print_titles(job const& what) {
  std::printf("#\n# %s by %s\n", name(what.what), what.algorithm);
  std::printf("#%53s  %32s  %32s\n", "", "out-of-place          ", "in-place            ");
  std::printf("#%11s %12s %8s %8s %5s      %9s %7s %7s %6s  %9s %7s %7s %6s\n", "size", "count", "type", "redop", "root", "time", "algbw",
              "busbw", "#wrong", "time", "algbw", "busbw", "#wrong");
  std::printf("#%11s %12s %8s %8s %5s      %9s %7s %7s %6s  %9s %7s %7s %6s\n", "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)",
              "", "(us)", "(GB/s)", "(GB/s)", "");
}

void print_row(job const& what, row const& r) {
  std::printf(" %11zu %12zu %8s %8s %5d    ", r.bytes, r.count, name(what.type), redop(what), root(what));
  print_measurement(*what.all, r, what.what, r.out_of_place);
  print_measurement(*what.all, r, what.what, r.in_place);
  std::printf("\n");
  std::fflush(stdout);
}

std::int64_t count_wrong(std::vector<finished_job> const& jobs) {
  std::int64_t wrong = 0;
  for (finished_job const& j : jobs)
    for (row const& r : j.rows) wrong += r.out_of_place.wrong + r.in_place.wrong;
  return wrong;
}

void print_summary(std::vector<finished_job> const& jobs) {
  double sum = 0;
  int count = 0;
  for (finished_job const& j : jobs)
    for (row const& r : j.rows)
      for (measurement const* m : {&r.out_of_place, &r.in_place}) {
        if (!m->offered) continue;
        sum += bandwidth_of(j.what.what, j.what.all->ranks, r.bytes, m->seconds).bus;
        ++count;
      }
  std::printf("#\n# wrong elements: %lld\n# average bus bandwidth: %.4f GB/s\n", static_cast<long long>(count_wrong(jobs)),
              count == 0 ? 0 : sum / count);
}

void write_csv(std::FILE* file, int ranks, std::vector<finished_job> const& jobs) {
  std::fprintf(file, "collective,algorithm,ranks,bytes,count,type,redop,root,placement,time_us,algbw,busbw,wrong\n");
  for (finished_job const& j : jobs)
    for (row const& r : j.rows)
      for (bool in_place : {false, true}) {
        measurement const& m = in_place ? r.in_place : r.out_of_place;
        if (!m.offered) continue;
        bandwidth const b = bandwidth_of(j.what.what, ranks, r.bytes, m.seconds);
        std::fprintf(file, "%s,%s,%d,%zu,%zu,%s,%s,%d,%s,%.4f,%.4f,%.4f,", name(j.what.what), j.what.algorithm, ranks, r.bytes, r.count,
                     name(j.what.type), redop(j.what), root(j.what), in_place ? "in-place" : "out-of-place", m.seconds * 1e6, b.algorithm,
                     b.bus);
        if (j.what.all->checked > 0) std::fprintf(file, "%lld", static_cast<long long>(m.wrong));
        std::fprintf(file, "\n");
      }
}

nlohmann::json to_json(settings const& all, surroundings const& here, std::vector<finished_job> const& jobs) {
  nlohmann::json rows = nlohmann::json::array();
  for (finished_job const& j : jobs)
    for (row const& r : j.rows)
      rows.push_back({{"collective", name(j.what.what)},
                      {"algorithm", j.what.algorithm},
                      {"bytes", r.bytes},
                      {"count", r.count},
                      {"type", name(j.what.type)},
                      {"redop", redop(j.what)},
                      {"root", root(j.what)},
                      {"out_of_place", to_json(all, r, j.what.what, r.out_of_place)},
                      {"in_place", to_json(all, r, j.what.what, r.in_place)}});
  return {{"tool", "collectx_perf"},   {"version", COLLECTX_VERSION}, {"processor", here.processor},  {"cores", here.cores},
          {"transport", wire_of(all)}, {"ranks", all.ranks},          {"slots", here.slots},          {"slot_bytes", here.slot_bytes},
          {"lanes", here.lanes},       {"batches", all.batches},      {"iterations", all.iterations}, {"rows", rows}};
}

std::string cannot_draw(std::string const& python) {
  if (::access(python.c_str(), X_OK) != 0) return "there is no " + python;
  if (!run_python(python, {"-c", "import matplotlib"}, "", true)) return python + " has no matplotlib (Debian: python3-matplotlib)";
  return {};
}

bool draw(std::string const& python, nlohmann::json const& rows, std::string const& picture) {
  ::signal(SIGPIPE, SIG_IGN);  // a script that ends early is an error, not our end
  return run_python(python, {COLLECTX_PERF_PLOT, picture}, rows.dump(), false);
}

}  // namespace perf
