// SPDX-License-Identifier: Apache-2.0
/// What is to be measured: the command line, checked.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "any_algorithm.hpp"

namespace perf {

enum class wire { shared_memory, loopback, libfabric, cuda_ipc, cuda_composite };
enum class operation { sum, prod, min, max, avg };
enum class datatype { int8, uint8, int16, uint16, int32, uint32, int64, uint64, float32, float64, bfloat16, float16 };

/// By the enumerators' values.
inline constexpr char const* wire_names[] = {"shared_memory", "loopback", "libfabric", "cuda_ipc", "cuda_composite"};
inline constexpr char const* collective_names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce"};
inline constexpr char const* operation_names[] = {"sum", "prod", "min", "max", "avg"};
inline constexpr char const* datatype_names[] = {"int8",  "uint8",  "int16", "uint16", "int32",    "uint32",
                                                 "int64", "uint64", "float", "double", "bfloat16", "float16"};

constexpr char const* name(wire w) { return wire_names[static_cast<int>(w)]; }
constexpr char const* name(collective c) { return collective_names[static_cast<int>(c)]; }
constexpr char const* name(operation o) { return operation_names[static_cast<int>(o)]; }
constexpr char const* name(datatype d) { return datatype_names[static_cast<int>(d)]; }
constexpr bool reduces(collective c) { return c != collective::all_gather && c != collective::broadcast; }
constexpr bool has_root(collective c) { return c == collective::broadcast || c == collective::reduce; }
constexpr bool on_devices(wire w) { return w == wire::cuda_ipc || w == wire::cuda_composite; }
constexpr bool on_network(wire w) { return w == wire::libfabric || w == wire::cuda_composite; }
constexpr std::size_t bytes_of(datatype d) {
  if (d == datatype::float32) return 4;
  if (d == datatype::float64) return 8;
  if (d == datatype::bfloat16 || d == datatype::float16) return 2;
  return std::size_t{1} << (static_cast<int>(d) / 2);
}

inline constexpr char const* automatic = "auto";

struct settings {
  std::vector<collective> collectives;
  std::vector<std::string> algorithms;
  std::vector<operation> operations;
  std::vector<datatype> datatypes;
  std::vector<int> roots;
  std::vector<std::size_t> sizes;  ///< bytes
  int ranks = 2;
  int rank = 0;           ///< of this process, where something else has started the ranks
  bool launched = false;  ///< something else has
  int iterations = 0;     ///< per batch; 0: as many as take 5 ms
  int batches = 5;
  int warmup = 5;
  int checked = 1;
  int plant_wrong = -1;
  wire transport = wire::shared_memory;
  std::string provider;    ///< of the network; empty: the library's choice
  bool any_offer = false;  ///< skip what an algorithm does not offer
  int slots = 0;
  std::size_t slot_bytes = 0;
  std::string csv, json, plot, python;
};

/// Whether this program has the reduction: on devices each costs seconds to compile, and only some are built by default.
bool is_built(wire w, datatype d, operation o);

/// Empty settings where help was asked for and has been printed. Throws std::runtime_error whose text is one line.
/// `launched`: how many ranks something else has started, of which this is one; 0: none.
std::optional<settings> parse(int count, char const* const* arguments, int launched);

/// Bytes that can be had without harm to others: of the machine, or of the control group if that is less.
std::size_t available_memory();

}  // namespace perf
