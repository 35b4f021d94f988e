// SPDX-License-Identifier: Apache-2.0
#include "collectx/reduction.hpp"

#include "collectx/reduce/bitwise.hpp"
#include "collectx/reduce/functors.hpp"
#include "collectx/reduce/located.hpp"
#include "collectx/reduce/premultiplied_sum.hpp"
#include "collectx/reduce/small_floats.hpp"

#include <string_view>
#include <utility>

namespace cx = collectx;

// Named, since clang would call what only a concept looks at unused.
namespace reduction_test {

// The smallest reduction there is: what templates may lean on.
struct archetype {
  archetype() = delete;
  archetype& operator=(archetype const&) = delete;
  static constexpr bool is_commutative = false;
  struct element {
    element() = delete;
    int value;
  };
  element operator()(element const&, element const& right) const { return right; }
};
static_assert(cx::Reduction<archetype, archetype::element>);
static_assert(!cx::is_commutative_v<archetype, archetype::element>);
static_assert(!cx::has_finish<archetype, archetype::element>);
static_assert(std::string_view(cx::reduction_name<archetype>()) == "user");

// Near misses, each one step away.
struct not_const {
  static constexpr bool is_commutative = true;
  int operator()(int, int);
};
struct changes_its_operands {
  static constexpr bool is_commutative = true;
  int operator()(int&, int&) const;
};
struct gives_nothing {
  static constexpr bool is_commutative = true;
  void operator()(int, int) const;
};
struct takes_one {
  static constexpr bool is_commutative = true;
  int operator()(int) const;
};
struct owner {
  owner(owner const&);
  owner& operator=(owner const&);
};
struct joins_owners {
  static constexpr bool is_commutative = true;
  owner operator()(owner const&, owner const&) const;
};
struct unassignable {
  int const value;
};
struct keeps_first {
  static constexpr bool is_commutative = false;
  template <class T>
  T operator()(T const& left, T const&) const;
};
static_assert(!cx::Reduction<int, int>);
static_assert(!cx::Reduction<not_const, int>);
static_assert(!cx::Reduction<changes_its_operands, int>);
static_assert(!cx::Reduction<gives_nothing, int>);
static_assert(!cx::Reduction<takes_one, int>);
static_assert(!cx::Reduction<joins_owners, owner>);
static_assert(!cx::Reduction<keeps_first, unassignable>);
static_assert(cx::Reduction<keeps_first, int>);

// Commutativity may depend on the type.
struct product {
  template <class T>
  static constexpr bool is_commutative = sizeof(T) <= 8;
  template <class T>
  T operator()(T const& left, T const&) const {
    return left;
  }
};
struct matrix {
  double cells[9];
};
static_assert(cx::Reduction<product, double> && cx::is_commutative_v<product, double>);
static_assert(cx::Reduction<product, matrix> && !cx::is_commutative_v<product, matrix>);
static_assert(cx::is_commutative_v<product const&, double>);

// Wrapping says what a lambda cannot, and keeps what its functor does say.
constexpr auto wrapped = cx::commutative([](auto left, auto right) -> decltype(left + right) { return left + right; });
static_assert(cx::Reduction<decltype(wrapped), short>);
static_assert(cx::is_commutative_v<decltype(wrapped), short>);
static_assert(!cx::has_finish<decltype(wrapped), short>);
static_assert(wrapped(short{2}, short{3}) == 5);
constexpr auto ordered = cx::non_commutative(cx::avg{});
static_assert(!cx::is_commutative_v<decltype(ordered), int>);
static_assert(cx::has_finish<decltype(ordered), int>);
static_assert(ordered.finish(9, 2) == 4);
static_assert(std::string_view(cx::reduction_name<decltype(ordered)>()) == "avg");
static_assert(!cx::Reduction<decltype(wrapped), matrix>);
static_assert(sizeof(ordered) == 1);

template <class T, class... Ops>
constexpr bool reductions = (... && (cx::Reduction<Ops, T> && cx::is_commutative_v<Ops, T>));
template <class... T>
constexpr bool all_reductions = (... && reductions<T, cx::sum, cx::prod, cx::min, cx::max, cx::avg>);
static_assert(all_reductions<char, signed char, unsigned char, short, unsigned short, int, unsigned, long, unsigned long, long long,
                             unsigned long long, wchar_t, char8_t, char16_t, char32_t, float, double, long double>);
static_assert(reductions<bool, cx::sum, cx::prod, cx::min, cx::max>);
static_assert(!cx::Reduction<cx::avg, bool> && !cx::has_finish<cx::avg, bool>);
static_assert(!cx::Reduction<cx::sum, matrix> && !cx::Reduction<cx::sum, char const*>);
static_assert(cx::has_finish<cx::avg, float> && cx::has_finish<cx::avg, unsigned char> && !cx::has_finish<cx::sum, float>);

// Types that are stored in less than they are folded in.
using namespace cx;
static_assert(all_reductions<bfloat16, float16, float8_e4m3, float8_e5m2>);
static_assert(has_finish<avg, float16> && has_prepare<avg, float16> && has_prepare<avg, float8_e5m2> && !has_prepare<avg, bfloat16> &&
              !has_prepare<avg, float> && !has_prepare<sum, float16>);
struct cents {
  using accumulator = long;
  short value;
  constexpr explicit cents(long all) : value(static_cast<short>(all)) {}
  constexpr explicit operator long() const { return value; }
};
static_assert(Reduction<sum, cents> && std::is_same_v<folded_in<sum, cents>, long> && sum{}(cents(3), cents(4)).value == 7);
// A reduction that takes only the stored type is folded in that.
struct keeps_larger {
  static constexpr bool is_commutative = true;
  constexpr cents operator()(cents left, cents right) const { return left.value < right.value ? right : left; }
};
static_assert(Reduction<keeps_larger, cents> && std::is_same_v<folded_in<keeps_larger, cents>, cents>);

template <class... T>
constexpr bool all_bitwise = (... && reductions<T, band, bor, bxor, land, lor, lxor>);
static_assert(all_bitwise<bool, signed char, unsigned char, short, unsigned short, int, unsigned, long, unsigned long, char32_t>);
static_assert(!Reduction<band, float> && !Reduction<lor, double> && !Reduction<bxor, float16>);
static_assert(reductions<located<float>, min_located, max_located> && reductions<located<float16, long>, min_located, max_located>);
static_assert(!Reduction<min_located, float> && !Reduction<min, located<float>>);
static_assert(reductions<float, premultiplied_sum<float>> && reductions<float16, premultiplied_sum<float>> &&
              reductions<int, premultiplied_sum<int>>);
static_assert(has_prepare<premultiplied_sum<float>, float> && !has_finish<premultiplied_sum<float>, float>);

}  // namespace reduction_test
