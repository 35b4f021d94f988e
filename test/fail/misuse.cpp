// SPDX-License-Identifier: Apache-2.0
// What a schedule that does not fit is told. The flaws that a proof finds are in schedule.cpp.
#include "collectx/algo/hierarchical.hpp"
#include "collectx/algo/ring.hpp"
#include "collectx/exec/prove.hpp"
#include "collectx/hostile.hpp"

#include <string>
#include <vector>

namespace cx = collectx;

/// Everything to rank 0, in one step.
struct sound {
  static constexpr bool keeps_rank_order = true;
  constexpr int steps(int size) const { return size > 1 ? 1 : 0; }
  constexpr int parts(int) const { return 1; }
  template <cx::RankContext Me>
  constexpr void step(int, Me& me) const {
    if (me.rank() != 0) return me.send(0, everything(me));
    for (int peer = 1; peer < me.size(); ++peer) me.reduce(peer, everything(me));
  }
};
struct of_whole_vectors {
  constexpr auto reduce(int) const { return sound{}; }
};

template <class A>
cx::status total(cx::communicator<cx::loopback_transport>& comm, A const& algorithm) {
  std::vector<int> in(8), out(8);
  return comm.reduce(in, out, cx::sum{}, 0, algorithm);
}
cx::status fits(cx::communicator<cx::loopback_transport>& comm) {
  static_assert(cx::proven(sound{}, cx::reduce{}, 4));
  if (cx::status const s = total(comm, of_whole_vectors{}); !s) return s;
  return total(comm, sound{});
}

constexpr auto first = cx::non_commutative([](int left, int) { return left; });

// expect WITHOUT_STEPS: collectx: this algorithm offers no schedule for this collective
// expect WITHOUT_STEPS: a bare schedule needs steps.n., parts.n., step.k, me.
// expect WITHOUT_STEPS: without_steps
#if defined(WITHOUT_STEPS)
struct without_steps {
  constexpr int parts(int) const { return 1; }
  template <cx::RankContext Me>
  constexpr void step(int, Me&) const {}
};
static_assert(cx::proven(without_steps{}, cx::all_reduce{}, 4));
#endif

// expect WITHOUT_PARTS: schedule.parts
// expect WITHOUT_PARTS: without_parts
#if defined(WITHOUT_PARTS)
struct without_parts {
  constexpr int steps(int) const { return 1; }
  template <cx::RankContext Me>
  constexpr void step(int, Me&) const {}
};
template <cx::Schedule S>
void run(S const&) {}
void use() { run(without_parts{}); }
#endif

// A step for one context of the author's own is no schedule: everything that looks at it brings another.
// expect STEP_FOR_ONE: schedule.step
// expect STEP_FOR_ONE: step_for_one
#if defined(STEP_FOR_ONE)
struct my_context {};
struct step_for_one {
  constexpr int steps(int) const { return 1; }
  constexpr int parts(int) const { return 1; }
  constexpr void step(int, my_context&) const {}
};
template <cx::Schedule S>
void run(S const&) {}
void use() { run(step_for_one{}); }
#endif

// expect HALF_A_CONTEXT: me.recv
// expect HALF_A_CONTEXT: half_made
#if defined(HALF_A_CONTEXT)
struct half_made {
  constexpr int rank() const { return 0; }
  constexpr int size() const { return 1; }
  constexpr int chunks() const { return 1; }
  constexpr int blocks() const { return 1; }
  constexpr void send(int, cx::chunks, int = 0) {}
  constexpr void reduce(int, cx::chunks, int = 0) {}
};
void use() {
  half_made me;
  sound{}.step(0, me);
}
#endif

// expect OFFERS_NOTHING: collectx: this algorithm offers no schedule for this collective: choose another algorithm, or give it a member
// expect OFFERS_NOTHING: function of the collective's name that returns one
// expect OFFERS_NOTHING: reduce_scatter
#if defined(OFFERS_NOTHING)
cx::status scatter(cx::communicator<cx::loopback_transport>& comm) {
  std::vector<int> in(8), out(2);
  return comm.reduce_scatter(in, out, cx::sum{}, of_whole_vectors{});
}
#endif

