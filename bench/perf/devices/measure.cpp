// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <vector>

#include "../measure_type.hpp"
#include "group.hpp"

namespace perf {

template <>
class stage<device_group> {
 public:
  explicit stage(device_group& group) : group_(group) {}
  template <class Op, class T>
  collectx::status make(job const& what, collective_call<T> const& call) {
    return group_.put(what.type, what.op, as_elements<std::byte>(call));
  }
  collectx::status finish() { return group_.finish(); }
  std::size_t slots() { return static_cast<std::size_t>(group_.slots()); }
  std::size_t slot_bytes() { return group_.slot_bytes(); }

  static void* allocate(std::size_t bytes) { return allocate_on_device(bytes); }
  static void release(void* memory) { release_on_device(memory); }

 private:
  device_group& group_;
};

namespace {

/// Every rank's values, by rank.
template <class V>
collectx::status gather(device_group& group, std::span<V const> mine, std::vector<V>& all) {
  all.resize(mine.size() * static_cast<std::size_t>(group.size()));
  return group.exchange(std::as_bytes(mine), std::as_writable_bytes(std::span(all)));
}

}  // namespace

collectx::status meet(device_group& group) {
  std::vector<char> here;
  return gather(group, std::span("", 1), here);
}
collectx::status slowest_of(device_group& group, std::span<double> seconds) {
  std::vector<double> all;
  collectx::status const s = gather(group, std::span<double const>(seconds), all);
  for (std::size_t i = 0; i < all.size(); ++i) seconds[i % seconds.size()] = (std::max)(seconds[i % seconds.size()], all[i]);
  return s;
}
collectx::status total_of(device_group& group, std::int64_t& count) {
  std::vector<std::int64_t> all;
  collectx::status const s = gather(group, std::span<std::int64_t const>(&count, 1), all);
  count = std::accumulate(all.begin(), all.end(), std::int64_t{0});
  return s;
}

collectx::status measure_group(device_group& group, job const& what, row_taker take, void* context) {
  return measure(group, what, take, context);
}

}  // namespace perf
