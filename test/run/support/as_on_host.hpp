// SPDX-License-Identifier: Apache-2.0
/// What blocks have to give, bit for bit: the same calls on the host, a share of a block at a time and with slots of the same length.
#pragma once

#include <collectx/launch.hpp>

#include <cstdint>
#include <vector>

#include "advance.hpp"
#include "on_blocks.hpp"
#include "sweep.hpp"

namespace support {

/// A call and how it is cut.
struct task_on_blocks {
  task what;
  int blocks = 1;
  int threads = 1;
};

/// The ranks' results, as `reference` has them, of each task.
template <class C, class T, class Op>
std::vector<std::vector<T>> results_on_host(int n, std::vector<task_on_blocks> const& tasks, std::size_t slot_bytes, Op const& op) {
  bool const owners = has_shares<C>;
  std::size_t const size = static_cast<std::size_t>(n);
  std::vector<std::vector<T>> all;
  for (task_on_blocks const& t : tasks) all.emplace_back((owners ? size : 1) * t.what.what.count);
  cx::status const s = cx::loopback::run(n, small_slots(4, slot_bytes), [&](auto& comm) -> cx::status {
    std::size_t const me = static_cast<std::size_t>(comm.rank());
    for (std::size_t k = 0; k < tasks.size(); ++k) {
      task const& t = tasks[k].what;
      bool const mine_counts =
          std::is_same_v<C, cx::reduce> ? comm.rank() == t.what.root : std::is_same_v<C, cx::reduce_scatter> || me == 0;
      for (int b = 0; b < tasks[k].blocks; ++b) {
        cx::extent const share = cx::device::block_share(t.what.count, sizeof(T), tasks[k].blocks, b);
        auto const place = [&](std::size_t i) { return i / share.count * t.what.count + share.first + i % share.count; };
        task part = t;
        part.where = placement::out_of_place;
        part.what.count = share.count;
        exchange_of<C, T> x(n, comm.rank(), part);
        for (std::size_t i = 0; i < x.in.size(); ++i) x.in[i] = element<T>(comm.rank(), place(i), t.what.salt);
        if (cx::status failed = detail::make_call(comm, part, x, op, t.how->template erased<!cx::is_commutative_v<Op, T>>()); !failed)
          return failed;
        guarded<T> const& result = std::is_same_v<C, cx::broadcast> ? x.in : x.out;
        std::size_t const first = std::is_same_v<C, cx::reduce_scatter> ? me * share.count : 0;
        for (std::size_t i = 0; i < result.size() && mine_counts; ++i) all[k][place(first + i)] = result[i];
      }
    }
    return {};
  });
  CHECK_MESSAGE(s.ok(), std::string(s.what()));
  return all;
}

/// One call on blocks: what is wrong with it, or nothing.
template <class C, class T, class Protocol, class Op>
std::string differs_from_host(block_group<Protocol>& group, task_on_blocks const& how, std::vector<T> const& expected, Op const& op) {
  int const n = group.layout().ranks;
  task const& t = how.what;
  trial planned;
  planned.how = t.how;
  planned.n = n;
  planned.root = t.what.root;
  call_on_blocks<Protocol, T> call(group, plans_for<C, Op, T>(planned), t.what.count, how.blocks);
  if (!call.fits()) return "slots are too small";
  std::vector<std::unique_ptr<exchange_of<C, T>>> memory;
  for (int r = 0; r < n; ++r) {
    memory.push_back(std::make_unique<exchange_of<C, T>>(n, r, t));
    call.of(r).memory = buffers_of(*memory.back());
  }
  std::vector<cx::device::outcome> const ends = call.run(how.threads, op);
  for (int r = 0; r < n; ++r) {
    std::size_t const at = static_cast<std::size_t>(r);
    if (ends[at] != cx::device::outcome::done) return cx::device::describe(group.reports(r)[0], r, C::name).what();
    std::string const wrong = detail::defect<C, T>(r, t, *memory[at], expected);
    if (!wrong.empty()) return "rank " + std::to_string(r) + " " + wrong;
  }
  return {};
}

/// Tasks of every algorithm, by one group of blocks each after the other, with what depends on threads drawn by the seed. What
/// furnish(group) gives is kept as long as the group.
template <class C, class T, class Protocol, class Op, class Furnish>
void compare_with_host(int n, std::size_t rounds, Op const& op, Furnish const& furnish) {
  selection chosen;
  chosen.automatic = false;
  chosen.keep_order_only = !cx::is_commutative_v<Op, T>;
  std::vector<task> all = tasks_for<C>(n, chosen);
  std::erase_if(all, [](task const& t) { return t.what.count > 5000; });
  std::map<algorithm const*, std::size_t> drawn;
  std::erase_if(all, [&](task const& t) { return ++drawn[t.how] > rounds; });
  random_stream random(seed() + static_cast<std::uint64_t>(n));
  std::vector<task_on_blocks> tasks;
  for (task const& t : all) tasks.push_back({t, 1 + static_cast<int>(random.below(2)), 1 + static_cast<int>(random.below(3))});

  cx::device::layout l;
  l.ranks = n;
  l.blocks = 2;
  l.lanes = 2;
  std::size_t const slot_bytes = slot_bytes_for<C>(n, all, sizeof(T), 256);
  l.slots = l.low_latency = {4, slot_bytes};
  block_group<Protocol> group(l);
  [[maybe_unused]] auto const more = furnish(group);
  std::vector<std::vector<T>> const expected = results_on_host<C, T>(n, tasks, slot_bytes, op);
  for (std::size_t k = 0; k < tasks.size(); ++k) {
    std::string const wrong = differs_from_host<C, T>(group, tasks[k], expected[k], op);
    CHECK_MESSAGE(wrong.empty(), (wrong + ": " + describe(C::name, tasks[k].what, n, sizeof(T), cx::reduction_name<Op>()) + ", " +
                                  std::to_string(tasks[k].blocks) + " blocks of " + std::to_string(tasks[k].threads)));
    if (!wrong.empty()) return;  // the group is of no use any more
  }
}

template <class C, class T, class Protocol, class Op>
void compare_with_host(int n, std::size_t rounds, Op const& op) {
  compare_with_host<C, T, Protocol>(n, rounds, op, [](auto&) { return 0; });
}

}  // namespace support
