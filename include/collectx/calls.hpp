// SPDX-License-Identifier: Apache-2.0
/// The collective calls and their arguments, once for those who run them at once and once for those who plan them.
#pragma once

#include "collectx/algo/automatic.hpp"
#include "collectx/arguments.hpp"
#include "collectx/pending.hpp"
#include "collectx/reduce/functors.hpp"

#include <cstdint>
#include <span>
#include <type_traits>

namespace collectx {
inline namespace v0 {
namespace detail {

/// @tparam Self  has rank(), size(), token() and perform(...), which has its plan found and gives an Outcome
/// @tparam Outcome  of a call; can be made from a status that says why there is none
template <class Self, class Outcome>
class collective_calls {
 public:
  /// Every rank ends with op over all ranks' `in`, in rank order where `op` is not commutative.
  /// in: count elements on every rank; out: count elements; the same memory or disjoint.
  template <Elements In, Elements Out, class Op, class A = algo::automatic>
  requires same_elements<In, Out> Outcome all_reduce(In&& in, Out&& out, Op const& op, A const& algorithm = {},
                                                     call_options const& options = {}) {
    return reducing(collectx::all_reduce{}, view_const(in), view(out), op, algorithm, options);
  }
  template <class T, class Op, class A = algo::automatic>
  Outcome all_reduce(in_place<T> both, Op const& op, A const& algorithm = {}, call_options const& options = {}) {
    return reducing(collectx::all_reduce{}, std::span<T const>(both.data), both.data, op, algorithm, options);
  }

  /// Rank r ends with block r of op over all ranks' `in`. in: size() * count elements, block after block; out: count elements.
  /// In place: size() * count elements; the result is in slot r, the rest stays as it was.
  template <Elements In, Elements Out, class Op, class A = algo::automatic>
  requires same_elements<In, Out> Outcome reduce_scatter(In&& in, Out&& out, Op const& op, A const& algorithm = {},
                                                         call_options const& options = {}) {
    return reducing(collectx::reduce_scatter{}, view_const(in), view(out), op, algorithm, options);
  }
  template <class T, class Op, class A = algo::automatic>
  Outcome reduce_scatter(in_place<T> both, Op const& op, A const& algorithm = {}, call_options const& options = {}) {
    if (status s = divides(both.data.size(), size(), rank()); !s) return s;
    return reducing(collectx::reduce_scatter{}, std::span<T const>(both.data), own_slot(both.data), op, algorithm, options);
  }

  /// Every rank ends with all ranks' `in`, in rank order. in: count elements; out: size() * count elements.
  /// In place: size() * count elements; each rank's own are in slot r before.
  template <Elements In, Elements Out, class A = algo::automatic>
  requires same_elements<In, Out> Outcome all_gather(In&& in, Out&& out, A const& algorithm = {}, call_options const& options = {}) {
    return moving(collectx::all_gather{}, view_const(in), view(out), algorithm, options);
  }
  template <class T, class A = algo::automatic>
  Outcome all_gather(in_place<T> both, A const& algorithm = {}, call_options const& options = {}) {
    if (status s = divides(both.data.size(), size(), rank()); !s) return s;
    return moving(collectx::all_gather{}, std::span<T const>(own_slot(both.data)), both.data, algorithm, options);
  }

  /// Every rank ends with the root's `both`: count elements on every rank.
  template <Elements Both, class A = algo::automatic>
  Outcome broadcast(Both&& both, int root, A const& algorithm = {}, call_options const& options = {}) {
    if (status s = is_rank(root, size(), rank()); !s) return s;
    auto const all = view(both);
    return moving(collectx::broadcast{root}, constant(all), all, algorithm, options);
  }

  /// The root ends with op over all ranks' `in`: count elements on every rank. out: count elements on the root; elsewhere not looked at
  /// (it may be empty) and not written. In place: on the root only.
  template <Elements In, Elements Out, class Op, class A = algo::automatic>
  requires same_elements<In, Out> Outcome reduce(In&& in, Out&& out, Op const& op, int root, A const& algorithm = {},
                                                 call_options const& options = {}) {
    if (status s = is_rank(root, size(), rank()); !s) return s;
    auto const ends = view(out);
    return reducing(collectx::reduce{root}, view_const(in), rank() == root ? ends : ends.first(0), op, algorithm, options);
  }
  template <class T, class Op, class A = algo::automatic>
  Outcome reduce(in_place<T> both, Op const& op, int root, A const& algorithm = {}, call_options const& options = {}) {
    if (status s = is_rank(root, size(), rank()); !s) return s;
    if (rank() != root) {
      return status::failure(errc::invalid_argument, rank(), "reduce: in_place on rank %d, but the root is %d: pass input and output there",
                             rank(), root);
    }
    return reducing(collectx::reduce{root}, std::span<T const>(both.data), both.data, op, algorithm, options);
  }

  /// Ends when all ranks have called it.
  template <class A = algo::automatic>
  Outcome barrier(A const& algorithm = {}, call_options const& options = {}) {
    if (size() == 0) return no_member();
    std::span<std::uint8_t> const token(self().token(), 1);
    return reducing(collectx::all_reduce{}, constant(token), token, sum{}, algorithm, options);
  }

 protected:
  template <Collective C, class T, class A>
  Outcome moving(C const& collective, std::span<T const> in, std::span<T> out, A const& algorithm, call_options const& options,
                 char const* purpose = "") {
    static_assert(std::is_trivially_copyable_v<T>, "collectx: elements travel as bytes, so their type must be trivially copyable");
    shape_of_call call;
    if (status s = call.fit(collective, size(), rank(), in, out); !s) return s;
    call.in_bytes(sizeof(T));
    auto const find = [&](auto& plans) {
      return dispatch<false>(collective, algorithm, call.total_bytes, [&]<class Family>(Family const& family) {
        return plans.find(schedule_of(family, collective), collective, call_kind::of<T, Family>(purpose));
      });
    };
    return self().perform(call, reinterpret_cast<std::byte const*>(in.data()), reinterpret_cast<std::byte*>(out.data()), moves_only{}, find,
                          options);
  }

 private:
  Self& self() { return static_cast<Self&>(*this); }
  int rank() const { return static_cast<Self const&>(*this).rank(); }
  int size() const { return static_cast<Self const&>(*this).size(); }

  template <class T>
  static std::span<T const> constant(std::span<T> s) {
    return s;
  }
  template <class T>
  std::span<T> own_slot(std::span<T> all) const {
    std::size_t const count = all.size() / static_cast<std::size_t>(size());
    return all.subspan(static_cast<std::size_t>(rank()) * count, count);
  }

  template <Collective C, class T, class Op, class A>
  Outcome reducing(C const& collective, std::span<T const> in, std::span<T> out, Op const& op, A const& algorithm,
                   call_options const& options) {
    static_assert(
        Reduction<Op, T>,
        "collectx: the operation cannot combine two values of this type: it needs T operator()(T, T) const, T trivially copyable");
    shape_of_call call;
    if (status s = call.fit(collective, size(), rank(), in, out); !s) return s;
    auto const find = [&](auto& plans) {
      constexpr bool ordered = !is_commutative_v<Op, T>;
      return dispatch<ordered>(collective, algorithm, call.total_bytes, [&]<class Family>(Family const& family) {
        return plans.find(schedule_for<ordered>(family, collective), collective, call_kind::of<T, Family>(reduction_name<Op>()));
      });
    };
    return self().perform(call, in.data(), out.data(), op, find, options);
  }

  /// with(family), of the algorithm or of what it chooses.
  template <bool Ordered, Collective C, class A, class F>
  auto dispatch(C const& collective, A const& algorithm, std::size_t bytes, F const& with) {
    if constexpr (std::is_same_v<A, algo::automatic>) {
      if constexpr (!Ordered && std::is_same_v<C, collectx::all_reduce> && requires { self().nodes(); }) {
        if (algo::two_levels_pay(self().nodes(), size(), bytes)) return with(algo::by_hosts{}.over(self().nodes()));
      }
      return algo::with_choice<Ordered>(collective, size(), bytes, with, Self::dear_messages);
    } else if constexpr (!Ordered && requires { algorithm.over(self().nodes()); }) {  // hosts may hold any ranks, which keeps no order
      return with(algorithm.over(self().nodes()));
    } else {
      return with(algorithm);
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
