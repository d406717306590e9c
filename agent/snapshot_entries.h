/* The entries of a request, written from the list: which tensors, in the order in which they are read, and which of them are torn.
 *
 * There is one area and one list, so there is one of these. Main thread, with the GIL. */
#ifndef CIRRON_SNAPSHOT_ENTRIES_H
#define CIRRON_SNAPSHOT_ENTRIES_H

#include <stdbool.h>
#include <stdint.h>

#include "snapshot_area.h"
#include "snapshot_list.h"

/* Names and shapes of all, which stay from one request to the next. Between snapshot_area_text_begin() and entries_write(). */
void entries_text(struct list_item *items, uint32_t count);

/* Returns how many there are. */
uint32_t entries_write(const struct list_item *items, uint32_t count, bool gradients_first);

/* Entries [from, to): those of one kind. */
struct entries_half {
  uint32_t from, to;
};

/* `what`: SNAPSHOT_READS_WEIGHTS or SNAPSHOT_READS_GRADIENTS, of the request that was written last. */
struct entries_half entries_half(const struct snapshot_area *area, unsigned what);

/* Marks, of this kind, what was changed while it was read, was not read in time (`done` entries were), or belongs to a model that went
 * before it was. Returns how many. */
uint32_t entries_flag_torn(const struct snapshot_area *area, unsigned what, uint32_t done);

#endif
