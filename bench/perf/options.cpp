// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <collectx/transport/segment.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>

namespace perf {
namespace {

[[noreturn]] void refuse(std::string const& why) { throw std::runtime_error(why); }

/// A number of bytes with nccl-tests' suffixes: K, M and G are powers of 1024.
std::size_t parse_size(char const* option, std::string const& text) {
  std::size_t value = 0, at = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    if (__builtin_mul_overflow(value, std::size_t{10}, &value) ||
        __builtin_add_overflow(value, static_cast<std::size_t>(text[at] - '0'), &value))
      refuse(std::string(option) + ": " + text + " is too large");
  }
  int shift = 0;
  if (at > 0 && at + 1 == text.size()) {
    std::string const suffixes = "KMG";
    std::size_t const which = suffixes.find(static_cast<char>(std::toupper(static_cast<unsigned char>(text[at]))));
    if (which != std::string::npos) {
      shift = 10 * (static_cast<int>(which) + 1);
      ++at;
    }
  }
  if (at == 0 || at != text.size()) refuse(std::string(option) + ": '" + text + "' is not a size (examples: 8, 32K, 1M, 2G)");
  if (value > (std::numeric_limits<std::size_t>::max)() >> shift) refuse(std::string(option) + ": " + text + " is too large");
  return value << shift;
}

template <std::size_t Count>
std::vector<int> choose(char const* option, std::string const& text, char const* const (&names)[Count]) {
  std::vector<int> all(Count);
  for (std::size_t i = 0; i < Count; ++i) all[i] = static_cast<int>(i);
  if (text == "all") return all;
  std::string known;
  for (std::size_t i = 0; i < Count; ++i) {
    if (text == names[i]) return {static_cast<int>(i)};
    known += std::string(names[i]) + ", ";
  }
  refuse(std::string(option) + ": '" + text + "' is unknown; known are " + known + "all");
}

template <class E>
std::vector<E> as(std::vector<int> const& values) {
  std::vector<E> out;
  for (int v : values) out.push_back(static_cast<E>(v));
  return out;
}

/// Reads the first number after `key` in a file; `otherwise` where there is none.
std::size_t read_number(char const* path, std::string const& key, std::size_t otherwise) {
  std::ifstream file(path);
  std::string word;
  while (!key.empty() && file >> word && word != key) {
  }
  std::size_t number = 0;
  return file >> number ? number : otherwise;
}

std::vector<std::size_t> all_sizes(std::size_t least, std::size_t most, std::size_t step, double factor) {
  std::vector<std::size_t> sizes;
  for (std::size_t s = least;;) {
    sizes.push_back(s);
    if (sizes.size() > 100000) refuse("more than 100000 sizes: raise --stepbytes or --stepfactor");
    // No factor leads on from nothing: to the largest element.
    double const multiplied = s == 0 ? 8 : static_cast<double>(s) * factor;
    if (step == 0 && multiplied > static_cast<double>(most)) break;
    std::size_t const next = step > 0 ? s + step : static_cast<std::size_t>(multiplied);
    if (next > most || next <= s) break;
    s = next;
  }
  return sizes;
}

std::string joined(std::vector<std::string> const& words) {
  std::string all;
  for (std::string const& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

/// Which algorithms can do it; names the gap where one was asked for by name.
void choose_algorithms(settings& out, std::string const& text) {
  std::vector<std::string> known;
  for (algorithm_entry const& e : algorithms()) known.push_back(e.name);
  known.push_back(automatic);
  out.any_offer = text == "all";
  if (out.any_offer) {
    out.algorithms = known;
    return;
  }
  if (std::find(known.begin(), known.end(), text) == known.end())
    refuse("--algorithm: '" + text + "' is unknown; known are " + joined(known) + ", all");
  out.algorithms = {text};
  for (collective c : out.collectives) {
    std::vector<std::string> offering;
    bool offered = text == automatic;
    for (algorithm_entry const& e : algorithms()) {
      if (e.of[static_cast<int>(c)] == nullptr) continue;
      offering.push_back(e.name);
      offered |= text == e.name;
    }
    if (!offered) refuse("--algorithm: " + text + " offers no " + name(c) + "; these do: " + joined(offering));
  }
}

void choose_transport(settings& out, std::string const& text) {
  std::size_t known = 0;
  while (known < std::size(wire_names) && text != wire_names[known]) ++known;
  if (known == std::size(wire_names))
    refuse("--transport: '" + text + "' is unknown; known are " + joined({wire_names, std::end(wire_names)}));
  out.transport = static_cast<wire>(known);
  if (!COLLECTX_PERF_LIBFABRIC && on_network(out.transport))
    refuse("--transport: this collectx_perf was built without libfabric; install libfabric-dev 1.17 or newer, and configure again");
  if (!COLLECTX_PERF_CUDA && on_devices(out.transport))
    refuse("--transport: this collectx_perf was built without CUDA; configure with -DCOLLECTX_BUILD_DEVICE=ON where nvcc is");
  if (!out.provider.empty() && !on_network(out.transport))
    refuse("--provider: only --transport libfabric and cuda_composite have providers");
}

/// "sum of int32, float; max of float": what is built for a wire.
std::string reductions_of(wire w) {
  std::string all;
  for (std::size_t o = 0; o < std::size(operation_names); ++o) {
    std::vector<std::string> types;
    for (std::size_t d = 0; d < std::size(datatype_names); ++d)
      if (is_built(w, static_cast<datatype>(d), static_cast<operation>(o))) types.push_back(datatype_names[d]);
    if (!types.empty()) all += (all.empty() ? "" : "; ") + std::string(operation_names[o]) + " of " + joined(types);
  }
  return all;
}

void check_devices(settings const& s, std::string const& op, std::string const& type) {
  if (s.slots > 0 || s.slot_bytes > 0)
    refuse("--slots, --slot-bytes: " + std::string(name(s.transport)) + " is measured with the slots that it has by default");
  bool built = std::none_of(s.collectives.begin(), s.collectives.end(), reduces);
  for (operation o : s.operations)
    for (datatype d : s.datatypes) built = built || is_built(s.transport, d, o);
  if (!built) {
    refuse("--op " + op + ", --datatype " + type + ": on devices this collectx_perf has " + reductions_of(s.transport) +
           "; configure with -DCOLLECTX_PERF_ALL_ON_DEVICES=ON for all");
  }
}

void check_memory(settings const& s) {
  std::size_t const largest = s.sizes.back();
  std::size_t needed = 0;
  // Input and output of every rank.
  bool const overflow = __builtin_mul_overflow(largest, std::size_t{2} * static_cast<std::size_t>(s.ranks), &needed);
  std::size_t const available = available_memory();
  if (!overflow && needed <= available) return;
  char text[200];
  std::snprintf(text, sizeof text,
                "--maxbytes: %d ranks with two buffers of %zu bytes each need more than the %zu bytes that are available", s.ranks, largest,
                available);
  refuse(text);
}

void check_picture(std::string const& plot) {
  std::size_t const dot = plot.rfind('.');
  std::string const suffix = dot == std::string::npos ? "" : plot.substr(dot);
  if (suffix != ".png" && suffix != ".svg") refuse("--plot: '" + plot + "' ends neither in .png nor in .svg");
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n') c = ' ';
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

}  // namespace

std::size_t available_memory() {
  std::size_t const none = (std::numeric_limits<std::size_t>::max)();
  std::size_t available = read_number("/proc/meminfo", "MemAvailable:", none >> 10) << 10;
  std::size_t const limit = read_number("/sys/fs/cgroup/memory.max", "", none);
  std::size_t const used = read_number("/sys/fs/cgroup/memory.current", "", 0);
  if (limit != none) available = (std::min)(available, limit > used ? limit - used : 0);
  return available;
}

std::optional<settings> parse(int count, char const* const* arguments, int launched) {
  settings out;
  std::string least = "32", most = "32M", step, transport = "shared_memory", root = "0";
  std::string which = "all_reduce", algorithm = automatic, op = "sum", type = "float", slot_bytes;
  double factor = 2;
  std::optional<int> iterations;

  CLI::App app("Measures the collectives of collectx, with the options, columns and definitions of nccl-tests.", "collectx_perf");
  app.set_help_flag("--help", "Print this and exit");
  app.add_option("-b,--minbytes", least, "Smallest size; K, M and G are powers of 1024")->capture_default_str();
  app.add_option("-e,--maxbytes", most, "Largest size")->capture_default_str();
  CLI::Option* const by_step = app.add_option("-i,--stepbytes", step, "Add this many bytes from size to size");
  CLI::Option* const by_factor = app.add_option("-f,--stepfactor", factor, "Multiply by this from size to size")->capture_default_str();
  by_step->excludes(by_factor);
  app.add_option("-n,--iters", iterations, "Calls per batch (default: as many as take about 5 ms)");
  app.add_option("--batches", out.batches, "Batches; their median is reported")->capture_default_str();
  app.add_option("-w,--warmup_iters", out.warmup, "Calls before the first batch; 0 also leaves slots as they are, without memory")
      ->capture_default_str();
  app.add_option("-c,--check", out.checked, "Calls whose results are checked, element by element (0: none)")->capture_default_str();
  app.add_option("-o,--op", op, "sum, prod, min, max, avg or all")->capture_default_str();
  app.add_option("-d,--datatype", type, "int8, uint8, ... int64, uint64, float, double, bfloat16, float16 or all")->capture_default_str();
  app.add_option("-r,--root", root, "Root of broadcast and reduce, or all")->capture_default_str();
  app.add_option("--collective", which, "all_reduce, reduce_scatter, all_gather, broadcast, reduce or all")->capture_default_str();
  std::vector<std::string> names;
  for (algorithm_entry const& e : algorithms()) names.push_back(e.name);
  app.add_option("--algorithm", algorithm, joined(names) + ", auto or all")->capture_default_str();
  app.add_option("--transport", transport,
                 "shared_memory, libfabric, on GPUs cuda_ipc, cuda_composite (ranks are processes), or loopback (ranks are threads)")
      ->capture_default_str();
  app.add_option("--provider", out.provider,
                 "Of libfabric, also in cuda_composite: net, tcp;ofi_rxm, shm, verbs;ofi_rxm ... (default: the library's choice)");
  CLI::Option* const by_ranks =
      app.add_option("--ranks", out.ranks, "Number of ranks; where a launcher starts them, as many as it has started")
          ->capture_default_str();
  app.add_option("--slots", out.slots, "Slots per channel (default: the transport's)");
  app.add_option("--slot-bytes", slot_bytes, "Bytes per slot (default: the transport's)");
  app.add_option("--csv", out.csv, "Write the rows to this file");
  app.add_option("--json", out.json, "Write the rows and what they were measured on to this file");
  app.add_option("--plot", out.plot, "Draw time and bandwidth to this .png or .svg (needs matplotlib)");
  app.add_option("--python", out.python, "The interpreter that has matplotlib")->default_str("/usr/bin/python3");
  // Without a place in the help: after every checked call one element of this rank's output is changed, as a broken library would. It is
  // there for the test that a wrong result is reported.
  app.add_option("--plant-wrong", out.plant_wrong)->group("");
  app.footer(
      "Time is that of one call: the mean over a batch, of the slowest rank, and of the batches the median. Algorithm bandwidth is size / "
      "time (GB = 1e9 bytes); bus bandwidth multiplies it by 2(n-1)/n (all_reduce), (n-1)/n (reduce_scatter, all_gather) or 1. The size of "
      "an all_gather is its output, of a reduce_scatter its input. #wrong counts elements, of all ranks; any makes the exit code 1.");
  try {
    app.parse(count, arguments);
  } catch (CLI::CallForHelp const&) {
    std::fputs(app.help().c_str(), stdout);
    return std::nullopt;
  } catch (CLI::ParseError const& e) {
    refuse(one_line(e.what()));
  }

  out.python = out.python.empty() ? "/usr/bin/python3" : out.python;
  out.collectives = as<collective>(choose("--collective", which, collective_names));
  out.operations = as<operation>(choose("--op", op, operation_names));
  out.datatypes = as<datatype>(choose("--datatype", type, datatype_names));
  out.launched = launched > 0;
  if (out.launched) {
    if (by_ranks->count() > 0 && out.ranks != launched) refuse("--ranks: there are " + std::to_string(launched) + ", the launcher says");
    if (transport == "loopback") refuse("--transport: what a launcher starts are processes, loopback is for threads");
    out.ranks = launched;
  }
  if (out.ranks < 1 || out.ranks > 1024) refuse("--ranks: 1 to 1024");
  if (iterations && *iterations < 1) refuse("--iters: at least 1");
  out.iterations = iterations.value_or(0);
  if (out.batches < 1) refuse("--batches: at least 1");
  if (out.warmup < 0) refuse("--warmup_iters: not negative");
  if (out.checked < 0) refuse("--check: not negative");
  choose_transport(out, transport);
  if (out.plant_wrong >= out.ranks) refuse("--plant-wrong: there is no such rank");
  if (out.slots < 0) refuse("--slots: not negative");
  if (!slot_bytes.empty()) out.slot_bytes = parse_size("--slot-bytes", slot_bytes);
  if (on_devices(out.transport)) check_devices(out, op, type);

  if (root == "all") {
    for (int r = 0; r < out.ranks; ++r) out.roots.push_back(r);
  } else {
    std::size_t const r = parse_size("--root", root);
    if (r >= static_cast<std::size_t>(out.ranks)) refuse("--root: " + root + " is not among " + std::to_string(out.ranks) + " ranks");
    out.roots = {static_cast<int>(r)};
  }

  std::size_t const from = parse_size("--minbytes", least), to = parse_size("--maxbytes", most);
  if (from > to) refuse("--minbytes: " + least + " is more than --maxbytes " + most);
  std::size_t const add = step.empty() ? 0 : parse_size("--stepbytes", step);
  if (!step.empty() && add == 0) refuse("--stepbytes: at least 1");
  if (!(factor > 1)) refuse("--stepfactor: more than 1");
  out.sizes = all_sizes(from, to, add, factor);
  check_memory(out);
  if (!out.plot.empty()) check_picture(out.plot);
  choose_algorithms(out, algorithm);
  return out;
}

}  // namespace perf
