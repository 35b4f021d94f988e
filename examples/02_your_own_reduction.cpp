// SPDX-License-Identifier: Apache-2.0
/// Reductions of your own: of your own type, with a promise about the order of operands; as a lambda; and with a last step.
#include <collectx/collectx.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

namespace cx = collectx;

// [reduction]
/// The largest value and who has it.
struct peak {
  float value;
  int rank;
};
struct higher {
  static constexpr bool is_commutative = true;
  static constexpr char const* name = "higher";
  constexpr peak operator()(peak const& left, peak const& right) const {
    return left.value > right.value || (left.value == right.value && left.rank < right.rank) ? left : right;
  }
};
// [reduction]

// [ordered]
/// x -> a * x + b. Which of two is applied first matters, so operands stay in the order of ranks.
struct affine {
  long a, b;
};
inline constexpr auto composed = cx::non_commutative([](affine const& first, affine const& second) {
  return affine{first.a * second.a, second.a * first.b + second.b};
});
// [ordered]

// [finish]
/// The norm of a vector that lies in pieces on all ranks: squares are added up, and the root is drawn once, at the end.
struct norm {
  static constexpr bool is_commutative = true;
  constexpr double operator()(double left, double right) const { return left + right; }
  double finish(double squares, int) const { return std::sqrt(squares); }
};
// [finish]

namespace {

cx::status wrong(int rank, char const* what) { return cx::status::failure(cx::errc::aborted, rank, "rank %d: %s is wrong", rank, what); }

template <class Tr>
cx::status be_rank(cx::communicator<Tr>& comm) {
  int const r = comm.rank();
  std::vector<peak> peaks{{static_cast<float>(r % 3), r}, {static_cast<float>(-r), r}};
  if (cx::status s = comm.all_reduce(cx::in_place(peaks), higher{}); !s) return s;
  if (peaks[0].rank != 2 || peaks[0].value != 2 || peaks[1].rank != 0) return wrong(r, "the peak");

  // ((((x * 2 + 0) * 2 + 1) * 2 + 2) * 2 + 3): 16 x + 11
  std::vector<affine> maps{{2, r}};
  if (cx::status s = comm.all_reduce(cx::in_place(maps), composed); !s) return s;
  if (maps[0].a != 16 || maps[0].b != 11) return wrong(r, "the composed map");

  std::vector<double> length{9.0};
  if (cx::status s = comm.all_reduce(cx::in_place(length), norm{}); !s) return s;
  if (length[0] != 6.0) return wrong(r, "the norm");
  return {};
}

}  // namespace

int main() {
  cx::status const s = cx::loopback::run(4, [](auto& comm) { return be_rank(comm); });
  if (!s) return std::fprintf(stderr, "%s\n", s.what()), 1;
  std::printf("peak, composition in the order of ranks, norm: right on four ranks\n");
  return 0;
}
