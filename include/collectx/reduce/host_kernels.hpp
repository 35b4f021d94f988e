// SPDX-License-Identifier: Apache-2.0
/// What the host does with elements: combine, copy, and fold any number of sources into any number of sinks.
#pragma once

#include "collectx/reduce/loop_kernels.hpp"
#include "collectx/reduction.hpp"

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace collectx {
inline namespace v0 {
namespace kernel {

/// A source of a fold. `left`: it stands on the left of what has been folded so far.
struct operand {
  void const* data;
  bool left;
};

/// A destination of a fold. `finish`: it is part of the result, so that `op.finish` is due.
struct sink {
  void* data;
  bool finish;
};

}  // namespace kernel

namespace detail::kernels {

/// An operation as the loops keep it: by value where that is cheap, because the compiler must assume that a store to the output changes
/// an object that it reaches through a reference.
template <class Op>
using kept = std::conditional_t<std::is_trivially_copyable_v<Op> && sizeof(Op) <= 64, Op const, Op const&>;

template <class T, class Op>
struct combined {
  T const* left;
  T const* right;
  kept<Op> op;
  COLLECTX_FORCEINLINE T operator()(std::size_t i) const { return static_cast<T>(op(left[i], right[i])); }
};

template <class T, class Op>
struct finished {
  T const* in;
  kept<Op> op;
  int ranks;
  COLLECTX_FORCEINLINE T operator()(std::size_t i) const { return static_cast<T>(op.finish(in[i], ranks)); }
};

struct picked {
  unsigned char const* in;
  COLLECTX_FORCEINLINE unsigned char operator()(std::size_t i) const { return in[i]; }
};

/// op whose result is finished at once.
template <class T, class Op>
struct finishing {
  kept<Op> op;
  int ranks;
  COLLECTX_FORCEINLINE T operator()(T const& left, T const& right) const {
    return static_cast<T>(op.finish(static_cast<T>(op(left, right)), ranks));
  }
};

template <class T, class Value>
struct to_one {
  T* out;
  Value value;
  COLLECTX_FORCEINLINE void operator()(std::size_t i) const { out[i] = value(i); }
};

template <class T, class Value>
struct to_two {
  T* out;
  T* out_too;
  Value value;
  COLLECTX_FORCEINLINE void operator()(std::size_t i) const {
    T const result = value(i);
    out[i] = result;
    out_too[i] = result;
  }
};

template <class T, class Value>
COLLECTX_FORCEINLINE void write_one(T* out, std::size_t n, Value const& value) {
  for_each_index<sizeof(T)>(n, to_one<T, Value>{out, value});
}

template <class T>
T const* at(kernel::operand const& source, std::size_t first) {
  return static_cast<T const*>(source.data) + first;
}
template <class T>
T* at(kernel::sink const& sink, std::size_t first) {
  return static_cast<T*>(sink.data) + first;
}

/// A fold as it was asked for, in the ways of doing it. All of them have read the sources at an element before they write a sink there.
template <class T, class Op>
struct folding {
  kernel::sink const* sinks;
  int sink_count;
  kernel::operand const* sources;
  int source_count;
  Op const& op;
  int ranks;
  bool stream;
  int to_finish;  // sinks

  void few_elements(std::size_t n) const {
    for (std::size_t i = 0; i < n; ++i) {
      T value = *at<T>(sources[0], i);
      for (int s = 1; s < source_count; ++s) {
        T const& next = *at<T>(sources[s], i);
        value = static_cast<T>(sources[s].left ? op(next, value) : op(value, next));
      }
      for (int k = 0; k < sink_count; ++k)
        if (!finishes(k)) *at<T>(sinks[k], i) = value;
      if constexpr (has_finish<Op, T>) {
        if (to_finish == 0) continue;
        value = static_cast<T>(op.finish(value, ranks));
        for (int k = 0; k < sink_count; ++k)
          if (finishes(k)) *at<T>(sinks[k], i) = value;
      }
    }
  }

  template <class Step>
  bool two_sources(std::size_t n, Step const& how) const {
    bool const swap = sources[1].left;
    combined<T, Step> const value{at<T>(sources[swap ? 1 : 0], 0), at<T>(sources[swap ? 0 : 1], 0), how};
    T* const out = at<T>(sinks[0], 0);
    T* const out_too = sink_count == 2 ? at<T>(sinks[1], 0) : nullptr;
    if (can_stream && stream) return stream_lines(out, out_too, n, value);
    if (out_too == nullptr)
      write_one(out, n, value);
    else
      for_each_index<sizeof(T)>(n, to_two<T, combined<T, Step>>{out, out_too, value});
    return true;
  }

  void copies(std::size_t n) const {
    void const* const in = sources[0].data;
    if (sink_count == 2 && !(can_stream && stream) && sinks[0].data != in && sinks[1].data != in) {
      auto const* const bytes = static_cast<unsigned char const*>(in);
      auto* const out = static_cast<unsigned char*>(sinks[0].data);
      auto* const out_too = static_cast<unsigned char*>(sinks[1].data);
      return for_each_index<1>(n * sizeof(T), to_two<unsigned char, picked>{out, out_too, picked{bytes}});
    }
    for (int k = 0; k < sink_count; ++k) store(sinks[k].data, in, n * sizeof(T), stream);
    if (can_stream && stream) order_streamed_stores();
  }

  [[gnu::noinline]] void tiles(std::size_t n) const {
    constexpr std::size_t per_tile = sizeof(T) < 4096 ? 4096 / sizeof(T) : 1;
    alignas(alignof(T) < 64 ? 64 : alignof(T)) std::byte memory[per_tile * sizeof(T)];
    for (std::size_t first = 0; first < n; first += per_tile)
      tile(reinterpret_cast<T*>(memory), first, n - first < per_tile ? n - first : per_tile);
    if (can_stream && stream) order_streamed_stores();
  }

 private:
  bool finishes(int k) const { return to_finish != 0 && sinks[k].finish; }

  template <class Step>
  void step(T* out, T const* value, int index, std::size_t first, std::size_t n, Step const& how) const {
    T const* const next = at<T>(sources[index], first);
    bool const left = sources[index].left;
    write_one(out, n, combined<T, Step>{left ? next : value, left ? value : next, how});
  }

  void write(T const* value, bool finish_sinks, std::size_t first, std::size_t n) const {
    for (int k = 0; k < sink_count; ++k)
      if (finishes(k) == finish_sinks) store(at<T>(sinks[k], first), value, n * sizeof(T), stream);
  }

  void tile(T* memory, std::size_t first, std::size_t n) const {
    T const* value = at<T>(sources[0], first);
    for (int s = 1; s < source_count; ++s) {
      bool const last = s + 1 == source_count;
      T* const out = last && sink_count == 1 && !(can_stream && stream) ? at<T>(sinks[0], first) : memory;
      if constexpr (has_finish<Op, T>) {
        if (last && to_finish == sink_count) {
          step(out, value, s, first, n, finishing<T, Op>{op, ranks});
          return write(out, true, first, n);
        }
      }
      step(out, value, s, first, n, op);
      value = out;
    }
    // Unfinished sinks first: a finished one may be the memory of the only source.
    write(value, false, first, n);
    if constexpr (has_finish<Op, T>) {
      if (to_finish == 0) return;
      write_one(memory, n, finished<T, Op>{value, op, ranks});
      write(memory, true, first, n);
    }
  }
};

}  // namespace detail::kernels

namespace kernel {

/// @pre `out` and `in` are the same memory or do not overlap
/// `stream`: the stores go around the cache, for outputs larger than it.
inline void copy(void* out, void const* in, std::size_t bytes, bool stream) noexcept {
  if (bytes == 0) return;
  detail::kernels::store(out, in, bytes, stream);
  if (detail::kernels::can_stream && stream) detail::kernels::order_streamed_stores();
}

/// out[i] = op(left[i], right[i]).
/// @pre `out` is the same memory as `left`, as `right`, as both, or overlaps neither
template <class T, class Op>
  requires Reduction<Op, T>
void combine(T* out, T const* left, T const* right, std::size_t n, Op const& op) noexcept {
  detail::kernels::write_one(out, n, detail::kernels::combined<T, Op>{left, right, op});
}

/// Folds the sources element by element and stores the result in every sink.
/// acc = sources[0]; for each next one: acc = left ? op(next, acc) : op(acc, next). Sinks marked `finish` get op.finish(acc, ranks).
/// @pre source_count >= 1, sink_count >= 1; data aligned for T; a sink may be the same memory as a source, else nothing overlaps
/// `stream`: the stores go around the cache, for outputs larger than it.
template <class T, class Op>
  requires Reduction<Op, T>
void fold(sink const* sinks, int sink_count, operand const* sources, int source_count, std::size_t n, Op const& op, int ranks,
          bool stream) noexcept {
  if (n == 0) return;
  int to_finish = 0;
  if constexpr (has_finish<Op, T>)
    for (int k = 0; k < sink_count; ++k) to_finish += sinks[k].finish ? 1 : 0;

  detail::kernels::folding<T, Op> const how{sinks,    sink_count, sources, source_count, op, ranks, stream && n > detail::kernels::few,
                                            to_finish};
  if (source_count == 1 && to_finish == 0) return how.copies(n);
  if (source_count == 2 && sink_count <= 2) {
    if (to_finish == 0 && how.two_sources(n, op)) return;
    if constexpr (has_finish<Op, T>)
      if (to_finish == sink_count && how.two_sources(n, detail::kernels::finishing<T, Op>{op, ranks})) return;
  }
  if (n <= detail::kernels::few) return how.few_elements(n);
  how.tiles(n);
}

}  // namespace kernel
}  // namespace v0
}  // namespace collectx
