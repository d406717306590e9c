/* Producer side of a ring (proto/ring_abi.h). A ring is written by one thread at a time, without locks or system calls. */
#ifndef CIRRON_RING_WRITER_H
#define CIRRON_RING_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../proto/ring_abi.h"

struct ring {
  struct ring_header *shm;
  struct ring_open *open;
  uint8_t *cells;
  uint64_t head;      /* as published */
  uint64_t tail_seen; /* last look at the reader's tail */
  uint32_t mask;
  uint32_t ring_no;
  uint32_t slot_hint;
  int fd;            /* kept to hand the ring to another collector; -1 where there is none */
  uint64_t dev, ino; /* of fd, to see that it is still ours */
  bool attached;     /* the collector of the present connection has it; owned by link.c */
  bool renew;        /* atomic: the descriptor was lost, the writer has to call ring_renew; set by link.c */
  bool in_use;       /* by a living thread */
  struct ring *next; /* all rings of the process, owned by session.c */
};

/* A sealed, prefaulted memfd ring. Returns 0, or a negative errno. Where memfd_create is refused the ring is private memory
 * with fd -1. */
int ring_open(uint64_t session, uint32_t ring_no, uint32_t cells, struct ring *out);
void ring_unmap(struct ring *ring); /* after a fork, in the child: unmaps, and closes the descriptor if it is ours */

/* The script closed the ring's descriptor: moves the ring's content to a new memfd at the same address, so that the next
 * connection can hand it over. Only for the ring's writer (ring_put and ring_open_slot do it when `renew` is set), or when
 * nothing is written any more. Keeps errno. */
void ring_renew(struct ring *ring);

/* Appends one record and its text (a, then b; either may be NULL), publishes it. False: no room, counted by the caller's kind
 * (emitted_... and dropped_... are kept here by the record's type). `structural` records may use the reserved cells.
 *   RING_SPAN: a is the attributes.   RING_MARK: a is the text value, b the attributes.   Others have no text.
 * text_cells and value_cells are set here. A text value over the limit is cut at a character; attributes that do not fit beside
 * it are left out whole, because cut JSON is none. */
bool ring_put(struct ring *ring, const void *cell, const char *a, size_t a_len, const char *b, size_t b_len, bool structural);

/* Cells that text of this length takes, at most RING_TEXT_MAX_CELLS. */
unsigned ring_text_cells(size_t len);

/* A free slot of the open table, filled and published; -1 when all are taken (the span is then seen only when it closes). */
int ring_open_slot(struct ring *ring, const struct ring_open *entry);
void ring_close_slot(struct ring *ring, int slot); /* accepts -1 */

#endif
