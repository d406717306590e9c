/* What the agent itself costs: time on the job's threads, measured by the agent and added to the segment's `overhead_ns`.
 *
 * Observed calls and calls of the module are many and short: one of some COST_GAP is timed, and counts for all since the one before,
 * so that measuring costs less than a hundredth of what is measured. The first calls of a thread are timed each, for they do what is
 * done once. Rare work (attaching, making a session or ring, looking after the connection) is always timed. Both are told apart
 * where one lies in the other, so nothing counts twice.
 *
 * Not in it: what the job loses because caches hold our memory instead of its own, what the interpreter does to call us, the
 * collector's CPU time. Time that a thread spends in our code without running is in it, once.
 *
 * The clock is the processor's counter where there is one: two readings of the system's clock would cost as much as what lies between
 * them, and would warm what it is about to read.
 */
#ifndef CIRRON_COST_H
#define CIRRON_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "clock.h"

#define COST_FIRST 32u /* calls of a thread that are timed each */
#define COST_GAP 64u   /* then every 33rd to 95th: no pattern of the job's can keep in step with that */

struct cost_timing {
  uint64_t begun, apart;
  uint32_t weight; /* 0: this call is not timed */
};

struct cost_thread {
  uint64_t apart; /* ticks that were counted, so that what encloses them does not count them again */
  uint32_t left;  /* calls up to the next one that is timed */
  uint32_t gap;   /* calls for which that one counts */
  uint32_t timed, random;
};
extern __thread struct cost_thread cost_thread;

/* Once, after clock_start: how long a reading of the counter takes. */
void cost_start(void);

/* Not NULL: called after an observed call that was timed, with the GIL held and nothing of ours half done. */
extern void (*cost_watch)(void);

/* Sums go to this counter from now on, with what was spent before. NULL: kept until there is one. */
void cost_to(uint64_t *counter);
void cost_forget(void); /* in the child of a fork: nothing was spent yet */

static inline struct cost_timing cost_timing_of(uint32_t weight) {
  return (struct cost_timing){.begun = clock_ticks(), .apart = cost_thread.apart, .weight = weight};
}

uint32_t cost_weight(void);                      /* of the call that is timed now; sets when the next one is */
void cost_add(const struct cost_timing *timing); /* of one that is timed */

/* A call begins: is it one that is timed? Then cost_begin follows. */
static inline bool cost_due(void) {
  return __builtin_expect(--cost_thread.left == 0, 0);
}

static inline struct cost_timing cost_begin(void) {
  return cost_timing_of(cost_weight());
}

static inline struct cost_timing cost_call(void) {
  return cost_due() ? cost_begin() : (struct cost_timing){.weight = 0};
}

/* Rare work begins. */
static inline struct cost_timing cost_rare(void) {
  return cost_timing_of(1);
}

/* It ends, or is left for a while: cost_again when it goes on. */
static inline void cost_end(const struct cost_timing *timing) {
  if (__builtin_expect(timing->weight != 0, 0))
    cost_add(timing);
}

static inline void cost_again(struct cost_timing *timing) {
  if (__builtin_expect(timing->weight != 0, 0))
    *timing = cost_timing_of(timing->weight);
}

#endif