// expect UNDECLARED_ORDER: collectx: the operation is not commutative, and this schedule does not say whether it keeps operands in rank
// expect UNDECLARED_ORDER: static constexpr bool keeps_rank_order = true
#if defined(UNDECLARED_ORDER)
struct undeclared {
  constexpr int steps(int) const { return 0; }
  constexpr int parts(int) const { return 1; }
  template <cx::RankContext Me>
  constexpr void step(int, Me&) const {}
};
cx::status order(cx::communicator<cx::loopback_transport>& comm) {
  std::vector<int> in(8), out(8);
  return comm.all_reduce(in, out, first, undeclared{});
}
#endif

// expect OUT_OF_ORDER: collectx: the operation is not commutative, and this schedule combines operands out of rank order
// expect OUT_OF_ORDER: choose one that keeps it .direct, two_shot, double_binary_tree, central.
#if defined(OUT_OF_ORDER)
cx::status order(cx::communicator<cx::loopback_transport>& comm) {
  std::vector<int> in(8), out(8);
  return comm.all_reduce(in, out, first, cx::algo::ring{});
}
#endif

// expect STATE_WITHOUT_EQUALITY: collectx: a schedule with state needs == so that its plan can be kept
#if defined(STATE_WITHOUT_EQUALITY)
struct stateful : sound {
  int fanout = 2;
};
cx::status keep(cx::communicator<cx::loopback_transport>& comm) {
  std::vector<int> in(8), out(8);
  return comm.all_reduce(in, out, cx::sum{}, stateful{});
}
#endif

// expect CONST_OUTPUT: collectx: this buffer is written, so its elements cannot be const
#if defined(CONST_OUTPUT)
cx::status write(cx::communicator<cx::loopback_transport>& comm) {
  std::vector<int> in(8);
  std::vector<int> const out(8);
  return comm.all_reduce(in, out, cx::sum{});
}
#endif

// expect OWNING_ELEMENTS: collectx: elements travel as bytes, so their type must be trivially copyable
#if defined(OWNING_ELEMENTS)
cx::status move_vectors(cx::communicator<cx::loopback_transport>& comm) {
  std::vector<std::vector<int>> both(8);
  return comm.broadcast(both, 0);
}
#endif

// expect TWO_TYPES: same_elements
#if defined(TWO_TYPES)
cx::status two_types(cx::communicator<cx::loopback_transport>& comm) {
  std::vector<int> in(8);
  std::vector<long> out(8);
  return comm.all_reduce(in, out, cx::sum{});
}
#endif

// expect WITHOUT_FIRST_READY: collectx: staggered<A, B> needs A to say when its first chunk is ready: constexpr int first_ready.int n.
// const
#if defined(WITHOUT_FIRST_READY)
static_assert(cx::staggered<sound, cx::reversed<sound>>{}.steps(4) == 2);
#endif

// expect EMPTY_GROUPS: collectx: groups have at least one rank
#if defined(EMPTY_GROUPS)
static_assert(cx::algo::uniform<0>{}.admits(4));
#endif

// expect AN_EMPTY_GROUP: collectx: groups have at least one rank
#if defined(AN_EMPTY_GROUP)
static_assert(cx::algo::sizes<2, 0, 2>{}.admits(4));
#endif

// expect HOSTILE_SPLIT: collectx: communicators over this transport cannot be split
#if defined(HOSTILE_SPLIT)
cx::status splits(cx::communicator<cx::hostile_transport>& comm) { return comm.split(0).error(); }
#endif

// expect SENT_STRINGS: collectx: elements travel as bytes, so their type must be trivially copyable
#if defined(SENT_STRINGS)
cx::status sends(cx::communicator<cx::loopback_transport>& comm, std::vector<std::string>& words) { return comm.send(words, 1); }
#endif
