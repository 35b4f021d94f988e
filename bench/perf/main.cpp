// SPDX-License-Identifier: Apache-2.0
/// collectx_perf: how fast the collectives are, and whether they are right.
#include <collectx/launch.hpp>
#include <collectx/rendezvous/environment.hpp>
#ifdef WITH_PMIX
#include <collectx/rendezvous/pmix.hpp>
#endif
#if COLLECTX_PERF_LIBFABRIC
#include <collectx/libfabric.hpp>
#endif

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

#if COLLECTX_PERF_CUDA
#include "devices/group.hpp"
#endif
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

/// Started by mpirun, by torchrun, ..., or by hand.
cx::result<cx::environment_rendezvous> meet() {
#ifdef WITH_PMIX
  return cx::environment_rendezvous::create<cx::pmix_rendezvous>();
#else
  return cx::environment_rendezvous::create();
#endif
}

#if COLLECTX_PERF_LIBFABRIC
cx::libfabric_options network(perf::settings const& all, cx::transport_options const& chosen) {
  cx::libfabric_options options;
  options.slots = chosen.slots;
  options.slot_bytes = chosen.slot_bytes;
  options.provider = all.provider.empty() ? nullptr : all.provider.c_str();
  return options;
}
#endif

/// This process is one rank, and there are others.
template <class F>
cx::status be_rank(cx::environment_rendezvous& meeting, perf::settings const& all, cx::transport_options const& chosen, F const& f) {
#if COLLECTX_PERF_LIBFABRIC
  if (all.transport == perf::wire::libfabric) return perf::take_part(cx::libfabric::join(meeting, network(all, chosen)), f);
#else
  static_cast<void>(all);
#endif
  return perf::take_part(cx::shared_memory::join(meeting, chosen), f);
}

template <class F>
cx::status start_ranks(perf::settings const& all, cx::transport_options const& chosen, F const& f) {
#if COLLECTX_PERF_LIBFABRIC
  if (all.transport == perf::wire::libfabric) return cx::libfabric::run(all.ranks, network(all, chosen), f);
#endif
  if (all.transport == perf::wire::loopback) return cx::loopback::run(all.ranks, chosen, f);
  return cx::shared_memory::run(all.ranks, chosen, f);
}

/// What the transport takes where nothing else is asked for.
cx::transport_options defaults(perf::wire transport) {
#if COLLECTX_PERF_CUDA
  if (perf::on_devices(transport)) return perf::defaults_on_devices(transport);
#endif
  cx::transport_options chosen;
#if COLLECTX_PERF_LIBFABRIC
  if (cx::libfabric_options const network; transport == perf::wire::libfabric) {
    chosen.slots = network.slots;
    chosen.slot_bytes = network.slot_bytes;
    chosen.lanes = network.lanes;
  }
#else
  static_cast<void>(transport);
#endif
  return chosen;
}

/// Ranks over the wire that was chosen, each of which measures.
cx::status measure(perf::job const& what, cx::transport_options const& chosen, cx::environment_rendezvous& meeting, shared_rows& rows) {
#if COLLECTX_PERF_CUDA
  if (perf::on_devices(what.all->transport))
    return perf::measure_on_devices(what, what.all->launched ? &meeting : nullptr, take_row, &rows);
#endif
  auto const ranks = [&](auto& comm) { return perf::measure(comm, what, take_row, &rows); };
  return what.all->launched ? be_rank(meeting, *what.all, chosen, ranks) : start_ranks(*what.all, chosen, ranks);
}

/// A group of its own for each job: no job pays for another's plans.
perf::finished_job run(perf::job const& what, cx::transport_options const& chosen, cx::environment_rendezvous& meeting) {
  shared_rows rows(what.all->sizes.size());
  if (what.all->rank == 0) perf::print_titles(what);
  cx::status const s = measure(what, chosen, meeting, rows);
  if (!s) throw std::runtime_error(std::string(perf::name(what.what)) + " by " + what.algorithm + ": " + s.what());
  return {what, rows.copy()};
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

int measure_all(perf::settings const& all, cx::environment_rendezvous& meeting) {
  bool const speaks = all.rank == 0;
  file const csv = open_for_writing(speaks ? all.csv : ""), json = open_for_writing(speaks ? all.json : "");
  if (speaks && !all.plot.empty())
    if (std::string const missing = perf::cannot_draw(all.python); !missing.empty()) throw std::runtime_error("--plot: " + missing);
  cx::transport_options chosen = defaults(all.transport);
  if (all.slots > 0) chosen.slots = all.slots;
  if (all.slot_bytes > 0) chosen.slot_bytes = all.slot_bytes;

  perf::surroundings const here = perf::look_around(chosen);
  if (speaks) perf::print_header(all, here);
  std::vector<perf::finished_job> done;
  std::vector<perf::job> const jobs = perf::jobs_of(all);
  for (perf::job const& what : jobs) check_slots(what);
  for (perf::job const& what : jobs) done.push_back(run(what, chosen, meeting));
  if (!speaks) return 0;
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
    cx::result<cx::environment_rendezvous> meeting = meet();
    if (!meeting) throw std::runtime_error(meeting.error().what());
    std::optional<perf::settings> all = perf::parse(count, arguments, meeting->launched() ? meeting->size() : 0);
    if (!all) return 0;
    all->rank = meeting->rank();
    return measure_all(*all, *meeting);
  } catch (std::exception const& e) {
    // Said by every rank, even where all say the same: launchers end the others as soon as one has failed, rank 0 before it has spoken.
    std::fflush(stdout);
    std::fprintf(stderr, "collectx_perf: %s\n", e.what());
    return 2;
  }
}
