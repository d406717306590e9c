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

#include "hot.h"
#include "observe.h"

#define OBSERVE_TABLE_BITS 12
#define OBSERVE_TABLE_SLOTS (1u << OBSERVE_TABLE_BITS)
#define OBSERVE_TABLE_MAX (OBSERVE_TABLE_SLOTS / 4 * 3) /* functions */

struct observe_entry {
  _Atomic(PyObject *) function; /* written once, last */
  _Atomic(const struct probe *) probe;
};
extern struct observe_entry observe_entries[OBSERVE_TABLE_SLOTS];

/* The first ones, in the order in which they came, lie here: on two or three cache lines, not one each. */
#define OBSERVE_FIRST 12u
extern struct observe_entry observe_first[OBSERVE_FIRST];

#define OBSERVE_PLACES (OBSERVE_FIRST + OBSERVE_TABLE_SLOTS)
static inline struct observe_entry *observe_place(unsigned i) {
  return i < OBSERVE_FIRST ? &observe_first[i] : &observe_entries[i - OBSERVE_FIRST];
}

COLD const struct probe *observe_find_later(PyObject *function);

/* NULL: not observed. */
static inline const struct probe *observe_find(PyObject *function) {
  for (unsigned i = 0; i < OBSERVE_FIRST; i++)
    if (atomic_load_explicit(&observe_first[i].function, memory_order_acquire) == function)
      return atomic_load_explicit(&observe_first[i].probe, memory_order_relaxed);
  return observe_find_later(function);
}

/* Enters a function, or changes its probe. 0, or -ENOSPC: as many as we care for (a program that makes classes without end). */
int observe_put(PyObject *function, const struct probe *probe);

#endif
