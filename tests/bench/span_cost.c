/* What a span costs the thread that makes it: begin and end against two readings of the system's clock, the least that a span would
 * take that asked it.
 *
 * The agent's own files are linked in, init.c left out: nothing is attached to an interpreter here. The consumer is a real
 * collectord behind CIRRON_SOCKET. Both sides are timed in turns, in short blocks, and the quickest and the middle block compared.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/clock.h"
#include "agent/env.h"
#include "agent/init.h"
#include "agent/link.h"
#include "agent/outlet.h"
#include "agent/ring_writer.h"
#include "agent/scope.h"
#include "agent/segment.h"
#include "agent/session.h"

#define BLOCK 500
#define BLOCKS 2000

/* Stands in for init.c, whose constructor would look for an interpreter. */
bool agent_start(void) {
  return false;
}

static volatile uint64_t sink;

static uint64_t clocks_block(void) {
  uint64_t begin = clock_system();
  for (int i = 0; i < BLOCK; i++) {
    sink = clock_system();
    sink = clock_system();
  }
  return clock_system() - begin;
}

static uint64_t spans_block(struct scope *scope, uint32_t name) {
  uint64_t begin = clock_system();
  for (int i = 0; i < BLOCK; i++) {
    struct span *span = scope_push(scope, SPAN_USER, name, i, scope_clock(scope));
    scope_pop(scope, span, scope_clock(scope), 0);
  }
  return clock_system() - begin;
}

/* What it costs when no room is left, in the thread's ring and in its spare one: it is counted, and that is all. */
static void drops(void) {
  struct ring ring;
  struct outlet outlet;
  if (ring_open(1, 1, RING_MIN_CELLS, &ring) < 0) {
    fputs("span_cost: no ring could be made\n", stderr);
    return;
  }
  outlet_init(&outlet, &ring, 1);
  while (outlet_claim(&outlet, false, UINT64_MAX))
    ring_commit(outlet.ring);
  uint64_t quickest = UINT64_MAX;
  for (int i = 0; i < BLOCKS; i++) {
    uint64_t begin = clock_system();
    for (int k = 0; k < BLOCK; k++)
      sink = (uintptr_t)outlet_claim(&outlet, false, UINT64_MAX);
    uint64_t took = clock_system() - begin;
    quickest = took < quickest ? took : quickest;
  }
  printf("  a record that is dropped  %6.1f ns\n", (double)quickest / BLOCK);
  ring_unmap(&ring);
}

static int ascending(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static uint64_t spans[BLOCKS], clocks[BLOCKS];

int main(void) {
  env_read(&session_env);
  session_init();
  struct scope *scope = session_ensure() ? scope_get() : NULL;
  if (!scope) {
    fputs("span_cost: no session could be made\n", stderr);
    return 1;
  }
  uint32_t name = segment_name("bench", 5);
  for (int i = 0; i < BLOCKS; i++) {
    clocks[i] = clocks_block();
    spans[i] = spans_block(scope, name);
    /* Let the consumer keep up, so that what is timed is the ordinary way, not the full ring. */
    struct timespec pause = {.tv_nsec = 1000000};
    nanosleep(&pause, NULL);
  }
  uint64_t all = 0, of_clocks = 0;
  for (int i = 0; i < BLOCKS; i++) {
    all += spans[i];
    of_clocks += clocks[i];
  }
  qsort(clocks, BLOCKS, sizeof *clocks, ascending);
  qsort(spans, BLOCKS, sizeof *spans, ascending);
  struct ring *ring = session_rings();
  uint64_t dropped = ring ? ring->shm->dropped_spans : 0;
  for (int quantile = 0; quantile <= 1; quantile++) {
    size_t at = quantile ? BLOCKS / 2 : BLOCKS / 100;
    double s = (double)spans[at] / BLOCK, c = (double)clocks[at] / BLOCK;
    printf("  span begin + end, %-6s  %6.1f ns   two clock readings %6.1f ns   ratio %.2f\n", quantile ? "median" : "best", s,
           c, s / c);
  }
  double mean = (double)all / (BLOCK * BLOCKS),
         mean_clock = (double)of_clocks / (BLOCK * BLOCKS); /* has the link's turns in it */
  printf("  span begin + end, mean    %6.1f ns   two clock readings %6.1f ns   ratio %.2f\n", mean, mean_clock,
         mean / mean_clock);
  printf("  collector %s, %llu of %d spans dropped\n", link_connected() ? "connected" : "NOT connected",
         (unsigned long long)dropped, BLOCK * BLOCKS);
  session_close();
  drops();
  return 0;
}
