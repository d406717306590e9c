/* From the records of one session to rows of the store.
 *
 * Nothing lost, nothing doubled: what was read is kept in memory until it is committed, and the store is written from memory only.
 *
 *   ingest_span, _mark, _move   change memory, never the store (beside asking it for the row of a new name)
 *   ingest_prepare              sums up what came since the last time; changes memory, once per record
 *   ingest_write                writes all that is not committed yet; changes nothing that another ingest_write would need
 *   ingest_committed            the transaction is through: lets go of what was written
 *
 * So after a failed transaction ingest_write is simply called again, and after the death of collectord the next one reads the same
 * records again: the position in the rings is committed with the rows.
 *
 * Spans are gathered in `rows`. In the store they lie in blocks that are not sealed, the parts: each holds some rows that follow each
 * other, and only the last one, while it is small, is written anew as rows are added, so that a commit of a few rows writes a few rows.
 * Once there are more than BLOCK_MAX rows, the oldest that are settled (their parent is not about to hand them over by a RING_MOVE) go
 * into a sealed block and out of memory, and the rest becomes one part. Where many come between two commits, they do so at once. At the end of the session all parts become one, too.
 */
#ifndef CIRRON_INGEST_H
#define CIRRON_INGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../proto/ring_abi.h"
#include "names.h"
#include "rollup.h"
#include "store.h"
#include "tree.h"

struct ring_record;

struct ingest_row {
  struct span_row span; /* names are local, attrs are ours */
  int64_t self_ns;
  uint32_t before;  /* the child of the same parent before this one: index + 1, or 0 */
  uint32_t sealing; /* the ingest_write, by number, that put it into a sealed block: in the present one it goes out of memory */
};

struct ingest_move {
  uint64_t span, parent;
  int64_t since_ns;
};

#define INGEST_PART_ROWS 256u  /* a part with fewer is written anew with what comes next */
#define INGEST_MANY_ROWS 1024u /* so many at a time make a sealed block at once, which is packed once only */
#define INGEST_PARTS 24u       /* BLOCK_MAX rows make 16 of them, and some more where rows were taken over */

struct ingest_part {
  int64_t block; /* in the store */
  size_t count;
  bool dirty; /* rows in it are others than in the store */
};

struct ingest {
  int64_t rank; /* -1: none */
  uint32_t main_tid;
  int64_t wall_offset_ns;
  uint64_t start_ns; /* CLOCK_MONOTONIC: begin of the root span */
  uint32_t root_name;
  struct names names;
  struct tree tree;
  struct rollups rollups;

  struct ingest_row *rows;
  size_t row_count, row_room;
  size_t summed;                          /* rows that are in the roll-ups */
  uint32_t write_no;                      /* of the latest ingest_write, from 1 */
  struct ingest_part parts[INGEST_PARTS]; /* in the store, of rows[0] on */
  size_t part_count;
  struct ingest_part parts_written[INGEST_PARTS]; /* the same, in the transaction that is being written */
  size_t parts_written_count;
  size_t rows_stored; /* the sum over parts */
  bool parts_dirty;   /* one of them is */
  bool ended;         /* no more will come: all parts become one */
  bool taken_over;    /* there may be sealed blocks and rows of which we know nothing */

  struct mark_row *marks; /* texts are ours */
  size_t mark_count, mark_room;
  struct step_row *steps;
  size_t step_count, step_room, steps_placed; /* steps_placed: those that know their epoch */
  struct span_row *epochs;                    /* rows for the epochs table; end_ns 0: open */
  size_t epoch_count, epoch_room;
  struct ingest_move *moves;
  size_t move_count, move_room;
  uint64_t *gone_epochs; /* rows of the epochs table that never were */
  size_t gone_count, gone_room;
  uint64_t *past_epochs; /* epochs whose record came since the last commit */
  size_t past_count, past_room;
  struct idmap open_epochs; /* epochs whose row in the store has no end; value: the kind that it shows */

  struct span_row *scan; /* the open tables as last looked at: names are local */
  size_t scan_count, scan_room;
  struct span_row *open; /* the same for the store: without those whose record came, with the root */
  size_t open_count, open_room;
  bool open_dirty;
  bool root_closed;

  int64_t spans, marks_stored; /* ever, of this session */
  int64_t last_ns;
  uint64_t damaged; /* records that could not be taken */
  uint64_t moved;   /* rows looked at by moves since the last commit */
};

struct ingest_origin {
  uint64_t anchor_monotonic_ns, anchor_realtime_ns, start_monotonic_ns;
  int64_t rank;
  uint32_t main_tid; /* the root span's thread */
};

/* The segment, which may be NULL, must outlive it. */
int ingest_init(struct ingest *in, const struct ring_segment *segment, const struct ingest_origin *origin,
                const struct store *store);
void ingest_fini(struct ingest *in); /* accepts a zeroed one */

/* Takes up what a collector before us committed; `spans` and `marks` of the session are set by the caller. */
int ingest_take_over(struct ingest *in, struct store *store, int64_t sid);

/* One record. 0: taken (or refused and counted); else an error of the store or no memory: give it again later. */
int ingest_record(struct ingest *in, struct store *store, const struct ring_record *record, uint32_t tid);

/* What the open tables of all rings hold, looked at before the heads up to which records were given. */
int ingest_open_spans(struct ingest *in, struct store *store, const struct ring_open *open, size_t n);
int ingest_prepare(struct ingest *in);

/* The process is gone and all its records were given: dissolves what is doubtful, leaves the rest open for ever. */
int ingest_end(struct ingest *in, struct store *store);

bool ingest_dirty(const struct ingest *in);
size_t ingest_pending(const struct ingest *in); /* rows that are not committed, about */
int ingest_write(struct ingest *in, struct store *store, int64_t sid);
void ingest_committed(struct ingest *in);

/* Wall-clock nanoseconds of a CLOCK_MONOTONIC time of this session. */
int64_t ingest_wall(const struct ingest *in, uint64_t monotonic_ns);

#endif
