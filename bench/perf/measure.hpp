// SPDX-License-Identifier: Apache-2.0
/// One job: one collective by one algorithm on one type, at all sizes.
#pragma once

#include <collectx/communicator.hpp>
#include <collectx/transport/loopback.hpp>
#include <collectx/transport/shared_memory.hpp>
#if COLLECTX_PERF_LIBFABRIC
#include <collectx/transport/libfabric.hpp>
#endif

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "options.hpp"
#include "types.hpp"

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

/// Every job that is asked for, offered by its algorithm, and built.
std::vector<job> jobs_of(settings const& all);

/// Each rank's part of the job. Defined in measure_*.cpp, one for each type: together they would take minutes to compile.
template <class Group, class T>
collectx::status measure_type(Group& group, job const& what, row_taker take, void* context);

/// What the ranks of a measurement have to know of each other: that all are here, the largest times, the sum of a count. In agree.cpp.
template <class Tr>
collectx::status meet(collectx::communicator<Tr>& comm);
template <class Tr>
collectx::status slowest_of(collectx::communicator<Tr>& comm, std::span<double> seconds);
template <class Tr>
collectx::status total_of(collectx::communicator<Tr>& comm, std::int64_t& count);

/// f(communicator&) by this process, which is one rank of a group.
template <class Tr, class F>
collectx::status take_part(collectx::result<collectx::communicator<Tr>> comm, F const& f) {
  if (!comm) return comm.error();
  collectx::status const s = f(*comm);
  return s ? s : comm->abort(s);
}

template <class Group>
collectx::status measure(Group& group, job const& what, row_taker take, void* context) {
  return with_type(what.type, [&]<class T>(std::type_identity<T>) { return measure_type<Group, T>(group, what, take, context); });
}

}  // namespace perf
