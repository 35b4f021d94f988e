// SPDX-License-Identifier: Apache-2.0
/// A rank of collectx over libfabric.
/// Arguments: side channel, milliseconds, sizes, rank, number of ranks, file to meet at, provider.
#include <collectx/libfabric.hpp>
#include <collectx/rendezvous/file.hpp>

#include <span>

#include "measure.hpp"

namespace {

namespace cx = collectx;
using communicator = cx::communicator<cx::libfabric_transport>;

class library {
 public:
  explicit library(communicator& comm) : comm_(comm) {}
  float* prepare(float* in, float* out, std::size_t count) {
    in_ = {in, count};
    out_ = {out, count};
    return out;
  }
  void call() {
    if (cx::status s = comm_.all_reduce(in_, out_, cx::sum{}); !s) peers::give_up(s.what());
  }
  void finish() {}

 private:
  communicator& comm_;
  std::span<float> in_, out_;
};

}  // namespace

int main(int count, char** arguments) {
  peers::request const asked = peers::request::of(count, arguments, 8);
  int const rank = std::atoi(arguments[4]), size = std::atoi(arguments[5]);
  peers::side_channel side(asked.side, rank, size);
  cx::result<cx::file_rendezvous> meeting = cx::file_rendezvous::create(arguments[6], rank, size);
  if (!meeting) peers::give_up(meeting.error().what());
  cx::libfabric_options options;
  options.provider = arguments[7];
  cx::result<communicator> comm = cx::libfabric::join(*meeting, options);
  if (!comm) peers::give_up(comm.error().what());
  library measured(*comm);
  return peers::bench(measured, side, asked).run() ? 0 : 1;
}
