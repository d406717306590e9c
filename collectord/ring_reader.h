/* Reads one ring (proto/ring_abi.h) of a traced process. The memory is hostile: each cell is copied once and looked at only then.
 *
 * Two positions: what was read (`next`), and what is committed (the shared tail). Reading frees nothing; ring_reader_release does,
 * after the store has committed what was read.
 *
 *        tail (shared, committed)      next (read)          head (published by the writer)
 *   ------|----------------------------|-------------------|------
 *
 * What cannot be understood is skipped and counted: a cell of unknown type, text without a record, a record whose text does not
 * follow it. A head that runs backwards or further than the ring is long: what lies between is given up.
 */
#ifndef CIRRON_RING_READER_H
#define CIRRON_RING_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../proto/ring_abi.h"
#include "mapping.h"

struct ring_reader {
  struct mapping mapping;
  uint32_t ring_no, cells;
  uint64_t next;     /* next cell to read */
  uint64_t released; /* as the shared tail */
  uint64_t base;     /* from here on the writer may be one ring's length ahead: released, or where its head jumped to */
  uint64_t head;     /* as last seen */
  uint32_t tid;      /* of the records that come next; 0: not known */
  uint64_t bad;      /* things that could not be understood */
  unsigned jumps;    /* of the head; a client that goes on with it is not worth listening to */
  unsigned waited;   /* visits that ended at a RING_AFTER; session.c's */
  bool own;          /* made by ring_reader_make */
  uint64_t told;     /* own: `released` as the process was told last; batch.c's */
  unsigned open_top; /* own: the slots of open spans in use lie below; batch.c's */
  uint64_t cleared;  /* own: memory of cells before this was given back */
};

#define RING_READER_MAX_JUMPS 8u

struct ring_record {
  union {
    uint8_t type;
    struct ring_span span;
    struct ring_mark mark;
    struct ring_move move;
    struct ring_thread thread;
    struct ring_after after;
  };
  size_t value_len; /* RING_MARK: bytes of text that are its value */
  size_t text_len;  /* all bytes of text */
  bool text_bad;    /* its text was damaged and is left out */
  uint64_t cells;   /* to pass when it is consumed */
  char text[RING_TEXT_MAX_CELLS * RING_TEXT_BYTES];
};

/* Maps the ring in fd, which stays the caller's. -EPROTO: its header does not fit what was announced; or as mapping_open. */
int ring_reader_open(int fd, uint32_t ring_no, uint32_t cells, uint64_t session, struct ring_reader *out);
/* A ring of our own, for a process that sends its records: empty, and begins at `position`. -EPROTO: there is no such ring. */
int ring_reader_make(uint32_t ring_no, uint32_t cells, uint64_t session, uint64_t position, struct ring_reader *out);
void ring_reader_close(struct ring_reader *reader); /* accepts a zeroed one */

/* The ring is handed over once more, perhaps in other memory with the same content: goes on there from the same position. */
int ring_reader_move(struct ring_reader *reader, int fd, uint32_t cells, uint64_t session);

/* Goes on from `tail`, or from the shared tail if that is further. */
void ring_reader_seek(struct ring_reader *reader, uint64_t tail);

/* Looks how far the writer is. -EPROTO: its head jumped too often. */
int ring_reader_look(struct ring_reader *reader);

/* The next record before `limit` (a head that was seen): true and *out, or false. Goes past damaged cells, but not past the record:
 * ring_reader_consume does that, once it is taken. RING_THREAD is applied here and never given out. */
bool ring_reader_peek(struct ring_reader *reader, uint64_t limit, struct ring_record *out);
void ring_reader_consume(struct ring_reader *reader, const struct ring_record *record);

/* Frees for the writer all cells before `tail`. */
void ring_reader_release(struct ring_reader *reader, uint64_t tail);

/* Copies the whole entries of the table of open spans, at most RING_OPEN_SLOTS. */
size_t ring_reader_open_spans(const struct ring_reader *reader, struct ring_open *out);

struct ring_counters {
  uint64_t emitted_spans, emitted_marks, dropped_spans, dropped_marks, dropped_moves;
};
struct ring_counters ring_reader_counters(const struct ring_reader *reader);

#endif
