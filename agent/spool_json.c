/* See spool_json.h. The buffer is on the stack. */
#include "spool_json.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/ring_abi.h"
#include "keep.h"
#include "keep_moves.h"
#include "open.h"
#include "spool_out.h"
#include "spool_snapshot.h"

#define MARKS_OF_SPAN 1024u /* ids in one span's list */

struct pair {
  uint64_t span, mark;
};

/* A batch on its way. */
struct writing {
  struct out out;
  const struct spool_batch *batch;
  bool first;         /* of a list */
  struct pair *pairs; /* of all marks, by span */
  size_t pair_count;
};

static void put_name(struct writing *w, uint32_t id) {
  size_t len = 0;
  const char *text = w->batch->name(id, &len);
  out_string(&w->out, text ? text : "", text ? len : 0);
}

static uint64_t wall(const struct writing *w, uint64_t ns) {
  return ns + w->batch->wall_minus_monotonic_ns;
}

static void next(struct writing *w) {
  out_puts(&w->out, w->first ? "" : ",");
  w->first = false;
}

/* --- spans --- */

static void put_comma(struct writing *w, bool *any) {
  out_puts(&w->out, *any ? "," : "");
  *any = true;
}

/* Is this member `"key":...`? */
static bool has_key(const char *member, size_t len, const char *key) {
  size_t n = strlen(key);
  return len > n + 2 && member[0] == '"' && memcmp(member + 1, key, n) == 0 && member[n + 1] == '"';
}

/* The length of the first member of what is inside an object. */
static size_t member_length(const char *text, size_t len) {
  int depth = 0;
  bool quoted = false;
  size_t i = 0;
  for (; i < len && (text[i] != ',' || quoted || depth); i++) {
    if (text[i] == '"')
      quoted = !quoted;
    else if (quoted)
      i += text[i] == '\\';
    else
      depth += (text[i] == '{' || text[i] == '[') - (text[i] == '}' || text[i] == ']');
  }
  return i < len ? i : len;
}

/* What the script gave, but for names that what is known of the span has, too. */
static void put_own(struct writing *w, bool *any, const char *text, size_t len, const struct ring_span *s) {
  const struct {
    const char *key;
    bool taken;
  } keys[] = {{"mode", (s->flags & (SPAN_MODE_TRAIN | SPAN_MODE_EVAL)) != 0},
              {"module", s->module != 0},
              {"exception", s->exception != 0},
              {"error", (s->flags & SPAN_ERROR) != 0}};
  for (size_t n; len; text += n, len -= n) {
    bool taken = false;
    n = member_length(text, len);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
      taken = taken || (keys[i].taken && has_key(text, n, keys[i].key));
    if (!taken) {
      put_comma(w, any);
      out_escaped(&w->out, text, n, true);
    }
    n += n < len; /* the comma */
  }
}

static void put_attr(struct writing *w, bool *any, const char *key, uint32_t name) {
  if (!name)
    return;
  put_comma(w, any);
  out_putf(&w->out, "\"%s\":", key);
  put_name(w, name);
}

static void put_attrs(struct writing *w, const struct ring_span *s, const char *text, size_t len) {
  bool any = false;
  out_puts(&w->out, "{");
  if (len > 2 && text[0] == '{' && text[len - 1] == '}')
    put_own(w, &any, text + 1, len - 2, s);
  if (s->flags & (SPAN_MODE_TRAIN | SPAN_MODE_EVAL)) {
    put_comma(w, &any);
    out_putf(&w->out, "\"mode\":\"%s\"", s->flags & SPAN_MODE_TRAIN ? "train" : "eval");
  }
  put_attr(w, &any, "module", s->module);
  put_attr(w, &any, "exception", s->exception);
  if (s->flags & SPAN_ERROR) {
    put_comma(w, &any);
    out_puts(&w->out, "\"error\":true");
  }
  out_puts(&w->out, "}");
}

static int by_span(const void *a, const void *b) {
  const struct pair *x = a, *y = b;
  if (x->span != y->span)
    return x->span < y->span ? -1 : 1;
  return x->mark < y->mark ? -1 : x->mark > y->mark;
}

