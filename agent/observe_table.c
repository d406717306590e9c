/* Writing side of the table of observed functions: open addressing, never more than three quarters full, never shrinks. */
#include "observe_table.h"

#include <errno.h>

#include "hot.h"

struct observe_entry observe_entries[OBSERVE_TABLE_SLOTS];
HOT_DATA struct observe_entry observe_first[OBSERVE_FIRST];

static atomic_flag writing = ATOMIC_FLAG_INIT; /* protects the entries against a second writer; held for a few instructions */
static unsigned used;
#define WRITING_TRIES 1000000u

static unsigned slot_of(const PyObject *function) {
  return (unsigned)(((uintptr_t)function >> 4) * 0x9e3779b97f4a7c15u >> (64 - OBSERVE_TABLE_BITS));
}

const struct probe *observe_find_later(PyObject *function) {
  for (unsigned i = slot_of(function);; i = (i + 1) % OBSERVE_TABLE_SLOTS) {
    PyObject *here = atomic_load_explicit(&observe_entries[i].function, memory_order_acquire);
    if (here == function)
      return atomic_load_explicit(&observe_entries[i].probe, memory_order_relaxed);
    if (!here)
      return NULL;
  }
}

/* Where the function is, or the free entry that it is to have. */
static struct observe_entry *entry_for(PyObject *function, bool apart) {
  PyObject *here;
  for (unsigned i = 0; i < OBSERVE_FIRST && !apart; i++)
    if (!(here = atomic_load_explicit(&observe_first[i].function, memory_order_relaxed)) || here == function)
      return &observe_first[i];
  unsigned i = slot_of(function);
  while ((here = atomic_load_explicit(&observe_entries[i].function, memory_order_relaxed)) && here != function)
    i = (i + 1) % OBSERVE_TABLE_SLOTS;
  return &observe_entries[i];
}

static int put_locked(PyObject *function, const struct probe *probe) {
  struct observe_entry *entry = entry_for(function, probe->apart);
  bool fresh = !atomic_load_explicit(&entry->function, memory_order_relaxed);
  if (fresh && used >= OBSERVE_TABLE_MAX)
    return -ENOSPC;
  atomic_store_explicit(&entry->probe, probe, memory_order_relaxed);
  if (fresh) {
    used++;
    atomic_store_explicit(&entry->function, function, memory_order_release);
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
