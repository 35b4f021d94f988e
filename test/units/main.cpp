// SPDX-License-Identifier: Apache-2.0
// BLD-01: two units (or two shared libraries) with all headers and the same instantiations make one program, with one error category.
#include "units.hpp"

#include <cstdio>

int main() {
  if (left_category() != right_category()) return std::puts("two error categories in one process"), 1;
  if (left_sum(3) != 6 || right_sum(3) != 6 || left_sum(4) != 10) return std::puts("wrong sum"), 1;
  return 0;
}
