// SPDX-License-Identifier: Apache-2.0
/// All of collectx that threads and processes on one host need. By name: hostile.hpp for tests, and what
/// reaches beyond a host, rendezvous/environment.hpp, rendezvous/tcp_store.hpp, libfabric.hpp, rendezvous/pmix.hpp, rendezvous/mpi.hpp.
#pragma once

// IWYU pragma: begin_exports
#include "collectx/algo/automatic.hpp"
#include "collectx/algo/direct.hpp"
#include "collectx/algo/double_binary_tree.hpp"
#include "collectx/algo/groups.hpp"
#include "collectx/algo/hierarchical.hpp"
#include "collectx/algo/recursive_doubling.hpp"
#include "collectx/algo/recursive_halving.hpp"
#include "collectx/algo/ring.hpp"
#include "collectx/algo/striped.hpp"
#include "collectx/chunk.hpp"
#include "collectx/collective.hpp"
#include "collectx/combine.hpp"
#include "collectx/communicator.hpp"
#include "collectx/config.hpp"
#include "collectx/exec/prove.hpp"
#include "collectx/launch.hpp"
#include "collectx/reduce/bitwise.hpp"
#include "collectx/reduce/functors.hpp"
#include "collectx/reduce/located.hpp"
#include "collectx/reduce/premultiplied_sum.hpp"
#include "collectx/reduce/small_floats.hpp"
#include "collectx/reduction.hpp"
#include "collectx/rendezvous/file.hpp"
#include "collectx/rendezvous/in_process.hpp"
#include "collectx/schedule.hpp"
#include "collectx/status.hpp"
#include "collectx/transport.hpp"
#include "collectx/transport/board_rendezvous.hpp"
#include "collectx/transport/loopback.hpp"
#include "collectx/transport/shared_memory.hpp"
// IWYU pragma: end_exports
