// SPDX-License-Identifier: Apache-2.0
/// Pictures of digits, from a file of comma-separated numbers.
#pragma once

#include <array>
#include <cstddef>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

inline constexpr std::size_t pixels = 64, kinds = 10;

struct digit {
  std::array<double, pixels> picture{};  ///< 0 .. 1
  std::size_t kind = 0;
};

struct digits {
  std::vector<digit> train, test;
};

/// Every fifth row is for the test.
inline digits read_digits(std::string const& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  digits all;
  std::size_t number = 0;
  for (std::string line; std::getline(file, line); ++number) {
    std::istringstream words(line);
    digit d;
    double value = 0;
    char comma = 0;
    for (double& pixel : d.picture) {
      words >> value >> comma;
      pixel = value / 16;
    }
    if (!(words >> d.kind) || d.kind >= kinds)
      throw std::runtime_error(path + ":" + std::to_string(number + 1) + ": not 64 pixels and a digit");
    (number % 5 == 0 ? all.test : all.train).push_back(d);
  }
  if (all.train.empty() || all.test.empty()) throw std::runtime_error(path + ": too few digits");
  return all;
}
