// SPDX-License-Identifier: Apache-2.0
/// A plan as one array of 32-bit words without pointers, which may be copied to where lists cannot be. Include it by name.
///
/// The words are a head and the parts of the plan in arrays, each part a fixed number of words. `plan_image` writes them once; whoever
/// runs the plan reads them where they lie, through `image_view`.
#pragma once

#include "collectx/exec/plan.hpp"

#include <cstddef>
#include <cstdint>

namespace collectx {
inline namespace v0 {
namespace exec {

/// Consecutive parts of one kind: of a plan's operations, an operation's ends, a segment's sources ...
struct image_range {
  int first = 0, count = 0;
  constexpr int end() const { return first + count; }
  friend constexpr bool operator==(image_range, image_range) = default;
};

struct image_operation {
  int step = 0;
  int strand = 0;
  int place = 0;  ///< among the operations of its strand
  image_range in, out, segments, after;
};

struct image_segment {
  chunks run;
  image_range sources, targets;
};

/// Of the operation that has most of each: what running the plan needs room for. A fold is a contiguous stretch of a segment.
struct image_needs {
  int in = 0, out = 0, folds = 0, operands = 0, sinks = 0;
};

/// Reads an image. Costs a few loads; the parts are as in `plan`.
class image_view {
 public:
  constexpr explicit image_view(std::int32_t const* words) : words_(words) {}

  constexpr int words() const { return words_[0]; }
  constexpr int rank() const { return words_[1]; }
  constexpr shape form() const { return {words_[2], words_[3], words_[4], words_[5]}; }
  constexpr int largest_message() const { return words_[6]; }
  constexpr bool uses_scratch() const { return words_[7] != 0; }
  constexpr int strands() const { return words_[8]; }
  constexpr int endpoints() const { return words_[9]; }
  constexpr int operations() const { return words_[10]; }
  constexpr image_needs needs() const { return {words_[11], words_[12], words_[13], words_[14], words_[15]}; }

  /// The range of a strand's operations in `in_order`.
  constexpr image_range strand(int i) const { return range(part(strands_at, i)); }
  constexpr int in_order(int i) const { return *part(order_at, i); }
  constexpr image_operation operation(int i) const {
    std::int32_t const* const w = part(operations_at, i);
    return {w[0], w[1], w[2], range(w + 3), range(w + 5), range(w + 7), range(w + 9)};
  }
  constexpr endpoint end(int i) const {
    std::int32_t const* const w = part(endpoints_at, i);
    return {w[0], w[1]};
  }
  constexpr int after(int i) const { return *part(after_at, i); }
  constexpr image_segment segment(int i) const {
    std::int32_t const* const w = part(segments_at, i);
    return {{w[0], w[1]}, range(w + 2), range(w + 4)};
  }
  constexpr exec::source source(int i) const {
    std::int32_t const w = *part(sources_at, i);
    return {static_cast<place>(w & 7), (w & 8) != 0, w >> 4};
  }
  constexpr exec::target target(int i) const {
    std::int32_t const w = *part(targets_at, i);
    return {static_cast<place>(w & 7), (w & 8) != 0, w >> 4};
  }

 private:
  friend class plan_image;
  /// Which word of the head says where an array begins, and how many words a part of it is.
  struct array {
    int head, stride;
  };
  static constexpr array strands_at{16, 2}, order_at{17, 1}, operations_at{18, 11}, endpoints_at{19, 2}, after_at{20, 1},
      segments_at{21, 6}, sources_at{22, 1}, targets_at{23, 1};
  static constexpr int head_words = 24;

  constexpr std::int32_t const* part(array a, int i) const { return words_ + words_[a.head] + i * a.stride; }
  static constexpr image_range range(std::int32_t const* w) { return {w[0], w[1]}; }

  std::int32_t const* words_;
};

/// Writes an image.
/// @pre p.largest_message is set: executors trust it, and cut messages to slots by it
class plan_image {
 public:
  constexpr explicit plan_image(plan const& p) {
    image_needs needs;
    list<list<int>> strands(p.strands);
    for (int i = 0; i < p.operations.size(); ++i) {
      operation const& o = p.operations[i];
      add(o, strands[o.strand].size());
      strands[o.strand].push(i);
      grow(needs, p.form, o);
    }
    for (list<int> const& strand : strands) {
      write(strands_, {order_.size(), strand.size()});
      order_.append(strand);
    }
    for (int word : {0, p.rank, p.form.size, p.form.parts, p.form.chunks, p.form.blocks, p.largest_message, p.uses_scratch ? 1 : 0,
                     p.strands, endpoints_.size() / image_view::endpoints_at.stride, p.operations.size(), needs.in, needs.out, needs.folds,
                     needs.operands, needs.sinks})
      words_.push(word);
    words_.resize(image_view::head_words);
    lay(image_view::strands_at, strands_);
    lay(image_view::order_at, order_);
    lay(image_view::operations_at, operations_);
    lay(image_view::endpoints_at, endpoints_);
    lay(image_view::after_at, after_);
    lay(image_view::segments_at, segments_);
    lay(image_view::sources_at, sources_);
    lay(image_view::targets_at, targets_);
    words_[0] = words_.size();
  }

  constexpr list<std::int32_t> const& words() const { return words_; }
  constexpr std::size_t bytes() const { return static_cast<std::size_t>(words_.size()) * sizeof(std::int32_t); }
  constexpr image_view view() const { return image_view(words_.begin()); }

 private:
  using array = list<std::int32_t>;

  constexpr void add(operation const& o, int place_in_strand) {
    image_range const in{endpoints_.size() / 2, o.in.size()}, out{in.end(), o.out.size()};
    image_range const segments{segments_.size() / 6, o.segments.size()}, after{after_.size(), o.after.size()};
    write(operations_, {o.step, o.strand, place_in_strand, in.first, in.count, out.first, out.count, segments.first, segments.count,
                        after.first, after.count});
    for (endpoint e : o.in) write(endpoints_, {e.peer, e.lane});
    for (endpoint e : o.out) write(endpoints_, {e.peer, e.lane});
    after_.append(o.after);
    for (segment const& s : o.segments) {
      write(segments_, {s.run.first, s.run.count, sources_.size(), s.sources.size(), targets_.size(), s.targets.size()});
      for (source const& x : s.sources) sources_.push(static_cast<int>(x.from) | (x.left ? 8 : 0) | x.in << 4);
      for (target const& x : s.targets) targets_.push(static_cast<int>(x.to) | (x.finish ? 8 : 0) | x.out << 4);
    }
  }

  /// A run that touches k blocks is at most k stretches, whatever the counts.
  static constexpr void grow(image_needs& needs, shape const& form, operation const& o) {
    using collectx::detail::larger;
    image_needs mine{o.in.size(), o.out.size(), 0, 0, 0};
    for (segment const& s : o.segments) {
      int const stretches = (s.run.first + s.run.count - 1) / form.per_block() - s.run.first / form.per_block() + 1;
      mine.folds += stretches;
      mine.operands += stretches * s.sources.size();
      mine.sinks += stretches * s.targets.size();
    }
    needs = {larger(needs.in, mine.in), larger(needs.out, mine.out), larger(needs.folds, mine.folds), larger(needs.operands, mine.operands),
             larger(needs.sinks, mine.sinks)};
  }

  static constexpr void write(array& to, std::initializer_list<int> words) {
    for (int word : words) to.push(word);
  }
  constexpr void lay(image_view::array where, array const& parts) {
    words_[where.head] = words_.size();
    words_.append(parts);
  }

  array words_, strands_, order_, operations_, endpoints_, after_, segments_, sources_, targets_;
};

}  // namespace exec
}  // namespace v0
}  // namespace collectx
