// SPDX-License-Identifier: Apache-2.0
/// Every algorithm that the library offers for a collective, behind one type: a plan is made of the schedule and then runs without it, so
/// what runs is the same, while a test of all algorithms instantiates its collective once.
#pragma once

#include <collectx/algo/automatic.hpp>
#include <collectx/algo/hierarchical.hpp>
#include <collectx/algo/striped.hpp>
#include <collectx/collective.hpp>
#include <collectx/exec/any_rank.hpp>
#include <collectx/exec/geometry.hpp>
#include <collectx/exec/prove.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace support {

namespace cx = collectx;

using cx::exec::any_rank;

/// A family's member for one collective; the root is the caller's to say.
class schedule_face {
 public:
  virtual ~schedule_face() = default;
  virtual bool keeps_rank_order() const = 0;
  virtual bool agrees_bitwise() const = 0;
  virtual bool admits(int root, int n) const = 0;
  virtual int lanes(int root) const = 0;
  virtual int steps(int root, int n) const = 0;
  virtual int parts(int root, int n) const = 0;
  virtual void step(int root, int k, any_rank& me) const = 0;
};

template <class Family, class C>
class face_of final : public schedule_face {
 public:
  bool keeps_rank_order() const override { return cx::keeps_rank_order<decltype(of(0))>(); }
  bool agrees_bitwise() const override { return cx::agrees_bitwise<decltype(of(0))>(); }
  bool admits(int root, int n) const override { return cx::admits(of(root), n); }
  int lanes(int root) const override { return cx::lanes_of(of(root)); }
  int steps(int root, int n) const override { return of(root).steps(n); }
  int parts(int root, int n) const override { return of(root).parts(n); }
  void step(int root, int k, any_rank& me) const override { of(root).step(k, me); }

 private:
  static constexpr auto of(int root) {
    if constexpr (requires { C{root}; })
      return cx::schedule_of(Family{}, C{root});
    else
      return cx::schedule_of(Family{}, C{});
  }
};

/// A Schedule. What it declares has to be known to the compiler, so there are two of them.
template <bool KeepsRankOrder>
struct any_schedule {
  static constexpr bool keeps_rank_order = KeepsRankOrder;
  schedule_face const* face = nullptr;
  int root = 0;
  bool admits(int n) const { return face->admits(root, n); }
  int lanes() const { return face->lanes(root); }
  int steps(int n) const { return face->steps(root, n); }
  int parts(int n) const { return face->parts(root, n); }
  template <cx::RankContext Me>
  void step(int k, Me& me) const {
    cx::exec::rank_behind<Me> behind(me);
    face->step(root, k, behind);
  }
  friend bool operator==(any_schedule const&, any_schedule const&) = default;
};

/// A family of which the member that is asked for is known.
template <bool KeepsRankOrder = false>
struct any_algorithm {
  static constexpr char const* name = "any";
  schedule_face const* face = nullptr;
  any_schedule<KeepsRankOrder> all_reduce() const { return {face, 0}; }
  any_schedule<KeepsRankOrder> reduce_scatter() const { return {face, 0}; }
  any_schedule<KeepsRankOrder> all_gather() const { return {face, 0}; }
  any_schedule<KeepsRankOrder> broadcast(int root) const { return {face, root}; }
  any_schedule<KeepsRankOrder> reduce(int root) const { return {face, root}; }
};

struct algorithm {
  std::string name;
  schedule_face const* face = nullptr;
  bool keeps_rank_order() const { return face->keeps_rank_order(); }
  template <bool KeepsRankOrder = false>
  any_algorithm<KeepsRankOrder> erased() const {
    return {face};
  }
};

namespace detail {
template <class C, class Family>
void add(std::vector<algorithm>& all, char const* name) {
  if constexpr (cx::offers<Family, C>) {
    static face_of<Family, C> const face;
    all.push_back({name, &face});
  }
}
}  // namespace detail

/// The algorithms for collective C, without `automatic`, which is no family.
template <class C>
std::vector<algorithm> const& algorithms_for() {
  static std::vector<algorithm> const all = [] {
    using namespace cx::algo;
    std::vector<algorithm> list;
    detail::add<C, ring>(list, "ring");
    detail::add<C, recursive_halving>(list, "recursive_halving");
    detail::add<C, recursive_doubling>(list, "recursive_doubling");
    detail::add<C, double_binary_tree>(list, "double_binary_tree");
    detail::add<C, direct>(list, "direct");
    detail::add<C, two_shot>(list, "two_shot");
    detail::add<C, central>(list, "central");
    detail::add<C, hierarchical<ring, double_binary_tree>>(list, "hierarchical<ring, double_binary_tree>");
    detail::add<C, hierarchical<ring, ring>>(list, "hierarchical<ring, ring>");
    detail::add<C, striped<ring>>(list, "striped<ring>");
    detail::add<C, hierarchical<direct, recursive_halving>>(list, "hierarchical<direct, recursive_halving>");
    detail::add<C, hierarchical<double_binary_tree, two_shot>>(list, "hierarchical<double_binary_tree, two_shot>");
    return list;
  }();
  return all;
}

/// f.template operator()<C>() for every collective C.
template <class F>
void for_each_collective(F const& f) {
  f.template operator()<cx::all_reduce>();
  f.template operator()<cx::reduce_scatter>();
  f.template operator()<cx::all_gather>();
  f.template operator()<cx::broadcast>();
  f.template operator()<cx::reduce>();
}

/// The collective about a root, where it has one.
template <class C>
constexpr C about(int root) {
  if constexpr (requires { C{root}; })
    return C{root};
  else
    return C{};
}

/// The smallest slots that are not refused.
template <class C>
std::size_t least_slot_bytes(algorithm const& a, int n, std::size_t size_of_element) {
  auto const schedule = cx::schedule_of(a.erased(), about<C>(0));
  cx::exec::shape const form = cx::exec::shape_of(schedule, about<C>(0), n);
  int const largest = cx::exec::largest_message(schedule, form);
  std::size_t bytes = (size_of_element + 63) / 64 * 64;
  while (!cx::exec::geometry(form, largest, 1000, bytes / size_of_element).fits()) bytes += 64;
  return bytes;
}

}  // namespace support
