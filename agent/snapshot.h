/* Snapshots: what a model's weights and gradients are when an epoch ends, when so many steps were done, or when somebody asks.
 *
 *   an epoch ends (loop.c)  ──► due ──► taken at the next moment when nothing of ours is under way: tensors are listed (snapshot_list.c)
 *                                in the area (snapshot_area.c), collectord is told (link.c) and reads them; the training goes on
 *   before the next update changes weights, or something gradients in place ──► fence: waits until they were read; looks what changed
 *
 * Where nobody else may or can read, the process computes the same itself (snapshot_own.c), at once.
 *
 * One snapshot at a time in a process; GIL held, main interpreter. No error that was set before is lost, none is left.
 */
#ifndef CIRRON_SNAPSHOT_H
#define CIRRON_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>

#include "env.h"
#include "hot.h"
#include "py.h"

/* What may not be changed yet: bits. */
enum { SNAPSHOT_READS_GRADIENTS = 1, SNAPSHOT_READS_WEIGHTS = 2, SNAPSHOT_READS_ALL = 3 };
extern unsigned snapshot_reads;
extern bool snapshot_due;

struct snapshot_settings {
  enum env_snapshots mode;
  double sample_rate; /* of `sampled`, 0 to 1 */
  const char *folder; /* output_dir, absolute or from the working directory of now; copied. NULL: there is none */
};

void snapshot_start(void); /* once, before the first probe */
void snapshot_set(const struct snapshot_settings *settings);

/* Is one due? Takes it. Where Python code may run. */
void snapshot_take(void);
static inline void snapshot_check(void) {
  if (unlikely(snapshot_due))
    snapshot_take();
}

/* An optimizer was made: there may be another model. */
void snapshot_seek(void);

/* The training is about to change gradients, or all: waits for who reads them. */
void snapshot_wait(unsigned what);
static inline void snapshot_fence(unsigned what) {
  if (unlikely(snapshot_reads & what))
    snapshot_wait(what);
}

/* The training is about to add to gradients: the same, where that is done in place. */
void snapshot_wait_to_add(void);
static inline void snapshot_fence_to_add(void) {
  if (unlikely(snapshot_reads & SNAPSHOT_READS_GRADIENTS))
    snapshot_wait_to_add();
}

/* Has it been read by now? Then it is brought to its end without a wait. Where the training goes by. */
void snapshot_poll(void);
static inline void snapshot_look(void) {
  if (unlikely(snapshot_reads))
    snapshot_poll();
}

/* Waits for the last one: nothing that was asked for is to be lost with the interpreter. Bounded. */
void snapshot_finish(void);

struct snapshot_counts {
  uint64_t taken, tensors, torn, skipped,
      own;                   /* snapshots; their records; of these torn; snapshots that could not be taken; computed here */
  uint64_t own_ns;           /* what computing here took */
  uint64_t wait_ns, list_ns; /* what the training waited, and what listing took */
  uint64_t blobs, blob_failures, blobs_removed; /* directories of raw tensors: written, not written, removed for want of room */
};
struct snapshot_counts snapshot_counts(void);

void snapshot_forget(void); /* in the child of a fork, or for another session */

#endif
