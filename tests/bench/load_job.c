/* One traced process of tests/bench/load_bench.py: spans at a steady rate, by the agent's own files (init.c left out).
 *
 *   load_job RATE SECONDS        prints: spans emitted, spans dropped
 *
 * Spans come in groups of ten milliseconds: 64 processes that each woke a thousand times a second would measure the scheduler.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "agent/env.h"
#include "agent/init.h"
#include "agent/link.h"
#include "agent/scope.h"
#include "agent/segment.h"
#include "agent/session.h"

#define GROUPS_A_SECOND 100

/* Stands in for init.c, whose constructor would look for an interpreter. */
bool agent_start(void) {
  return false;
}

static void until(struct timespec *t) {
  t->tv_nsec += 1000000000 / GROUPS_A_SECOND;
  if (t->tv_nsec >= 1000000000) {
    t->tv_nsec -= 1000000000;
    t->tv_sec++;
  }
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, t, NULL))
    ;
}

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  double rate = atof(argv[1]), debt = 0;
  long groups = (long)(atof(argv[2]) * GROUPS_A_SECOND);
  env_read(&session_env);
  session_init();
  struct scope *scope = session_ensure() ? scope_get() : NULL;
  if (!scope)
    return 1;
  uint32_t names[8];
  char text[16];
  for (int i = 0; i < 8; i++)
    names[i] = segment_name(text, (size_t)snprintf(text, sizeof text, "work %d", i));
  struct timespec next;
  clock_gettime(CLOCK_MONOTONIC, &next);
  long long emitted = 0;
  for (long g = 0; g < groups; g++) {
    for (debt += rate / GROUPS_A_SECOND; debt >= 1; debt--, emitted++) {
      struct span *span = scope_push(scope, SPAN_USER, names[emitted % 8], emitted, scope_clock(scope));
      if (span)
        scope_pop(scope, span, scope_clock(scope), 0);
    }
    until(&next);
  }
  struct ring *ring = session_rings();
  printf("%lld %llu\n", emitted, ring ? (unsigned long long)ring->shm->dropped_spans : 0);
  session_close();
  return 0;
}
