// SPDX-License-Identifier: Apache-2.0
/// Which ranks of a group are on one host: the groups that hierarchical algorithms are made for.
#pragma once

#include "collectx/algo/groups.hpp"

#include <concepts>
#include <cstddef>
#include <vector>

namespace collectx {
inline namespace v0 {
namespace detail {

/// A transport that knows: `node_of(rank)` numbers hosts from 0, without gaps.
template <class Tr>
concept knows_nodes = requires(Tr& transport, int rank) {
  { transport.node_of(rank) } -> std::same_as<int>;
};

class node_table {
 public:
  node_table() = default;
  template <knows_nodes Tr>
  explicit node_table(Tr& transport) {
    int count = 0;
    for (int r = 0; r < transport.size(); ++r) {
      of_.push_back(transport.node_of(r));
      if (of_.back() >= count) count = of_.back() + 1;
    }
    index_.resize(of_.size());
    for (int node = 0; node < count; ++node) {
      first_.push_back(static_cast<int>(member_.size()));
      for (std::size_t r = 0; r < of_.size(); ++r) {
        if (of_[r] != node) continue;
        index_[r] = static_cast<int>(member_.size()) - first_.back();
        member_.push_back(static_cast<int>(r));
      }
    }
    first_.push_back(static_cast<int>(member_.size()));
  }

  /// Good as long as this table lives.
  algo::placed groups() const {
    return {{static_cast<int>(of_.size()), static_cast<int>(first_.size()) - 1, of_.data(), index_.data(), first_.data(), member_.data()}};
  }

 private:
  std::vector<int> of_, index_, first_, member_;
};

}  // namespace detail
}  // namespace v0
}  // namespace collectx
