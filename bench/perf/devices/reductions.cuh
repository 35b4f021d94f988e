// SPDX-License-Identifier: Apache-2.0
/// Reductions on devices, each in the unit that has its kernels. Those of all types and operations would take minutes to compile.
#pragma once

#include <collectx/communicator.hpp>
#include <collectx/transport/cuda_ipc.cuh>
#if COLLECTX_PERF_LIBFABRIC
#include <collectx/transport/cuda_composite.cuh>
#endif

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include "../call.hpp"
#include "../types.hpp"

namespace perf {

/// Puts a call onto a stream.
template <class Tr>
using put_function = collectx::status (*)(collectx::communicator<Tr>&, cudaStream_t, collective_call<std::byte> const&);

/// Where the units leave what they have, before main; null where none has it.
template <class Tr>
put_function<Tr>& reduction_on(datatype d, operation o) {
  static put_function<Tr> all[std::size(datatype_names)][std::size(operation_names)]{};
  return all[static_cast<int>(d)][static_cast<int>(o)];
}

template <class Tr, class T, class Op>
collectx::status put_reduction(collectx::communicator<Tr>& comm, cudaStream_t stream, collective_call<std::byte> const& call) {
  auto caller = comm.on(stream);
  return make_reduction<Op>(caller, as_elements<T>(call));
}

template <class T>
constexpr datatype named() {
  int d = 0;
  while (!with_type(static_cast<datatype>(d), []<class U>(std::type_identity<U>) { return std::is_same_v<T, U>; })) ++d;
  return static_cast<datatype>(d);
}
template <class Op>
constexpr operation named_operation() {
  int o = 0;
  while (!with_operation(static_cast<operation>(o), []<class U>(U) { return std::is_same_v<Op, U>; })) ++o;
  return static_cast<operation>(o);
}

/// A static one builds the kernels that reduce elements of these types.
template <class Op, class... T>
struct built {
  built() { (leave<T>(), ...); }

 private:
  template <class E>
  static void leave() {
    reduction_on<collectx::cuda_ipc_transport>(named<E>(), named_operation<Op>()) = put_reduction<collectx::cuda_ipc_transport, E, Op>;
#if COLLECTX_PERF_LIBFABRIC
    reduction_on<collectx::cuda_composite_transport>(named<E>(), named_operation<Op>()) =
        put_reduction<collectx::cuda_composite_transport, E, Op>;
#endif
  }
};

template <class Op>
using built_for_integers =
    built<Op, std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t>;
template <class Op>
using built_for_floats = built<Op, float, double, collectx::bfloat16, collectx::float16>;

}  // namespace perf
