// SPDX-License-Identifier: Apache-2.0
/// Many calls of one collective on one group of threads, each compared with the reference.
#pragma once

#include <collectx/launch.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>
#include <vector>

#include "perform.hpp"
#include "seed.hpp"

namespace support {

inline constexpr int all_sizes[] = {1, 2, 3, 4, 5, 7, 8};
inline constexpr int some_sizes[] = {2, 3, 5, 8};  // for types beside the first: what differs is the fold
inline constexpr int larger_sizes[] = {12, 16, 17, 31, 32, 33, 64};

/// Counts at which something changes.
template <class C>
std::vector<std::size_t> counts_for(int n) {
  std::size_t const size = static_cast<std::size_t>(n);
  std::vector<std::size_t> counts{0, 1, size, size + 1, 1000, has_shares<C> && n > 4 ? 65537 / size : 65537};
  if (n > 2) counts.push_back(size - 1);
  return counts;
}

template <class C>
std::vector<int> roots_for(int n) {
  if (!std::is_same_v<C, cx::broadcast> && !std::is_same_v<C, cx::reduce>) return {0};
  std::vector<int> roots{0};
  if (n > 1) roots.push_back(n - 1);
  if (n > 2) roots.push_back(n / 2);
  return roots;
}

/// How the tasks of a group are chosen.
struct selection {
  bool keep_order_only = false;
  bool automatic = true;
  std::size_t rounds = 0;  ///< tasks of each algorithm, drawn by the seed; 0: all
};

template <class C>
std::vector<task> tasks_for(int n, selection const& chosen) {
  std::vector<algorithm const*> algorithms;
  if (chosen.automatic) algorithms.push_back(nullptr);
  for (algorithm const& a : algorithms_for<C>())
    if (a.face->admits(0, n) && (a.keeps_rank_order() || !chosen.keep_order_only)) algorithms.push_back(&a);
  std::vector<task> tasks;
  for (algorithm const* how : algorithms)
    for (std::size_t count : counts_for<C>(n))
      for (int root : roots_for<C>(n))
        for (placement where : {placement::out_of_place, placement::in_place})
          if (where == placement::out_of_place || !std::is_same_v<C, cx::broadcast>) tasks.push_back({how, where, {count, 0, root}, 0});
  random_stream random(seed() + static_cast<std::uint64_t>(n));
  for (std::size_t i = tasks.size(); i > 1; --i) std::swap(tasks[i - 1], tasks[random.below(i)]);
  if (chosen.rounds > 0) {
    std::map<algorithm const*, std::size_t> drawn;
    std::erase_if(tasks, [&](task const& t) { return ++drawn[t.how] > chosen.rounds; });
  }
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    tasks[i].what.salt = i % 5;  // so that what an earlier call left behind is wrong now
    tasks[i].shift = i % 3;
  }
  return tasks;
}

/// References, each made once.
template <class C, class T, class Op>
class references {
 public:
  references(int n, std::vector<task> const& tasks, Op const& op) {
    for (task const& t : tasks) {
      std::vector<T>& known = known_[key(t)];
      if (known.empty()) known = reference<C, T>(n, t.what, op);
    }
  }
  std::vector<T> const& of(task const& t) const { return known_.at(key(t)); }

 private:
  using id = std::tuple<std::size_t, std::uint64_t, int>;
  static id key(task const& t) { return {t.what.count, t.what.salt, std::is_same_v<C, cx::broadcast> ? t.what.root : 0}; }
  std::map<id, std::vector<T>> known_;
};

template <class C>
std::size_t slot_bytes_for(int n, std::vector<task> const& tasks, std::size_t size_of_element, std::size_t wanted) {
  std::map<algorithm const*, std::size_t> least;
  for (task const& t : tasks)
    if (t.how != nullptr && !least.contains(t.how)) least[t.how] = least_slot_bytes<C>(*t.how, n, size_of_element);
  for (auto const& [how, bytes] : least) wanted = (std::max)(wanted, bytes);
  return wanted;
}

/// All tasks, one after the other, on one group of n threads.
template <class C, class T, bool Automatic, class Op>
cx::status sweep(int n, std::vector<task> const& tasks, cx::loopback::options const& options, Op const& op) {
  references<C, T, Op> const expected(n, tasks, op);
  return cx::loopback::run(n, options, [&](auto& comm) -> cx::status {
    for (task const& t : tasks)
      if (cx::status s = perform<C, T, Automatic>(comm, t, expected.of(t), op); !s) return s;
    return {};
  });
}

inline cx::loopback::options small_slots(int slots, std::size_t slot_bytes = 256) {
  cx::loopback::options o;
  o.slots = slots;
  o.slot_bytes = slot_bytes;
  return o;
}

/// Every algorithm, count, root and placement for one element type and operation, with roomy and with tight channels.
template <class C, class T, bool Automatic = false, class Op = cx::sum>
void sweep_all(int n, Op const& op = {}) {
  selection chosen;
  chosen.keep_order_only = !cx::is_commutative_v<Op, T>;
  chosen.automatic = Automatic;
  std::vector<task> tasks = tasks_for<C>(n, chosen);
  cx::status const roomy = sweep<C, T, Automatic>(n, tasks, {}, op);
  CHECK_MESSAGE(roomy.ok(), std::string(roomy.what()));
  // Many pieces are many messages, so large vectors go through tight channels at few ranks only.
  std::erase_if(tasks, [&](task const& t) { return t.what.count > 5000 && n > 3; });
  cx::status const tight = sweep<C, T, Automatic>(n, tasks, small_slots(4, slot_bytes_for<C>(n, tasks, sizeof(T), 256)), op);
  CHECK_MESSAGE(tight.ok(), std::string(tight.what()));
}

/// A few of each algorithm, drawn by the seed.
template <class C, class T, bool Automatic = false, class Op = cx::sum>
void sweep_some(int n, std::size_t rounds, Op const& op = {}) {
  selection chosen;
  chosen.keep_order_only = !cx::is_commutative_v<Op, T>;
  chosen.automatic = Automatic;
  chosen.rounds = rounds;
  std::vector<task> tasks = tasks_for<C>(n, chosen);
  cx::status const roomy = sweep<C, T, Automatic>(n, tasks, {}, op);
  CHECK_MESSAGE(roomy.ok(), std::string(roomy.what()));
  std::erase_if(tasks, [&](task const& t) { return t.what.count > 5000; });
  cx::status const tight = sweep<C, T, Automatic>(n, tasks, small_slots(4, slot_bytes_for<C>(n, tasks, sizeof(T), 256)), op);
  CHECK_MESSAGE(tight.ok(), std::string(tight.what()));
}

/// Each algorithm with exactly the slots that its proof says it needs.
template <class C, class T, class Op = cx::sum>
void sweep_with_least_slots(int n, Op const& op = {}) {
  for (algorithm const& a : algorithms_for<C>()) {
    if (!a.face->admits(0, n)) continue;
    std::vector<task> tasks = tasks_for<C>(n, {false, false, 0});
    std::erase_if(tasks, [&](task const& t) { return t.how != &a || t.what.count > 5000; });
    int needed = 1;
    for (int root : roots_for<C>(n)) needed = (std::max)(needed, cx::cost_of(a.erased(), about<C>(root), n).slots);
    cx::status const s = sweep<C, T, false>(n, tasks, small_slots(needed, slot_bytes_for<C>(n, tasks, sizeof(T), 64)), op);
    CHECK_MESSAGE(s.ok(), std::string(s.what()));
  }
}

}  // namespace support
