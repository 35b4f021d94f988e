// SPDX-License-Identifier: Apache-2.0
// Every call of CUDA is made to fail once, and every rank is killed at every one of its calls: every run ends, in an error on every rank.
#include "gpu_ranks.hpp"
#include "gpu_work.hpp"

#include <doctest/doctest.h>

#include <string>

namespace {

namespace cx = collectx;
using gpu::marks, gpu::names_in_shm;

/// One run in which rank `odd` meets what `arm` has laid for it. Gives the marks of that rank.
template <class Arm>
marks one_run(int size, int odd, processes::group& group, Arm arm) {
  marks* const seen = processes::shared<marks>();
  auto table = cx::in_process_rendezvous::create(size);
  REQUIRE(table.has_value());
  cx::cuda_ipc::options const options = gpu::small();
  for (int r = 0; r < size; ++r)
    group.start([&, r]() -> cx::status {
      auto const armed = [&] {
        if (r == odd) arm();
      };
      return gpu::live(r == odd ? seen : nullptr, armed, [&] {
        auto mine = table->of(r);
        return cx::cuda_ipc::join(mine, options);
      });
    });
  group.wait();
  marks const m = *seen;
  ::munmap(seen, sizeof *seen);
  return m;
}

void every_call_fails(int size) {
  std::size_t const names = names_in_shm();
  for (int odd = 0; odd < size; ++odd) {
    bool more = true;
    for (long k = 1; more; ++k) {
      CAPTURE(odd);
      CAPTURE(k);
      REQUIRE(k < 1000);
      processes::group group(size);
      marks const m = one_run(size, odd, group, [k] { standin::standin_fail_at(k); });
      REQUIRE(m.finished == 1);
      more = m.struck != 0;
      bool const fails = more && m.unheard == 0;
      for (int r = 0; r < size; ++r) {
        CAPTURE(r);
        INFO(group[r].text);
        REQUIRE((group[r].code != 0) == fails);
        CHECK(group[r].seconds < 10);
        if (fails) CHECK(group[r].names(("rank " + std::to_string(odd)).c_str()));
      }
      CHECK(m.descriptors == 0);
      if (fails) CHECK(m.left_over == 0);
    }
  }
  CHECK(names_in_shm() == names);
}

void every_call_kills(int size) {
  std::size_t const names = names_in_shm();
  int const odd = size - 1;
  for (long k = 1;; ++k) {
    CAPTURE(k);
    REQUIRE(k < 1000);
    processes::group group(size);
    marks const m = one_run(size, odd, group, [k] { standin::standin_kill_at(k); });
    if (m.finished == 1) break;
    bool const late = group[0].code == 0;  // it was killed when the work was done
    for (int r = 0; r < odd; ++r) {
      CAPTURE(r);
      INFO(group[r].text);
      REQUIRE((group[r].code == 0) == late);
      CHECK(group[r].seconds < 10);
      if (late) continue;
      CHECK(group[r].code == static_cast<int>(cx::errc::peer_lost));
      CHECK(group[r].rank == odd);
    }
  }
  CHECK(names_in_shm() == names);
}

}  // namespace

TEST_CASE("every call of CUDA fails once on each of two ranks: both end in an error that names the rank, and nothing is left") {
  every_call_fails(2);
}
TEST_CASE("every call of CUDA fails once on each of three ranks") { every_call_fails(3); }
TEST_CASE("a rank is killed at every call that it makes: the others end in an error that names it") {
  every_call_kills(2);
  every_call_kills(4);
}
