// SPDX-License-Identifier: Apache-2.0
// collectx_perf on devices: what it reduces, what it refuses, and that what it counts as wrong is wrong. Its kernels are of this unit.
#include "../../../bench/perf/devices/group.cu"
#include "../../../bench/perf/devices/sum.cu"

#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu_ranks.hpp"
#if COLLECTX_PERF_LIBFABRIC && !ON_GPU
#include "network/hosts.hpp"
#include "network/ready.hpp"
#endif

namespace {

namespace cx = collectx;

std::string const quick = " -n 1 -w 1 --batches 1 ";

void use_kernels() {
  standin::plans<float, cx::sum>();
  standin::plans<double, cx::sum>();
  standin::plans<std::int32_t, cx::sum>();
  standin::plans<cx::bfloat16, cx::sum>();
  standin::plans<cx::float16, cx::sum>();
  standin::plans<std::byte, cx::detail::moves_only>();
}

/// A command line, cut at spaces.
perf::settings parsed(std::string const& line, int launched = 0) {
  std::vector<std::string> words{"collectx_perf", ""};
  for (char c : line + " ") {
    if (c != ' ') words.back() += c;
    if (c == ' ' && !words.back().empty()) words.emplace_back();
  }
  words.pop_back();
  std::vector<char const*> pointers;
  for (std::string const& w : words) pointers.push_back(w.c_str());
  std::optional<perf::settings> const all = perf::parse(static_cast<int>(pointers.size()), pointers.data(), launched);
  REQUIRE(all.has_value());
  return *all;
}

std::string refused(std::string const& line) {
  try {
    static_cast<void>(parsed(line));
  } catch (std::runtime_error const& e) {
    return e.what();
  }
  return "it is not";
}

/// Rows in memory that ranks and parent share.
class shared_rows {
 public:
  explicit shared_rows(std::size_t count) : count_(count), rows_(processes::shared<perf::row>(count)) {}
  shared_rows(shared_rows const&) = delete;
  ~shared_rows() { ::munmap(rows_, count_ * sizeof(perf::row)); }
  perf::row& operator[](std::size_t i) { return rows_[i]; }
  static void take(perf::job const&, std::size_t index, perf::row const& r, void* rows) { (*static_cast<shared_rows*>(rows))[index] = r; }

 private:
  std::size_t count_;
  perf::row* rows_;
};

/// Measures by forked ranks, and compares what they counted as wrong with wanted(job).
template <class F>
int measure_and_count(perf::settings const& all, F const& wanted) {
  std::vector<perf::job> const jobs = perf::jobs_of(all);
  for (perf::job const& what : jobs) {
    std::string const which = perf::name(what.what) + std::string(" of ") + perf::name(what.type);
    CAPTURE(which);
    shared_rows rows(all.sizes.size());
    cx::status const s = perf::measure_on_devices(what, nullptr, shared_rows::take, &rows);
    REQUIRE_MESSAGE(s.ok(), std::string(s.what()));
    for (std::size_t i = 0; i < all.sizes.size(); ++i) {
      CHECK(rows[i].bytes > 0);
      CHECK(rows[i].in_place.offered);
      CHECK(rows[i].out_of_place.offered == (what.what != perf::collective::broadcast));
      CHECK(rows[i].in_place.seconds > 0);
      CHECK(rows[i].in_place.wrong == wanted(what));
      CHECK(rows[i].out_of_place.wrong == (rows[i].out_of_place.offered ? wanted(what) : 0));
    }
  }
  return static_cast<int>(jobs.size());
}

}  // namespace

TEST_CASE("all types and operations on devices are those that were built, and a move is of any type") {
  std::string const any = "--transport cuda_ipc -d all -o all --collective ";
  CHECK(perf::jobs_of(parsed(any + "all_reduce")).size() == 5);
  CHECK(perf::jobs_of(parsed(any + "broadcast")).size() == 12);
  CHECK(perf::jobs_of(parsed(any + "all_gather")).size() == 12);
  CHECK(perf::jobs_of(parsed("--transport shared_memory -d all -o all")).size() == 60);
}

TEST_CASE("a reduction that was not built is refused with those that were") {
  std::string const there =
      "on devices this collectx_perf has sum of int32, float, double, bfloat16, float16; configure with "
      "-DCOLLECTX_PERF_ALL_ON_DEVICES=ON for all";
  CHECK(refused("--transport cuda_ipc -d int8") == "--op sum, --datatype int8: " + there);
  CHECK(refused("--transport cuda_ipc -o prod -d all") == "--op prod, --datatype all: " + there);
  CHECK(refused("--transport cuda_ipc --provider net") == "--provider: only --transport libfabric and cuda_composite have providers");
  CHECK(refused("--transport cuda_ipc --slots 4") == "--slots, --slot-bytes: cuda_ipc is measured with the slots that it has by default");
#if COLLECTX_PERF_LIBFABRIC
  CHECK(refused("--transport cuda_composite -o max") == "--op max, --datatype float: " + there);
  CHECK(parsed("--transport cuda_composite --provider net").provider == "net");
#else
  CHECK(refused("--transport cuda_composite").find("built without libfabric") != std::string::npos);
#endif
}

