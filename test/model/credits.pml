/* SPDX-License-Identifier: Apache-2.0
 *
 * Credits of slot rings, in every order of two ranks: each fills the ring to the other, then takes a message before each that it sends,
 * as a fused operation does. Credits go back in batches of a quarter of the ring, and all of them when a rank waits.
 *
 * Checked: nobody waits for ever (an invalid end state), no slot is written that is not free, and messages arrive in order. The mutants
 * NO_FLUSH, ONE_TOO_MANY and EARLY_CREDIT have to be found. What memory orders may do is Relacy's part (protocols_test.cpp).
 */
#define SLOTS 8
#define BATCH 2
#define MESSAGES 14

#ifdef ONE_TOO_MANY
#define ROOM (SLOTS + 1)
#else
#define ROOM SLOTS
#endif

/* A ring from each rank to the other, by its sender's number: what lies in the slots, and the two counters that both can see. */
typedef ring {
  byte slot[SLOTS];
  bool used[SLOTS];
  byte published
};
ring rings[2];

proctype rank(byte me) {
  byte you = 1 - me;
  byte sent = 0, taken = 0, told = 0;

  do
  :: sent == MESSAGES && taken == MESSAGES -> break
  :: sent < MESSAGES && (sent < SLOTS || taken + SLOTS > sent) ->
     /* Waits for a slot: tells all credits first. */
#ifndef NO_FLUSH
     if
     :: sent - rings[me].published >= ROOM -> rings[you].published = taken; told = taken
     :: else
     fi;
#endif
     (sent - rings[me].published < ROOM);
     atomic {
       assert(!rings[me].used[sent % SLOTS]);
       rings[me].slot[sent % SLOTS] = sent;
       rings[me].used[sent % SLOTS] = true;
       sent++
     }
  :: taken < MESSAGES && (sent == MESSAGES || taken + SLOTS <= sent) ->
#ifndef NO_FLUSH
     if
     :: !rings[you].used[taken % SLOTS] -> rings[you].published = taken; told = taken
     :: else
     fi;
#endif
#ifdef EARLY_CREDIT
     rings[you].published = taken + 1;
#endif
     atomic {
       rings[you].used[taken % SLOTS];
       assert(rings[you].slot[taken % SLOTS] == taken);
       rings[you].used[taken % SLOTS] = false;
       taken++
     };
#ifndef EARLY_CREDIT
     if
     :: taken - told >= BATCH -> rings[you].published = taken; told = taken
     :: else
     fi
#endif
  od
}

init {
  atomic {
    run rank(0);
    run rank(1)
  }
}
