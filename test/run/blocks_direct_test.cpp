// SPDX-License-Identifier: Apache-2.0
// compile: -O0 everywhere
// labels: threads
/// All-reduces that read peers' buffers fold in the order of ranks, to the bit, and end on all ranks or on none.
#include <collectx/exec/direct_device.cuh>
#include <collectx/reduce/functors.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/buffers.hpp"
#include "support/on_blocks.hpp"
#include "support/reference.hpp"

namespace cx = collectx;
using cx::device::outcome;
using group_type = support::block_group<cx::device::flagged<>>;

namespace {

constexpr int most_blocks = 2;

enum class way { one_shot, two_shot };

cx::device::layout for_ranks(int n) {
  cx::device::layout l;
  l.ranks = n;
  l.blocks = most_blocks;
  l.slots = l.low_latency = {1, 64};
  return l;
}

/// What each rank registers, and a call.
template <class T>
class registered {
 public:
  registered(group_type& group, std::size_t count) : group_(group), count_(count) {
    int const n = group.layout().ranks;
    std::size_t const scratch = cx::exec::two_shot_scratch(count, sizeof(T), n, most_blocks);
    for (int r = 0; r < n; ++r) {
      in_.emplace_back(count, 1);
      out_.emplace_back(count, 2);
      scratch_.emplace_back(scratch);
      inputs_.push_back(in_.back().data());
      scratches_.push_back(scratch_.back().data());
    }
    identities.resize(static_cast<std::size_t>(n), 7);
  }
  support::guarded<T>& in(int rank) { return in_[static_cast<std::size_t>(rank)]; }
  support::guarded<T>& out(int rank) { return out_[static_cast<std::size_t>(rank)]; }

  template <class Op>
  std::vector<outcome> run(way how, bool in_place, int blocks, int threads, Op const& op, int absent = -1) {
    int const n = group_.layout().ranks;
    std::vector<outcome> ends(static_cast<std::size_t>(n));
    group_.launch(
        blocks, threads, cx::exec::direct_shared_bytes(n),
        [&](cx::device::cpu_block& block, int rank) {
          cx::device::world const world = group_.world(rank);
          cx::exec::direct_call<T> call;
          call.inputs = inputs_.data();
          call.output = in_place ? in(rank).data() : out(rank).data();
          call.scratch = scratches_.data();
          call.count = count_;
          call.identity = identities[static_cast<std::size_t>(rank)];
          outcome const end =
              how == way::one_shot ? cx::exec::one_shot(block, world, call, op) : cx::exec::two_shot(block, world, call, op);
          if (block.rank() == 0 && block.index() == 0) ends[static_cast<std::size_t>(rank)] = end;
        },
        absent);
    return ends;
  }
  bool intact() const {
    for (auto const* all : {&in_, &out_, &scratch_})
      for (support::guarded<T> const& buffer : *all)
        if (!buffer.intact()) return false;
    return true;
  }

  std::vector<std::uint64_t> identities;

 private:
  group_type& group_;
  std::size_t count_;
  std::vector<support::guarded<T>> in_, out_, scratch_;
  std::vector<T const*> inputs_;
  std::vector<T*> scratches_;
};

template <class T, class Op>
std::vector<T> expected_of(int n, std::size_t count, std::uint64_t salt, Op const& op) {
  std::vector<T> all = support::fold_of_all<T>(n, count, salt, op);
  if constexpr (cx::has_finish<Op, T>)
    for (T& x : all) x = static_cast<T>(op.finish(x, n));
  return all;
}

template <class T, class Op>
void compare(Op const& op) {
  struct {
    way how;
    bool in_place;
  } const ways[] = {{way::one_shot, false}, {way::two_shot, false}, {way::two_shot, true}};
  for (int n : {1, 2, 3, 4}) {
    group_type group(for_ranks(n));
    std::uint64_t salt = 0;
    for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{64}, std::size_t{1000}})
      for (int blocks : {1, 2})
        for (auto const& w : ways) {
          CAPTURE(n);
          CAPTURE(count);
          registered<T> memory(group, count);
          ++salt;
          for (int r = 0; r < n; ++r)
            for (std::size_t i = 0; i < count; ++i) memory.in(r)[i] = support::element<T>(r, i, salt);
          auto const ends = memory.run(w.how, w.in_place, blocks, 1 + static_cast<int>(count % 3), op);
          CHECK(ends == std::vector<outcome>(static_cast<std::size_t>(n), outcome::done));
          std::vector<T> const expected = expected_of<T>(n, count, salt, op);
          bool right = memory.intact();
          for (int r = 0; r < n; ++r) {
            T const* const result = w.in_place ? memory.in(r).data() : memory.out(r).data();
            for (std::size_t i = 0; i < count; ++i) right = right && result[i] == expected[i];
          }
          CHECK(right);
        }
  }
}

}  // namespace

