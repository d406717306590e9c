#include "snaps.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "db.h"
#include "units.h"

#define FIRST_SCHEMA 2               /* with records of tensors */
#define COUNT_MAX (INT64_C(1) << 60) /* so that three of them can be added */
#define BAD "(nans > 0 OR infs > 0 OR neg_infs > 0)"
#define BAD_INDEX "snapshots_bad"

bool snaps_kept(sqlite3 *db) {
  return db_value(db, 0, "PRAGMA user_version") >= FIRST_SCHEMA;
}

static int64_t number(sqlite3_stmt *stmt, int column, int64_t none) {
  return sqlite3_column_type(stmt, column) == SQLITE_NULL ? none : sqlite3_column_int64(stmt, column);
}

/* --- passes -------------------------------------------------------------------------------------------------------------- */

static const char *const reasons[] = {"epoch", "steps", "command", "other"};

const char *snaps_reason_name(enum snaps_reason reason) {
  return reasons[reason];
}

static enum snaps_reason reason_of(const char *text) {
  size_t i = 0;
  while (i < SNAPS_OTHER && !(text && strcmp(text, reasons[i]) == 0))
    i++;
  return (enum snaps_reason)i;
}

void snaps_passes_read(sqlite3 *db, int64_t sid, struct snaps_passes *out) {
  size_t cap = 0;
  *out = (struct snaps_passes){0};
  if (!snaps_kept(db))
    return;
  sqlite3_stmt *stmt = db_query(db,
                                "SELECT pass, span, epoch, step, reason, ts_ns, records, list_ns, read_ns, wait_ns, torn, own,"
                                " blobs, blob_error FROM snapshot_passes WHERE sid = ? ORDER BY pass",
                                sid);
  while (db_step(stmt)) {
    if (out->count == cap) {
      cap = cap ? 2 * cap : 64;
      out->items = buf_realloc(out->items, cap * sizeof *out->items);
    }
    out->items[out->count++] = (struct snaps_pass){.number = sqlite3_column_int64(stmt, 0),
                                                   .span = sqlite3_column_int64(stmt, 1),
                                                   .epoch = number(stmt, 2, SNAPS_NO_INDEX),
                                                   .step = number(stmt, 3, SNAPS_NO_INDEX),
                                                   .reason = reason_of((const char *)sqlite3_column_text(stmt, 4)),
                                                   .ts_ns = sqlite3_column_int64(stmt, 5),
                                                   .records = sqlite3_column_int64(stmt, 6),
                                                   .list_ns = sqlite3_column_int64(stmt, 7),
                                                   .read_ns = sqlite3_column_int64(stmt, 8),
                                                   .wait_ns = sqlite3_column_int64(stmt, 9),
                                                   .torn = sqlite3_column_int64(stmt, 10),
                                                   .own = sqlite3_column_int64(stmt, 11) != 0,
                                                   .blobs = sqlite3_column_int64(stmt, 12),
                                                   .blob_error = sqlite3_column_int64(stmt, 13)};
  }
}

void snaps_passes_fini(struct snaps_passes *passes) {
  free(passes->items);
  *passes = (struct snaps_passes){0};
}

const struct snaps_pass *snaps_pass_find(const struct snaps_passes *passes, int64_t wanted) {
  size_t low = 0, high = passes->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (passes->items[middle].number < wanted)
      low = middle + 1;
    else
      high = middle;
  }
  return low < passes->count && passes->items[low].number == wanted ? &passes->items[low] : NULL;
}

bool snaps_pass_in(const struct snaps_pass *pass, int64_t epoch) {
  return pass->epoch == epoch && epoch != SNAPS_NO_INDEX;
}

/* Unsigned inside: what strangers wrote may be too large. */
static void add_up(int64_t *sum, int64_t value) {
  *sum = (int64_t)((uint64_t)*sum + (uint64_t)value);
}

void snaps_passes_sum(const struct snaps_passes *passes, struct snaps_sums *out) {
  *out = (struct snaps_sums){0};
  for (size_t i = 0; i < passes->count; i++) {
    const struct snaps_pass *p = &passes->items[i];
    add_up(&out->records, p->records);
    out->tensors = p->records > out->tensors ? p->records : out->tensors;
    add_up(&out->list_ns, p->list_ns);
    add_up(&out->read_ns, p->read_ns);
    add_up(&out->wait_ns, p->wait_ns);
    add_up(&out->torn, p->torn);
    out->own += p->own;
    out->blobs += p->blobs != 0;
    out->blob_errors += p->blob_error != 0;
    out->blob_error = p->blob_error ? p->blob_error : out->blob_error;
  }
}

