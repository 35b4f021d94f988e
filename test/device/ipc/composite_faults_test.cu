// SPDX-License-Identifier: Apache-2.0
// Devices on several hosts, of which one fails at a call of CUDA, one is killed at a call, or a cable is cut: all ranks end in an error.
#include <atomic>

#include "gpu_work.hpp"
#include "host_ranks.hpp"

namespace {

namespace cx = collectx;
using gpu::marks, gpu::names_in_shm, gpu::strokes;
using host_ranks::check, host_ranks::communicator, host_ranks::ring;

constexpr int size = 3;

/// One run in which rank `odd` meets what `arm` has laid for it. Gives the marks of that rank.
template <class Arm>
marks one_run(network::hosts const& hosts, std::vector<int> const& where, int odd, processes::group& group, Arm arm) {
  marks* const seen = processes::shared<marks>();
  auto table = cx::in_process_rendezvous::create(size);
  REQUIRE(table.has_value());
  for (int r = 0; r < size; ++r)
    group.start([&, r]() -> cx::status {
      if (!hosts.enter(where[static_cast<std::size_t>(r)])) return cx::status::system(errno, "cannot enter a host");
      auto const armed = [&] {
        if (r == odd) arm();
      };
      return gpu::live(r == odd ? seen : nullptr, armed, [&] { return cx::cuda_composite::join(table->of(r), host_ranks::small()); });
    });
  group.wait();
  marks const m = *seen;
  ::munmap(seen, sizeof *seen);
  return m;
}

void calls_fail(std::vector<int> const& where, int odd) {
  auto const hosts = network::hosts::make(2);
  if (!hosts) return;
  std::size_t const names = names_in_shm();
  CAPTURE(odd);
  bool more = true;
  for (strokes at(7); more; at.next += at.step) {
    CAPTURE(at.next);
    REQUIRE(at.next < 1000);
    processes::group group(size);
    marks const m = one_run(*hosts, where, odd, group, [&at] { standin::standin_fail_at(at.next); });
    REQUIRE(m.finished == 1);
    more = m.struck != 0;
    bool const fails = more && m.unheard == 0;
    for (int r = 0; r < size; ++r) {
      CAPTURE(r);
      INFO(group[r].text);
      CHECK((group[r].code != 0) == fails);
      CHECK(group[r].seconds < 10);
      if (fails) CHECK(group[r].names(("rank " + std::to_string(odd)).c_str()));
    }
    if (more) CHECK(m.descriptors == 0);  // else it was a destructor that could not give something back
    if (fails) CHECK(m.left_over == 0);
  }
  CHECK(names_in_shm() == names);
}

void calls_kill(std::vector<int> const& where, int odd) {
  auto const hosts = network::hosts::make(2);
  if (!hosts) return;
  std::size_t const names = names_in_shm();
  CAPTURE(odd);
  for (strokes at(7);; at.next += at.step) {
    CAPTURE(at.next);
    REQUIRE(at.next < 1000);
    processes::group group(size);
    marks const m = one_run(*hosts, where, odd, group, [&at] { standin::standin_kill_at(at.next); });
    if (m.finished == 1) break;
    int const first = odd == 0 ? 1 : 0;
    bool const late = group[first].code == 0;  // it was killed when the work was done
    for (int r = 0; r < size; ++r) {
      if (r == odd) continue;
      CAPTURE(r);
      INFO(group[r].text);
      CHECK((group[r].code == 0) == late);
      CHECK(group[r].seconds < 10);
      if (late) continue;
      CHECK(group[r].code == static_cast<int>(cx::errc::peer_lost));
      CHECK(group[r].rank == odd);
    }
  }
  CHECK(names_in_shm() == names);
}

}  // namespace

TEST_CASE("a call of CUDA fails on a rank: ranks on all hosts end in an error that names it, and nothing is left") {
  calls_fail({0, 1, 0}, 0);
  calls_fail({0, 1, 0}, 1);
  calls_fail({0, 0, 0}, 2);
}

TEST_CASE("a rank is killed at a call of CUDA: ranks on all hosts end in an error that names it") {
  calls_kill({0, 1, 0}, 1);
  calls_kill({0, 1, 0}, 2);
}

TEST_CASE("a cut cable: kernels on each side end, name the ranks beyond, and their side goes on by itself") {
  std::vector<int> const where{0, 1, 1, 0};
  auto const hosts = network::hosts::make(2);
  if (!hosts) return;
  constexpr int n = 4;
  auto table = cx::in_process_rendezvous::create(n);
  REQUIRE(table.has_value());
  std::atomic<int>* const calling = processes::shared<std::atomic<int>>();
  processes::group ranks(n);
  cx::cuda_composite::options options = host_ranks::small();
  options.host.between.link_timeout = std::chrono::seconds(2);
  host_ranks::start(
      ranks, *table, *hosts, where, options, [](int) {},
      [&](communicator& comm) -> cx::status {
        gpu::buffer<int> both(5000);
        gpu::stream stream;
        cx::status s;
        cx::nanoseconds begun = 0;
        for (int calls = 0; s.ok(); ++calls) {
          if (calls == 3) ++*calling;
          begun = cx::detail::monotonic_now();
          s = gpu::one_sum(comm, both, 1, stream);
        }
        double const seconds = static_cast<double>(cx::detail::monotonic_now() - begun) * 1e-9;
        std::vector<int> const beyond = comm.rank() == 1 || comm.rank() == 2 ? std::vector{0, 3} : std::vector{1, 2};
        if (s.code() != cx::errc::peer_lost || comm.lost() != beyond || s.rank() != beyond.front()) return check(false, comm, s.what());
        if (seconds > 5) return check(false, comm, "this took longer than the cable may be cut");
        auto rest = comm.shrink(beyond);
        if (!rest) return rest.error();
        if (cx::status end = gpu::one_sum(*rest, both, 5, stream); !end) return end;
        return rest->barrier(ring);
      });
  for (int looks = 0; *calling < n && looks < 50'000; ++looks) cx::detail::nap(1'000'000);
  hosts->cut(1);
  ranks.wait();
  for (int r = 0; r < n; ++r) CHECK_MESSAGE(ranks[r].code == 0, std::string(ranks[r].text));
  ::munmap(calling, sizeof *calling);
}
