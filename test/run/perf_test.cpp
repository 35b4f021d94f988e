// SPDX-License-Identifier: Apache-2.0
// compile: -O0
// timeout: 300
#include "../../bench/perf/bandwidth.hpp"

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

TEST_CASE("PRF-01: the size of an all-gather is what all ranks have together, and only bus bandwidth holds a factor of n") {
  std::size_t const gibibyte = std::size_t{1} << 30;
  for (perf::collective c : {perf::collective::all_gather, perf::collective::reduce_scatter}) {
    perf::bandwidth const b = perf::bandwidth_of(c, 8, gibibyte, 10e-3);
    CHECK(b.algorithm == doctest::Approx(107.374).epsilon(1e-5));
    CHECK(b.bus == doctest::Approx(93.952).epsilon(1e-5));
  }
  CHECK(perf::bandwidth_of(perf::collective::all_reduce, 8, gibibyte, 10e-3).bus == doctest::Approx(187.905).epsilon(1e-5));
  CHECK(perf::bandwidth_of(perf::collective::broadcast, 8, gibibyte, 10e-3).bus == doctest::Approx(107.374).epsilon(1e-5));
  CHECK(perf::bandwidth_of(perf::collective::reduce, 8, gibibyte, 10e-3).bus == doctest::Approx(107.374).epsilon(1e-5));
}

TEST_CASE("PRF-03, PRF-04: bandwidth is finite where there is nothing to divide by") {
  for (int c = 0; c < 5; ++c) {
    CHECK(perf::bandwidth_of(static_cast<perf::collective>(c), 1, 1 << 20, 1e-6).bus == 0);
    CHECK(perf::bandwidth_of(static_cast<perf::collective>(c), 1, 1 << 20, 1e-6).algorithm == doctest::Approx(1048.576));
    CHECK(perf::bandwidth_of(static_cast<perf::collective>(c), 8, 0, 1e-6).algorithm == 0);
    CHECK(perf::bandwidth_of(static_cast<perf::collective>(c), 8, 0, 0).bus == 0);
    CHECK(perf::bandwidth_of(static_cast<perf::collective>(c), 8, 8, 0).algorithm == 0);
  }
}

#ifndef COLLECTX_PERF
TEST_CASE("collectx_perf was not built, so its cases are not here") { MESSAGE("needs CLI11 and nlohmann_json: scripts/setup"); }
#else

