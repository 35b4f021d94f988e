// SPDX-License-Identifier: Apache-2.0
/// collectx_perf: how fast the collectives are, and whether they are right.
#include <collectx/launch.hpp>

#include <nlohmann/json.hpp>

#include <sys/mman.h>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>

#include "report.hpp"

namespace {

namespace cx = collectx;

/// Rows in memory that forked ranks share with their parent.
class shared_rows {
 public:
  explicit shared_rows(std::size_t count) : bytes_(count * sizeof(perf::row)), count_(count) {
    void* const address = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) throw std::bad_alloc();
    rows_ = static_cast<perf::row*>(address);
    std::uninitialized_default_construct_n(rows_, count);
  }
  shared_rows(shared_rows const&) = delete;
  shared_rows& operator=(shared_rows const&) = delete;
  ~shared_rows() { ::munmap(rows_, bytes_); }
  perf::row& operator[](std::size_t i) { return rows_[i]; }
  std::vector<perf::row> copy() const { return {rows_, rows_ + count_}; }

 private:
  std::size_t bytes_, count_;
  perf::row* rows_;
};

void take_row(perf::job const& what, std::size_t index, perf::row const& r, void* rows) {
  (*static_cast<shared_rows*>(rows))[index] = r;
  perf::print_row(what, r);
}

void check_slots(perf::job const& what) {
  if (what.all->slots == 0) return;  // the default is deep enough for every algorithm
  int needed = 0;
  for (std::size_t bytes : what.all->sizes) {
    perf::schedule_face const* const face = what.face != nullptr ? what.face : perf::automatic_choice(what.what, what.all->ranks, bytes);
    needed = (std::max)(needed, perf::slots_needed(what.what, *face, what.root, what.all->ranks));
    if (what.face != nullptr) break;
  }
  if (what.all->slots < needed)
    throw std::runtime_error("--slots: " + std::string(perf::name(what.what)) + " by " + what.algorithm + " needs " +
                             std::to_string(needed));
}

/// A group of its own for each job: no job pays for another's plans.
perf::finished_job run(perf::job const& what, cx::transport_options const& chosen) {
  shared_rows rows(what.all->sizes.size());
  perf::print_titles(what);
  auto const ranks = [&](auto& comm) { return perf::measure(comm, what, take_row, &rows); };
  cx::status const s =
      what.all->loopback ? cx::loopback::run(what.all->ranks, chosen, ranks) : cx::shared_memory::run(what.all->ranks, chosen, ranks);
  if (!s) throw std::runtime_error(std::string(perf::name(what.what)) + " by " + what.algorithm + ": " + s.what());
  return {what, rows.copy()};
}

std::vector<perf::job> jobs_of(perf::settings const& all) {
  std::vector<perf::job> jobs;
  for (perf::collective c : all.collectives) {
    std::vector<perf::operation> const operations = perf::reduces(c) ? all.operations : std::vector{perf::operation::sum};
    std::vector<int> const roots = perf::has_root(c) ? all.roots : std::vector{0};
    for (std::string const& algorithm : all.algorithms) {
      perf::schedule_face const* face = nullptr;
      for (perf::algorithm_entry const& e : perf::algorithms())
        if (algorithm == e.name) face = e.of[static_cast<int>(c)];
      if (face == nullptr && algorithm != perf::automatic) continue;
      for (perf::datatype d : all.datatypes)
        for (perf::operation o : operations)
          for (int root : roots) jobs.push_back({&all, c, algorithm.c_str(), face, d, o, root});
    }
  }
  return jobs;
}

struct close_file {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using file = std::unique_ptr<std::FILE, close_file>;

/// Opened before anything is measured: minutes later is too late to learn that a folder does not exist.
file open_for_writing(std::string const& path) {
  if (path.empty()) return nullptr;
  file f(std::fopen(path.c_str(), "w"));
  if (f == nullptr) throw std::runtime_error("cannot write " + path);
  return f;
}

int measure_all(perf::settings const& all) {
  file const csv = open_for_writing(all.csv), json = open_for_writing(all.json);
  if (!all.plot.empty())
    if (std::string const missing = perf::cannot_draw(all.python); !missing.empty()) throw std::runtime_error("--plot: " + missing);
  cx::transport_options chosen;
  if (all.slots > 0) chosen.slots = all.slots;
  if (all.slot_bytes > 0) chosen.slot_bytes = all.slot_bytes;

  perf::surroundings const here = perf::look_around(chosen);
  perf::print_header(all, here);
  std::vector<perf::finished_job> done;
  std::vector<perf::job> const jobs = jobs_of(all);
  for (perf::job const& what : jobs) check_slots(what);
  for (perf::job const& what : jobs) done.push_back(run(what, chosen));
  perf::print_summary(done);

  if (csv != nullptr) perf::write_csv(csv.get(), all.ranks, done);
  nlohmann::json const rows = perf::to_json(all, here, done);
  if (json != nullptr) std::fprintf(json.get(), "%s\n", rows.dump(2).c_str());
  if (!all.plot.empty() && !perf::draw(all.python, rows, all.plot)) throw std::runtime_error("--plot: cannot draw " + all.plot);
  return perf::count_wrong(done) == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    std::optional<perf::settings> const all = perf::parse(count, arguments);
    return all ? measure_all(*all) : 0;
  } catch (std::exception const& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "collectx_perf: %s\n", e.what());
    return 2;
  }
}
