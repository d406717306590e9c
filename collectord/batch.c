#include "batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cirron_gen.h"
#include "unpack.h"

#define POSITION_MAX (1ull << 62) /* no ring gets that far; sums of positions do not overflow */

static struct ring_header *header_of(const struct ring_reader *r) {
  return r->mapping.memory;
}

static uint8_t *cell_of(const struct ring_reader *r, uint64_t position) {
  return (uint8_t *)r->mapping.memory + RING_CELLS_OFFSET + (position & (r->cells - 1)) * RING_CELL;
}

int batch_names(struct session *session, const Cirron__Intern *names) {
  struct ring_segment *segment = session->segment.memory;
  uint64_t used = segment->names_used, end = (uint64_t)names->offset + names->names.len;
  if (!session->by_messages || names->offset > used || end > SEGMENT_NAMES_BYTES)
    return -EPROTO;
  if (end <= used)
    return 0; /* said before, on an earlier connection */
  uint64_t known = used - names->offset;
  memcpy((uint8_t *)segment + SEGMENT_NAMES_OFFSET + used, names->names.data + known, names->names.len - known);
  segment->names_used = (uint32_t)end;
  return 0;
}

int batch_counters(struct session *session, const Cirron__Counters *counters) {
  struct ring_segment *segment = session->segment.memory;
  if (!session->by_messages)
    return -EPROTO;
  segment->rank = counters->rank;
  segment->local_rank = counters->local_rank;
  segment->world_size = counters->world_size;
  segment->ranks_known = counters->ranks_known;
  segment->dropped_depth = counters->dropped_depth;
  segment->refused_marks = counters->refused_marks;
  segment->dropped_names = counters->dropped_names;
  segment->dropped_rings = counters->dropped_rings;
  segment->overhead_ns = counters->overhead_ns;
  return 0;
}

/* A ring that begins where the process does, or where the collector before us stopped. */
static int make_ring(struct session *s, const Cirron__SpanBatch *batch, size_t max_rings, struct store *store,
                     struct ring_reader **out) {
  uint64_t tail = 0;
  int err = s->added ? store_ring_tail_get(store, s->sid, batch->ring_no, &tail) : 0;
  if (err)
    return err;
  struct ring_reader *reader = calloc(1, sizeof *reader);
  if (!reader)
    return -ENOMEM;
  uint64_t from = tail > batch->position ? tail : batch->position;
  err = from > POSITION_MAX ? -EPROTO : ring_reader_make(batch->ring_no, batch->cells, s->prefix, from, reader);
  if (!err)
    err = session_add_ring(s, reader, max_rings);
  if (err) {
    ring_reader_close(reader);
    free(reader);
    return err;
  }
  reader->tid = batch->tid;
  s->owes = true;
  *out = reader;
  return 0;
}

/* Cells that we have go by; but which thread wrote what we begin with may be said in one of them. */
static void pass_by(struct ring_reader *r, const void *cell) {
  struct ring_thread thread;
  memcpy(&thread, cell, sizeof thread);
  if (thread.type == RING_THREAD && r->next == header_of(r)->head)
    r->tid = thread.tid;
}

/* All cells of the message, before any of them is published. */
static int put_cells(struct ring_reader *r, const Cirron__SpanBatch *batch) {
  struct ring_header *h = header_of(r);
  struct unpack u = unpack_begin(batch->records.data, batch->records.len);
  uint64_t end = batch->position + batch->count;
  if (batch->position > h->head || batch->position > POSITION_MAX)
    return -EPROTO; /* something is missing between */
  if (end > h->head && end - r->released > r->cells)
    return -EPROTO; /* over what is not committed */
  for (uint64_t at = batch->position; at < end; at++) {
    uint8_t cell[RING_CELL];
    int err = unpack_cell(&u, cell);
    if (err)
      return err;
    if (at >= h->head)
      memcpy(cell_of(r, at), cell, RING_CELL);
    else
      pass_by(r, cell);
  }
  return u.at == u.end && !u.text ? 0 : -EBADMSG; /* only whole records */
}

