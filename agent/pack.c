/* See pack.h and proto/span_batch.h.
 *
 * The cells between the tail and a head that was seen do not change, so they are read without copying. A cell that does not look as
 * our writer leaves it goes as it is: the collector counts it as damaged, as it would in shared memory.
 */
#include "pack.h"

#include <string.h>

#include "../proto/span_batch.h"
#include "../proto/varint.h"

union cell {
  uint8_t type;
  struct ring_span span;
  struct ring_mark mark;
  struct ring_move move;
  struct ring_thread thread;
  struct ring_after after;
  struct ring_text text;
};

static const union cell *cell_at(const struct ring *ring, uint64_t position) {
  return (const union cell *)(ring->cells + (position & ring->mask) * RING_CELL);
}

/* Cells of text that follow a record; -1: they are not there, or no text. */
static int text_cells(const struct ring *ring, uint64_t position, uint64_t goal) {
  const union cell *c = cell_at(ring, position);
  unsigned n = c->type == RING_SPAN ? c->span.text_cells : c->type == RING_MARK ? c->mark.text_cells : 0;
  if (n >= goal - position)
    return -1;
  for (unsigned i = 1; i <= n; i++) {
    const union cell *text = cell_at(ring, position + i);
    if (text->type != RING_TEXT || text->text.used > RING_TEXT_BYTES)
      return -1;
  }
  return (int)n;
}

static void pass(const struct ring *ring, int text, struct ring_progress *at) {
  const union cell *c = cell_at(ring, at->cells);
  if (text >= 0) {
    at->spans += c->type == RING_SPAN;
    at->marks += c->type == RING_MARK;
    if (c->type == RING_THREAD)
      at->tid = c->thread.tid;
  }
  at->cells += 1 + (unsigned)(text > 0 ? text : 0);
}

bool pack_walk(const struct ring *ring, uint64_t goal, struct ring_progress *at) {
  struct ring_progress to = *at;
  while (to.cells < goal)
    pass(ring, text_cells(ring, to.cells, goal), &to);
  *at = to;
  return to.cells == goal;
}

static uint8_t *put_delta(uint8_t *p, uint64_t value, uint64_t before) {
  return varint_put(p, zigzag(value - before));
}

static uint8_t *put_text(uint8_t *p, const struct ring *ring, uint64_t position, unsigned cells) {
  for (unsigned i = 1; i <= cells; i++) {
    const struct ring_text *text = &cell_at(ring, position + i)->text;
    *p++ = (uint8_t)text->used;
    memcpy(p, text->text, text->used);
    p += text->used;
  }
  return p;
}

static uint8_t *put_span(uint8_t *p, const struct ring_span *s, struct batch_before *b) {
  unsigned bits = (s->index != SPAN_NO_INDEX ? BATCH_INDEX : 0) | (s->cpu_ns != SPAN_NO_TIME ? BATCH_CPU : 0) |
                  (s->module ? BATCH_MODULE : 0) | (s->exception ? BATCH_EXCEPTION : 0) | (s->text_cells ? BATCH_TEXT : 0);
  *p++ = (uint8_t)(RING_SPAN | bits << BATCH_BITS_SHIFT);
  *p++ = s->kind;
  *p++ = s->flags;
  p = varint_put(p, s->name);
  p = put_delta(p, s->id, b->id);
  p = put_delta(p, s->id, s->parent);
  p = put_delta(p, s->start_ns, b->ns);
  p = put_delta(p, s->end_ns, s->start_ns);
  if (bits & BATCH_INDEX) {
    p = put_delta(p, (uint64_t)s->index, (uint64_t)b->index);
    b->index = s->index;
  }
  if (bits & BATCH_CPU)
    p = put_delta(p, (uint64_t)s->cpu_ns, 0);
  if (bits & BATCH_MODULE)
    p = varint_put(p, s->module);
  if (bits & BATCH_EXCEPTION)
    p = varint_put(p, s->exception);
  if (bits & BATCH_TEXT)
    *p++ = s->text_cells;
  b->id = s->id;
  b->ns = s->end_ns;
  return p;
}

static uint8_t *put_mark(uint8_t *p, const struct ring_mark *m, struct batch_before *b) {
  *p++ = (uint8_t)(RING_MARK | (m->text_cells ? BATCH_TEXT << BATCH_BITS_SHIFT : 0));
  *p++ = m->value_type;
  *p++ = m->flags;
  p = varint_put(p, m->name);
  p = put_delta(p, m->id, b->id);
  p = put_delta(p, m->id, m->span);
  p = put_delta(p, m->ts_ns, b->ns);
  if (m->value_type == MARK_FLOAT) {
    memcpy(p, &m->value, sizeof m->value);
    p += sizeof m->value;
  } else {
    p = put_delta(p, (uint64_t)m->value.i, 0);
  }
  if (m->text_cells) {
    *p++ = m->text_cells;
    *p++ = m->value_cells;
  }
  b->id = m->id;
  b->ns = m->ts_ns;
  return p;
}

