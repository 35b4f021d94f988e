// SPDX-License-Identifier: Apache-2.0
// A plan's image says what the plan says: every part is read back and compared, for plans with all kinds of parts.
#include "collectx/exec/plan_image.hpp"

#include "collectx/algo/direct.hpp"
#include "collectx/algo/double_binary_tree.hpp"
#include "collectx/algo/recursive_halving.hpp"
#include "collectx/algo/ring.hpp"
#include "collectx/exec/passes.hpp"

namespace cx = collectx;
using namespace cx::exec;

constexpr bool same(plan const& p, image_view const& image, image_operation const& flat, operation const& o) {
  if (flat.step != o.step || flat.strand != o.strand || flat.in.count != o.in.size() || flat.out.count != o.out.size()) return false;
  for (int i = 0; i < o.in.size(); ++i)
    if (image.end(flat.in.first + i) != o.in[i]) return false;
  for (int i = 0; i < o.out.size(); ++i)
    if (image.end(flat.out.first + i) != o.out[i]) return false;
  if (flat.after.count != o.after.size() || flat.segments.count != o.segments.size()) return false;
  for (int i = 0; i < o.after.size(); ++i)
    if (image.after(flat.after.first + i) != o.after[i]) return false;
  for (int i = 0; i < o.segments.size(); ++i) {
    segment const& s = o.segments[i];
    image_segment const t = image.segment(flat.segments.first + i);
    if (t.run != s.run || t.sources.count != s.sources.size() || t.targets.count != s.targets.size()) return false;
    for (int k = 0; k < s.sources.size(); ++k) {
      source const x = image.source(t.sources.first + k);
      if (x.from != s.sources[k].from || x.left != s.sources[k].left || x.in != s.sources[k].in) return false;
    }
    for (int k = 0; k < s.targets.size(); ++k) {
      target const x = image.target(t.targets.first + k);
      if (x.to != s.targets[k].to || x.finish != s.targets[k].finish || x.out != s.targets[k].out) return false;
    }
  }
  return image.in_order(image.strand(o.strand).first + flat.place) == &o - p.operations.begin();
}

template <class S, class C>
constexpr bool image_is_plan(S const& family, C const& collective, int n, int rank) {
  plan p = make_plan(cx::schedule_of(family, collective), collective, n, rank);
  p.largest_message = 3;
  plan_image const written(p);
  list<std::int32_t> const elsewhere = written.words();  // an image holds no address of its own
  image_view const image(elsewhere.begin());
  if (image.words() != elsewhere.size() || written.bytes() != 4 * static_cast<std::size_t>(image.words())) return false;
  if (image.rank() != rank || image.form() != p.form || image.largest_message() != 3 || image.uses_scratch() != p.uses_scratch)
    return false;
  if (image.operations() != p.operations.size() || image.strands() != p.strands) return false;
  int ends = 0, placed = 0;
  for (int i = 0; i < p.operations.size(); ++i) {
    if (!same(p, image, image.operation(i), p.operations[i])) return false;
    ends += p.operations[i].in.size() + p.operations[i].out.size();
  }
  for (int s = 0; s < image.strands(); ++s) placed += image.strand(s).count;
  return image.endpoints() == ends && placed == p.operations.size();
}

static_assert(image_is_plan(cx::algo::ring{}, cx::all_reduce{}, 4, 2));
static_assert(image_is_plan(cx::algo::ring{}, cx::reduce_scatter{}, 3, 0));
static_assert(image_is_plan(cx::algo::recursive_halving{}, cx::all_gather{}, 5, 4));
static_assert(image_is_plan(cx::algo::double_binary_tree{}, cx::all_reduce{}, 5, 1));
static_assert(image_is_plan(cx::algo::direct{}, cx::reduce{1}, 4, 1));
static_assert(image_is_plan(cx::algo::ring{}, cx::broadcast{1}, 1, 0));

// What an operation needs room for.
template <class S, class C>
constexpr image_needs needs_of(S const& family, C const& collective, int n, int rank) {
  plan const p = make_plan(cx::schedule_of(family, collective), collective, n, rank);
  plan_image const image(p);
  return image.view().needs();
}
constexpr bool operator==(image_needs const& a, image_needs const& b) {
  return a.in == b.in && a.out == b.out && a.folds == b.folds && a.operands == b.operands && a.sinks == b.sinks;
}
// The root of a direct reduce folds what all ranks have into its result.
static_assert(needs_of(cx::algo::direct{}, cx::reduce{0}, 4, 0) == image_needs{3, 0, 1, 4, 1});
// In the first step of halving among 4, two of four blocks are sent: a run, but two stretches of memory.
static_assert(needs_of(cx::algo::recursive_halving{}, cx::reduce_scatter{}, 4, 0).folds == 2);