static void put_mark_ids(struct writing *w, uint64_t span) {
  size_t low = 0, high = w->pair_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (w->pairs[middle].span < span)
      low = middle + 1;
    else
      high = middle;
  }
  out_puts(&w->out, "[");
  for (size_t i = low; i < w->pair_count && w->pairs[i].span == span && i - low < MARKS_OF_SPAN; i++) {
    out_puts(&w->out, i > low ? "," : "");
    out_id(&w->out, w->pairs[i].mark);
  }
  out_puts(&w->out, "]");
}

/* `end_ns` 0: it is open. */
static void put_span(struct writing *w, const struct ring_span *s, uint64_t end_ns, uint32_t tid, const char *attrs,
                     size_t attrs_len) {
  next(w);
  out_puts(&w->out, "{\"id\":");
  out_id(&w->out, s->id);
  out_puts(&w->out, ",\"name\":");
  put_name(w, s->name);
  out_puts(&w->out, ",\"parent_id\":");
  if (s->parent)
    out_id(&w->out, s->parent);
  else
    out_puts(&w->out, "null");
  if (s->index == SPAN_NO_INDEX)
    out_puts(&w->out, ",\"index\":null");
  else
    out_putf(&w->out, ",\"index\":%lld", (long long)s->index);
  out_putf(&w->out, ",\"start_ns\":%llu", (unsigned long long)wall(w, s->start_ns));
  if (end_ns)
    out_putf(&w->out, ",\"end_ns\":%llu", (unsigned long long)wall(w, end_ns));
  else
    out_puts(&w->out, ",\"end_ns\":null");
  if (s->cpu_ns == SPAN_NO_TIME)
    out_puts(&w->out, ",\"cpu_ns\":null");
  else
    out_putf(&w->out, ",\"cpu_ns\":%lld", (long long)s->cpu_ns);
  out_putf(&w->out, ",\"gpu_ns\":null,\"memory_peak_bytes\":null,\"thread_id\":%u,\"pid\":%d,\"rank\":%d,\"attrs\":", tid,
           w->batch->pid, w->batch->rank);
  put_attrs(w, s, attrs, attrs_len);
  out_puts(&w->out, ",\"mark_ids\":");
  put_mark_ids(w, s->id);
  out_puts(&w->out, "}");
}

static void put_open(struct writing *w, const struct open_span *open) {
  bool root = open->span.id == SPAN_ROOT;
  put_span(w, &open->span, 0, open->tid, root ? w->batch->root_attrs : NULL, root ? w->batch->root_attrs_len : 0);
}

/* The next from *at on that is to be written. */
static const struct open_span *next_open(const struct spool_batch *b, size_t *at) {
  while (*at < b->open_count)
    if (!b->open[(*at)++].quiet)
      return &b->open[*at - 1];
  return NULL;
}

/* Those that are to be written. */
static const struct keep_record *next_span(const struct spool_batch *b, size_t *at) {
  const struct keep_record *r;
  while ((r = keep_next(b->spans, b->spans_bytes, at)))
    if (r->as.type == RING_SPAN && (*at > b->spans_from || r->as.span.flags & KEEP_MOVED))
      return r;
  return NULL;
}

/* --- marks --- */

static void put_value(struct writing *w, const struct keep_record *r) {
  const struct ring_mark *m = &r->as.mark;
  if (m->value_type == MARK_FLOAT) {
    out_puts(&w->out, "\"float\",\"value\":");
    out_number(&w->out, m->value.f);
  } else if (m->value_type == MARK_INT) {
    out_putf(&w->out, "\"int\",\"value\":%lld", (long long)m->value.i);
  } else if (m->value_type == MARK_BOOL) {
    out_putf(&w->out, "\"bool\",\"value\":%s", m->value.i ? "true" : "false");
  } else {
    out_puts(&w->out, "\"string\",\"value\":");
    out_string(&w->out, keep_a(r), r->a_len);
  }
}

