// SPDX-License-Identifier: Apache-2.0
// argument: join; miss (rank 2 never comes); headless (rank 0 never comes); misuse
#include <collectx/rendezvous/mpi.hpp>

#include <string>

#include "rank.hpp"

namespace {

namespace cx = collectx;

cx::status misuse() {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  cx::status s = cx::mpi_rendezvous::create(MPI_COMM_NULL).error();
  if (std::strstr(s.what(), "MPI_COMM_NULL") == nullptr) return launchers::wrong(rank, "a null communicator is taken");
  MPI_Comm half = MPI_COMM_NULL, between = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 0, &between);
  s = cx::mpi_rendezvous::create(between).error();
  if (std::strstr(s.what(), "intercommunicator") == nullptr) return launchers::wrong(rank, "an intercommunicator is taken");
  // Two groups at once, each in its half.
  auto const create = [&](std::chrono::nanoseconds timeout) { return cx::mpi_rendezvous::create(half, timeout); };
  s = launchers::join(rank / 2, size / 2, create);
  MPI_Comm_free(&between);
  MPI_Comm_free(&half);
  return s;
}

}  // namespace

int main(int, char** arguments) {
  ::alarm(100);
  std::string const what = arguments[1];
  cx::status s = cx::mpi_rendezvous::create(MPI_COMM_WORLD).error();
  if (std::strstr(s.what(), "MPI is not initialised") == nullptr) return 1;
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  auto const create = [](std::chrono::nanoseconds timeout) { return cx::mpi_rendezvous::create(MPI_COMM_WORLD, timeout); };
  if (what == "join") s = launchers::join(rank, 4, create);
  if (what == "miss") s = launchers::miss(rank, 2, "rank 2 of 4 never came to ", create);
  if (what == "headless") s = launchers::miss(rank, 0, "rank 0 never came: it has not said", create);
  if (what == "misuse") s = misuse();
  int const code = launchers::leave(rank, s);
  MPI_Finalize();
  s = cx::mpi_rendezvous::create(MPI_COMM_WORLD).error();
  return std::strstr(s.what(), "MPI is finalised") == nullptr ? 1 : code;
}
