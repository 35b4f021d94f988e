// SPDX-License-Identifier: Apache-2.0
/// Running a plan over a transport: a state machine that does what can be done now and returns.
///
/// A template on transport, element and operation, never on the schedule: a hundred schedules cost no code. A blocking call loops over
/// `advance`, and a test harness advances the ranks of a whole group on one thread in any order.
#pragma once

#include "collectx/exec/geometry.hpp"
#include "collectx/reduce/host_kernels.hpp"
#include "collectx/transport.hpp"

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace collectx {
inline namespace v0 {
namespace exec {

/// A plan with the channels of one transport, and the memory that running it needs: allocated once, used by every call.
template <Transport Tr>
class bound_plan {
 public:
  using sender = std::remove_reference_t<decltype(std::declval<Tr&>().channel_to(0, 0))>;
  using receiver = std::remove_reference_t<decltype(std::declval<Tr&>().channel_from(0, 0))>;

  bound_plan(plan&& p, Tr& transport) : plan_(std::move(p)), strands_(plan_.strands) {
    int most_sources = 0, most_targets = 0;
    for (int i = 0; i < plan_.operations.size(); ++i) {
      operation const& o = plan_.operations[i];
      ends_.push({senders_.size(), receivers_.size(), strands_[o.strand].operations.size()});
      strands_[o.strand].operations.push(i);
      for (endpoint e : o.out) senders_.push(&transport.channel_to(e.peer, e.lane));
      for (endpoint e : o.in) receivers_.push(&transport.channel_from(e.peer, e.lane));
      for (segment const& s : o.segments) {
        most_sources = collectx::detail::larger(most_sources, s.sources.size());
        most_targets = collectx::detail::larger(most_targets, s.targets.size());
      }
    }
    in_ = list<flow<std::byte const*>>(receivers_.size());
    out_ = list<flow<std::byte*>>(senders_.size());
    operands = list<kernel::operand>(most_sources);
    sinks = list<kernel::sink>(most_targets);
  }

  exec::plan const& content() const { return plan_; }
  sender& to(int operation, int i) { return *senders_[ends_[operation].senders + i]; }
  receiver& from(int operation, int i) { return *receivers_[ends_[operation].receivers + i]; }
  int place_in_strand(int operation) const { return ends_[operation].place; }

  /// A message that an operation reads or fills: how long it has to be and how far the operation is.
  template <class Pointer>
  struct flow {
    Pointer at = nullptr;
    std::size_t bytes = 0;
  };
  flow<std::byte const*>* in(int operation) { return in_.begin() + ends_[operation].receivers; }
  flow<std::byte*>* out(int operation) { return out_.begin() + ends_[operation].senders; }
  struct strand {
    list<int> operations;
    int at = 0;
    std::size_t piece = 0;
  };

  list<strand>& strands() { return strands_; }

  /// The geometry for `count` elements per block. Kept from call to call, with the lengths of all messages where there is but one
  /// piece: making them takes divisions that a small call would feel.
  geometry& fitted(std::size_t count, std::size_t slot_elements, std::size_t element_bytes) {
    bool const known = count == fitted_count_ && slot_elements == fitted_slot_;
    if (!known) {
      geometry_ = geometry(plan_.form, plan_.largest_message, count, slot_elements);
      fitted_count_ = count;
      fitted_slot_ = slot_elements;
    }
    if (known && geometry_.pieces() == 1) return geometry_;
    geometry_.select(0);
    for (strand& s : strands_) s.at = 0, s.piece = 0;
    for (int i = 0; i < plan_.operations.size() && geometry_.pieces() == 1; ++i) measure(i, element_bytes);
    return geometry_;
  }

  /// Sets the lengths of an operation's messages in the selected piece.
  void measure(int index, std::size_t element_bytes) {
    operation const& o = plan_.operations[index];
    auto* const in_flows = in(index);
    auto* const out_flows = out(index);
    for (int i = 0; i < o.in.size(); ++i) in_flows[i].bytes = 0;
    for (int i = 0; i < o.out.size(); ++i) out_flows[i].bytes = 0;
    for (segment const& s : o.segments) {
      std::size_t const bytes = geometry_.length(s.run) * element_bytes;
      for (source const& x : s.sources)
        if (x.from == place::slot) in_flows[x.in].bytes += bytes;
      for (target const& x : s.targets)
        if (x.to == place::slot) out_flows[x.out].bytes += bytes;
    }
  }

  std::byte* scratch(std::size_t bytes) {
    std::size_t const units = bytes / sizeof(unit) + 1;
    if (static_cast<std::size_t>(scratch_.size()) < units) scratch_ = list<unit>(static_cast<int>(units));
    return reinterpret_cast<std::byte*>(scratch_.begin());
  }

  list<kernel::operand> operands;
  list<kernel::sink> sinks;

 private:
  struct alignas(64) unit {
    std::byte bytes[64];
  };
  struct ends {
    int senders = 0, receivers = 0, place = 0;
  };
  exec::plan plan_;
  list<sender*> senders_;
  list<receiver*> receivers_;
  list<flow<std::byte const*>> in_;
  list<flow<std::byte*>> out_;
  list<ends> ends_;
  list<strand> strands_;
  list<unit> scratch_;
  geometry geometry_;
  std::size_t fitted_count_ = 0, fitted_slot_ = 0;  // slots of 0 elements: none yet
};

/// What a call is about. A buffer that holds only some of the collective's blocks begins with element `origin` of all of them, so a name
/// means the same place on every rank. What input and output share in place is not moved.
template <class T>
struct buffers {
  T const* input = nullptr;
  std::size_t input_origin = 0;
  T* output = nullptr;
  std::size_t output_origin = 0;
  std::size_t count = 0;  ///< elements per block
  std::uint32_t tag = 0;  ///< of the call, travels with each message
};

enum class progress {
  done,
  moved,     ///< something was done, and there is more to do
  stuck,     ///< nothing can be done before `peer()` moves
  conflict,  ///< a message of `peer()` does not belong to this call
};

/// One call of one rank. Allocates nothing, unless scratch has to grow.
template <Transport Tr, class T, class Op>
class run {
 public:
  /// @pre fits(): a slot can hold what the plan wants to send at once
  run(bound_plan<Tr>& bound, Tr& transport, buffers<T> const& memory, Op const& op)
      : bound_(bound),
        memory_(memory),
        op_(op),
        ranks_(transport.size()),
        geometry_(bound.fitted(memory.count, transport.slot_bytes() / sizeof(T), sizeof(T))),
        stream_(memory.count * static_cast<std::size_t>(bound.content().form.blocks) * sizeof(T) > stream_above) {
    if (bound.content().uses_scratch) scratch_ = reinterpret_cast<T*>(bound.scratch(geometry_.scratch_elements() * sizeof(T)));
  }

  bool fits() const { return geometry_.fits(); }

  progress advance() {
    if constexpr (lends) {
      if (!done_) {
        progress const p = geometry_.pieces() == 1 ? advance_in_order() : advance_strands();
        if (p != progress::done) return p;
        done_ = true;
      }
      return has_its_memory_back() ? progress::done : progress::stuck;
    } else {
      return geometry_.pieces() == 1 ? advance_in_order() : advance_strands();
    }
  }

  // Where it is stuck or in conflict.
  int peer() const { return peer_; }
  int step() const { return bound_.content().operations[operation_].step; }
  int chunk() const { return bound_.content().operations[operation_].segments[0].run.first; }

 private:
  static constexpr bool lends = BorrowingChannel<typename bound_plan<Tr>::sender>;
  // Up to this many bytes the cost of a call is that of getting there.
  static constexpr std::size_t small = 4096;
  // Above this many bytes results do not stay in cache, and reading them in to overwrite them is a third of all traffic.
  static constexpr std::size_t stream_above = std::size_t{8} << 20;

  progress advance_in_order() {
    bool moved = false;
    for (int const count = bound_.content().operations.size(); operation_ < count; ++operation_, moved = true) {
      progress const p = attempt(operation_);
      if (p == progress::conflict) return p;
      if (p == progress::stuck) return moved ? progress::moved : p;
    }
    return progress::done;
  }

  /// One operation of each strand that can do one: pieces run through the strands, one behind the other.
  progress advance_strands() {
    bool moved = false, left = false;
    progress waiting = progress::done;
    int stuck_operation = 0, stuck_peer = -1;
    for (auto& strand : bound_.strands()) {
      if (strand.piece == geometry_.pieces() || strand.operations.empty()) continue;
      left = true;
      operation_ = strand.operations[strand.at];
      if (!due(operation_, strand.piece)) continue;
      geometry_.select(strand.piece);
      progress const p = attempt(operation_);
      if (p == progress::conflict) return p;
      if (p == progress::stuck) {
        waiting = p;
        stuck_operation = operation_;
        stuck_peer = peer_;
        continue;
      }
      moved = true;
      if (++strand.at == strand.operations.size()) strand.at = 0, ++strand.piece;
    }
    if (!left) return progress::done;
    if (moved) return progress::moved;
    operation_ = stuck_operation;
    peer_ = stuck_peer;
    return waiting;
  }

  bool due(int operation, std::size_t piece) const {
    for (int before : bound_.content().operations[operation].after) {
      auto const& strand = bound_.strands()[bound_.content().operations[before].strand];
      if (strand.piece < piece || (strand.piece == piece && strand.at <= bound_.place_in_strand(before))) return false;
    }
    return true;
  }

  /// The whole operation, or nothing: all its messages must be there, and all its slots free.
  progress attempt(int index) {
    operation const& o = bound_.content().operations[index];
    if (geometry_.pieces() > 1) bound_.measure(index, sizeof(T));
    in_ = bound_.in(index);
    out_ = bound_.out(index);
    for (int i = 0; i < o.in.size(); ++i) {
      if (in_[i].bytes == 0) continue;  // a message without elements is not sent
      message const m = bound_.from(index, i).try_peek();
      if (m.data == nullptr) return peer_ = o.in[i].peer, progress::stuck;
      if (m.tag != memory_.tag || m.bytes != in_[i].bytes) return peer_ = o.in[i].peer, progress::conflict;
      in_[i].at = m.data;
    }
    for (int i = 0; i < o.out.size(); ++i) {
      if (out_[i].bytes == 0) continue;
      out_[i].at = bound_.to(index, i).try_acquire(out_[i].bytes);
      if (out_[i].at == nullptr) return peer_ = o.out[i].peer, progress::stuck;
    }
    if (!sent_from_memory(o, index)) {
      for (segment const& s : o.segments) fold(s);
      for (int i = 0; i < o.out.size(); ++i)
        if (out_[i].bytes > 0) bound_.to(index, i).commit(out_[i].bytes, memory_.tag);
    }
    for (int i = 0; i < o.in.size(); ++i)
      if (in_[i].bytes > 0) bound_.from(index, i).release();
    return progress::moved;
  }

  /// A message that is one stretch of memory needs no copy where the wire reads it there.
  bool sent_from_memory(operation const& o, int index) {
    if constexpr (lends) {
      if (o.lends == lending::never || (o.lends == lending::out_of_place && in_place()) || out_[0].bytes <= small) return false;
      std::byte const *first = nullptr, *end = nullptr;
      bool whole = true;
      for (segment const& s : o.segments)
        geometry_.for_each(s.run, [&](std::size_t element, std::size_t in_scratch, std::size_t count) {
          auto const* const at = static_cast<std::byte const*>(read(s.sources[0], element, in_scratch));
          if (first == nullptr) first = end = at;
          whole = whole && at == end && !(has_prepare<Op, T> && s.sources[0].from == place::input);
          end = at + count * sizeof(T);
        });
      if (!whole) return false;
      for (int i = 0; i < o.out.size(); ++i) bound_.to(index, i).commit_from(first, out_[i].bytes, memory_.tag);
      return lent_ = true;
    }
    return false;
  }
  /// Else it is stuck where the wire still reads what was lent.
  bool has_its_memory_back() {
    for (int index = 0; lent_ && index < bound_.content().operations.size(); ++index) {
      operation const& o = bound_.content().operations[index];
      for (int i = 0; o.lends != lending::never && i < o.out.size(); ++i) {
        if (!bound_.to(index, i).borrows()) continue;
        operation_ = index;
        peer_ = o.out[i].peer;
        return false;
      }
    }
    return true;
  }
  bool in_place() const {
    if (memory_.input == nullptr || memory_.output == nullptr) return false;
    return memory_.input - memory_.input_origin == memory_.output - memory_.output_origin;
  }

  COLLECTX_FORCEINLINE void fold(segment const& s) {
    geometry_.for_each(s.run, [&](std::size_t element, std::size_t in_scratch, std::size_t count) {
      // What was never written is in the input, so that is where a rank's own contribution is, and nowhere else.
      if (count * sizeof(T) <= small && s.sources.size() <= 2 && s.targets.size() == 1 && !has_prepare<Op, T> &&
          !(has_finish<Op, T> && s.targets[0].finish))
        return fold_small(s, element, in_scratch, count);
      bool to_slot = false;
      for (int i = 0; i < s.sources.size(); ++i) {
        source const& x = s.sources[i];
        bound_.operands[i] = {read(x, element, in_scratch), x.left, x.from == place::input};
        if (x.from == place::slot) in_[x.in].at += count * sizeof(T);
      }
      for (int i = 0; i < s.targets.size(); ++i) {
        target const& x = s.targets[i];
        bound_.sinks[i] = {write(x, element, in_scratch), x.finish};
        if (x.to != place::slot) continue;
        out_[x.out].at += count * sizeof(T);
        to_slot = true;
      }
      if (s.targets.empty() || stays(s)) return;
      kernel::fold<T>(bound_.sinks.begin(), s.targets.size(), bound_.operands.begin(), s.sources.size(), count, op_, ranks_,
                      stream_ && !to_slot);
    });
  }

  /// A few elements, one result: what a small call consists of, without the detour over lists of operands.
  COLLECTX_FORCEINLINE void fold_small(segment const& s, std::size_t element, std::size_t in_scratch, std::size_t count) {
    target const& to = s.targets[0];
    T* const out = static_cast<T*>(write(to, element, in_scratch));
    T const* const first = static_cast<T const*>(read(s.sources[0], element, in_scratch));
    if (s.sources.size() == 1) {
      if (out != first) std::memcpy(static_cast<void*>(out), first, count * sizeof(T));
    } else {
      T const* const second = static_cast<T const*>(read(s.sources[1], element, in_scratch));
      bool const swapped = s.sources[1].left;
      kernel::combine(out, swapped ? second : first, swapped ? first : second, count, op_);
    }
    for (source const& x : s.sources)
      if (x.from == place::slot) in_[x.in].at += count * sizeof(T);
    if (to.to == place::slot) out_[to.out].at += count * sizeof(T);
  }

  void const* read(source const& x, std::size_t element, std::size_t in_scratch) const {
    switch (x.from) {
      case place::slot:
        return in_[x.in].at;
      case place::output:
        return memory_.output + (element - memory_.output_origin);
      case place::scratch:
        return scratch_ + in_scratch;
      default:
        return memory_.input + (element - memory_.input_origin);
    }
  }
  void* write(target const& x, std::size_t element, std::size_t in_scratch) const {
    switch (x.to) {
      case place::slot:
        return out_[x.out].at;
      case place::scratch:
        return scratch_ + in_scratch;
      default:
        return memory_.output + (element - memory_.output_origin);
    }
  }
  /// In place, what a rank keeps is where it belongs already, unless it has to be finished or prepared.
  bool stays(segment const& s) const {
    return s.sources.size() == 1 && s.targets.size() == 1 && bound_.operands[0].data == bound_.sinks[0].data &&
           !(has_finish<Op, T> && bound_.sinks[0].finish) && !(has_prepare<Op, T> && bound_.operands[0].own);
  }

  bound_plan<Tr>& bound_;
  buffers<T> memory_;
  Op const& op_;
  int ranks_;
  geometry& geometry_;
  bool stream_;
  T* scratch_ = nullptr;
  int operation_ = 0;
  int peer_ = -1;
  bool done_ = false, lent_ = false;                                        // where the wire borrows
  typename bound_plan<Tr>::template flow<std::byte const*>* in_ = nullptr;  // of the operation at work
  typename bound_plan<Tr>::template flow<std::byte*>* out_ = nullptr;
};

}  // namespace exec
}  // namespace v0
}  // namespace collectx