static void put_mark(struct writing *w, const struct keep_record *r) {
  const struct ring_mark *m = &r->as.mark;
  next(w);
  out_puts(&w->out, "{\"id\":");
  out_id(&w->out, m->id);
  out_puts(&w->out, ",\"span_id\":");
  out_id(&w->out, m->span);
  out_puts(&w->out, ",\"name\":");
  put_name(w, m->name);
  out_puts(&w->out, ",\"value_type\":");
  put_value(w, r);
  out_puts(&w->out, ",\"attrs\":");
  if (r->b_len > 1)
    out_escaped(&w->out, keep_b(r), r->b_len, true);
  else
    out_puts(&w->out, "{}");
  out_putf(&w->out, ",\"ts_ns\":%llu,\"kind\":\"%s\"}", (unsigned long long)wall(w, m->ts_ns),
           m->flags & MARK_SUMMARY ? "summary" : "point");
}

static const struct keep_record *next_mark(const struct spool_batch *b, unsigned *list, size_t *at) {
  const struct keep_record *r;
  while (*list < 2) {
    r = keep_next(b->marks[*list], b->marks_bytes[*list], at);
    if (r)
      return r;
    ++*list;
    *at = 0;
  }
  return NULL;
}

/* --- the batch --- */

static size_t count_marks(const struct spool_batch *b) {
  size_t n = 0, at = 0;
  for (unsigned list = 0; next_mark(b, &list, &at);)
    n++;
  return n;
}

size_t spool_batch_count(const struct spool_batch *b) {
  size_t n = count_marks(b) + (b->snapshots != NULL), at = 0;
  while (next_span(b, &at))
    n++;
  at = 0;
  while (next_open(b, &at))
    n++;
  return n;
}

static void collect_pairs(struct writing *w) {
  const struct keep_record *r;
  size_t n = count_marks(w->batch), at = 0;
  w->pairs = n ? malloc(n * sizeof *w->pairs) : NULL;
  if (!w->pairs)
    return;
  for (unsigned list = 0; w->pair_count < n && (r = next_mark(w->batch, &list, &at));)
    w->pairs[w->pair_count++] = (struct pair){r->as.mark.span, r->as.mark.id};
  qsort(w->pairs, w->pair_count, sizeof *w->pairs, by_span);
}

int spool_batch_write(int fd, const struct spool_batch *batch, uint64_t *bytes) {
  struct writing w;
  const struct keep_record *r;
  const struct open_span *open;
  size_t at = 0;
  w.batch = batch;
  w.out.fd = fd;
  w.out.prefix = batch->prefix;
  w.out.error = 0;
  w.first = true;
  w.out.written = w.out.len = w.pair_count = 0;
  collect_pairs(&w);
  out_putf(&w.out,
           "{\"schema_version\":1,\"sdk_version\":\"" CIRRON_VERSION "\",\"batch_id\":\"%s\",\"created_ns\":%llu,\"spans\":[",
           batch->id, (unsigned long long)batch->created_ns);
  while (!w.out.error && (open = next_open(batch, &at)))
    put_open(&w, open);
  at = 0;
  while (!w.out.error && (r = next_span(batch, &at)))
    put_span(&w, &r->as.span, r->as.span.end_ns, r->tid, keep_a(r), r->a_len);
  out_puts(&w.out, "],\"marks\":[");
  w.first = true;
  at = 0;
  for (unsigned list = 0; !w.out.error && (r = next_mark(batch, &list, &at));)
    put_mark(&w, r);
  out_puts(&w.out, "],\"snapshots\":[");
  for (const struct spool_snapshot *snapshot = batch->snapshots; snapshot && !w.out.error; snapshot = snapshot->next)
    spool_snapshot_put(&w.out, snapshot, batch->wall_minus_monotonic_ns, snapshot == batch->snapshots);
  out_puts(&w.out, "]}");
  out_flush(&w.out);
  free(w.pairs);
  if (!w.out.error)
    *bytes = w.out.written;
  return w.out.error;
}
