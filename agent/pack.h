/* Records of a ring as bytes of a message (proto/span_batch.h). No allocation, no system call; the ring's writer may go on. */
#ifndef CIRRON_PACK_H
#define CIRRON_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ring_writer.h"

/* Packs whole records from *at on, up to the position `goal` and as many as fit into `size` bytes, which are enough for one of any
 * kind (PACK_ROOM). *at moves over them. Returns the bytes. */
size_t pack_records(const struct ring *ring, uint64_t goal, uint8_t *out, size_t size, struct ring_progress *at);

#define PACK_ROOM (BATCH_RECORD_MAX + RING_TEXT_MAX_CELLS * BATCH_TEXT_MAX)

/* Moves *at over the records before `goal`. False: no record ends there. */
bool pack_walk(const struct ring *ring, uint64_t goal, struct ring_progress *at);

/* The table of open spans, at most BATCH_OPEN_MAX bytes. */
size_t pack_open(const struct ring *ring, uint8_t *out);

#endif