TEST_CASE("every collective, and sums of every type that there is, among two ranks: nothing is wrong") {
  use_kernels();
  auto const nothing = [](perf::job const&) { return 0; };
  std::string const rest = " -b 1000 -e 100000 -f 100 -c 2" + quick;
  CHECK(measure_and_count(parsed("--transport cuda_ipc --collective all" + rest), nothing) == 5);
  CHECK(measure_and_count(parsed("--transport cuda_ipc -d all -o all" + rest), nothing) == 5);
  CHECK(measure_and_count(parsed("--transport cuda_ipc --collective all_gather -d int16" + rest), nothing) == 1);
#if COLLECTX_PERF_LIBFABRIC
  CHECK(measure_and_count(parsed("--transport cuda_composite --collective all" + rest), nothing) == 5);
#endif
}

TEST_CASE("one wrong element of rank 1 is counted once a call, where it has a result") {
  use_kernels();
  perf::settings const all = parsed("--transport cuda_ipc --collective all -d bfloat16 -b 1000 -e 1000 -c 3 --plant-wrong 1" + quick);
  measure_and_count(all, [](perf::job const& what) { return what.what == perf::collective::reduce ? 0 : 3; });
}

#if !ON_GPU
TEST_CASE("where there is no GPU, that is what is said") {
  use_kernels();
  ::setenv("STANDIN_DEVICES", "0", 1);
  for (char const* wire : {"cuda_ipc", "cuda_composite"}) {
    if (!COLLECTX_PERF_LIBFABRIC && std::string(wire) == "cuda_composite") continue;
    perf::settings const all = parsed("--transport " + std::string(wire) + quick);
    shared_rows rows(all.sizes.size());
    cx::status const s = perf::measure_on_devices(perf::jobs_of(all).front(), nullptr, shared_rows::take, &rows);
    CHECK(s.code() == cx::errc::not_supported);
    CHECK_MESSAGE(std::string(s.what()).find("there is no GPU that the driver of this machine knows") != std::string::npos,
                  std::string(s.what()));
  }
  ::unsetenv("STANDIN_DEVICES");
}

#if COLLECTX_PERF_LIBFABRIC
TEST_CASE("cuda_composite takes the provider that is named") {
  perf::settings const all = parsed("--transport cuda_composite --provider nothing" + quick);
  shared_rows rows(all.sizes.size());
  cx::status const s = perf::measure_on_devices(perf::jobs_of(all).front(), nullptr, shared_rows::take, &rows);
  CHECK_MESSAGE(std::string(s.what()).find("libfabric has no provider nothing") != std::string::npos, std::string(s.what()));
}

TEST_CASE("cuda_composite among ranks on two hosts that somebody else has started") {
  use_kernels();
  auto const hosts = network::hosts::make(2);
  if (!hosts) return;
  std::vector<int> const where{0, 1, 1};
  int const size = static_cast<int>(where.size());
  for (int planted : {-1, 1}) {
    perf::settings const all = parsed(
        "--transport cuda_composite --provider net -d float16 -b 1000 -e 100000 -f 100" + quick + (planted < 0 ? "" : "--plant-wrong 1"),
        size);
    perf::job const what = perf::jobs_of(all).front();
    shared_rows rows(all.sizes.size());
    processes::scratch place;
    ::setenv("COLLECTX_RENDEZVOUS", ("file:" + place.file()).c_str(), 1);
    ::setenv("WORLD_SIZE", std::to_string(size).c_str(), 1);
    processes::group ranks(size);
    for (int r = 0; r < size; ++r)
      ranks.start([&, r]() -> cx::status {
        if (!hosts->enter(where[static_cast<std::size_t>(r)])) return cx::status::system(errno, "cannot enter a host");
        ::setenv("RANK", std::to_string(r).c_str(), 1);
        auto meeting = cx::environment_rendezvous::create();
        return meeting ? perf::measure_on_devices(what, &*meeting, shared_rows::take, &rows) : meeting.error();
      });
    ranks.wait();
    ::unsetenv("COLLECTX_RENDEZVOUS");
    ::unsetenv("WORLD_SIZE");
    for (int r = 0; r < size; ++r) {
      INFO(ranks[r].text);
      CHECK(ranks[r].code == 0);
    }
    for (std::size_t i = 0; i < all.sizes.size(); ++i) {
      CHECK(rows[i].count == all.sizes[i] / 2);
      CHECK(rows[i].out_of_place.wrong == (planted < 0 ? 0 : 1));
      CHECK(rows[i].in_place.wrong == (planted < 0 ? 0 : 1));
    }
  }
}
#endif
#endif