static int read_open(const Cirron__SpanBatch *batch, struct ring_open table[RING_OPEN_SLOTS]) {
  struct unpack u = unpack_begin(batch->open.data, batch->open.len);
  unsigned next = 0;
  while (u.at < u.end) {
    struct ring_open entry;
    unsigned slot;
    int err = unpack_open(&u, &entry, &slot);
    if (err || slot < next)
      return err ? err : -EBADMSG;
    table[slot] = entry;
    next = slot + 1;
  }
  return 0;
}

/* They never go back: what comes again after a broken connection says less at first. */
static void raise_to(uint64_t *counter, uint64_t value) {
  if (value > *counter)
    *counter = value;
}

static struct ring_open *open_of(const struct ring_reader *r) {
  return (struct ring_open *)((uint8_t *)r->mapping.memory + RING_OPEN_OFFSET);
}

static bool close_in(struct ring_reader *r, uint64_t id) {
  struct ring_open *open = open_of(r);
  for (unsigned i = 0; i < r->open_top; i++)
    if (open[i].id == id) {
      open[i].id = 0;
      return true;
    }
  return false;
}

/* A span whose record is there is open no more, though the table that says so may come later. In a burst the record comes in another
 * ring than the one that shows the span. */
static void close_spans(struct session *s, struct ring_reader *r, uint64_t from, uint64_t to) {
  for (uint64_t at = from; at < to; at++) {
    struct ring_span span;
    memcpy(&span, cell_of(r, at), sizeof span);
    s->bursts |= span.type == RING_AFTER;
    if (span.type != RING_SPAN || !span.id || close_in(r, span.id) || !s->bursts)
      continue;
    for (size_t i = 0; i < s->ring_count && !close_in(s->rings[i], span.id); i++)
      ;
  }
}

static void show_open(struct ring_reader *r, const struct ring_open table[RING_OPEN_SLOTS]) {
  memcpy(open_of(r), table, RING_OPEN_SLOTS * sizeof *table);
  r->open_top = RING_OPEN_SLOTS;
  while (r->open_top && !table[r->open_top - 1].id)
    r->open_top--;
}

static void publish(struct session *s, struct ring_reader *r, const Cirron__SpanBatch *batch, const struct ring_open *table) {
  struct ring_header *h = header_of(r);
  uint64_t end = batch->position + batch->count;
  close_spans(s, r, h->head, end);
  if (batch->shows_open)
    show_open(r, table);
  raise_to(&h->emitted_spans, batch->emitted_spans);
  raise_to(&h->emitted_marks, batch->emitted_marks);
  raise_to(&h->dropped_spans, batch->dropped_spans);
  raise_to(&h->dropped_marks, batch->dropped_marks);
  raise_to(&h->dropped_moves, batch->dropped_moves);
  raise_to(&h->head, end);
}

int batch_records(struct session *session, const Cirron__SpanBatch *batch, size_t max_rings, struct store *store) {
  static struct ring_open table[RING_OPEN_SLOTS]; /* one thread only */
  if (!session->by_messages)
    return -EPROTO;
  memset(table, 0, sizeof table);
  struct ring_reader *r = session_ring(session, batch->ring_no);
  int err = read_open(batch, table);
  if (!err && !r)
    err = make_ring(session, batch, max_rings, store, &r);
  if (!err && r->cells != batch->cells)
    err = -EPROTO;
  if (!err)
    err = put_cells(r, batch);
  if (!err)
    publish(session, r, batch, table);
  else if (err == -EPROTO || err == -EBADMSG)
    session->ingest.damaged++;
  return err;
}

uint64_t batch_held(const struct session *session) {
  uint64_t cells = 0;
  for (size_t i = 0; session->by_messages && i < session->ring_count; i++)
    cells += header_of(session->rings[i])->head - session->rings[i]->released;
  return cells * RING_CELL;
}

void batch_tell_all(struct session *session) {
  for (size_t i = 0; i < session->ring_count; i++)
    session->rings[i]->told = 0;
  session->owes = session->by_messages;
}

bool batch_next_told(struct session *session, uint32_t *ring_no, uint64_t *position) {
  for (size_t i = 0; i < session->ring_count; i++) {
    struct ring_reader *r = session->rings[i];
    if (r->told == r->released)
      continue;
    r->told = *position = r->released;
    *ring_no = r->ring_no;
    return true;
  }
  session->owes = false;
  return false;
}
