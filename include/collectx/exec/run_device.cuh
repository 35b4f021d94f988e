// SPDX-License-Identifier: Apache-2.0
/// Running a plan by a block of threads: what exec/run does, in the same order of operands, inside a kernel.
///
/// Each block of a grid runs the whole plan over a share of its own of every block of the collective, on channels of its own: blocks never
/// wait for another block of their rank, and the grid is the same on all ranks because the layout is. The first thread decides what can
/// be done and writes down the folds; then all threads do them. A template on protocol, element and operation, never on the schedule.
#pragma once

#include "collectx/exec/call_tag.hpp"
#include "collectx/exec/device_frame.cuh"
#include "collectx/reduce/device.cuh"

#include <cstdint>

namespace collectx {
inline namespace v0 {
namespace exec {

/// One call of one rank, by one block.
template <class Protocol, class T, class Op, device::Block B>
class device_run {
 public:
  COLLECTX_DEVICE device_run(B& block, device::world const& group, device::wires<Protocol> const& wires, device_call<T> const& call,
                             Op const& op)
      : block_(block), group_(group), wires_(wires), call_(call), op_(op), image_(call.image), waiting_(block, group) {}

  /// By all threads; all get the same.
  [[nodiscard]] COLLECTX_DEVICE device::outcome run() {
    unpack();
    if (leads()) begin();
    for (;;) {
      if (leads() && decision().go) choose();
      block_.sync();
      device_decision const d = decision();
      if (!d.go) return d.how;
      if constexpr (Protocol::staged)
        if (!fetch(d.operation)) continue;
      for (int i = 0; i < d.folds; ++i) fold(at<device_fold>(frame().folds)[i]);
      block_.sync();
      if constexpr (Protocol::staged) put(d.operation);
      if (leads()) finish(d.operation);
    }
  }

 private:
  using atomics = typename Protocol::atomics;
  using device_decision = detail::device_decision;
  using device_fold = detail::device_fold;
  using device_strand = detail::device_strand;
  using outcome = device::outcome;

  COLLECTX_DEVICE bool leads() const { return block_.rank() == 0; }
  template <class E>
  COLLECTX_DEVICE E* at(std::uint32_t offset) const {
    return reinterpret_cast<E*>(block_.shared() + offset);
  }
  COLLECTX_DEVICE device_decision& decision() const { return *at<device_decision>(0); }
  COLLECTX_DEVICE detail::device_frame& frame() const { return *at<detail::device_frame>(detail::device_frame::own_place()); }
  COLLECTX_DEVICE detail::device_lead& lead() const { return *at<detail::device_lead>(frame().lead); }
  COLLECTX_DEVICE device_strand& strand(int i) const { return at<device_strand>(frame().strands)[i]; }
  COLLECTX_DEVICE std::uint32_t& length(int end) const { return at<std::uint32_t>(frame().lengths)[end]; }
  COLLECTX_DEVICE std::size_t channel(endpoint e) const { return group_.layout.channel(block_.index(), e.peer, e.lane); }
  COLLECTX_DEVICE typename Protocol::sender& to(int end) const { return wires_.senders[channel(image_.end(end))]; }
  COLLECTX_DEVICE typename Protocol::receiver& from(int end) const { return wires_.receivers[channel(image_.end(end))]; }

  // What all threads do.

  COLLECTX_DEVICE void unpack() {
    detail::device_frame const own(image_);
    if (leads()) frame() = own;
    if (own.has_image) {
      std::int32_t* const mine = at<std::int32_t>(own.image);
      for (int i = block_.rank(), words = image_.words(); i < words; i += block_.size()) mine[i] = call_.image[i];
      image_ = image_view(mine);
    }
    block_.sync();
  }

  COLLECTX_DEVICE void fold(device_fold const& f) const {
    device::fold<T>(block_, at<kernel::sink>(frame().sinks) + f.sinks, f.sink_count, at<kernel::operand>(frame().operands) + f.operands,
                    f.operand_count, f.count, op_, group_.layout.ranks);
  }

  /// The rest of messages whose beginning has arrived. False where the call has ended meanwhile.
  COLLECTX_DEVICE bool fetch(int index) {
    image_range const in = image_.operation(index).in;
    outcome mine = outcome::done;
    waiting_.begin_again();
    for (int e = in.first; e < in.end() && mine == outcome::done; ++e)
      if (length(e) > 0) mine = from(e).fetch(block_, length(e), waiting_);
    if (!block_.any(mine != outcome::done)) return true;
    if (leads()) fail(mine == outcome::done ? outcome::late : mine, index, in.first);
    return false;
  }
  COLLECTX_DEVICE void put(int index) const {
    image_range const out = image_.operation(index).out;
    for (int e = out.first; e < out.end(); ++e)
      if (length(e) > 0) to(e).put(block_, length(e), lead().tag);
    block_.sync();
  }

  // What the first thread does.

  COLLECTX_DEVICE device::telltale<atomics, B> tell() const { return {block_, group_, lead().told}; }

  COLLECTX_DEVICE void begin() {
    lead() = {};
    bool const alive = tell().begin();
    lead().tag = collectx::detail::tag_of(call_.identity, call_.memory.count, lead().told.call);
    decision() = {true, outcome::done, 0, 0};
    if (!alive) return fail(outcome::aborted, 0, 0);
    lead().cut = device_geometry<Protocol>(image_, group_.layout, call_.memory.count, sizeof(T), block_.count(), block_.index());
    for (int s = 0; s < image_.strands(); ++s) {
      strand(s) = {};
      if (!ended(s)) enter(s);
    }
  }

  /// Waits until one operation can be done, of the strands one after the other, or the call ends.
  COLLECTX_DEVICE void choose() {
    waiting_.begin_again();
    for (;;) {
      bool left = false;
      for (int i = 0; i < image_.strands(); ++i) {
        if (++lead().turn >= image_.strands()) lead().turn = 0;
        if (ended(lead().turn)) continue;
        left = true;
        int const index = current(lead().turn);
        if (!due(index, strand(lead().turn).piece)) continue;
        image_operation const o = image_.operation(index);
        int const missing = first_missing(o);
        if (!decision().go) return;
        if (missing < 0) return prepare(index, o);
        lead().stuck_operation = index;
        lead().stuck_end = missing;
      }
      if (!left) return stop(outcome::done);
      if (outcome const o = waiting_.turn(); o != outcome::done) return fail(o, lead().stuck_operation, lead().stuck_end);
      if (waiting_.turns() == device::patience<atomics, B>::turns_per_look) tell().wait_for(image_.end(lead().stuck_end).peer);
    }
  }
  COLLECTX_DEVICE void stop(outcome how) {
    tell().wait_for(-1);
    decision().go = false;
    decision().how = how;
  }

  COLLECTX_DEVICE bool ended(int s) const {
    return strand(s).piece == lead().cut.pieces() || lead().cut.scratch_elements() == 0 || image_.strand(s).count == 0;
  }
  /// The operation that a strand stands at.
  COLLECTX_DEVICE int current(int s) const { return image_.in_order(image_.strand(s).first + strand(s).at); }

  /// The operations of other strands that it builds on have done this piece.
  COLLECTX_DEVICE bool due(int index, std::size_t piece) const {
    image_range const after = image_.operation(index).after;
    for (int i = after.first; i < after.end(); ++i) {
      image_operation const before = image_.operation(image_.after(i));
      device_strand const& other = strand(before.strand);
      if (other.piece < piece || (other.piece == piece && other.at <= before.place)) return false;
    }
    return true;
  }

  COLLECTX_DEVICE void select(std::size_t piece) {
    if (piece != lead().piece) lead().cut.select(lead().piece = piece);
  }

  /// A strand has come to its next operation: how long are its messages?
  COLLECTX_DEVICE void enter(int s) {
    select(strand(s).piece);
    image_operation const o = image_.operation(current(s));
    for (int e = o.in.first; e < o.in.end(); ++e) length(e) = 0;
    for (int e = o.out.first; e < o.out.end(); ++e) length(e) = 0;
    for (int i = o.segments.first; i < o.segments.end(); ++i) {
      image_segment const segment = image_.segment(i);
      std::uint32_t const bytes = static_cast<std::uint32_t>(lead().cut.length(segment.run) * sizeof(T));
      for (int x = segment.sources.first; x < segment.sources.end(); ++x)
        if (source const from = image_.source(x); from.from == place::slot) length(o.in.first + from.in) += bytes;
      for (int x = segment.targets.first; x < segment.targets.end(); ++x)
        if (target const to = image_.target(x); to.to == place::slot) length(o.out.first + to.out) += bytes;
    }
  }

  /// Where all messages are there and all slots are free, -1, and their places are written down; else the first end to wait for.
  COLLECTX_DEVICE int first_missing(image_operation const& o) {
    for (int e = o.in.first; e < o.in.end(); ++e) {
      if (length(e) == 0) continue;  // a message without elements is not sent
      message const m = from(e).try_peek();
      if (m.data == nullptr) return e;
      if (m.tag != lead().tag || m.bytes != length(e)) return differ(o, e, m), e;
      at<std::byte const*>(frame().in)[e - o.in.first] = m.data;
    }
    for (int e = o.out.first; e < o.out.end(); ++e) {
      if (length(e) == 0) continue;
      std::byte* const slot = to(e).try_acquire(length(e));
      if (slot == nullptr) return e;
      at<std::byte*>(frame().out)[e - o.out.first] = slot;
    }
    return -1;
  }

  /// Writes down the folds of an operation.
  COLLECTX_DEVICE void prepare(int index, image_operation const& o) {
    select(strand(o.strand).piece);
    int folds = 0, operands = 0, sinks = 0;
    for (int i = o.segments.first; i < o.segments.end(); ++i) {
      image_segment const segment = image_.segment(i);
      for (chunks run = segment.run; run.count > 0;) {
        stretch const s = lead().cut.next(run);
        if (s.count == 0) continue;
        device_fold const f{sinks, segment.targets.count, operands, segment.sources.count, s.count};
        for (int x = segment.sources.first; x < segment.sources.end(); ++x) {
          source const from = image_.source(x);
          at<kernel::operand>(frame().operands)[operands++] = {read(from, s), from.left, from.from == place::input};
        }
        for (int x = segment.targets.first; x < segment.targets.end(); ++x) {
          target const to = image_.target(x);
          at<kernel::sink>(frame().sinks)[sinks++] = {write(to, s), to.finish};
        }
        if (f.sink_count > 0 && !stays(f)) at<device_fold>(frame().folds)[folds++] = f;
      }
    }
    decision() = {true, outcome::done, index, folds};
  }
  COLLECTX_DEVICE T* scratch() const { return call_.scratch + static_cast<std::size_t>(block_.index()) * call_.scratch_elements; }
  COLLECTX_DEVICE void const* read(source const& x, stretch const& s) const {
    switch (x.from) {
      case place::slot: {
        std::byte const*& next = at<std::byte const*>(frame().in)[x.in];
        std::byte const* const data = next;
        next += s.count * sizeof(T);
        return data;
      }
      case place::output:
        return call_.memory.output + (s.element - call_.memory.output_origin);
      case place::scratch:
        return scratch() + s.in_scratch;
      default:
        return call_.memory.input + (s.element - call_.memory.input_origin);
    }
  }
  COLLECTX_DEVICE void* write(target const& x, stretch const& s) const {
    switch (x.to) {
      case place::slot: {
        std::byte*& next = at<std::byte*>(frame().out)[x.out];
        std::byte* const data = next;
        next += s.count * sizeof(T);
        return data;
      }
      case place::scratch:
        return scratch() + s.in_scratch;
      default:
        return call_.memory.output + (s.element - call_.memory.output_origin);
    }
  }
  /// In place, what a rank keeps is where it belongs already, unless it has to be finished or prepared.
  COLLECTX_DEVICE bool stays(device_fold const& f) const {
    kernel::sink const& sink = at<kernel::sink>(frame().sinks)[f.sinks];
    kernel::operand const& operand = at<kernel::operand>(frame().operands)[f.operands];
    return f.operand_count == 1 && f.sink_count == 1 && operand.data == sink.data && !(has_finish<Op, T> && sink.finish) &&
           !(has_prepare<Op, T> && operand.own);
  }

  /// All threads are through with an operation.
  COLLECTX_DEVICE void finish(int index) {
    image_operation const o = image_.operation(index);
    for (int e = o.out.first; e < o.out.end(); ++e)
      if (length(e) > 0) to(e).commit(length(e), lead().tag);
    for (int e = o.in.first; e < o.in.end(); ++e) {
      if (length(e) == 0) continue;
      from(e).release();
      from(e).flush();
    }
    tell().wait_for(-1);
    device_strand& s = strand(o.strand);
    if (++s.at == image_.strand(o.strand).count) s.at = 0, ++s.piece;
    if (!ended(o.strand)) enter(o.strand);
  }

  COLLECTX_DEVICE void differ(image_operation const& o, int end, message const& seen) {
    device::failure r = where(o, end);
    r.expected_tag = lead().tag;
    r.expected_bytes = length(end);
    r.seen_tag = seen.tag;
    r.seen_bytes = seen.bytes;
    tell().fail(outcome::conflict, r);
    stop(outcome::conflict);
  }
  COLLECTX_DEVICE void fail(outcome what, int operation, int end) {
    device::failure r = where(image_.operation(operation), end);
    r.waited = waiting_.waited(block_.now());
    tell().fail(what, r);
    stop(what);
  }
  COLLECTX_DEVICE device::failure where(image_operation const& o, int end) const {
    device::failure r;
    r.peer = image_.end(end).peer;
    r.step = o.step;
    r.chunk = image_.segment(o.segments.first).run.first;
    return r;
  }

  B& block_;
  device::world const& group_;
  device::wires<Protocol> const& wires_;
  device_call<T> const& call_;
  Op const& op_;
  image_view image_;

  device::patience<atomics, B> waiting_;
};

/// The body of a kernel.
template <class Protocol, class T, class Op, device::Block B>
COLLECTX_DEVICE device::outcome run_plan(B& block, device::world const& group, device::wires<Protocol> const& wires,
                                         device_call<T> const& call, Op const& op) {
  return device_run<Protocol, T, Op, B>(block, group, wires, call, op).run();
}

#if defined(__CUDACC__)
/// Launch with the same grid on all ranks, at most `layout.blocks` and no more than can be resident at once, at most `device::most_threads`
/// threads, and `shared_bytes(image)` of dynamic shared memory. Static, since two units may be compiled for different architectures.
template <class Protocol, class T, class Op>
static __global__ void __launch_bounds__(device::most_threads, device::blocks_per_processor)
    plan_kernel(device::world const group, device::wires<Protocol> const wires, device_call<T> const call, Op const op) {
  device::cuda_block block = device::this_block();
  device::require_on_device<T>(op);
  static_cast<void>(run_plan(block, group, wires, call, op));
}
#endif

}  // namespace exec
}  // namespace v0
}  // namespace collectx
