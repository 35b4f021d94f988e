// SPDX-License-Identifier: Apache-2.0
// What the author of a wrong schedule is told: one sentence, and schedule, ranks, rank, step and chunk.
#include "collectx/algo/ring.hpp"
#include "collectx/exec/prove.hpp"

namespace cx = collectx;

static_assert(cx::prove<cx::algo::ring_reduce_scatter, cx::reduce_scatter, 8>());

// [broken_ring]
struct broken_ring {
  constexpr int steps(int size) const { return size - 1; }
  constexpr int parts(int) const { return 1; }
  template <cx::RankContext Me>
  constexpr void step(int k, Me& me) const {
    me.send(next(me), cx::chunk(me.rank() - k - 1));
    me.reduce(prev(me), cx::chunk(me.rank() - k - 1));  // should be k - 2: what the one before sends
  }
};
// [broken_ring]

// expect BROKEN_RING: collectx: a rank waits for a chunk that no peer sends in this step
// expect BROKEN_RING: RECV_WITHOUT_MATCHING_SEND<broken_ring, 8, 0, 0, 7>
#if defined(BROKEN_RING)
// [broken_ring_proof]
static_assert(cx::prove<broken_ring, cx::reduce_scatter, 8>());
// [broken_ring_proof]
#endif

/// A ring in which rank 3 makes a mistake in step 2.
template <class Mistake>
struct spoilt_ring {
  constexpr int steps(int size) const { return size - 1; }
  constexpr int parts(int) const { return 1; }
  template <cx::RankContext Me>
  constexpr void step(int k, Me& me) const {
    if (me.rank() == 3 && k == 2) return Mistake::step(k, me);
    me.send(next(me), cx::chunk(me.rank() - k - 1));
    me.reduce(prev(me), cx::chunk(me.rank() - k - 2));
  }
};

// expect WRONG_INDEX: collectx: a rank waits for a chunk that no peer sends in this step
// expect WRONG_INDEX: RECV_WITHOUT_MATCHING_SEND<spoilt_ring<takes_the_next>, 8, 3, 2, 0>
#if defined(WRONG_INDEX)
struct takes_the_next {
  template <cx::RankContext Me>
  static constexpr void step(int k, Me& me) {
    me.send(next(me), cx::chunk(me.rank() - k - 1));
    me.reduce(prev(me), cx::chunk(me.rank() - k - 1));
  }
};
static_assert(cx::prove<spoilt_ring<takes_the_next>, cx::reduce_scatter, 8>());
#endif

// expect SENDS_TOO_MUCH: collectx: a rank sends a chunk that no peer receives in this step
// expect SENDS_TOO_MUCH: SEND_NOBODY_RECEIVES<spoilt_ring<sends_two>, 8, 3, 2, 1>
#if defined(SENDS_TOO_MUCH)
struct sends_two {
  template <cx::RankContext Me>
  static constexpr void step(int k, Me& me) {
    me.send(next(me), cx::chunks{me.rank() - k - 1, 2});
    me.reduce(prev(me), cx::chunk(me.rank() - k - 2));
  }
};
static_assert(cx::prove<spoilt_ring<sends_two>, cx::reduce_scatter, 8>());
#endif

// expect FORGOTTEN_RECEIVE: collectx: a rank sends a chunk that no peer receives in this step
// expect FORGOTTEN_RECEIVE: SEND_NOBODY_RECEIVES<spoilt_ring<forgets_to_receive>, 8, 2, 2, 7>
#if defined(FORGOTTEN_RECEIVE)
struct forgets_to_receive {
  template <cx::RankContext Me>
  static constexpr void step(int k, Me& me) {
    me.send(next(me), cx::chunk(me.rank() - k - 1));
  }
};
static_assert(cx::prove<spoilt_ring<forgets_to_receive>, cx::reduce_scatter, 8>());
#endif

/// Everybody to everybody, over and over.
struct twice_over {
  constexpr int steps(int) const { return 2; }
  constexpr int parts(int) const { return 1; }
  template <cx::RankContext Me>
  constexpr void step(int, Me& me) const {
    me.send(next(me), everything(me));
    me.reduce(prev(me), everything(me));
  }
};
// expect TWICE: collectx: a contribution is counted twice
// expect TWICE: CONTRIBUTION_COUNTED_TWICE<twice_over, 2, 0, 1, 0>
#if defined(TWICE)
static_assert(cx::prove<twice_over, cx::all_reduce, 2>());
#endif

/// A ring that stops one step too soon.
struct short_ring : cx::algo::ring_reduce_scatter {
  constexpr int steps(int size) const { return size - 2; }
};
// expect TOO_SHORT: collectx: a contribution is missing
// expect TOO_SHORT: CONTRIBUTION_MISSING<short_ring, 4, 0, 2, 0>
#if defined(TOO_SHORT)
static_assert(cx::prove<short_ring, cx::reduce_scatter, 4>());
#endif

/// Two ranks swap their vectors: each replaces what it sends.
struct swapping {
  constexpr int steps(int) const { return 1; }
  constexpr int parts(int) const { return 1; }
  template <cx::RankContext Me>
  constexpr void step(int, Me& me) const {
    me.send(next(me), everything(me));
    me.recv(prev(me), everything(me));
  }
};
// expect READ_AND_WRITTEN: collectx: a chunk is read and written, or written twice, in one step
// expect READ_AND_WRITTEN: CHUNK_READ_AND_WRITTEN_IN_ONE_STEP<swapping, 2, 0, 0, 0>
#if defined(READ_AND_WRITTEN)
static_assert(cx::prove<swapping, cx::all_reduce, 2>());
#endif

struct for_powers_of_two : cx::algo::ring_reduce_scatter {
  constexpr bool admits(int size) const { return (size & (size - 1)) == 0; }
};
// expect NOT_ADMITTED: collectx: the schedule is not defined for this number of ranks
// expect NOT_ADMITTED: SCHEDULE_NOT_ADMITTED_AT_SIZE<for_powers_of_two, 6,
#if defined(NOT_ADMITTED)
static_assert(cx::prove<for_powers_of_two, cx::reduce_scatter, 6>());
#endif

/// Two ranks exchange their vectors chunk by chunk in one step: each waits with its ninth message for a slot, and nobody takes any.
struct flooding {
  constexpr int steps(int) const { return 1; }
  constexpr int parts(int) const { return 5; }
  template <cx::RankContext Me>
  constexpr void step(int, Me& me) const {
    for (int c = 0; c < me.chunks(); ++c) me.send(next(me), cx::chunk(c));
    for (int c = 0; c < me.chunks(); ++c) me.reduce(prev(me), cx::chunk(c));
  }
};
// expect FLOOD: collectx: the ranks wait for each other for ever with this many slots per channel
// expect FLOOD: DEADLOCK_WITH_SLOTS<flooding, 2, 0, 0, 8>
#if defined(FLOOD)
static_assert(cx::prove<flooding, cx::all_reduce, 2>());
#endif