TEST_CASE("one shot and two shots: all ranks' operands in the order of ranks") {
  compare<support::rough>(support::add_rough{});
  compare<support::affine>(support::compose{});
  compare<float>(cx::avg{});
}

TEST_CASE("calls one after the other on the same buffers: nobody's input changes while a peer reads it") {
  constexpr std::size_t count = 40;
  group_type group(for_ranks(3));
  registered<std::uint32_t> memory(group, count);
  std::size_t wrong = 0;
  // The ranks' threads go from call to call by themselves.
  group.launch(1, 2, cx::exec::direct_shared_bytes(3), [&](cx::device::cpu_block& block, int rank) {
    std::uint32_t const* const inputs[] = {memory.in(0).data(), memory.in(1).data(), memory.in(2).data()};
    for (std::uint32_t k = 0; k < 50; ++k) {
      for (std::size_t i = static_cast<std::size_t>(block.rank()); i < count; i += 2)
        memory.in(rank)[i] = k * 1000 + static_cast<std::uint32_t>(rank);
      block.sync();
      cx::exec::direct_call<std::uint32_t> call;
      call.inputs = inputs;
      call.output = memory.out(rank).data();
      call.count = count;
      bool const done = cx::exec::one_shot(block, group.world(rank), call, cx::sum{}) == outcome::done;
      block.sync();
      for (std::size_t i = 0; i < count && block.rank() == 0 && rank == 1; ++i)
        if (!done || memory.out(rank)[i] != 3 * k * 1000 + 3) ++wrong;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("a rank that does not come, and one that makes another call, end the call on all ranks") {
  for (way how : {way::one_shot, way::two_shot}) {
    for (int absent = 0; absent < 3; ++absent) {
      group_type group(for_ranks(3));
      group.timeout = 1;  // two looks at the clock, and the time is up
      registered<int> memory(group, 10);
      std::vector<outcome> const ends = memory.run(how, false, 1, 2, cx::sum{}, absent);
      int tellers = 0;
      for (int r = 0; r < 3; ++r) {
        if (r == absent) continue;
        CHECK(ends[static_cast<std::size_t>(r)] != outcome::done);
        cx::device::report const& report = group.reports(r)[0];
        CHECK(report.call == 1);
        tellers += report.verdict.reporter == r && report.verdict.what == outcome::late ? 1 : 0;
      }
      CHECK(tellers > 0);
    }
    group_type group(for_ranks(3));
    registered<int> memory(group, 10);
    memory.identities[2] = 8;
    bool named = false;
    for (outcome end : memory.run(how, false, 1, 2, cx::sum{})) CHECK(end != outcome::done);
    for (int r = 0; r < 3; ++r) {
      std::string const text = cx::device::describe(group.reports(r)[0], r, "all_reduce").what();
      named = named || text.find("ranks 2 and 0 make different calls") != std::string::npos ||
              text.find("ranks 0 and 2 make different calls") != std::string::npos || text.find("ranks 1 and 2") != std::string::npos ||
              text.find("ranks 2 and 1") != std::string::npos;
    }
    CHECK(named);
    for (outcome end : memory.run(how, false, 1, 2, cx::sum{})) CHECK(end == outcome::aborted);  // nothing comes after a failure
  }
}
