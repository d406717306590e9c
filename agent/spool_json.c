/* See spool_json.h. The text goes through a small buffer on the stack; the first error is kept and ends the writing. */
#include "spool_json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../proto/ring_abi.h"
#include "glibc.h"
#include "keep.h"
#include "keep_moves.h"
#include "open.h"
#include "utf8.h"

#define BUFFER 16384u
#define MARKS_OF_SPAN 1024u /* ids in one span's list */

struct pair {
  uint64_t span, mark;
};

struct out {
  const struct spool_batch *batch;
  int fd, error;
  bool first; /* of a list */
  uint64_t written;
  size_t len;
  struct pair *pairs; /* of all marks, by span */
  size_t pair_count;
  char buf[BUFFER];
};

static void flush(struct out *o) {
  for (size_t done = 0; done < o->len && !o->error;) {
    ssize_t n = write(o->fd, o->buf + done, o->len - done);
    if (n < 0 && errno != EINTR)
      o->error = -errno;
    else if (n == 0)
      o->error = -ENOSPC;
    else
      done += n < 0 ? 0 : (size_t)n;
  }
  o->written += o->len;
  o->len = 0;
}

static void put(struct out *o, const char *text, size_t len) {
  while (len) {
    if (o->len == BUFFER)
      flush(o);
    size_t n = len < BUFFER - o->len ? len : BUFFER - o->len;
    memcpy(o->buf + o->len, text, n);
    o->len += n;
    text += n;
    len -= n;
  }
}

static void puts_(struct out *o, const char *text) {
  put(o, text, strlen(text));
}

