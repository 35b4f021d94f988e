// SPDX-License-Identifier: Apache-2.0
/// One call of a collective with its buffers, and how it is made.
#pragma once

#include <collectx/arguments.hpp>

#include <cstddef>
#include <span>

#include "any_algorithm.hpp"

namespace perf {

template <class T>
struct collective_call {
  collective what;
  bool in_place;
  std::span<T> in, out;  ///< in place `out` is both; of a reduce `out` is empty but on the root
  int root;
  any_algorithm algorithm;
};

/// `caller` is a communicator, or puts calls onto a stream.
template <class Op, class Caller, class T>
collectx::status make_reduction(Caller& caller, collective_call<T> const& c) {
  switch (c.what) {
    case collective::all_reduce:
      return c.in_place ? caller.all_reduce(collectx::in_place(c.out), Op{}, c.algorithm)
                        : caller.all_reduce(c.in, c.out, Op{}, c.algorithm);
    case collective::reduce_scatter:
      return c.in_place ? caller.reduce_scatter(collectx::in_place(c.out), Op{}, c.algorithm)
                        : caller.reduce_scatter(c.in, c.out, Op{}, c.algorithm);
    default:
      return c.in_place ? caller.reduce(collectx::in_place(c.out), Op{}, c.root, c.algorithm)
                        : caller.reduce(c.in, c.out, Op{}, c.root, c.algorithm);
  }
}
/// What combines nothing.
template <class Caller, class T>
collectx::status make_move(Caller& caller, collective_call<T> const& c) {
  if (c.what == collective::broadcast) return caller.broadcast(c.out, c.root, c.algorithm);
  return c.in_place ? caller.all_gather(collectx::in_place(c.out), c.algorithm) : caller.all_gather(c.in, c.out, c.algorithm);
}

/// The same call, its elements taken for others.
template <class U, class T>
collective_call<U> as_elements(collective_call<T> const& c) {
  auto const taken_for = [](std::span<T> s) { return std::span<U>(reinterpret_cast<U*>(s.data()), s.size_bytes() / sizeof(U)); };
  return {c.what, c.in_place, taken_for(c.in), taken_for(c.out), c.root, c.algorithm};
}

}  // namespace perf
