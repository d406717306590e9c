/* Which function objects are observed, by which probe. For observe.c and its trampoline.
 *
 * Addresses only, no references: an entry whose function has died is never found, because a function is looked up only when it
 * calls our trampoline, and it does so only after it was entered here. So nothing is kept alive and nothing has to be removed; a
 * later function at the same address takes the entry over.
 *
 * Threads: find is wait-free from any thread; put is serialised inside.
 */
#ifndef CIRRON_OBSERVE_TABLE_H
#define CIRRON_OBSERVE_TABLE_H

#include <stdatomic.h>

#include "observe.h"

#define OBSERVE_TABLE_BITS 12
#define OBSERVE_TABLE_SLOTS (1u << OBSERVE_TABLE_BITS)

struct observe_entry {
  _Atomic(PyObject *) function; /* written once, last */
  _Atomic(const struct probe *) probe;
};
extern struct observe_entry observe_entries[OBSERVE_TABLE_SLOTS];

static inline unsigned observe_slot(const PyObject *function) {
  return (unsigned)(((uintptr_t)function >> 4) * 0x9e3779b97f4a7c15u >> (64 - OBSERVE_TABLE_BITS));
}

/* NULL: not observed. */
static inline const struct probe *observe_find(PyObject *function) {
  for (unsigned i = observe_slot(function);; i = (i + 1) % OBSERVE_TABLE_SLOTS) {
    PyObject *here = atomic_load_explicit(&observe_entries[i].function, memory_order_acquire);
    if (here == function)
      return atomic_load_explicit(&observe_entries[i].probe, memory_order_relaxed);
    if (!here)
      return NULL;
  }
}

/* Enters a function, or changes its probe. 0, or -ENOSPC: as many as we care for (a program that makes classes without end). */
int observe_put(PyObject *function, const struct probe *probe);

#endif
