#include "unpack.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "../proto/varint.h"

union cell {
  struct ring_span span;
  struct ring_mark mark;
  struct ring_move move;
  struct ring_thread thread;
  struct ring_after after;
  struct ring_text text;
};

/* After the first thing that is not there, `at` is NULL and all else is 0. */
static uint64_t number(struct unpack *u) {
  uint64_t v = 0;
  if (u->at)
    u->at = varint_get(u->at, u->end, &v);
  return u->at ? v : 0;
}

static uint64_t delta(struct unpack *u) {
  return unzigzag(number(u));
}

static uint32_t number32(struct unpack *u) {
  uint64_t v = number(u);
  if (v > UINT32_MAX)
    u->at = NULL;
  return (uint32_t)v;
}

static void copy(struct unpack *u, void *out, size_t len) {
  if (!u->at || (size_t)(u->end - u->at) < len) {
    u->at = NULL;
    return;
  }
  memcpy(out, u->at, len);
  u->at += len;
}

static uint8_t byte(struct unpack *u) {
  uint8_t b = 0;
  copy(u, &b, 1);
  return b;
}

static void span(struct unpack *u, unsigned bits, struct ring_span *s) {
  s->kind = byte(u);
  s->flags = byte(u);
  s->name = number32(u);
  s->id = u->before.id + delta(u);
  s->parent = s->id - delta(u);
  s->start_ns = u->before.ns + delta(u);
  s->end_ns = s->start_ns + delta(u);
  s->index = SPAN_NO_INDEX;
  if (bits & BATCH_INDEX)
    u->before.index = s->index = (int64_t)((uint64_t)u->before.index + delta(u));
  s->cpu_ns = bits & BATCH_CPU ? (int64_t)delta(u) : SPAN_NO_TIME;
  s->module = bits & BATCH_MODULE ? number32(u) : 0;
  s->exception = bits & BATCH_EXCEPTION ? number32(u) : 0;
  s->text_cells = bits & BATCH_TEXT ? byte(u) : 0;
  u->text = s->text_cells;
  u->before.id = s->id;
  u->before.ns = s->end_ns;
}

static void mark(struct unpack *u, unsigned bits, struct ring_mark *m) {
  m->value_type = byte(u);
  m->flags = byte(u);
  m->name = number32(u);
  m->id = u->before.id + delta(u);
  m->span = m->id - delta(u);
  m->ts_ns = u->before.ns + delta(u);
  if (m->value_type == MARK_FLOAT)
    copy(u, &m->value, sizeof m->value);
  else
    m->value.i = (int64_t)delta(u);
  if (bits & BATCH_TEXT) {
    m->text_cells = byte(u);
    m->value_cells = byte(u);
  }
  u->text = m->text_cells;
  u->before.id = m->id;
  u->before.ns = m->ts_ns;
}

static void move(struct unpack *u, struct ring_move *m) {
  m->span = u->before.id + delta(u);
  m->parent = u->before.id + delta(u);
  m->since_ns = u->before.ns + delta(u);
}

static void thread(struct unpack *u, struct ring_thread *t) {
  t->tid = number32(u);
  t->ts_ns = u->before.ns + delta(u);
  u->before.ns = t->ts_ns;
}

static void after(struct unpack *u, struct ring_after *a) {
  a->ring_no = number32(u);
  a->position = number(u);
}

static void text(struct unpack *u, struct ring_text *t) {
  t->type = RING_TEXT;
  t->used = byte(u);
  if (t->used > RING_TEXT_BYTES)
    u->at = NULL;
  else
    copy(u, t->text, t->used);
  u->text--;
}

static bool bits_fit(unsigned type, unsigned bits) {
  return !bits || type == RING_SPAN || (type == RING_MARK && bits == BATCH_TEXT);
}

static void record(struct unpack *u, union cell *c) {
  unsigned first = byte(u), type = first & BATCH_TYPE_MASK, bits = first >> BATCH_BITS_SHIFT;
  if (!bits_fit(type, bits))
    u->at = NULL;
  c->span.type = (uint8_t)type; /* they all begin with it */
  switch (type) {
  case RING_SPAN:
    span(u, bits, &c->span);
    break;
  case RING_MARK:
    mark(u, bits, &c->mark);
    break;
  case RING_MOVE:
    move(u, &c->move);
    break;
  case RING_THREAD:
    thread(u, &c->thread);
    break;
  case RING_AFTER:
    after(u, &c->after);
    break;
  case BATCH_RAW:
    copy(u, c, sizeof *c);
    break;
  default:
    u->at = NULL;
  }
}

int unpack_cell(struct unpack *u, void *cell) {
  union cell c = {0};
  if (u->text)
    text(u, &c.text);
  else
    record(u, &c);
  if (!u->at)
    return -EBADMSG;
  memcpy(cell, &c, sizeof c);
  return 0;
}

int unpack_open(struct unpack *u, struct ring_open *entry, unsigned *slot) {
  struct ring_open e = {.index = SPAN_NO_INDEX};
  unsigned bits = byte(u);
  uint64_t at = number(u);
  e.kind = byte(u);
  e.flags = byte(u);
  uint64_t depth = number(u);
  e.depth = (uint16_t)depth;
  e.tid = number32(u);
  e.name = number32(u);
  e.id = u->before.id + delta(u);
  e.parent = e.id - delta(u);
  e.start_ns = u->before.ns + delta(u);
  if (bits & BATCH_INDEX)
    e.index = (int64_t)delta(u);
  if (bits & BATCH_MODULE)
    e.module = number32(u);
  if (!u->at || bits & ~(unsigned)(BATCH_INDEX | BATCH_MODULE) || at >= RING_OPEN_SLOTS || depth > UINT16_MAX || !e.id)
    return -EBADMSG;
  u->before.id = e.id;
  u->before.ns = e.start_ns;
  *entry = e;
  *slot = (unsigned)at;
  return 0;
}
