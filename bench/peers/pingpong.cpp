// SPDX-License-Identifier: Apache-2.0
/// One of two ranks that send messages to and fro over libfabric, counted as fi_pingpong counts: the mean time of one transfer.
/// Arguments: file to meet at, provider, rank, sizes, repetitions of each.
#include <collectx/libfabric.hpp>
#include <collectx/rendezvous/file.hpp>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <vector>

#include "side_channel.hpp"

namespace {

namespace cx = collectx;
using communicator = cx::communicator<cx::libfabric_transport>;

void must(cx::status const& s) {
  if (!s) peers::give_up(s.what());
}

std::vector<std::size_t> numbers(char* at) {
  std::vector<std::size_t> all;
  for (; *at != 0; at += *at == ',' ? 1 : 0) all.push_back(std::strtoull(at, &at, 10));
  return all;
}

/// Every byte of a message says who has sent it, and in which turn.
unsigned char mark(int rank, std::size_t turn) { return static_cast<unsigned char>(1 + turn % 100 * 2 + static_cast<std::size_t>(rank)); }

void there_and_back(communicator& comm, std::span<unsigned char> out, std::span<unsigned char> in) {
  if (comm.rank() == 0) must(comm.send(out, 1));
  must(comm.recv(in, 1 - comm.rank()));
  if (comm.rank() == 1) must(comm.send(out, 0));
}

void checked(communicator& comm, std::span<unsigned char> out, std::span<unsigned char> in, std::size_t turn) {
  std::fill(out.begin(), out.end(), mark(comm.rank(), turn));
  std::fill(in.begin(), in.end(), static_cast<unsigned char>(0));
  there_and_back(comm, out, in);
  unsigned char const expected = mark(1 - comm.rank(), turn);
  if (!std::all_of(in.begin(), in.end(), [expected](unsigned char c) { return c == expected; })) peers::give_up("a message is wrong");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 6) peers::give_up("started with the wrong number of arguments; bench/peers/compare starts it");
  int const rank = std::atoi(arguments[3]);
  std::vector<std::size_t> const sizes = numbers(arguments[4]), repetitions = numbers(arguments[5]);
  if (sizes.empty() || sizes.size() != repetitions.size()) peers::give_up("not as many repetitions as sizes");
  cx::result<cx::file_rendezvous> meeting = cx::file_rendezvous::create(arguments[1], rank, 2);
  if (!meeting) peers::give_up(meeting.error().what());
  cx::libfabric_options options;
  options.provider = arguments[2];
  cx::result<communicator> joined = cx::libfabric::join(*meeting, options);
  if (!joined) peers::give_up(joined.error().what());
  communicator& comm = *joined;

  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::vector<unsigned char> out(sizes[i]), in(sizes[i]);
    checked(comm, out, in, 2 * i);
    double const begin = peers::microseconds();
    for (std::size_t r = 0; r < repetitions[i]; ++r) there_and_back(comm, out, in);
    double const each = (peers::microseconds() - begin) / static_cast<double>(2 * repetitions[i]);
    checked(comm, out, in, 2 * i + 1);
    if (rank == 0) std::printf("row %zu %.3f\n", sizes[i], each);
  }
}
