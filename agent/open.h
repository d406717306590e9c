/* The spans that are open at this moment, of all threads, read from their tables while they go on. */
#ifndef CIRRON_OPEN_H
#define CIRRON_OPEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../proto/ring_abi.h"

struct open_span {
  struct ring_span span; /* as far as it is known: no end, no CPU time */
  uint32_t tid;
  bool quiet; /* the reader's own: leave it out */
};

/* In memory that the caller frees, without order and without the root. NULL: there are none, or there is no memory. Read them before what
 * is closed: a span that ends meanwhile is then found twice, never not at all. */
struct open_span *open_spans(size_t *count);

#endif
