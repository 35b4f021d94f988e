// SPDX-License-Identifier: Apache-2.0
/// The C++ types behind the names of the command line.
#pragma once

#include <collectx/reduce/functors.hpp>
#include <collectx/reduce/small_floats.hpp>

#include <cstdint>
#include <type_traits>

#include "options.hpp"

namespace perf {

/// f(std::type_identity<T>) for the type that `d` names.
template <class F>
constexpr auto with_type(datatype d, F const& f) {
  switch (d) {
    case datatype::int8:
      return f(std::type_identity<std::int8_t>());
    case datatype::uint8:
      return f(std::type_identity<std::uint8_t>());
    case datatype::int16:
      return f(std::type_identity<std::int16_t>());
    case datatype::uint16:
      return f(std::type_identity<std::uint16_t>());
    case datatype::int32:
      return f(std::type_identity<std::int32_t>());
    case datatype::uint32:
      return f(std::type_identity<std::uint32_t>());
    case datatype::int64:
      return f(std::type_identity<std::int64_t>());
    case datatype::uint64:
      return f(std::type_identity<std::uint64_t>());
    case datatype::float32:
      return f(std::type_identity<float>());
    case datatype::bfloat16:
      return f(std::type_identity<collectx::bfloat16>());
    case datatype::float16:
      return f(std::type_identity<collectx::float16>());
    case datatype::float64:
      break;
  }
  return f(std::type_identity<double>());
}

/// f(op) for the operation that `o` names.
template <class F>
constexpr auto with_operation(operation o, F const& f) {
  switch (o) {
    case operation::sum:
      return f(collectx::sum{});
    case operation::prod:
      return f(collectx::prod{});
    case operation::min:
      return f(collectx::min{});
    case operation::max:
      return f(collectx::max{});
    case operation::avg:
      break;
  }
  return f(collectx::avg{});
}

}  // namespace perf
