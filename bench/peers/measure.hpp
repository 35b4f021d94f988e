// SPDX-License-Identifier: Apache-2.0
/// How every library is measured alike: an all-reduce of floats by sum, at all sizes, each result checked element by element.
#pragma once

#include <sys/mman.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "../perf/data.hpp"
#include "side_channel.hpp"

namespace peers {

/// What `compare` asks for: the first three arguments of every program.
struct request {
  char const* side;
  double milliseconds;  ///< to be spent on each size
  std::vector<std::size_t> sizes;

  static request of(int count, char** arguments, int needed) {
    if (count != needed) give_up("started with the wrong number of arguments; bench/peers/compare starts it");
    request r{arguments[1], std::atof(arguments[2]), {}};
    for (char* at = arguments[3]; *at != 0; at += *at == ',' ? 1 : 0) r.sizes.push_back(std::strtoull(at, &at, 10));
    if (r.sizes.empty() || *std::min_element(r.sizes.begin(), r.sizes.end()) < sizeof(float)) give_up("no sizes");
    return r;
  }
};

/// Pages of one rank, touched.
inline float* pages(std::size_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) give_up("no memory for the vectors");
  return static_cast<float*>(memory);
}

/// Library: float* prepare(float* in, float* out, count) returns where the result will be, which may be `in`; call() is measured;
/// finish() gives back what prepare made.
template <class Library>
class bench {
 public:
  bench(Library& library, side_channel& side, request const& asked) : library_(library), side_(side), asked_(asked) {
    std::size_t const most = *std::max_element(asked.sizes.begin(), asked.sizes.end());
    in_ = pages(most);
    out_ = pages(most);
  }

  /// Prints a row per size on rank 0; true if every result was right.
  bool run() {
    bool right = true;
    for (std::size_t bytes : asked_.sizes) {
      count_ = bytes / sizeof(float);
      result_ = library_.prepare(in_, out_, count_);
      double wrong = verify(0);
      int const batches = measure();
      wrong += verify(1);
      wrong = side_.largest(wrong);
      right &= wrong == 0;
      if (side_.rank() == 0) print(batches, wrong);
      side_.barrier();
      library_.finish();
    }
    return right;
  }

 private:
  using sum = collectx::sum;

  /// Elements that are wrong on this rank after one call.
  double verify(int call) {
    perf::poison(out_, count_);
    for (std::size_t i = 0; i < count_; ++i) in_[i] = perf::value_of<sum, float>(side_.rank(), i, call);
    side_.barrier();
    library_.call();
    if (side_.rank() == 0 && std::getenv("COLLECTX_PEERS_PLANT_WRONG") != nullptr) result_[count_ / 2] += 1;
    double wrong = 0;
    for (std::size_t i = 0; i < count_; ++i) wrong += result_[i] == perf::result_of<sum, float>(side_.size(), i, call) ? 0 : 1;
    side_.barrier();
    return wrong;
  }

  /// Microseconds per call on this rank.
  double time(int calls) {
    side_.barrier();
    double const begin = microseconds();
    for (int i = 0; i < calls; ++i) library_.call();
    return (microseconds() - begin) / calls;
  }

  /// Batches are long compared with the error of their start, which is a wake-up where ranks outnumber cores. Returns their number.
  int measure() {
    double const batch_us = side_.crowded() ? 10e3 : 1e3;
    double one = side_.largest(time(1));
    if (one < batch_us) one = side_.largest(time(std::clamp(static_cast<int>(batch_us / 4 / one), 1, 64)));
    one = std::max(one, 0.05);
    int const calls = std::clamp(static_cast<int>(batch_us / one), 1, 20000);
    int const batches = std::clamp(static_cast<int>(asked_.milliseconds * 1e3 / (one * calls)), 3, side_channel::most_batches);
    for (int b = 0; b < batches; ++b) side_.note(b, time(calls));
    side_.barrier();
    return batches;
  }

  void print(int batches, double wrong) const {
    std::vector<double> times;
    for (int b = 0; b < batches; ++b) times.push_back(side_.slowest(b));
    std::sort(times.begin(), times.end());
    std::printf("row %zu %.3f %.3f %.0f\n", count_ * sizeof(float), times[times.size() / 2], times[0], wrong);
    std::fflush(stdout);
  }

  Library& library_;
  side_channel& side_;
  request const& asked_;
  float *in_, *out_, *result_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace peers
