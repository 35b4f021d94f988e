// SPDX-License-Identifier: Apache-2.0
/// A network of one hidden layer and its training: nothing here knows of other ranks but by `exchange`.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>

#include "digits.hpp"

/// SplitMix64 (Steele, Lea, Flood 2014): the same numbers on every rank and machine, which the standard's distributions do not promise.
class generator {
 public:
  explicit generator(std::uint64_t seed) : state_(seed) {}
  std::uint64_t operator()() {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  double uniform(double low, double high) { return low + (high - low) * static_cast<double>((*this)() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

/// 64 pixels -> 64 rectified linear units -> softmax over 10 kinds. Parameters in one vector: weights and biases of both layers.
class model {
 public:
  static constexpr std::size_t hidden = 64;
  static constexpr std::size_t bias_1 = hidden * pixels, weights_2 = bias_1 + hidden, bias_2 = weights_2 + kinds * hidden,
                               parameter_count = bias_2 + kinds;

  explicit model(std::uint64_t seed) : parameters_(parameter_count, 0.0) {
    generator random(seed);
    double const one = std::sqrt(6.0 / pixels), two = std::sqrt(6.0 / hidden);  // He et al. 2015
    for (std::size_t i = 0; i < bias_1; ++i) parameters_[i] = random.uniform(-one, one);
    for (std::size_t i = weights_2; i < bias_2; ++i) parameters_[i] = random.uniform(-two, two);
  }

  std::vector<double> const& parameters() const { return parameters_; }
  std::vector<double>& parameters() { return parameters_; }

  std::size_t guess(digit const& d) const {
    activity const a = forward(d);
    return static_cast<std::size_t>(std::max_element(a.out.begin(), a.out.end()) - a.out.begin());
  }

  /// Adds d's gradient of the cross entropy to `gradient`, and returns the cross entropy.
  double backward(digit const& d, std::vector<double>& gradient) const {
    activity const a = forward(d);
    std::array<double, hidden> inner{};
    for (std::size_t k = 0; k < kinds; ++k) {
      double const error = a.out[k] - (k == d.kind ? 1.0 : 0.0);
      gradient[bias_2 + k] += error;
      for (std::size_t h = 0; h < hidden; ++h) {
        gradient[weights_2 + k * hidden + h] += error * a.inner[h];
        inner[h] += error * parameters_[weights_2 + k * hidden + h];
      }
    }
    for (std::size_t h = 0; h < hidden; ++h) {
      if (a.inner[h] <= 0) continue;
      gradient[bias_1 + h] += inner[h];
      for (std::size_t p = 0; p < pixels; ++p) gradient[h * pixels + p] += inner[h] * d.picture[p];
    }
    return -std::log(a.out[d.kind]);
  }

 private:
  struct activity {
    std::array<double, hidden> inner;
    std::array<double, kinds> out;
  };

  activity forward(digit const& d) const {
    activity a{};
    for (std::size_t h = 0; h < hidden; ++h) {
      double sum = parameters_[bias_1 + h];
      for (std::size_t p = 0; p < pixels; ++p) sum += parameters_[h * pixels + p] * d.picture[p];
      a.inner[h] = std::max(sum, 0.0);
    }
    for (std::size_t k = 0; k < kinds; ++k) {
      a.out[k] = parameters_[bias_2 + k];
      for (std::size_t h = 0; h < hidden; ++h) a.out[k] += parameters_[weights_2 + k * hidden + h] * a.inner[h];
    }
    double const largest = *std::max_element(a.out.begin(), a.out.end());
    double sum = 0;
    for (double& o : a.out) sum += o = std::exp(o - largest);
    for (double& o : a.out) o /= sum;
    return a;
  }

  std::vector<double> parameters_;
};

inline double accuracy(model const& m, std::vector<digit> const& test) {
  std::size_t right = 0;
  for (digit const& d : test)
    if (m.guess(d) == d.kind) ++right;
  return static_cast<double>(right) / static_cast<double>(test.size());
}
