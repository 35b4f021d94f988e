// SPDX-License-Identifier: Apache-2.0
/// What an operation must promise before a collective may combine with it, and how it says so.
#pragma once

#include "collectx/config.hpp"

#include <concepts>
#include <type_traits>
#include <utility>

namespace collectx {
inline namespace v0 {

namespace detail {
template <class R>
concept declares_commutative = requires {
  { R::is_commutative } -> std::convertible_to<bool>;
};
template <class R, class T>
concept declares_commutative_per_type = requires {
  { R::template is_commutative<T> } -> std::convertible_to<bool>;
};

template <class R, class T>
constexpr bool declared_commutative() {
  // In this order: g++ 12 takes `template is_commutative<T>` of a plain member for an error, not for an unmet requirement.
  if constexpr (declares_commutative<R>) {
    return R::is_commutative;
  } else {
    constexpr bool declared = declares_commutative_per_type<R, T>;
    static_assert(declared,
                  "collectx: this reduction does not say whether it is commutative: add `static constexpr bool is_commutative = true;` "
                  "(or false), or wrap it: collectx::commutative(f), collectx::non_commutative(f)");
    if constexpr (declared) return R::template is_commutative<T>;
    return false;
  }
}
}  // namespace detail

/// Whether R declares op(a, b) == op(b, a) for T. R without a declaration does not compile: a silent `false` would cost it the fast
/// schedules, a silent `true` would give wrong results.
template <class R, class T>
inline constexpr bool is_commutative_v = detail::declared_commutative<std::remove_cvref_t<R>, T>();

/// What a running value of T is kept in while a fold goes through its operands; it is rounded to T once, where it is stored. T itself,
/// unless T has a member type of this name; for other people's types specialise this. Conversions both ways must exist.
template <class T>
struct accumulator {
  using type = T;
};
template <class T>
requires requires { typename T::accumulator; }
struct accumulator<T> {
  using type = typename T::accumulator;
};
template <class T>
using accumulator_t = typename accumulator<T>::type;

/// A Reduction combines two values of T into one.
///
/// 1. Associative, up to rounding. The order in which ranks are combined is the schedule's.
/// 2. `is_commutative` (a static bool, or a static bool template over T) is a promise of the author: a schedule that reorders ranks asks
///    for it. Everything callable that does not declare it is an error, not merely no Reduction.
/// 3. Calls do not disturb one another: a const object is called from several threads, and for several elements at once (vectorised,
///    in any order). A call that counts or logs needs atomics.
/// 4. `finish(value, ranks)`, where present, is applied exactly once to each element of the result.
/// 5. `prepare(value, ranks)`, where present, is applied exactly once to each element that a rank contributes, before all else.
/// 6. Where T has an accumulator and the reduction takes two of those as well, a fold of several operands is done in it. A message
///    carries T, so a schedule of many hops rounds once a hop.
///
/// Not required: an identity (none is ever combined in), exactness, noexcept (but what it throws ends the program).
template <class R, class T>
concept Reduction = std::is_trivially_copyable_v<T> && std::copyable<T> && requires(R const& reduction, T const& left, T const& right) {
  { reduction(left, right) } -> std::convertible_to<T>;
} &&(is_commutative_v<R, T> || true);

/// Whether the result needs a last step that knows the number of ranks.
template <class R, class T>
inline constexpr bool has_finish = requires(R const& reduction, T const& value, int ranks) {
  { reduction.finish(value, ranks) } -> std::convertible_to<T>;
};

/// Whether a rank's own operand needs a first step.
template <class R, class T>
inline constexpr bool has_prepare = requires(R const& reduction, T const& value, int ranks) {
  { reduction.prepare(value, ranks) } -> std::convertible_to<T>;
};

/// Whether any rank may do that for any other: there is nothing to do, or the operation has no state that could differ between ranks.
template <class R, class T>
inline constexpr bool prepares_alike = !has_prepare<R, T> || std::is_empty_v<R>;

namespace detail {
template <class R, class T>
concept folds_in_accumulator =
    !std::is_same_v<accumulator_t<T>, T> && Reduction<R, accumulator_t<T>> && has_finish<R, T> == has_finish<R, accumulator_t<T>>;
}  // namespace detail

/// What R folds values of T in.
template <class R, class T>
using folded_in = std::conditional_t<detail::folds_in_accumulator<R, T>, accumulator_t<T>, T>;

namespace detail {
/// What `finish` makes of a value of T that is kept in its accumulator A. An operation that has to know T says `finish_as<T>(A, int)`.
template <class T, class R, class A>
constexpr A finish_fold(R const& reduction, A const& value, int ranks) {
  if constexpr (requires { reduction.template finish_as<T>(value, ranks); })
    return reduction.template finish_as<T>(value, ranks);
  else
    return static_cast<A>(reduction.finish(value, ranks));
}
}  // namespace detail

/// For messages: `R::name`, or "user".
template <class R>
constexpr char const* reduction_name() {
  if constexpr (requires {
                  { R::name } -> std::convertible_to<char const*>;
                })
    return R::name;
  else
    return "user";
}

namespace detail {
template <class F, bool Commutative>
struct declared_reduction {
  static constexpr bool is_commutative = Commutative;
  static constexpr char const* name = reduction_name<F>();

  template <class T>
  constexpr T operator()(T const& left, T const& right) const requires requires(F const& g) {
    { g(left, right) } -> std::convertible_to<T>;
  }
  { return static_cast<T>(f(left, right)); }
  template <class T>
  constexpr T finish(T const& value, int ranks) const requires has_finish<F, T> {
    return static_cast<T>(f.finish(value, ranks));
  }
  template <class T>
  constexpr T prepare(T const& value, int ranks) const requires has_prepare<F, T> {
    return static_cast<T>(f.prepare(value, ranks));
  }

  F f;
};
}  // namespace detail

/// f with the promise that f(a, b) == f(b, a). For lambdas and other people's functors.
template <class F>
constexpr detail::declared_reduction<F, true> commutative(F f) {
  return {std::move(f)};
}

/// f with the warning that operands must stay in rank order.
template <class F>
constexpr detail::declared_reduction<F, false> non_commutative(F f) {
  return {std::move(f)};
}

}  // namespace v0
}  // namespace collectx
