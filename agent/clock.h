/* The time, CLOCK_MONOTONIC in nanoseconds: that of the system, and that of a thread, which costs a fraction of it.
 *
 * Between two spans of a training the caches are full of other things. Then the system's clock takes 350 to 700 processor cycles, not
 * 60, for the sake of the libraries and pages that it goes through, and a step needs ten readings. A thread's clock takes the
 * processor's counter and what it knows from its last look at the system's clock, which is never older than CLOCK_HORIZON_NS. It
 * differs from the system's by some 50 ns, and never runs backwards.
 *
 * Where the system itself does not trust the counter (or there is none), and until a thread knows its rate, a thread's clock is the
 * system's.
 */
#ifndef CIRRON_CLOCK_H
#define CIRRON_CLOCK_H

#include <stdint.h>

#define CLOCK_HORIZON_NS 10000000u

struct clock {
  uint64_t ticks, ns;           /* the last look: both at one instant */
  uint64_t rate;                /* nanoseconds a tick, times 2^32; 0: not known */
  uint64_t horizon;             /* ticks after that for which it holds; 0: look each time */
  uint64_t last;                /* what was said last */
  uint64_t from_ticks, from_ns; /* an earlier instant: the rate is taken from there */
};

uint64_t clock_system(void);

/* Once, as early as can be: the rate is taken from here on. */
void clock_start(void);

/* A thread's clock, zeroed: from now on it is that thread's. */
void clock_init(struct clock *clock);
static inline uint64_t clock_now(struct clock *clock);

/* The processor's counter; the system's clock where there is none that can be read. Not ordered with what is done around it. */
static inline uint64_t clock_ticks(void) {
#ifdef __x86_64__
  return __builtin_ia32_rdtsc();
#else
  return clock_system();
#endif
}

/* So many ticks, by what the counter did since clock_start: right whatever the processor. */
uint64_t clock_ticks_ns(uint64_t ticks);

uint64_t clock_look(struct clock *clock);

static inline uint64_t clock_now(struct clock *clock) {
  uint64_t past = clock_ticks() - clock->ticks;
  if (__builtin_expect(past >= clock->horizon, 0))
    return clock_look(clock);
  uint64_t now = clock->ns + (past * clock->rate >> 32);
  return clock->last = now > clock->last ? now : clock->last;
}

#endif
