/* Bytes of a SpanBatch (proto/span_batch.h) back to cells and open spans. The bytes are hostile: nothing is read past their end, and
 * what is no record ends the message. */
#ifndef CIRRON_UNPACK_H
#define CIRRON_UNPACK_H

#include <stddef.h>
#include <stdint.h>

#include "../proto/span_batch.h"

struct unpack {
  const uint8_t *at, *end;
  struct batch_before before;
  unsigned text; /* cells of the present record's text that have not been given out */
};

/* Accepts NULL without bytes, as protobuf gives an empty field. */
static inline struct unpack unpack_begin(const uint8_t *data, size_t len) {
  static const uint8_t none[1];
  if (!data)
    return (struct unpack){.at = none, .end = none};
  return (struct unpack){.at = data, .end = data + len};
}

/* The next cell, RING_CELL bytes. -EBADMSG: there is none, or it can not be right. */
int unpack_cell(struct unpack *u, void *cell);
/* The next entry of the table and its slot; slots come in their order. */
int unpack_open(struct unpack *u, struct ring_open *entry, unsigned *slot);

#endif
