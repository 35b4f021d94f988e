// SPDX-License-Identifier: Apache-2.0
// What a reduction that does not fit is told.
#include "collectx/reduction.hpp"

#include "collectx/reduce/functors.hpp"
#include "collectx/reduce/host_kernels.hpp"

namespace cx = collectx;

struct undeclared {
  int operator()(int left, int right) const { return left + right; }
};
struct declared : undeclared {
  static constexpr bool is_commutative = true;
};
struct of_strings {
  static constexpr bool is_commutative = false;
  char const* operator()(char const* left, char const*) const { return left; }
};

template <class Op>
void combine(Op const& op) {
  int left = 1, right = 2;
  cx::kernel::combine(&left, &left, &right, 1, op);
}

void fits() {
  combine(declared{});
  combine(cx::commutative(undeclared{}));
  combine(cx::non_commutative([](int left, int) { return left; }));
}

// expect UNDECLARED: collectx: this reduction does not say whether it is commutative: add `static constexpr bool is_commutative = true;`
// expect UNDECLARED: .or false., or wrap it: collectx::commutative.f., collectx::non_commutative.f.
// expect UNDECLARED: undeclared
#if defined(UNDECLARED)
void undeclared_functor() { combine(undeclared{}); }
#endif

// expect LAMBDA: collectx: this reduction does not say whether it is commutative
#if defined(LAMBDA)
void undeclared_lambda() {
  combine([](int left, int right) { return left * right; });
}
#endif

// expect ASKED: collectx: this reduction does not say whether it is commutative
#if defined(ASKED)
bool const asked = cx::is_commutative_v<undeclared, int>;
#endif

// expect WRONG_ELEMENT: Reduction
// expect WRONG_ELEMENT: of_strings
#if defined(WRONG_ELEMENT)
void wrong_element() { combine(of_strings{}); }
#endif

// expect AVERAGE_OF_BOOL: Reduction
#if defined(AVERAGE_OF_BOOL)
static_assert(cx::Reduction<cx::avg, bool>);
#endif
