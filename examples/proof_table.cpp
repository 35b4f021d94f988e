// SPDX-License-Identifier: Apache-2.0
/// Every algorithm, every collective that it offers, several numbers of ranks: what the proof finds, beside what no algorithm can beat.
#include <collectx/collectx.hpp>

#include <cstdio>
#include <string>

namespace cx = collectx;
namespace algo = collectx::algo;

namespace {

constexpr int numbers_of_ranks[] = {2, 3, 4, 8, 16, 64};
int unproven = 0, proven = 0;

template <class Family, class C>
void row(char const* algorithm, C const& collective, int n) {
  cx::exec::report const r = cx::exec::verify(Family{}, collective, n);
  cx::lower_bound const bound = collective.needs(n);
  std::printf("%-32s %-15s %4d ", algorithm, C::name, n);
  if (!r.finding.ok()) {
    ++unproven;
    std::printf("NOT PROVEN: %s (rank %d, step %d, chunk %d)\n", cx::sentence(r.finding.what), r.finding.rank, r.finding.step,
                r.finding.chunk);
    return;
  }
  ++proven;
  char sent[32];
  std::snprintf(sent, sizeof sent, "%d/%d", r.cost.chunks_sent, r.cost.chunks);
  std::printf("%5d %5d %8d %12s %7.3f %7.3f %6d   %-5s %s\n", r.cost.steps, bound.steps, r.cost.messages, sent,
              static_cast<double>(r.cost.chunks_sent) / r.cost.chunks, static_cast<double>(bound.sent) / bound.out_of, r.cost.slots,
              r.rank_order ? "yes" : "no", r.agreement ? "yes" : "no");
}

template <class Family, class C>
void rows(char const* algorithm, C const& collective) {
  if constexpr (cx::offers<Family, C>)
    for (int n : numbers_of_ranks) row<Family>(algorithm, collective, n);
}

template <class Family>
void table(char const* algorithm) {
  std::printf("\n");
  rows<Family>(algorithm, cx::all_reduce{});
  rows<Family>(algorithm, cx::reduce_scatter{});
  rows<Family>(algorithm, cx::all_gather{});
  rows<Family>(algorithm, cx::broadcast{});
  rows<Family>(algorithm, cx::reduce{});
}

}  // namespace

int main() {
  std::printf(
      "On the busiest rank. sent: bytes as a fraction of the whole vector, in chunks and in figures; best: no algorithm does with less.\n");
  std::printf("order: operands stay in the order of ranks. agree: all ranks compute the same expression, so they get the same bits.\n");
  std::printf("%-32s %-15s %4s %5s %5s %8s %12s %7s %7s %6s   %-5s %s\n", "algorithm", "collective", "n", "steps", "best", "messages",
              "chunks sent", "sent", "best", "slots", "order", "agree");
  table<algo::ring>("ring");
  table<algo::recursive_halving>("recursive_halving");
  table<algo::recursive_doubling>("recursive_doubling");
  table<algo::double_binary_tree>("double_binary_tree");
  table<algo::direct>("direct");
  table<algo::two_shot>("two_shot");
  table<algo::central>("central");
  table<algo::hierarchical<algo::ring, algo::double_binary_tree>>("hierarchical<ring, double_tree>");
  table<algo::hierarchical<algo::ring, algo::ring>>("hierarchical<ring, ring>");
  table<algo::striped<algo::ring>>("striped<ring>");
  table<algo::hierarchical<algo::direct, algo::recursive_halving>>("hierarchical<direct, halving>");
  std::printf("\n%d proven, %d not\n", proven, unproven);
  return unproven == 0 && proven > 0 ? 0 : 1;
}
