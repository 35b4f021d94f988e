// SPDX-License-Identifier: Apache-2.0
/// What a caller passes to a collective, and whether it fits together.
#pragma once

#include "collectx/collective.hpp"
#include "collectx/status.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

namespace collectx {
inline namespace v0 {

/// Anything contiguous that knows its size: vector, array, span.
template <class R>
concept Elements = requires(R& r) {
  {std::span{r}};
};

namespace detail {
template <class R>
using element_of = typename decltype(std::span{std::declval<std::remove_reference_t<R>&>()})::value_type;
}

/// Input and output of one call have one element type.
template <class In, class Out>
concept same_elements = std::is_same_v<detail::element_of<In>, detail::element_of<Out>>;

template <class R>
constexpr auto view(R& r) {
  using element = typename decltype(std::span{r})::element_type;
  static_assert(!std::is_const_v<element>, "collectx: this buffer is written, so its elements cannot be const");
  return std::span<element>(r);
}
template <class R>
constexpr auto view_const(R& r) {
  return std::span<detail::element_of<R> const>(r);
}

/// Input and output are the same memory; a tag, never a null pointer.
template <class T>
struct in_place {
  std::span<T> data;
  template <Elements R>
  explicit in_place(R&& r) : data(r) {}
};
template <Elements R>
in_place(R&&) -> in_place<typename decltype(std::span{std::declval<std::remove_reference_t<R>&>()})::element_type>;

namespace detail {

/// Calls for which nothing is combined. Never called.
struct moves_only {
  static constexpr bool is_commutative = true;
  template <class T>
  constexpr T operator()(T const& left, T const&) const {
    return left;
  }
};

/// The sentence of who is in no group.
[[gnu::noinline]] inline status no_member() {
  return status::failure(errc::invalid_argument, -1, "this communicator is empty: its group was made without this rank");
}
inline status is_rank(int root, int size, int rank) {
  if (root >= 0 && root < size) return {};
  if (size == 0) return no_member();
  return status::failure(errc::invalid_argument, rank, "root %d is not in a group of %d ranks", root, size);
}
inline status divides(std::size_t elements, int size, int rank) {
  if (size == 0) return no_member();
  if (elements % static_cast<std::size_t>(size) == 0) return {};
  return status::failure(errc::invalid_argument, rank, "%zu elements in place are no equal shares for %d ranks", elements, size);
}

/// How one call's buffers lie in the collective's blocks, once it is clear that they fit.
struct shape_of_call {
  std::size_t count = 0;  // per block
  std::size_t count_given = 0;
  std::size_t input_origin = 0, output_origin = 0;
  std::size_t total_bytes = 0;

  template <Collective C, class T>
  status fit(C const& collective, int size, int rank, std::span<T const> in, std::span<T> out) {
    if (size == 0) return no_member();
    chunks const before = collective.input(size, rank), after = collective.output(size, rank);
    std::size_t const ins = static_cast<std::size_t>(before.count), outs = static_cast<std::size_t>(after.count);
    // Who has no part in one of the buffers may pass anything for it, but a broadcast's receivers learn the count from their output.
    count = ins > 0 ? in.size() / ins : out.size() / outs;
    count_given = ins > 0 ? in.size() : out.size();
    if ((ins > 0 && count * ins != in.size()) || (outs > 0 && count * outs != out.size())) {
      return status::failure(errc::invalid_argument, rank,
                             "%s on rank %d: input of %zu and output of %zu elements do not fit together: %d rank(s) share %d and %d "
                             "block(s) of equal size",
                             C::name, rank, in.size(), out.size(), size, before.count, after.count);
    }
    input_origin = static_cast<std::size_t>(before.first) * count;
    output_origin = static_cast<std::size_t>(after.first) * count;
    total_bytes = count * static_cast<std::size_t>(collective.blocks(size)) * sizeof(T);
    if (ins == 0 || outs == 0 || in.empty() || out.empty()) return {};
    // The same element in the same place is in place, whoever says so; anything else that overlaps would read what it has overwritten.
    std::uintptr_t const i = reinterpret_cast<std::uintptr_t>(in.data()), o = reinterpret_cast<std::uintptr_t>(out.data());
    bool const apart = i + in.size_bytes() <= o || o + out.size_bytes() <= i;
    if (apart || i - input_origin * sizeof(T) == o - output_origin * sizeof(T)) return {};
    return status::failure(errc::invalid_argument, rank, "%s on rank %d: input and output overlap without being in place", C::name, rank);
  }

  void in_bytes(std::size_t size_of_element) {
    count *= size_of_element;
    input_origin *= size_of_element;
    output_origin *= size_of_element;
  }
};

/// The schedule for an operation whose operands must stay in order, or for one that does not care.
template <bool Ordered, class A, Collective C>
constexpr auto schedule_for(A const& algorithm, C const& collective) {
  if constexpr (!Ordered) {
    return schedule_of(algorithm, collective);
  } else {
    using plain = decltype(schedule_of(algorithm, collective));
    static_assert(declares_order<plain>,
                  "collectx: the operation is not commutative, and this schedule does not say whether it keeps operands in rank order: add "
                  "`static constexpr bool keeps_rank_order = true;` (or false; a test proves it)");
    static_assert(
        keeps_rank_order<plain>(),
        "collectx: the operation is not commutative, and this schedule combines operands out of rank order: choose one that keeps "
        "it (direct, two_shot, double_binary_tree, central)");
    if constexpr (requires { collective.root; })
      return carried<decltype(schedule_of(algorithm, C{0}))>{schedule_of(algorithm, C{0}), collective.root};
    else
      return schedule_of(algorithm, collective);
  }
}

}  // namespace detail

}  // namespace v0
}  // namespace collectx
