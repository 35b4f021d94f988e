// SPDX-License-Identifier: Apache-2.0
#include "collectx/exec/list.hpp"

#include <utility>

namespace list_test {

using collectx::exec::list;

constexpr bool holds(list<int> const& numbers, int count) {
  if (numbers.size() != count || numbers.empty() != (count == 0)) return false;
  int expected = 0;
  for (int const number : numbers)
    if (number != expected++) return false;
  return expected == count;
}
constexpr list<int> count_to(int n) {
  list<int> numbers;
  for (int i = 0; i < n; ++i) numbers.push(i);
  return numbers;
}
static_assert(holds({}, 0) && holds(count_to(1), 1) && holds(count_to(100), 100));

constexpr bool copies_are_apart() {
  list<int> a = count_to(5), b = a;
  b[0] = 7;
  b.push(5);
  list<int>& alias = a;
  a = alias;
  if (!holds(a, 5)) return false;
  b = a;
  return holds(b, 5) && b.begin() != a.begin();
}
static_assert(copies_are_apart());

constexpr bool moves_leave_nothing() {
  list<int> a = count_to(5), b = std::move(a);
  if (!holds(b, 5) || !a.empty()) return false;
  a = std::move(b);
  list<int>& alias = a;
  a = std::move(alias);
  return holds(a, 5) && b.empty();
}
static_assert(moves_leave_nothing());

constexpr bool lists_of_lists() {
  list<list<int>> rows(3);
  rows[1].push(0);
  list<list<int>> const kept = rows;
  rows[1].push(1);
  rows.push(count_to(2));
  return kept[1].size() == 1 && holds(rows[1], 2) && holds(rows.back(), 2) && rows.size() == 4;
}
static_assert(lists_of_lists());

constexpr bool sizes_change() {
  list<int> numbers = count_to(4);
  numbers.erase(3);
  numbers.resize(2);
  numbers.append(numbers);
  if (numbers.size() != 4 || numbers[2] != 0 || numbers[3] != 1) return false;
  numbers.resize(6, 9);
  if (numbers[3] != 1 || numbers[4] != 9 || numbers.back() != 9) return false;
  numbers.erase(0);
  numbers.clear();
  list<int> const sevens(3, 7);
  return numbers.empty() && sevens.size() == 3 && sevens[0] == 7 && sevens[2] == 7 && list<int>(0).empty();
}
static_assert(sizes_change());

// An element of the list itself can be pushed while the list grows.
constexpr bool pushes_its_own() {
  list<int> numbers;
  numbers.push(3);
  for (int i = 0; i < 20; ++i) numbers.push(numbers[0]);
  return numbers.size() == 21 && numbers.back() == 3;
}
static_assert(pushes_its_own());

}  // namespace list_test
