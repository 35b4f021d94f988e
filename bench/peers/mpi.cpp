// SPDX-License-Identifier: Apache-2.0
/// A rank of an MPI, whose mpirun says over what. Arguments: side channel, milliseconds, sizes.
#include <mpi.h>

#include "measure.hpp"

namespace {

class library {
 public:
  float* prepare(float* in, float* out, std::size_t count) {
    in_ = in;
    out_ = out;
    count_ = static_cast<int>(count);
    return out;
  }
  void call() {
    if (MPI_Allreduce(in_, out_, count_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS) peers::give_up("MPI_Allreduce failed");
  }
  void finish() {}

 private:
  float *in_ = nullptr, *out_ = nullptr;
  int count_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  peers::request const asked = peers::request::of(count, arguments, 4);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  bool right = false;
  {
    peers::side_channel side(asked.side, rank, size);
    library measured;
    right = peers::bench(measured, side, asked).run();
  }
  MPI_Finalize();
  return right ? 0 : 1;
}