__attribute__((format(printf, 2, 3))) static void putf(struct out *o, const char *format, ...) {
  char text[256]; /* more than any of the formats gives */
  va_list args;
  va_start(args, format);
  int n = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  put(o, text, n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

/* --- text --- */

static void put_code(struct out *o, uint32_t c) {
  if (c >= 0x10000)
    putf(o, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
  else
    putf(o, "\\u%04x", c);
}

/* Of text that is JSON already only what is not ASCII is written anew: it can only lie in strings. */
static void put_escaped(struct out *o, const char *text, size_t len, bool is_json) {
  for (size_t i = 0, bytes; i < len; i += bytes ? bytes : 1) {
    uint32_t c;
    bytes = utf8_decode(text + i, len - i, &c);
    bool quoted = !is_json && (c == '"' || c == '\\');
    if (quoted)
      puts_(o, "\\");
    if (c >= 0x7f || (c < 0x20 && !is_json))
      put_code(o, c);
    else
      put(o, text + i, 1);
  }
}

static void put_string(struct out *o, const char *text, size_t len) {
  puts_(o, "\"");
  put_escaped(o, text, len, false);
  puts_(o, "\"");
}

static void put_name(struct out *o, uint32_t id) {
  size_t len = 0;
  const char *text = o->batch->name(id, &len);
  put_string(o, text ? text : "", text ? len : 0);
}

static void put_id(struct out *o, uint64_t id) {
  putf(o, "\"%016llx%016llx\"", (unsigned long long)o->batch->prefix, (unsigned long long)id);
}

/* Whatever the job's locale takes for a decimal point. */
static void put_number(struct out *o, double value) {
  char text[48];
  if (value != value || value - value != 0) {
    puts_(o, value != value ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    return;
  }
  snprintf(text, sizeof text, "%.15g", value);
  if (strtod(text, NULL) != value)
    snprintf(text, sizeof text, "%.17g", value);
  bool whole = true;
  for (const char *p = text; *p; p++) {
    bool digit = strchr("0123456789+-e", *p) != NULL;
    whole = whole && digit && *p != 'e';
    if (digit)
      put(o, p, 1);
    else if (p[-1] >= '0' && p[-1] <= '9')
      puts_(o, "."); /* and nothing for the further bytes of one that has several */
  }
  if (whole)
    puts_(o, ".0");
}

static uint64_t wall(const struct out *o, uint64_t ns) {
  return ns + o->batch->wall_minus_monotonic_ns;
}

static void next(struct out *o) {
  puts_(o, o->first ? "" : ",");
  o->first = false;
}

/* --- spans --- */

static void put_comma(struct out *o, bool *any) {
  puts_(o, *any ? "," : "");
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
static void put_own(struct out *o, bool *any, const char *text, size_t len, const struct ring_span *s) {
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
      put_comma(o, any);
      put_escaped(o, text, n, true);
    }
    n += n < len; /* the comma */
  }
}

static void put_attr(struct out *o, bool *any, const char *key, uint32_t name) {
  if (!name)
    return;
  put_comma(o, any);
  putf(o, "\"%s\":", key);
  put_name(o, name);
}

static void put_attrs(struct out *o, const struct ring_span *s, const char *text, size_t len) {
  bool any = false;
  puts_(o, "{");
  if (len > 2 && text[0] == '{' && text[len - 1] == '}')
    put_own(o, &any, text + 1, len - 2, s);
  if (s->flags & (SPAN_MODE_TRAIN | SPAN_MODE_EVAL)) {
    put_comma(o, &any);
    putf(o, "\"mode\":\"%s\"", s->flags & SPAN_MODE_TRAIN ? "train" : "eval");
  }
  put_attr(o, &any, "module", s->module);
  put_attr(o, &any, "exception", s->exception);
  if (s->flags & SPAN_ERROR) {
    put_comma(o, &any);
    puts_(o, "\"error\":true");
  }
  puts_(o, "}");
}

static int by_span(const void *a, const void *b) {
  const struct pair *x = a, *y = b;
  if (x->span != y->span)
    return x->span < y->span ? -1 : 1;
  return x->mark < y->mark ? -1 : x->mark > y->mark;
}

static void put_mark_ids(struct out *o, uint64_t span) {
  size_t low = 0, high = o->pair_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (o->pairs[middle].span < span)
      low = middle + 1;
    else
      high = middle;
  }
  puts_(o, "[");
  for (size_t i = low; i < o->pair_count && o->pairs[i].span == span && i - low < MARKS_OF_SPAN; i++) {
    puts_(o, i > low ? "," : "");
    put_id(o, o->pairs[i].mark);
  }
  puts_(o, "]");
}

/* `end_ns` 0: it is open. */
static void put_span(struct out *o, const struct ring_span *s, uint64_t end_ns, uint32_t tid, const char *attrs,
                     size_t attrs_len) {
  next(o);
  puts_(o, "{\"id\":");
  put_id(o, s->id);
  puts_(o, ",\"name\":");
  put_name(o, s->name);
  puts_(o, ",\"parent_id\":");
  if (s->parent)
    put_id(o, s->parent);
  else
    puts_(o, "null");
  if (s->index == SPAN_NO_INDEX)
    puts_(o, ",\"index\":null");
  else
    putf(o, ",\"index\":%lld", (long long)s->index);
  putf(o, ",\"start_ns\":%llu", (unsigned long long)wall(o, s->start_ns));
  if (end_ns)
    putf(o, ",\"end_ns\":%llu", (unsigned long long)wall(o, end_ns));
  else
    puts_(o, ",\"end_ns\":null");
  if (s->cpu_ns == SPAN_NO_TIME)
    puts_(o, ",\"cpu_ns\":null");
  else
    putf(o, ",\"cpu_ns\":%lld", (long long)s->cpu_ns);
  putf(o, ",\"gpu_ns\":null,\"memory_peak_bytes\":null,\"thread_id\":%u,\"pid\":%d,\"rank\":%d,\"attrs\":", tid, o->batch->pid,
       o->batch->rank);
  put_attrs(o, s, attrs, attrs_len);
  puts_(o, ",\"mark_ids\":");
  put_mark_ids(o, s->id);
  puts_(o, "}");
}

static void put_open(struct out *o, const struct open_span *open) {
  bool root = open->span.id == SPAN_ROOT;
  put_span(o, &open->span, 0, open->tid, root ? o->batch->root_attrs : NULL, root ? o->batch->root_attrs_len : 0);
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

static void put_value(struct out *o, const struct keep_record *r) {
  const struct ring_mark *m = &r->as.mark;
  if (m->value_type == MARK_FLOAT) {
    puts_(o, "\"float\",\"value\":");
    put_number(o, m->value.f);
  } else if (m->value_type == MARK_INT) {
    putf(o, "\"int\",\"value\":%lld", (long long)m->value.i);
  } else if (m->value_type == MARK_BOOL) {
    putf(o, "\"bool\",\"value\":%s", m->value.i ? "true" : "false");
  } else {
    puts_(o, "\"string\",\"value\":");
    put_string(o, keep_a(r), r->a_len);
  }
}

static void put_mark(struct out *o, const struct keep_record *r) {
  const struct ring_mark *m = &r->as.mark;
  next(o);
  puts_(o, "{\"id\":");
  put_id(o, m->id);
  puts_(o, ",\"span_id\":");
  put_id(o, m->span);
  puts_(o, ",\"name\":");
  put_name(o, m->name);
  puts_(o, ",\"value_type\":");
  put_value(o, r);
  puts_(o, ",\"attrs\":");
  if (r->b_len > 1)
    put_escaped(o, keep_b(r), r->b_len, true);
  else
    puts_(o, "{}");
  putf(o, ",\"ts_ns\":%llu,\"kind\":\"%s\"}", (unsigned long long)wall(o, m->ts_ns),
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
  size_t n = count_marks(b), at = 0;
  while (next_span(b, &at))
    n++;
  at = 0;
  while (next_open(b, &at))
    n++;
  return n;
}

static void collect_pairs(struct out *o) {
  const struct keep_record *r;
  size_t n = count_marks(o->batch), at = 0;
  o->pairs = n ? malloc(n * sizeof *o->pairs) : NULL;
  if (!o->pairs)
    return;
  for (unsigned list = 0; o->pair_count < n && (r = next_mark(o->batch, &list, &at));)
    o->pairs[o->pair_count++] = (struct pair){r->as.mark.span, r->as.mark.id};
  qsort(o->pairs, o->pair_count, sizeof *o->pairs, by_span);
}

int spool_batch_write(int fd, const struct spool_batch *batch, uint64_t *bytes) {
  struct out o;
  const struct keep_record *r;
  const struct open_span *open;
  size_t at = 0;
  o.batch = batch;
  o.fd = fd;
  o.error = 0;
  o.first = true;
  o.written = o.len = o.pair_count = 0;
  collect_pairs(&o);
  putf(&o, "{\"schema_version\":1,\"sdk_version\":\"" CIRRON_VERSION "\",\"batch_id\":\"%s\",\"created_ns\":%llu,\"spans\":[",
       batch->id, (unsigned long long)batch->created_ns);
  while (!o.error && (open = next_open(batch, &at)))
    put_open(&o, open);
  at = 0;
  while (!o.error && (r = next_span(batch, &at)))
    put_span(&o, &r->as.span, r->as.span.end_ns, r->tid, keep_a(r), r->a_len);
  puts_(&o, "],\"marks\":[");
  o.first = true;
  at = 0;
  for (unsigned list = 0; !o.error && (r = next_mark(batch, &list, &at));)
    put_mark(&o, r);
  puts_(&o, "],\"snapshots\":[]}");
  flush(&o);
  free(o.pairs);
  if (!o.error)
    *bytes = o.written;
  return o.error;
}