void snaps_pass_say(const struct snaps_pass *pass, struct buf *out) {
  const char *space = pass->reason == SNAPS_COMMAND ? "asked for " : "";
  bool step = pass->step != SNAPS_NO_INDEX, epoch = pass->epoch != SNAPS_NO_INDEX;
  if (pass->reason == SNAPS_EPOCH && epoch) {
    buf_printf(out, "after epoch %lld", (long long)pass->epoch);
    return;
  }
  buf_puts(out, space);
  if (step)
    buf_printf(out, "at step %lld", (long long)pass->step);
  if (epoch)
    buf_printf(out, step ? " of epoch %lld" : "in epoch %lld", (long long)pass->epoch);
  if (!step && !epoch)
    buf_printf(out, "number %lld", (long long)pass->number);
}

/* --- records ------------------------------------------------------------------------------------------------------------- */

static struct snaps_text text_at(sqlite3_stmt *stmt, int column) {
  const char *text = (const char *)sqlite3_column_text(stmt, column);
  return (struct snaps_text){text, text ? (size_t)sqlite3_column_bytes(stmt, column) : 0};
}

static double real_at(sqlite3_stmt *stmt, int column) {
  int type = sqlite3_column_type(stmt, column);
  return type == SQLITE_FLOAT || type == SQLITE_INTEGER ? sqlite3_column_double(stmt, column) : NAN;
}

static int64_t count_at(sqlite3_stmt *stmt, int column) {
  int64_t n = sqlite3_column_int64(stmt, column);
  return n < 0 ? 0 : n > COUNT_MAX ? COUNT_MAX : n;
}

static bool is(struct snaps_text text, const char *word) {
  return text.len == strlen(word) && memcmp(text.text, word, text.len) == 0;
}

void snaps_record_read(sqlite3_stmt *stmt, enum snaps_detail detail, struct snaps_record *out) {
  *out = (struct snaps_record){.id = sqlite3_column_int64(stmt, 0),
                               .pass = sqlite3_column_int64(stmt, 1),
                               .name = text_at(stmt, 3),
                               .model = text_at(stmt, 4),
                               .kind = text_at(stmt, 5),
                               .count = sqlite3_column_type(stmt, 9) == SQLITE_NULL ? -1 : count_at(stmt, 9),
                               .nans = count_at(stmt, 10),
                               .infs = count_at(stmt, 11),
                               .neg_infs = count_at(stmt, 12),
                               .norm = real_at(stmt, 18),
                               .torn = sqlite3_column_int64(stmt, 20) != 0};
  out->what = is(out->kind, "gradient") ? SNAPS_GRADIENT : SNAPS_WEIGHT;
  if (detail == SNAPS_NORM)
    return;
  out->span = sqlite3_column_int64(stmt, 2);
  out->shape = text_at(stmt, 6);
  out->dtype = text_at(stmt, 7);
  out->mode = text_at(stmt, 8);
  out->zeros = count_at(stmt, 13);
  out->mean = real_at(stmt, 14);
  out->std = real_at(stmt, 15);
  out->min = real_at(stmt, 16);
  out->max = real_at(stmt, 17);
  out->ts_ns = sqlite3_column_int64(stmt, 19);
  out->histogram = text_at(stmt, 21);
  out->magnitude = text_at(stmt, 22);
  out->blob = text_at(stmt, 23);
  out->attrs = text_at(stmt, 24);
}

void snaps_record_drop_texts(struct snaps_record *r) {
  r->name = r->model = r->kind = r->shape = r->dtype = r->mode = r->blob = r->attrs = r->histogram = r->magnitude =
      (struct snaps_text){0};
}

/* Stores that others wrote may lack it. */
static const char *by_bad_index(sqlite3 *db) {
  return db_value(db, 0, "SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = '" BAD_INDEX "'")
             ? " INDEXED BY " BAD_INDEX
             : "";
}

sqlite3_stmt *snaps_records(sqlite3 *db, int64_t sid, int64_t pass) {
  struct buf sql = {0};
  buf_puts(&sql, "SELECT " SNAPS_COLUMNS " FROM snapshots p WHERE sid = ?1 AND pass = ?2");
  snaps_within(&sql, "= ?2");
  buf_puts(&sql, " ORDER BY snapshot");
  sqlite3_stmt *stmt = db_query(db, sql.data, sid, pass);
  buf_fini(&sql);
  return stmt;
}

