// SPDX-License-Identifier: Apache-2.0
/// How far apart the first two cores are that this process may use, as a cache line sees it. Under a hypervisor that changes within
/// minutes, and with it every time that two cores need for each other. Prints the nanoseconds of a round trip and of an exchange.
#include <pthread.h>
#include <sched.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

struct line {
  alignas(128) std::atomic<std::uint64_t> value{0};
};
line lines[2];
constexpr int batches = 40;
constexpr std::uint64_t turns = 1000;

void pin(int cpu) {
  ::cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(cpu), &one);
  ::pthread_setaffinity_np(::pthread_self(), sizeof one, &one);
}

void wait_for(line const& l, std::uint64_t value) {
  while (l.value.load(std::memory_order_acquire) < value) {
  }
}

/// `take` one turn after another; the median of the batches, in nanoseconds a turn.
template <class Turn>
double median(std::uint64_t from, Turn take) {
  std::vector<double> times;
  for (int b = 0; b < batches; ++b) {
    auto const begin = std::chrono::steady_clock::now();
    for (std::uint64_t t = 0; t < turns; ++t) take(++from);
    times.push_back(std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() /
                    static_cast<double>(turns));
  }
  std::nth_element(times.begin(), times.begin() + batches / 2, times.end());
  return times[batches / 2];
}

/// One after the other.
double round_trip(int me) {
  return median(0, [me](std::uint64_t turn) {
    if (me == 1) wait_for(lines[0], turn);
    lines[me].value.store(turn, std::memory_order_release);
    if (me == 0) wait_for(lines[1], turn);
  });
}
/// Both at once.
double exchange(int me) {
  return median(batches * turns, [me](std::uint64_t turn) {
    lines[me].value.store(turn, std::memory_order_release);
    wait_for(lines[1 - me], turn);
  });
}

}  // namespace

int main() {
  ::cpu_set_t mine;
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof mine, &mine) == 0)
    for (int c = 0; c < CPU_SETSIZE; ++c)
      if (CPU_ISSET(static_cast<std::size_t>(c), &mine)) cpus.push_back(c);
  if (cpus.size() < 2) {
    std::printf("placement one core\n");
    return 0;
  }
  double trip = 0, both = 0;
  std::thread other([&] {
    pin(cpus[1]);
    round_trip(1);
    exchange(1);
  });
  pin(cpus[0]);
  trip = round_trip(0);
  both = exchange(0);
  other.join();
  std::printf("placement %.0f %.0f\n", trip, both);
}
