/* See open.h. */
#include "open.h"

#include <stdlib.h>

#include "session.h"

/* False: the slot is free, or changes just now. */
static bool read_slot(const struct ring_open *slot, struct open_span *out) {
  uint64_t id = __atomic_load_n(&slot->id, __ATOMIC_ACQUIRE);
  out->span = (struct ring_span){
      .type = RING_SPAN,
      .id = id,
      .parent = __atomic_load_n(&slot->parent, __ATOMIC_RELAXED),
      .start_ns = __atomic_load_n(&slot->start_ns, __ATOMIC_RELAXED),
      .index = __atomic_load_n(&slot->index, __ATOMIC_RELAXED),
      .name = __atomic_load_n(&slot->name, __ATOMIC_RELAXED),
      .module = __atomic_load_n(&slot->module, __ATOMIC_RELAXED),
      .kind = __atomic_load_n(&slot->kind, __ATOMIC_RELAXED),
      .flags = __atomic_load_n(&slot->flags, __ATOMIC_RELAXED),
      .cpu_ns = SPAN_NO_TIME,
  };
  out->quiet = false;
  out->tid = __atomic_load_n(&slot->tid, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return id && __atomic_load_n(&slot->id, __ATOMIC_RELAXED) == id;
}

struct open_span *open_spans(size_t *count) {
  struct open_span *spans = NULL;
  size_t room = 0;
  *count = 0;
  for (const struct ring *ring = session_rings(); ring; ring = ring->next)
    for (unsigned i = 0; i < RING_OPEN_SLOTS && ring->shm; i++) {
      struct open_span span;
      if (!read_slot(&ring->open[i], &span))
        continue;
      if (*count == room) {
        struct open_span *more = realloc(spans, (room ? 2 * room : 64) * sizeof *spans);
        if (!more)
          return spans;
        spans = more;
        room = room ? 2 * room : 64;
      }
      spans[(*count)++] = span;
    }
  return spans;
}