void snaps_within(struct buf *sql, const char *passes) {
  buf_printf(sql,
             " AND p.snapshot >= (SELECT min(snapshot) FROM snapshots WHERE sid = ?1 AND pass %s)"
             " AND p.snapshot <= (SELECT max(snapshot) FROM snapshots WHERE sid = ?1 AND pass %s)",
             passes, passes);
}

bool snaps_first_bad(sqlite3 *db, int64_t sid, int64_t *pass) {
  struct buf sql = {0};
  if (!snaps_kept(db))
    return false;
  buf_printf(&sql, "SELECT min(pass) FROM snapshots%s WHERE sid = ?1 AND " BAD, by_bad_index(db));
  int64_t found = db_value(db, INT64_MIN, sql.data, sid);
  buf_fini(&sql);
  if (found != INT64_MIN)
    *pass = found;
  return found != INT64_MIN;
}

bool snaps_counts(struct snaps_text json, uint64_t *out, size_t want) {
  const char *c = json.text, *end = c ? c + json.len : c;
  size_t n = 0;
  if (c == end || *c++ != '[')
    return false;
  while (c < end && n < want) {
    uint64_t value = 0;
    int digits = 0;
    while (c < end && *c == ' ')
      c++;
    for (; c < end && *c >= '0' && *c <= '9' && digits < 19; c++, digits++)
      value = 10 * value + (uint64_t)(*c - '0');
    while (c < end && *c == ' ')
      c++;
    if (!digits || c == end || *c != (n + 1 < want ? ',' : ']'))
      return false;
    out[n++] = value;
    c++;
  }
  return n == want && c == end;
}

static void add_number(struct buf *out, const char *name, double value) {
  char text[UNITS_MAX];
  if (isnan(value))
    buf_printf(out, "\"%s\":null,", name);
  else
    buf_printf(out, isinf(value) ? "\"%s\":\"%s\"," : "\"%s\":%s,", name, units_exact(value, text));
}

static void add_counts(struct buf *out, const uint64_t *counts, size_t n) {
  for (size_t i = 0; i < n; i++) {
    buf_putc(out, i ? ',' : '[');
    if (counts[i]) /* most are 0 */
      buf_printf(out, "%llu", (unsigned long long)counts[i]);
    else
      buf_putc(out, '0');
  }
  buf_putc(out, ']');
}

/* As proto/tensor_stats.h has it. The whole range of huge numbers is none. */
static double edge(double low, double high, int i) {
  double top = low == high ? low + 1 : high, range = top - low;
  if (i == TENSOR_BINS)
    return top;
  return isfinite(range) ? low + range / TENSOR_BINS * i : low / TENSOR_BINS * (TENSOR_BINS - i) + top / TENSOR_BINS * i;
}

/* Exact, but longer than it need be: looking for the shortest text is most of the time that a record takes. */
static void add_edge(struct buf *out, double value) {
  char text[UNITS_MAX];
  if (isfinite(value) && value != rint(value))
    buf_printf(out, "%.17g", value);
  else
    buf_printf(out, isfinite(value) ? "%s" : "\"%s\"", units_exact(value, text));
}

static void add_histogram(const struct snaps_record *r, struct buf *out) {
  uint64_t counts[TENSOR_BINS];
  if (!isfinite(r->min) || !isfinite(r->max) || !snaps_counts(r->histogram, counts, TENSOR_BINS)) {
    buf_puts(out, "\"histogram\":null,");
    return;
  }
  buf_puts(out, "\"histogram\":{\"bins\":");
  for (int i = 0; i <= TENSOR_BINS; i++) {
    buf_putc(out, i ? ',' : '[');
    add_edge(out, edge(r->min, r->max, i));
  }
  buf_puts(out, "],\"counts\":");
  add_counts(out, counts, TENSOR_BINS);
  buf_puts(out, "},");
}

static_assert(TENSOR_MAGNITUDES == 32, "exponents are written out");

static void add_magnitude(const struct snaps_record *r, struct buf *out) {
  uint64_t counts[TENSOR_MAGNITUDES];
  if (!snaps_counts(r->magnitude, counts, TENSOR_MAGNITUDES)) {
    buf_puts(out, "\"magnitude\":null");
    return;
  }
  buf_puts(out,
           "\"magnitude\":{\"exponents\":[-48,-46,-44,-42,-40,-38,-36,-34,-32,-30,-28,-26,-24,-22,-20,-18,-16,-14,-12,-10,-8,"
           "-6,-4,-2,0,2,4,6,8,10,12,14],\"counts\":");
  add_counts(out, counts, TENSOR_MAGNITUDES);
  buf_putc(out, '}');
}