namespace {

std::string const quick = " -n 1 -w 0 --batches 1 ";

/// A folder that goes with the test.
struct folder {
  folder() { REQUIRE(::mkdtemp(path) != nullptr); }
  ~folder() {
    for (std::string const& name : names) std::remove(name.c_str());
    ::rmdir(path);
  }
  std::string file(std::string const& name) { return names.emplace_back(std::string(path) + "/" + name); }
  char path[64] = "/tmp/collectx-perf-XXXXXX";
  std::vector<std::string> names;
};

std::string contents(std::string const& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct outcome {
  int code;
  std::string out, error;
};

outcome tool(std::string const& arguments) {
  folder place;
  std::string const out = place.file("out"), error = place.file("error");
  int const state = std::system(("timeout 120 '" COLLECTX_PERF "' " + arguments + " >" + out + " 2>" + error).c_str());
  return {WIFEXITED(state) ? WEXITSTATUS(state) : -1, contents(out), contents(error)};
}

using line = std::map<std::string, std::string>;

std::vector<std::string> split(std::string const& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

/// The rows that the tool writes with --csv.
std::vector<line> rows(std::string const& arguments, int code = 0) {
  folder place;
  std::string const csv = place.file("csv");
  outcome const o = tool(arguments + " --csv " + csv);
  CHECK_MESSAGE(o.code == code, o.error);
  std::vector<std::string> const lines = split(contents(csv), '\n');
  REQUIRE(lines.size() > 1);
  std::vector<std::string> const names = split(lines[0], ',');
  std::vector<line> all;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    std::vector<std::string> const values = split(lines[i], ',');
    REQUIRE(values.size() == names.size());
    line l;
    for (std::size_t k = 0; k < names.size(); ++k) l[names[k]] = values[k];
    all.push_back(l);
  }
  return all;
}

double number(line const& l, char const* name) { return std::strtod(l.at(name).c_str(), nullptr); }

bool finite(std::string const& text) { return text.find("nan") == std::string::npos && text.find("inf") == std::string::npos; }

void refused(std::string const& arguments, char const* words) {
  CAPTURE(arguments);
  outcome const o = tool(arguments);
  CHECK(o.code == 2);
  CHECK(o.out.empty());
  CHECK_MESSAGE(split(o.error, '\n').size() == 1, o.error);
  CHECK_MESSAGE(o.error.rfind("collectx_perf: ", 0) == 0, o.error);
  CHECK_MESSAGE(o.error.find(words) != std::string::npos, o.error);
}

}  // namespace

TEST_CASE("PRF-01: so say the rows of the tool") {
  std::vector<line> const all = rows("--collective all --ranks 4 -b 64K -e 64K" + quick);
  CHECK(all.size() == 9);  // a broadcast is only in place
  for (line const& l : all) {
    bool const shared = l.at("collective") == "all_gather" || l.at("collective") == "reduce_scatter";
    CHECK(l.at("bytes") == "65536");
    CHECK(l.at("count") == (shared ? "4096" : "16384"));
    CHECK(number(l, "algbw") == doctest::Approx(65536 / number(l, "time_us") * 1e-3).epsilon(0.01));
    double const factor = l.at("collective") == "all_reduce" ? 1.5 : shared ? 0.75 : 1;
    CHECK(number(l, "busbw") == doctest::Approx(number(l, "algbw") * factor).epsilon(0.01));
  }
}

TEST_CASE("PRF-03: what makes no sense is refused in one line") {
  refused("-b 4M -e 1M", "--minbytes: 4M is more than --maxbytes 1M");
  refused("-b 1K -e 1M -f 1", "--stepfactor");
  refused("-b 1K -e 1M -f 0", "--stepfactor");
  refused("-b 1K -e 1M -i 0", "--stepbytes");
  refused("-n 0", "--iters");
  refused("-n -1", "--iters");
  refused("-w -1", "--warmup_iters");
  refused("-c -1", "--check");
  refused("-b -8", "is not a size");
  refused("-b 8Q", "is not a size");
  refused("-b 99999999999999999999", "too large");
  refused("-b 17179869184G", "too large");
  refused("--ranks 0", "--ranks");
  refused("--ranks four", "--ranks");
  refused("-o median", "known are sum, prod, min, max, avg, all");
  refused("-d bfloat8", "known are int8");
  refused("-r 2 --collective reduce", "--root: 2 is not among 2 ranks");
  refused("--collective all_to_all", "known are all_reduce");
  refused("--algorithm bruck", "known are ring");
  refused("--transport tcp", "known are shared_memory, loopback, libfabric, cuda_ipc, cuda_composite");
  refused("--provider net", "only --transport libfabric and cuda_composite have providers");
  refused("--unknown", "--unknown");
  refused("--csv /nowhere/rows.csv", "cannot write /nowhere/rows.csv");
  refused("--plot picture.gif", "neither in .png nor in .svg");
  refused("--plot picture.png --python /nowhere/python", "there is no /nowhere/python");
}

TEST_CASE("PRF-03: four times the free memory is refused, not tried") {
  std::ifstream facts("/proc/meminfo");
  std::string word;
  std::size_t kibibytes = 0;
  while (facts >> word && word != "MemAvailable:") {
  }
  REQUIRE(static_cast<bool>(facts >> kibibytes));
  std::string const size = std::to_string(4 * kibibytes) + "K";
  refused("-b " + size + " -e " + size, "that are available");
}

TEST_CASE("PRF-03: a size of 0 is a row without bandwidth") {
  outcome const o = tool("--collective all -b 0 -e 0" + quick);
  CHECK(o.code == 0);
  CHECK_MESSAGE(finite(o.out), o.out);
  for (line const& l : rows("--collective all -b 0 -e 0" + quick)) {
    CHECK(l.at("bytes") == "0");
    CHECK(number(l, "algbw") == 0);
    CHECK(number(l, "busbw") == 0);
  }
}

TEST_CASE("PRF-04: one rank has no bus bandwidth, and all else is finite and right") {
  outcome const o = tool("--collective all --ranks 1 -b 1M -e 1M" + quick);
  CHECK(o.code == 0);
  CHECK_MESSAGE(finite(o.out), o.out);
  for (line const& l : rows("--collective all --ranks 1 -b 1M -e 1M" + quick)) {
    CHECK(l.at("busbw") == "0.0000");
    CHECK(number(l, "algbw") > 0);
    CHECK(l.at("wrong") == "0");
  }
}

TEST_CASE("PRF-06: data are exact, so results are, for every number of ranks; one wrong element is always reported") {
  for (std::string ranks : {"2", "8", "64"}) {
    std::string const arguments = "--transport loopback -o all -b 1000 -e 1000 --ranks " + ranks + quick;
    for (line const& l : rows(arguments)) CHECK(l.at("wrong") == "0");
    std::vector<line> const planted = rows(arguments + " --plant-wrong 1", 1);
    CHECK(planted.size() == 10);
    for (line const& l : planted) CHECK(l.at("wrong") == "1");
  }
}

TEST_CASE("PRF-06: it is reported whatever the collective, and where it was planted it counts once") {
  for (line const& l : rows("--collective all --ranks 3 --plant-wrong 0 -c 4 -b 1000 -e 1000" + quick, 1)) CHECK(l.at("wrong") == "4");
  // Rank 1 has no result of a reduction to rank 0.
  for (line const& l : rows("--collective reduce --ranks 3 --plant-wrong 1 -b 1000 -e 1000" + quick)) CHECK(l.at("wrong") == "0");
}

TEST_CASE("every type and operation by every algorithm that offers the collective, as processes") {
  std::vector<line> const all = rows("--collective all --algorithm all -d all -o all --ranks 3 -b 1000 -e 1000" + quick);
  std::map<std::string, int> of;
  for (line const& l : all) {
    CHECK_MESSAGE(l.at("wrong") == "0", l.at("collective") << " by " << l.at("algorithm") << ", " << l.at("type") << " " << l.at("redop"));
    ++of[l.at("collective")];
  }
  CHECK(of["all_reduce"] == 12 * 12 * 5 * 2);  // algorithms, types, operations, placements
  CHECK(of["reduce_scatter"] == 8 * 12 * 5 * 2);
  CHECK(of["all_gather"] == 8 * 12 * 2);
  CHECK(of["broadcast"] == 11 * 12);
  CHECK(of["reduce"] == 11 * 12 * 5 * 2);
}

#if COLLECTX_PERF_LIBFABRIC
TEST_CASE("over the network: named by provider, and what libfabric does not have is said in one line") {
  std::vector<line> const all =
      rows("--transport libfabric --provider 'tcp;ofi_rxm' --collective all --ranks 3 -b 1000 -e 64K -f 8" + quick);
  CHECK(all.size() == 3 * 9);
  for (line const& l : all) CHECK(l.at("wrong") == "0");
  outcome const named = tool("--transport libfabric --provider net -b 8 -e 8" + quick);
  CHECK_MESSAGE(named.code == 0, named.error);
  CHECK_MESSAGE(named.out.find("# libfabric:net, 2 ranks (processes), 8 slots") != std::string::npos, named.out);
  outcome const absent = tool("--transport libfabric --provider nothing -b 8 -e 8" + quick);
  CHECK(absent.code == 2);
  CHECK_MESSAGE(split(absent.error, '\n').size() == 1, absent.error);
  CHECK_MESSAGE(absent.error.find("libfabric has no provider nothing") != std::string::npos, absent.error);
}
#else
TEST_CASE("built without libfabric, the tool says what it would need") {
  for (char const* wire : {"libfabric", "cuda_composite"})
    refused(std::string("--transport ") + wire, "install libfabric-dev 1.17 or newer");
}
#endif

#if COLLECTX_PERF_CUDA
TEST_CASE("on GPUs nothing is wrong; where there is none, that is said in one line") {
  for (char const* wire : {"cuda_ipc", "cuda_composite"}) {
    if (!COLLECTX_PERF_LIBFABRIC && std::string(wire) == "cuda_composite") continue;
    outcome const o = tool(std::string("--transport ") + wire + " -b 1000 -e 1000" + quick);
    CAPTURE(o.error);
    if (o.code == 0) continue;
    CHECK(o.code == 2);
    CHECK(split(o.error, '\n').size() == 1);
    CHECK(o.error.find("there is no GPU that the driver of this machine knows") != std::string::npos);
  }
}
#else
TEST_CASE("built without CUDA, the tool says what it would need") {
  refused("--transport cuda_ipc", "built without CUDA; configure with -DCOLLECTX_BUILD_DEVICE=ON where nvcc is");
  if (COLLECTX_PERF_LIBFABRIC) refused("--transport cuda_composite", "built without CUDA");
}
#endif

TEST_CASE("every root") {
  std::vector<line> const all = rows("--collective broadcast --algorithm ring -r all --ranks 3 -b 100 -e 100" + quick);
  REQUIRE(all.size() == 3);
  for (std::size_t r = 0; r < 3; ++r) CHECK(all[r].at("root") == std::to_string(r));
}

TEST_CASE("an algorithm that does not offer the collective is named with those that do") {
  refused("--algorithm central --collective reduce_scatter", "central offers no reduce_scatter; these do: ring, recursive_halving, direct");
  outcome const shallow = tool("--algorithm ring --ranks 3 --slots 1 -b 1K -e 1K" + quick);
  CHECK(shallow.code == 2);
  CHECK_MESSAGE(shallow.error == "collectx_perf: --slots: all_reduce by ring needs 2\n", shallow.error);
}

TEST_CASE("the table has the columns of nccl-tests, JSON says what it was measured on, and the picture is one") {
  folder place;
  std::string const json = place.file("rows.json"), png = place.file("picture.png");
  outcome const o = tool("-b 8 -e 1K -f 4" + quick + "--json " + json + " --plot " + png);
  CHECK_MESSAGE(o.code == 0, o.error);
  std::size_t count = 0;
  for (std::string const& text : split(o.out, '\n')) {
    if (text.empty() || text[0] == '#') continue;
    ++count;
    std::istringstream words(text);
    std::vector<std::string> columns;
    for (std::string word; words >> word;) columns.push_back(word);
    REQUIRE(columns.size() == 13);
    CHECK(columns[2] == "float");
    CHECK(columns[3] == "sum");
    CHECK(columns[8] == "0");
    CHECK(columns[12] == "0");
  }
  CHECK(count == 4);
  CHECK(o.out.find("shared_memory, 2 ranks (processes)") != std::string::npos);
  std::string const facts = contents(json);
  for (char const* key : {"\"processor\"", "\"cores\"", "\"transport\": \"shared_memory\"", "\"ranks\": 2", "\"slots\"", "\"busbw\""})
    CHECK_MESSAGE(facts.find(key) != std::string::npos, key);
  CHECK(contents(png).rfind("\x89PNG", 0) == 0);

  outcome const empty = tool("-b 0 -e 0" + quick + "--plot " + place.file("empty.png"));
  CHECK(empty.code == 2);
  CHECK_MESSAGE(empty.error.find("there is nothing to draw") != std::string::npos, empty.error);
}

#endif
