// SPDX-License-Identifier: Apache-2.0
/// One job: one collective by one algorithm on one type, at all sizes.
#pragma once

#include <collectx/communicator.hpp>
#include <collectx/reduce/small_floats.hpp>
#include <collectx/transport/loopback.hpp>
#include <collectx/transport/shared_memory.hpp>
#if COLLECTX_PERF_LIBFABRIC
#include <collectx/transport/libfabric.hpp>
#endif

#include <cstddef>
#include <cstdint>
#include <span>

#include "options.hpp"

namespace perf {

struct job {
  settings const* all;
  collective what;
  char const* algorithm;
  schedule_face const* face;  ///< null: the library's choice
  datatype type;
  operation op;
  int root;
};

struct measurement {
  bool offered = false;  ///< a broadcast is only in place
  double seconds = 0;
  std::int64_t wrong = 0;
};

struct row {
  std::size_t bytes = 0;  ///< what is really moved: the size asked for, rounded down to equal shares
  std::size_t count = 0;  ///< elements per rank's share
  measurement out_of_place, in_place;
};

/// Called on rank 0 with every row as soon as it is there.
using row_taker = void (*)(job const&, std::size_t index, row const&, void* context);

/// Each rank's part of the job. Defined in measure_*.cpp, one for each type: together they would take minutes to compile.
template <class Tr, class T>
collectx::status measure_type(collectx::communicator<Tr>& comm, job const& what, row_taker take, void* context);

/// What the ranks of a measurement have to know of each other: that all are here, the largest times, the sum of a count. In agree.cpp.
template <class Tr>
collectx::status meet(collectx::communicator<Tr>& comm);
template <class Tr>
collectx::status slowest_of(collectx::communicator<Tr>& comm, std::span<double> seconds);
template <class Tr>
collectx::status total_of(collectx::communicator<Tr>& comm, std::int64_t& count);

template <class Tr>
collectx::status measure(collectx::communicator<Tr>& comm, job const& what, row_taker take, void* context) {
  switch (what.type) {
    case datatype::int8:
      return measure_type<Tr, std::int8_t>(comm, what, take, context);
    case datatype::uint8:
      return measure_type<Tr, std::uint8_t>(comm, what, take, context);
    case datatype::int16:
      return measure_type<Tr, std::int16_t>(comm, what, take, context);
    case datatype::uint16:
      return measure_type<Tr, std::uint16_t>(comm, what, take, context);
    case datatype::int32:
      return measure_type<Tr, std::int32_t>(comm, what, take, context);
    case datatype::uint32:
      return measure_type<Tr, std::uint32_t>(comm, what, take, context);
    case datatype::int64:
      return measure_type<Tr, std::int64_t>(comm, what, take, context);
    case datatype::uint64:
      return measure_type<Tr, std::uint64_t>(comm, what, take, context);
    case datatype::float32:
      return measure_type<Tr, float>(comm, what, take, context);
    case datatype::bfloat16:
      return measure_type<Tr, collectx::bfloat16>(comm, what, take, context);
    case datatype::float16:
      return measure_type<Tr, collectx::float16>(comm, what, take, context);
    case datatype::float64:
      break;
  }
  return measure_type<Tr, double>(comm, what, take, context);
}

}  // namespace perf
