// SPDX-License-Identifier: Apache-2.0
/// What the host does with elements: combine, copy, and fold any number of sources into any number of sinks.
#pragma once

#include "collectx/reduce/conversion_kernels.hpp"
#include "collectx/reduce/loop_kernels.hpp"
#include "collectx/reduction.hpp"

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace collectx {
inline namespace v0 {
namespace kernel {

/// A source of a fold. `left`: it stands on the left of what has been folded so far. `own`: it is what the rank itself contributes, so that
/// `op.prepare` is due.
struct operand {
  void const* data;
  bool left;
  bool own = false;
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

/// Values of T in A, finished.
template <class T, class A, class Op>
struct finished {
  A const* in;
  kept<Op> op;
  int ranks;
  COLLECTX_FORCEINLINE A operator()(std::size_t i) const { return finish_fold<T>(op, in[i], ranks); }
};

template <class T, class Op>
struct prepared {
  T const* in;
  kept<Op> op;
  int ranks;
  COLLECTX_FORCEINLINE T operator()(std::size_t i) const { return static_cast<T>(op.prepare(in[i], ranks)); }
};

struct picked {
  unsigned char const* in;
  COLLECTX_FORCEINLINE unsigned char operator()(std::size_t i) const { return in[i]; }
};

/// op whose result is finished at once.
template <class T, class A, class Op>
struct finishing {
  kept<Op> op;
  int ranks;
  COLLECTX_FORCEINLINE A operator()(A const& left, A const& right) const {
    return finish_fold<T>(op, static_cast<A>(op(left, right)), ranks);
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

/// The same value, of which the compiler does not know how it came about. Else a product that is added next could become one operation that
/// rounds once (fused multiply-add), and differ from the product that was sent to another rank.
template <class T>
COLLECTX_FORCEINLINE T kept_apart(T value) {
  asm("" : "+m"(value));
  return value;
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
  using wide = folded_in<Op, T>;

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
      T const first = element(0, i);
      wide value = static_cast<wide>(first);
      for (int s = 1; s < source_count; ++s) {
        wide const next = static_cast<wide>(element(s, i));
        value = static_cast<wide>(sources[s].left ? op(next, value) : op(value, next));
      }
      T const plain = source_count == 1 ? first : static_cast<T>(value);  // what is only copied keeps its bits, also those of a NaN
      for (int k = 0; k < sink_count; ++k)
        if (!finishes(k)) *at<T>(sinks[k], i) = plain;
      if constexpr (has_finish<Op, wide>) {
        if (to_finish == 0) continue;
        T const result = static_cast<T>(finish_fold<T>(op, value, ranks));
        for (int k = 0; k < sink_count; ++k)
          if (finishes(k)) *at<T>(sinks[k], i) = result;
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
    constexpr std::size_t per_tile = sizeof(wide) < 4096 ? 4096 / sizeof(wide) : 1;
    alignas(alignof(wide) < 64 ? 64 : alignof(wide)) std::byte running[per_tile * sizeof(wide)];
    alignas(alignof(wide) < 64 ? 64 : alignof(wide)) std::byte next[apart ? per_tile * sizeof(wide) : 1];
    alignas(alignof(T) < 64 ? 64 : alignof(T)) std::byte stored[apart ? per_tile * sizeof(T) : 1];
    auto* const memory = reinterpret_cast<wide*>(running);
    T* const ready = reinterpret_cast<T*>(apart ? stored : running);
    for (std::size_t first = 0; first < n; first += per_tile)
      tile({memory, reinterpret_cast<wide*>(next), ready, first, n - first < per_tile ? n - first : per_tile});
    if (can_stream && stream) order_streamed_stores();
  }

 private:
  static constexpr bool prepares = has_prepare<Op, T>, converts = !std::is_same_v<wide, T>, apart = prepares || converts;

  /// n elements from `first` on, and memory for as many: the running value, what it meets next, and what is about to be stored.
  struct part {
    wide* memory;
    wide* next;
    T* ready;
    std::size_t first, n;
  };

  bool finishes(int k) const { return to_finish != 0 && sinks[k].finish; }

  T element(int index, std::size_t i) const {
    if constexpr (prepares)
      if (sources[index].own) return kept_apart(static_cast<T>(op.prepare(*at<T>(sources[index], i), ranks)));
    return *at<T>(sources[index], i);
  }

  /// A source's part, prepared if it has to be.
  T const* elements(int index, part const& p) const {
    T const* const in = at<T>(sources[index], p.first);
    if constexpr (prepares) {
      if (sources[index].own) {
        write_one(p.ready, p.n, prepared<T, Op>{in, op, ranks});
        return p.ready;
      }
    }
    return in;
  }

  /// A source's part in what it is folded in; in `spare` where it is not in memory that way already.
  wide const* operands(int index, wide* spare, part const& p) const {
    T const* const in = elements(index, p);
    if constexpr (converts) {
      convert(spare, in, p.n);
      return spare;
    } else if constexpr (prepares) {
      if (in == p.ready) std::memcpy(static_cast<void*>(spare), in, p.n * sizeof(T));
      return in == p.ready ? spare : in;
    } else {
      return in;
    }
  }

  template <class Step>
  void step(wide* out, wide const* value, wide const* next, bool left, std::size_t n, Step const& how) const {
    write_one(out, n, combined<wide, Step>{left ? next : value, left ? value : next, how});
  }

  void write(T const* value, bool finish_sinks, part const& p) const {
    for (int k = 0; k < sink_count; ++k)
      if (finishes(k) == finish_sinks) store(at<T>(sinks[k], p.first), value, p.n * sizeof(T), stream);
  }

  /// Where to make what all sinks get: at once in the only one, if it is to be in cache.
  T* made_in(part const& p) const { return sink_count == 1 && !(can_stream && stream) ? at<T>(sinks[0], p.first) : p.ready; }

  void tile(part const& p) const {
    if (source_count == 1) return results(elements(0, p), p);
    wide const* value = operands(0, p.memory, p);
    for (int s = 1; s < source_count; ++s) {
      bool const last = s + 1 == source_count, left = sources[s].left;
      wide const* const next = operands(s, p.next, p);
      if constexpr (has_finish<Op, wide>)
        if (last && to_finish == sink_count) return last_step(value, next, left, finishing<T, wide, Op>{op, ranks}, true, p);
      if (last && to_finish == 0) return last_step(value, next, left, op, false, p);
      step(p.memory, value, next, left, p.n, op);
      value = p.memory;
    }
    results(value, p);
  }

  /// The step whose result all sinks get.
  template <class Step>
  void last_step(wide const* value, wide const* next, bool left, Step const& how, bool finish_sinks, part const& p) const {
    T* const out = made_in(p);
    if constexpr (converts) {
      step(p.memory, value, next, left, p.n, how);
      convert(out, p.memory, p.n);
    } else {
      step(out, value, next, left, p.n, how);
    }
    write(out, finish_sinks, p);
  }

  /// Unfinished sinks first: a finished one may be the memory of the only source.
  template <class In>
  void results(In const* value, part const& p) const {
    if constexpr (std::is_same_v<In, T>) {
      write(value, false, p);
    } else if (to_finish < sink_count) {
      convert(p.ready, value, p.n);
      write(p.ready, false, p);
    }
    if constexpr (has_finish<Op, wide>) {
      if (to_finish == 0) return;
      if constexpr (converts) {
        if constexpr (std::is_same_v<In, T>) convert(p.memory, value, p.n);
        write_one(p.memory, p.n, finished<T, wide, Op>{p.memory, op, ranks});
        convert(p.ready, p.memory, p.n);
      } else {
        write_one(p.ready, p.n, finished<T, wide, Op>{value, op, ranks});
      }
      write(p.ready, true, p);
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

/// Folds the sources element by element and stores the result in every sink.
/// acc = sources[0]; for each next one: acc = left ? op(next, acc) : op(acc, next). Sinks marked `finish` get op.finish(acc, ranks).
/// Sources marked `own` are op.prepare(source, ranks). acc is a folded_in<Op, T>, rounded to T where it is stored.
/// @pre source_count >= 1, sink_count >= 1; data aligned for T; a sink may be the same memory as a source, else nothing overlaps
/// `stream`: the stores go around the cache, for outputs larger than it.
template <class T, class Op>
requires Reduction<Op, T>
void fold(sink const* sinks, int sink_count, operand const* sources, int source_count, std::size_t n, Op const& op, int ranks,
          bool stream) noexcept {
  using wide = folded_in<Op, T>;
  if (n == 0) return;
  int to_finish = 0, to_prepare = 0;
  if constexpr (has_finish<Op, wide>)
    for (int k = 0; k < sink_count; ++k) to_finish += sinks[k].finish ? 1 : 0;
  if constexpr (has_prepare<Op, T>)
    for (int s = 0; s < source_count; ++s) to_prepare += sources[s].own ? 1 : 0;

  detail::kernels::folding<T, Op> const how{sinks,    sink_count, sources, source_count, op, ranks, stream && n > detail::kernels::few,
                                            to_finish};
  if (source_count == 1 && to_finish == 0 && to_prepare == 0) return how.copies(n);
  if constexpr (std::is_same_v<wide, T>) {
    if (source_count == 2 && sink_count <= 2 && to_prepare == 0) {
      if (to_finish == 0 && how.two_sources(n, op)) return;
      if constexpr (has_finish<Op, T>)
        if (to_finish == sink_count && how.two_sources(n, detail::kernels::finishing<T, T, Op>{op, ranks})) return;
    }
  }
  if (n <= detail::kernels::few) return how.few_elements(n);
  how.tiles(n);
}

/// out[i] = op(left[i], right[i]).
/// @pre `out` is the same memory as `left`, as `right`, as both, or overlaps neither
template <class T, class Op>
requires Reduction<Op, T>
void combine(T* out, T const* left, T const* right, std::size_t n, Op const& op) noexcept {
  if constexpr (std::is_same_v<folded_in<Op, T>, T>) {
    detail::kernels::write_one(out, n, detail::kernels::combined<T, Op>{left, right, op});
  } else {
    sink const to{out, false};
    operand const from[] = {{left, false}, {right, false}};
    fold<T>(&to, 1, from, 2, n, op, 1, false);
  }
}

}  // namespace kernel
}  // namespace v0
}  // namespace collectx
