/* See cost.h. */
#include "cost.h"

#include <stddef.h>

/* A call that took longer was interrupted, by the scheduler or a page fault: that happens once, not in all the calls that it stands
 * for. Seldom as it is, it would otherwise drown the rest. */
#define INTERRUPTED_NS 50000u

/* The initial-exec model has little room in a library that is loaded while the program runs: this is all. */
__thread struct cost_thread cost_thread = {.left = 1, .gap = 1, .random = 1};

static uint64_t reading; /* ticks between two readings of the counter */

void (*cost_watch)(void);

static uint64_t *_Atomic counter;
static _Atomic uint64_t unclaimed; /* spent before there was a counter */

void cost_start(void) {
  reading = UINT64_MAX;
  for (int i = 0; i < 8; i++) {
    uint64_t before = clock_ticks(), between = clock_ticks() - before;
    reading = between < reading ? between : reading;
  }
}

static void spend(uint64_t ns) {
  uint64_t *to = counter;
  if (to)
    __atomic_fetch_add(to, ns, __ATOMIC_RELAXED);
  else
    unclaimed += ns;
}

void cost_to(uint64_t *to) {
  counter = to;
  if (to)
    __atomic_fetch_add(to, __atomic_exchange_n((uint64_t *)&unclaimed, 0, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

void cost_forget(void) {
  counter = NULL;
  unclaimed = 0;
}

uint32_t cost_weight(void) {
  struct cost_thread *t = &cost_thread;
  uint32_t weight = t->gap;
  if (t->timed < COST_FIRST) {
    t->timed++;
    t->gap = 1;
  } else {
    t->random = t->random * 1664525u + 1013904223u;
    t->gap = COST_GAP / 2 + 1 + (t->random >> 16) % (COST_GAP - 1);
  }
  t->left = t->gap;
  return weight;
}

void cost_add(const struct cost_timing *timing) {
  uint64_t took = clock_ticks() - timing->begun;
  uint64_t own = took - (cost_thread.apart - timing->apart);
  cost_thread.apart = timing->apart + took;
  if ((int64_t)took < 0 || own > took || own <= reading) /* counters of two processors that disagree */
    return;
  uint64_t ns = clock_ticks_ns(own - reading);
  spend(ns > INTERRUPTED_NS ? ns : ns * timing->weight);
}