void snaps_stats_json(const struct snaps_record *r, struct buf *out) {
  if (!snaps_is_read(r)) {
    buf_puts(out, "null");
    return;
  }
  buf_putc(out, '{');
  add_number(out, "mean", r->mean);
  add_number(out, "std", r->std);
  add_number(out, "min", r->min);
  add_number(out, "max", r->max);
  add_number(out, "norm", r->norm);
  add_histogram(r, out);
  buf_printf(out, "\"count\":%lld,\"nan\":%lld,\"inf\":%lld,\"neg_inf\":%lld,\"zero\":%lld,", (long long)r->count,
             (long long)r->nans, (long long)r->infs, (long long)r->neg_infs, (long long)r->zeros);
  add_magnitude(r, out);
  buf_putc(out, '}');
}

double snaps_distance(const struct snaps_record *a, const uint64_t *magnitude_a, const struct snaps_record *b,
                      const uint64_t *magnitude_b) {
  double moved = 0;
  if (a->count <= 0 || b->count <= 0)
    return NAN;
  double x = 1.0 / (double)a->count, y = 1.0 / (double)b->count;
  for (int i = 0; i < TENSOR_MAGNITUDES; i++)
    moved += fabs((double)magnitude_a[i] * x - (double)magnitude_b[i] * y);
  moved += fabs((double)a->zeros * x - (double)b->zeros * y) + fabs((double)snaps_bad(a) * x - (double)snaps_bad(b) * y);
  return moved / 2;
}

/* --- tensors ------------------------------------------------------------------------------------------------------------- */

static bool same(const struct snaps_tensor *t, const struct snaps_record *r) {
  return t->name_len == r->name.len && t->model_len == r->model.len && t->what == r->what &&
         (!t->name_len || memcmp(t->name, r->name.text, t->name_len) == 0) &&
         (!t->model_len || memcmp(t->model, r->model.text, t->model_len) == 0);
}

static uint64_t hash_bytes(uint64_t h, const char *text, size_t len) {
  for (size_t i = 0; i < len; i++)
    h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
  return h;
}

static uint64_t hash(const char *name, size_t name_len, const char *model, size_t model_len, enum snaps_kind what) {
  uint64_t h = hash_bytes(hash_bytes(0xcbf29ce484222325u + (uint64_t)what, name, name_len) + 1, model, model_len);
  return h ^ h >> 32;
}

static void grow(struct snaps_tensors *t) {
  free(t->places);
  t->size = t->size ? 2 * t->size : 256;
  t->places = buf_alloc(t->size * sizeof *t->places);
  memset(t->places, 0xff, t->size * sizeof *t->places);
  for (size_t i = 0; i < t->count; i++) {
    const struct snaps_tensor *one = &t->items[i];
    size_t at = hash(one->name, one->name_len, one->model, one->model_len, one->what) & (t->size - 1);
    while (t->places[at] != SIZE_MAX)
      at = (at + 1) & (t->size - 1);
    t->places[at] = i;
  }
}

static char *copy(struct snaps_text text) {
  char *made = buf_alloc(text.len + 1);
  if (text.len)
    memcpy(made, text.text, text.len);
  made[text.len] = '\0';
  return made;
}

size_t snaps_tensor_at(struct snaps_tensors *t, const struct snaps_record *r, bool add) {
  size_t guess = t->next < t->count ? t->next : 0;
  if (guess < t->count && same(&t->items[guess], r)) {
    t->next = guess + 1;
    return guess;
  }
  if (2 * (t->count + 1) > t->size)
    grow(t);
  size_t at = hash(r->name.text, r->name.len, r->model.text, r->model.len, r->what) & (t->size - 1);
  while (t->places[at] != SIZE_MAX && !same(&t->items[t->places[at]], r))
    at = (at + 1) & (t->size - 1);
  if (t->places[at] == SIZE_MAX) {
    if (!add)
      return SIZE_MAX;
    if (t->count == t->cap) {
      t->cap = t->cap ? 2 * t->cap : 256;
      t->items = buf_realloc(t->items, t->cap * sizeof *t->items);
    }
    t->places[at] = t->count;
    t->items[t->count++] = (struct snaps_tensor){copy(r->name), copy(r->model), r->name.len, r->model.len, r->what};
  }
  t->next = t->places[at] + 1;
  return t->places[at];
}

void snaps_tensors_fini(struct snaps_tensors *t) {
  for (size_t i = 0; i < t->count; i++) {
    free(t->items[i].name);
    free(t->items[i].model);
  }
  free(t->items);
  free(t->places);
  *t = (struct snaps_tensors){0};
}
