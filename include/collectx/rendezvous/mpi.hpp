// SPDX-License-Identifier: Apache-2.0
/// The ranks of an MPI communicator, in a program that has initialised MPI. Needs <mpi.h>: link collectx::mpi.
#pragma once

#include "collectx/process.hpp"
#include "collectx/rendezvous.hpp"
#include "collectx/rendezvous/invitation.hpp"
#include "collectx/rendezvous/tcp_store.hpp"
#include "collectx/status.hpp"

#include <mpi.h>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace collectx {
inline namespace v0 {

/// Models Rendezvous. Rank and size are those in the communicator; one non-blocking broadcast carries where rank 0 listens and a secret
/// made for this rendezvous, the rest is a tcp_store_rendezvous at rank 0's `local_address()` (COLLECTX_SOCKET_IFNAME chooses). So nothing
/// of ours stays under way in MPI, and MPI may be finalised while a collectx communicator lives.
class mpi_rendezvous : public tcp_store_rendezvous {
 public:
  /// Collective over `comm`: in the same order among its other collectives on every rank. Calls MPI on the caller's thread only.
  /// `timeout` as in tcp_store_options.
  /// Errors: invalid_argument where MPI is not initialised or `comm` is null or between groups; timeout where rank 0 does not call; those
  /// of tcp_store_rendezvous. What MPI itself refuses goes to the error handler of `comm`, which by default ends the program.
  static result<mpi_rendezvous> create(::MPI_Comm comm, std::chrono::nanoseconds timeout = {}) noexcept {
    int begun = 0, ended = 0, between = 0, rank = -1, size = 0;
    ::MPI_Initialized(&begun);
    ::MPI_Finalized(&ended);
    if (begun == 0 || ended != 0) {
      return status::failure(errc::invalid_argument, -1, "mpi_rendezvous: MPI is %s; call it between MPI_Init and MPI_Finalize",
                             begun == 0 ? "not initialised" : "finalised");
    }
    if (comm == MPI_COMM_NULL) return status::failure(errc::invalid_argument, -1, "mpi_rendezvous: the communicator is MPI_COMM_NULL");
    ::MPI_Comm_test_inter(comm, &between);
    if (between != 0) return status::failure(errc::invalid_argument, -1, "mpi_rendezvous: an intercommunicator has no ranks of one group");
    ::MPI_Comm_rank(comm, &rank);
    ::MPI_Comm_size(comm, &size);

    // Where the environment holds no time, `invite` and `attend` say so: who went now would be missed in the broadcast.
    result<nanoseconds> chosen = detail::join_patience(timeout.count(), rank);
    nanoseconds const patience = chosen ? *chosen : detail::usual_join_patience;
    nanoseconds const deadline = detail::monotonic_now() + patience;
    std::unique_ptr<detail::invitation> where(new (std::nothrow) detail::invitation);
    if (!where) return status::failure(errc::out_of_memory, rank, "mpi_rendezvous: no memory on rank %d", rank);
    if (rank != 0) {
      if (!broadcast(comm, where, deadline)) {
        return status::failure(errc::timeout, 0, "rank 0 never came: it has not said within %.3g s where to meet (rank %d waited for it)",
                               static_cast<double>(patience) * 1e-9, rank);
      }
      return wrap(detail::attend(*where, rank, size, timeout));
    }
    result<tcp_store_rendezvous> store = detail::invite(size, timeout, *where);
    static_cast<void>(broadcast(comm, where, deadline));  // who does not get it is missed, and named, by the store
    return wrap(std::move(store));
  }

 private:
  explicit mpi_rendezvous(tcp_store_rendezvous store) noexcept : tcp_store_rendezvous(std::move(store)) {}

  static result<mpi_rendezvous> wrap(result<tcp_store_rendezvous> store) noexcept {
    if (!store) return store.error();
    return mpi_rendezvous(std::move(*store));
  }

  /// False at the deadline. A collective cannot be cancelled: then the memory is MPI's for good, which may yet read or write it.
  static bool broadcast(::MPI_Comm comm, std::unique_ptr<detail::invitation>& where, nanoseconds deadline) noexcept {
    ::MPI_Request request = MPI_REQUEST_NULL;
    ::MPI_Ibcast(where.get(), static_cast<int>(sizeof *where), MPI_BYTE, 0, comm, &request);
    for (;;) {
      int done = 0;
      ::MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done != 0) return true;
      if (detail::monotonic_now() >= deadline) break;
      detail::nap(200'000);
    }
    static_cast<void>(where.release());
    return false;
  }
};
static_assert(Rendezvous<mpi_rendezvous>);

}  // namespace v0
}  // namespace collectx
