/* Small tensors, read many at a time: a model may have thousands of a few bytes, and a call for each costs more than their statistics. */
#ifndef CIRRON_AHEAD_H
#define CIRRON_AHEAD_H

#include <stddef.h>
#include <stdint.h>

#include "pass.h"

#define AHEAD_ENTRIES 512u
#define AHEAD_BYTES (1u << 20)
#define AHEAD_TENSOR_BYTES 8192u

struct ahead {
  uint32_t from, to; /* entries whose bytes are here */
  size_t at[AHEAD_ENTRIES + 1];
  uint8_t bytes[AHEAD_BYTES];
};

/* Reads entry `from` and as many after it as are small and lie as a whole; maybe none. What cannot be read is left out, to be read and told
 * of alone. The bytes read. */
size_t ahead_read(struct ahead *ahead, const struct pass *pass, uint32_t from);

/* The bytes of an entry, if they are here; NULL: they are not. */
const void *ahead_find(const struct ahead *ahead, uint32_t entry, size_t bytes);

#endif
