/* Where a thread's records go: into its own ring, and in a burst that this cannot hold into a spare one, which is larger.
 *
 *   home ──full──► spare ──home was read, the spare's rest is small──► home; once the spare was read, too, it is given back
 *
 * Each change of the ring is told to the reader by a RING_AFTER. A burst is the only time at which this makes system calls. All
 * functions belong to the calling thread.
 */
#ifndef CIRRON_OUTLET_H
#define CIRRON_OUTLET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hot.h"
#include "ring_writer.h"

struct outlet {
  struct ring *ring; /* of the next record */
  struct ring *home, *spare;
  uint32_t tid;
  /* The present time of being full: as long as the reader's tail is this, and since when; 0: never yet. */
  uint64_t full_tail, full_ns;
  bool refused; /* there was no spare one at that tail */
  /* No room for a span that begins after full_ns, as long as the tails of `ring` and `home` are these. */
  bool stuck;
  uint64_t stuck_tail, stuck_home;
};

void outlet_init(struct outlet *outlet, struct ring *home, uint32_t tid);

/* Once in a while: goes home, gives the spare ring back. */
static inline void outlet_tend(struct outlet *outlet);

/* A cell for the RING_SPAN of a span that began at start_ns, to be filled; then ring_commit(outlet->ring). NULL: no room, counted.
 * A span that was open when the rings became full may have a reserved cell: there are few of them, and what was lost lies in them. */
static inline void *outlet_claim(struct outlet *outlet, bool structural, uint64_t start_ns);

/* As ring_put; start_ns as above, or UINT64_MAX for what is no span. */
bool outlet_put(struct outlet *outlet, const void *cell, const char *a, size_t a_len, const char *b, size_t b_len,
                bool structural, uint64_t start_ns);

/* The thread ends: gives the spare ring back. */
void outlet_end(struct outlet *outlet);

void outlet_leave_spare(struct outlet *outlet);
COLD void *outlet_claim_hard(struct outlet *outlet, uint64_t start_ns);
__attribute__((noinline)) bool outlet_stays_stuck(const struct outlet *outlet, uint64_t start_ns);

static inline void outlet_tend(struct outlet *outlet) {
  if (unlikely(outlet->spare != NULL))
    outlet_leave_spare(outlet);
}

static inline void *outlet_claim(struct outlet *outlet, bool structural, uint64_t start_ns) {
  if (unlikely(outlet->stuck) && !structural && outlet_stays_stuck(outlet, start_ns))
    return NULL;
  void *cell = ring_try(outlet->ring, RING_SPAN, structural);
  return unlikely(!cell) ? outlet_claim_hard(outlet, start_ns) : cell;
}

#endif
