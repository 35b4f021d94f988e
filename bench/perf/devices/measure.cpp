// SPDX-License-Identifier: Apache-2.0
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

collectx::status measure_group(device_group& group, job const& what, row_taker take, void* context) {
  return measure(group, what, take, context);
}

}  // namespace perf
