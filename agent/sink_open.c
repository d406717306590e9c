/* See sink_open.h. All of it is called by whoever has the sink (sink.c). */
#include "sink_open.h"

#include <stdlib.h>
#include <unistd.h>

#include "keep.h"
#include "session.h"

/* Ids of what is open and was told, ascending. */
static uint64_t *told;
static size_t told_count;

static int by_id(const void *a, const void *b) {
  const struct open_span *x = a, *y = b;
  return x->span.id < y->span.id ? -1 : x->span.id > y->span.id;
}

static int against_id(const void *key, const void *id) {
  uint64_t x = *(const uint64_t *)key, y = *(const uint64_t *)id;
  return x < y ? -1 : x > y;
}

static bool was_told(uint64_t id) {
  return told_count && bsearch(&id, told, told_count, sizeof *told, against_id);
}

static void add_root(struct sink_open *o) {
  const struct session *session = session_get();
  struct open_span *more = session ? realloc(o->spans, (o->count + 1) * sizeof *o->spans) : NULL;
  if (!more)
    return;
  o->spans = more;
  o->spans[o->count++] = (struct open_span){.span = {.type = RING_SPAN,
                                                     .kind = SPAN_SESSION,
                                                     .id = SPAN_ROOT,
                                                     .name = session->root_name,
                                                     .start_ns = session->start_ns,
                                                     .index = SPAN_NO_INDEX,
                                                     .cpu_ns = SPAN_NO_TIME},
                                            .tid = (uint32_t)getpid()};
}

/* Or may it turn out never to have been (scope_dissolve)? Then it is not told of: a file cannot be taken back. */
static bool is_certain(const struct ring_span *s) {
  return s->kind != SPAN_DATA_LOAD && s->kind != SPAN_FETCH && s->kind != SPAN_EVAL && s->kind != SPAN_STEP;
}

static void leave_out_uncertain(struct sink_open *o) {
  size_t kept = 0;
  for (size_t i = 0; i < o->count; i++)
    if (is_certain(&o->spans[i].span))
      o->spans[kept++] = o->spans[i];
  o->count = kept;
}

struct sink_open sink_open_read(void) {
  struct sink_open o;
  o.spans = open_spans(&o.count);
  leave_out_uncertain(&o);
  add_root(&o);
  if (o.count)
    qsort(o.spans, o.count, sizeof *o.spans, by_id);
  for (size_t i = 0; i < o.count; i++)
    o.spans[i].quiet = was_told(o.spans[i].span.id);
  return o;
}

void sink_open_settle(const struct sink_open *o, const void *log, size_t bytes) {
  const struct keep_record *r;
  for (size_t at = 0; (r = keep_next(log, bytes, &at));) {
    const struct open_span key = {.span = {.id = r->as.type == RING_SPAN ? r->as.span.id : 0}};
    struct open_span *found = o->count ? bsearch(&key, o->spans, o->count, sizeof key, by_id) : NULL;
    if (found)
      found->quiet = true;
  }
}

void sink_open_told(const struct sink_open *o) {
  uint64_t *ids = o->count ? malloc(o->count * sizeof *ids) : NULL;
  free(told);
  told = ids;
  told_count = ids ? o->count : 0; /* no memory: they are told of once more */
  for (size_t i = 0; i < told_count; i++)
    told[i] = o->spans[i].span.id;
}

void sink_open_forget(void) {
  told = NULL; /* a thread that is not here may have been about to free it */
  told_count = 0;
}
