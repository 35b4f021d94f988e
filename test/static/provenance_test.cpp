// SPDX-License-Identifier: Apache-2.0
#include "collectx/exec/provenance.hpp"

namespace provenance_test {

using collectx::exec::provenance;

/// Rows 0 .. ranks-1 are the contributions of as many ranks; two more are empty.
constexpr provenance contributions(int ranks) {
  provenance values(ranks, ranks + 2);
  for (int r = 0; r < ranks; ++r) values.contribute(r, r);
  return values;
}

constexpr bool knows_who(int ranks) {
  provenance values = contributions(ranks);
  int const sum = ranks, last = ranks - 1;
  if (!values.empty(sum) || values.empty(last) || !values.only(last, last) || values.complete(last, ranks)) return false;
  values.copy(sum, values, 0);
  for (int r = 1; r < ranks; ++r)
    if (values.complete(sum, ranks) || values.contains(sum, r) || !values.combine(sum, values, sum, values, r)) return false;
  return values.complete(sum, ranks) && values.ordered(sum) && !values.only(sum, 0);
}
// More ranks than a word has bits.
static_assert(knows_who(2) && knows_who(63) && knows_who(64) && knows_who(65) && knows_who(130));

constexpr bool refuses_the_same_twice(int ranks) {
  provenance values = contributions(ranks);
  int const sum = ranks, last = ranks - 1;
  bool const first = values.combine(sum, values, 0, values, last);
  return first && !values.combine(sum, values, sum, values, last) && !values.combine(sum, values, 0, values, sum) &&
         !values.combine(sum + 1, values, last, values, last);
}
static_assert(refuses_the_same_twice(3) && refuses_the_same_twice(100));

// Order: neighbouring intervals, the lower on the left.
constexpr bool in_order(int left, int right) {
  provenance values = contributions(4);
  return values.combine(4, values, left, values, right) && values.ordered(4);
}
static_assert(in_order(0, 1) && in_order(2, 3) && !in_order(1, 0) && !in_order(0, 2) && !in_order(3, 0));
constexpr bool order_does_not_come_back() {
  provenance values = contributions(4);
  return values.combine(4, values, 1, values, 0) && values.combine(4, values, 4, values, 2) && !values.ordered(4);
}
static_assert(order_does_not_come_back());

// Expressions: (0 1) 2 is not 0 (1 2), and 0 1 is not 1 0; copies are the same.
constexpr bool tells_expressions_apart() {
  provenance a = contributions(3), b = contributions(3);
  bool ok = a.combine(3, a, 0, a, 1) && b.combine(3, b, 1, b, 0);
  if (a.expression(3) == b.expression(3)) return false;
  ok = ok && a.combine(3, a, 3, a, 2) && b.combine(3, b, 1, b, 2) && b.combine(3, b, 0, b, 3);
  a.copy(4, a, 3);
  return ok && a.complete(3, 3) && b.complete(3, 3) && a.expression(3) != b.expression(3) && a.expression(4) == a.expression(3);
}
static_assert(tells_expressions_apart());

constexpr bool rows_can_be_emptied() {
  provenance values = contributions(70);
  values.clear(69);
  values.resize(100);
  return values.empty(69) && !values.contains(69, 69) && values.empty(99) && values.only(68, 68) && values.rows() == 100;
}
static_assert(rows_can_be_emptied());

}  // namespace provenance_test
