// SPDX-License-Identifier: Apache-2.0
/// One call of a collective by one rank, and a look at everything that it must and must not have written.
#pragma once

#include <collectx/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "algorithms.hpp"
#include "buffers.hpp"
#include "reference.hpp"

namespace support {

enum class placement { out_of_place, in_place };

struct task {
  algorithm const* how = nullptr;  ///< null: algo::automatic
  placement where = placement::out_of_place;
  call what;
  std::size_t shift = 0;  ///< buffers begin so many elements behind a 64-byte boundary
};

/// The first `count` elements of `seen` that are not `expected`: -1 where there are none.
template <class T>
std::ptrdiff_t first_difference(T const* seen, T const* expected, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    if (!(seen[i] == expected[i])) return static_cast<std::ptrdiff_t>(i);
  return -1;
}

/// What a rank passes, and what it must hold afterwards.
template <class C, class T>
struct exchange_of {
  exchange_of(int n, int rank, task const& t)
      : count(t.what.count),
        ranks(static_cast<std::size_t>(n)),
        me(static_cast<std::size_t>(rank)),
        in_place(t.where == placement::in_place),
        in(input_count(), t.shift),
        out(output_count(rank == t.what.root), t.shift + 1) {
    if (in_place && std::is_same_v<C, cx::all_gather>) {
      for (std::size_t i = 0; i < count; ++i) in[me * count + i] = element<T>(rank, i, t.what.salt);
    } else if (std::is_same_v<C, cx::broadcast> && rank != t.what.root) {
      in.fill(0x31);
    } else {
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = element<T>(rank, i, t.what.salt);
    }
    given = in.hash();
    untouched = out.hash();
  }

  std::size_t count, ranks, me;
  bool in_place;
  guarded<T> in, out;
  std::uint64_t given = 0, untouched = 0;

 private:
  std::size_t input_count() const {
    if (std::is_same_v<C, cx::reduce_scatter> || (in_place && std::is_same_v<C, cx::all_gather>)) return ranks * count;
    return count;
  }
  std::size_t output_count(bool root) const {
    if (std::is_same_v<C, cx::broadcast> || (in_place && !(std::is_same_v<C, cx::reduce> && !root))) return 0;
    return std::is_same_v<C, cx::all_gather> ? ranks * count : count;
  }
};

namespace detail {

template <class C, class T, class Op, class Comm, class A>
cx::status make_call(Comm& comm, task const& t, exchange_of<C, T>& x, Op const& op, A const& algorithm) {
  bool const in_place = x.in_place;
  if constexpr (std::is_same_v<C, cx::all_reduce>) {
    return in_place ? comm.all_reduce(cx::in_place(x.in.span()), op, algorithm) : comm.all_reduce(x.in.span(), x.out.span(), op, algorithm);
  } else if constexpr (std::is_same_v<C, cx::reduce_scatter>) {
    return in_place ? comm.reduce_scatter(cx::in_place(x.in.span()), op, algorithm)
                    : comm.reduce_scatter(x.in.span(), x.out.span(), op, algorithm);
  } else if constexpr (std::is_same_v<C, cx::all_gather>) {
    return in_place ? comm.all_gather(cx::in_place(x.in.span()), algorithm) : comm.all_gather(x.in.span(), x.out.span(), algorithm);
  } else if constexpr (std::is_same_v<C, cx::broadcast>) {
    return comm.broadcast(x.in.span(), t.what.root, algorithm);
  } else {
    if (in_place && comm.rank() == t.what.root) return comm.reduce(cx::in_place(x.in.span()), op, t.what.root, algorithm);
    return comm.reduce(x.in.span(), x.out.span(), op, t.what.root, algorithm);
  }
}

/// What is wrong with the memory of `rank` after the call, in words.
template <class C, class T>
std::string defect(int rank, task const& t, exchange_of<C, T> const& x, std::vector<T> const& expected) {
  if (!x.in.intact()) return "writes beside its input";
  if (!x.out.intact()) return "writes beside its output";
  bool const is_root = rank == t.what.root;
  T const* result = x.in_place || std::is_same_v<C, cx::broadcast> ? x.in.data() : x.out.data();
  T const* wanted = expected.data();
  std::size_t length = x.count;
  if (std::is_same_v<C, cx::all_gather>) length = x.ranks * x.count;
  if (std::is_same_v<C, cx::reduce_scatter>) {
    wanted += x.me * x.count;
    if (x.in_place) result += x.me * x.count;
  }
  if (std::is_same_v<C, cx::reduce> && !is_root) {
    length = 0;
    if (x.out.hash() != x.untouched) return "writes an output though it is not the root";
  }
  if (std::ptrdiff_t const at = first_difference(result, wanted, length); at >= 0)
    return "is wrong from element " + std::to_string(at) + " of " + std::to_string(length);
  bool const written = std::is_same_v<C, cx::broadcast> ? !is_root : x.in_place && !(std::is_same_v<C, cx::reduce> && !is_root);
  if (!written && x.in.hash() != x.given) return "changes its input";
  if (x.in_place && std::is_same_v<C, cx::reduce_scatter>) {
    for (std::size_t i = 0; i < x.in.size(); ++i)
      if (i / (x.count > 0 ? x.count : 1) != x.me && !(x.in[i] == element<T>(rank, i, t.what.salt)))
        return "changes element " + std::to_string(i) + ", which is not its result";
  }
  return {};
}

}  // namespace detail

inline std::string describe(char const* collective, task const& t, int n, std::size_t bytes, char const* op) {
  char text[200];
  std::snprintf(text, sizeof text, "%s of %zu x %zu bytes, %s, by %.60s, %d ranks, root %d, %s", collective, t.what.count, bytes, op,
                t.how == nullptr ? "automatic" : t.how->name.c_str(), n, t.what.root,
                t.where == placement::in_place ? "in place" : "out of place");
  return text;
}

/// Makes the call, and says what is wrong with what came of it. `Automatic`: the task may name no algorithm.
template <class C, class T, bool Automatic, class Comm, class Op>
cx::status perform(Comm& comm, task const& t, std::vector<T> const& expected, Op const& op) {
  exchange_of<C, T> x(comm.size(), comm.rank(), t);
  cx::status s;
  if constexpr (Automatic) {
    s = t.how == nullptr ? detail::make_call(comm, t, x, op, cx::algo::automatic{})
                         : detail::make_call(comm, t, x, op, t.how->template erased<!cx::is_commutative_v<Op, T>>());
  } else {
    s = detail::make_call(comm, t, x, op, t.how->template erased<!cx::is_commutative_v<Op, T>>());
  }
  std::string const wrong = s.ok() ? detail::defect(comm.rank(), t, x, expected) : s.what();
  if (wrong.empty()) return s;
  return cx::status::failure(s.ok() ? cx::errc::system : s.code(), comm.rank(), "rank %d %.150s: %s", comm.rank(), wrong.c_str(),
                             describe(C::name, t, comm.size(), sizeof(T), cx::reduction_name<Op>()).c_str());
}

}  // namespace support