static uint8_t *put_raw(uint8_t *p, const union cell *c) {
  *p++ = BATCH_RAW;
  memcpy(p, c, RING_CELL);
  return p + RING_CELL;
}

static uint8_t *put_other(uint8_t *p, const union cell *c, struct batch_before *b) {
  *p++ = c->type;
  switch (c->type) {
  case RING_MOVE:
    p = put_delta(p, c->move.span, b->id);
    p = put_delta(p, c->move.parent, b->id);
    return put_delta(p, c->move.since_ns, b->ns);
  case RING_THREAD:
    p = varint_put(p, c->thread.tid);
    p = put_delta(p, c->thread.ts_ns, b->ns);
    b->ns = c->thread.ts_ns;
    return p;
  case RING_AFTER:
    p = varint_put(p, c->after.ring_no);
    return varint_put(p, c->after.position);
  default:
    return put_raw(p - 1, c);
  }
}

static uint8_t *put_record(uint8_t *p, const struct ring *ring, uint64_t position, int text, struct batch_before *b) {
  const union cell *c = cell_at(ring, position);
  if (text < 0)
    return put_raw(p, c);
  if (c->type == RING_SPAN)
    p = put_span(p, &c->span, b);
  else if (c->type == RING_MARK)
    p = put_mark(p, &c->mark, b);
  else
    p = put_other(p, c, b);
  return put_text(p, ring, position, (unsigned)text);
}

size_t pack_records(const struct ring *ring, uint64_t goal, uint8_t *out, size_t size, struct ring_progress *at) {
  struct batch_before before = {0};
  uint8_t *p = out;
  while (at->cells < goal) {
    int text = text_cells(ring, at->cells, goal);
    if (BATCH_RECORD_MAX + (unsigned)(text > 0 ? text : 0) * BATCH_TEXT_MAX > size - (size_t)(p - out))
      break;
    p = put_record(p, ring, at->cells, text, &before);
    pass(ring, text, at);
  }
  return (size_t)(p - out);
}

/* As a collector that has the memory copies it: whole entries only. */
static bool copy_entry(const struct ring_open *from, struct ring_open *out) {
  uint64_t id = __atomic_load_n(&from->id, __ATOMIC_ACQUIRE);
  if (!id)
    return false;
  out->parent = __atomic_load_n(&from->parent, __ATOMIC_RELAXED);
  out->start_ns = __atomic_load_n(&from->start_ns, __ATOMIC_RELAXED);
  out->index = __atomic_load_n(&from->index, __ATOMIC_RELAXED);
  out->name = __atomic_load_n(&from->name, __ATOMIC_RELAXED);
  out->module = __atomic_load_n(&from->module, __ATOMIC_RELAXED);
  out->kind = __atomic_load_n(&from->kind, __ATOMIC_RELAXED);
  out->flags = __atomic_load_n(&from->flags, __ATOMIC_RELAXED);
  out->depth = __atomic_load_n(&from->depth, __ATOMIC_RELAXED);
  out->tid = __atomic_load_n(&from->tid, __ATOMIC_RELAXED);
  out->id = id;
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return __atomic_load_n(&from->id, __ATOMIC_RELAXED) == id;
}

static uint8_t *put_entry(uint8_t *p, unsigned slot, const struct ring_open *o, struct batch_before *b) {
  unsigned bits = (o->index != SPAN_NO_INDEX ? BATCH_INDEX : 0) | (o->module ? BATCH_MODULE : 0);
  *p++ = (uint8_t)bits;
  p = varint_put(p, slot);
  *p++ = o->kind;
  *p++ = o->flags;
  p = varint_put(p, o->depth);
  p = varint_put(p, o->tid);
  p = varint_put(p, o->name);
  p = put_delta(p, o->id, b->id);
  p = put_delta(p, o->id, o->parent);
  p = put_delta(p, o->start_ns, b->ns);
  if (bits & BATCH_INDEX)
    p = put_delta(p, (uint64_t)o->index, 0);
  if (bits & BATCH_MODULE)
    p = varint_put(p, o->module);
  b->id = o->id;
  b->ns = o->start_ns;
  return p;
}

size_t pack_open(const struct ring *ring, uint8_t *out) {
  struct batch_before before = {0};
  uint8_t *p = out;
  for (unsigned slot = 0; slot < RING_OPEN_SLOTS; slot++) {
    struct ring_open entry;
    if (copy_entry(&ring->open[slot], &entry))
      p = put_entry(p, slot, &entry, &before);
  }
  return (size_t)(p - out);
}
