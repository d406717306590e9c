/* Writing side of the table of observed functions: open addressing, never more than three quarters full, never shrinks. */
#include "observe_table.h"

#include <errno.h>

struct observe_entry observe_entries[OBSERVE_TABLE_SLOTS];

static atomic_flag writing = ATOMIC_FLAG_INIT; /* protects the entries against a second writer; held for a few instructions */
static unsigned used;
#define WRITING_TRIES 1000000u

static int put_locked(PyObject *function, const struct probe *probe) {
  unsigned i = observe_slot(function);
  PyObject *here;
  while ((here = atomic_load_explicit(&observe_entries[i].function, memory_order_relaxed)) && here != function)
    i = (i + 1) % OBSERVE_TABLE_SLOTS;
  if (!here && used >= OBSERVE_TABLE_SLOTS / 4 * 3)
    return -ENOSPC;
  atomic_store_explicit(&observe_entries[i].probe, probe, memory_order_relaxed);
  if (!here) {
    used++;
    atomic_store_explicit(&observe_entries[i].function, function, memory_order_release);
  }
  return 0;
}

int observe_put(PyObject *function, const struct probe *probe) {
  /* Bounded: in the child of a fork the holder may not exist (free-threaded builds only, elsewhere the GIL is held). */
  for (unsigned tries = 0; atomic_flag_test_and_set_explicit(&writing, memory_order_acquire); tries++)
    if (tries == WRITING_TRIES)
      return -EAGAIN;
  int result = put_locked(function, probe);
  atomic_flag_clear_explicit(&writing, memory_order_release);
  return result;
}
