/* cirron-query snapshots: a row a tensor, over all passes. One scan of the records' numbers; what else is shown is read for the rows
 * that are shown. */
#include "snaps_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "db.h"
#include "sparkline.h"
#include "text.h"
#include "units.h"

#define POINTS 24       /* of the sparkline over the passes */
#define NAME_COLUMNS 48 /* of a name, for which other columns may be left out */

/* The layout of SNAPS_COLUMNS; what is not needed for each record is not read. */
#define SCAN_COLUMNS                                                                                                           \
  "p.snapshot, p.pass, NULL, p.tensor_name, p.model, p.kind, NULL, NULL, NULL, p.count, p.nans, p.infs, p.neg_infs, NULL,"     \
  " NULL, NULL, NULL, NULL, p.norm, NULL, p.torn"

void snaps_where(const struct cli *cli, struct buf *sql) {
  if (cli->arg_count)
    buf_puts(sql, " AND (p.tensor_name = :name OR p.tensor_name GLOB :name)");
  if (cli->tensor_kind)
    buf_printf(sql, " AND p.kind %s 'gradient'", cli->tensor_kind == SNAPS_GRADIENT ? "=" : "<>");
  if (cli->epoch >= 0)
    buf_printf(sql, " AND q.epoch = %lld", (long long)cli->epoch);
}

void snaps_bind(const struct cli *cli, sqlite3_stmt *stmt) {
  int at = sqlite3_bind_parameter_index(stmt, ":name");
  if (at)
    sqlite3_bind_text(stmt, at, cli->args[0], -1, SQLITE_STATIC);
}

const struct pick_session *snaps_session(const struct pick_session *sessions, size_t count) {
  for (size_t i = count; i-- > 0;)
    if (snaps_kept(sessions[i].store) &&
        db_value(sessions[i].store, 0, "SELECT 1 FROM snapshots WHERE sid = ? LIMIT 1", sessions[i].sid))
      return &sessions[i];
  return NULL;
}

struct out_cell snaps_number(double value, char out[32]) {
  if (isnan(value))
    return out_null();
  snprintf(out, 32, "%.4g", value);
  return out_text(out);
}

void snaps_fit(const struct cli *cli, struct out_column *columns, const struct snaps_fit *fits, size_t count,
               size_t name_columns) {
  size_t need = 1 + (name_columns < NAME_COLUMNS ? name_columns : NAME_COLUMNS), last = 0;
  for (size_t i = 0; i < count; i++) {
    need += columns[i].flags & OUT_NO_TABLE ? 0 : fits[i].width;
    last = fits[i].goes > last ? fits[i].goes : last;
  }
  for (size_t turn = 1; cli->style.width && need > (size_t)cli->style.width && turn <= last; turn++)
    for (size_t i = 0; i < count; i++)
      if (fits[i].goes == turn && !(columns[i].flags & OUT_NO_TABLE)) {
        columns[i].flags |= OUT_NO_TABLE;
        need -= fits[i].width;
      }
}

/* --- the scan ------------------------------------------------------------------------------------------------------------ */

struct tally {
  int64_t snapshots, torn, last; /* last: record */
  const struct snaps_pass *bad_since;
  struct sparkline_point points[POINTS];
};

struct overview {
  const struct cli *cli;
  const struct pick_session *session;
  struct snaps_passes passes; /* those that are asked for */
  struct snaps_tensors tensors;
  struct tally *tallies; /* beside tensors.items */
  size_t *order, cap;
  bool bad, torn, models; /* any tensor is; more than one model */
  size_t kinds[3];        /* tensors of each enum snaps_kind */
};

static void keep_epoch(struct overview *view) {
  size_t kept = 0;
  for (size_t i = 0; i < view->passes.count; i++)
    if (view->cli->epoch < 0 || snaps_pass_in(&view->passes.items[i], view->cli->epoch))
      view->passes.items[kept++] = view->passes.items[i];
  view->passes.count = kept;
}

/* Several passes share a point: the last value counts, and none that is not finite is hidden. */
static void add_point(struct sparkline_point *point, const struct snaps_record *r) {
  bool bad = snaps_is_read(r) && snaps_bad(r) > 0;
  if (!snaps_is_read(r))
    return;
  point->known = true;
  point->bad = point->bad || bad;
  if (!isnan(r->norm))
    point->value = r->norm;
}

static void add_record(struct overview *view, const struct snaps_record *r, const struct snaps_pass *pass) {
  size_t at = snaps_tensor_at(&view->tensors, r, true);
  if (at >= view->cap) {
    size_t cap = view->cap ? 2 * view->cap : 256;
    view->tallies = buf_realloc(view->tallies, cap * sizeof *view->tallies);
    memset(view->tallies + view->cap, 0, (cap - view->cap) * sizeof *view->tallies);
    view->cap = cap;
  }
  struct tally *t = &view->tallies[at];
  size_t index = (size_t)(pass - view->passes.items), n = view->passes.count;
  t->snapshots++;
  t->torn += r->torn;
  t->last = r->id;
  if (snaps_is_read(r) && snaps_bad(r) > 0 && !t->bad_since)
    t->bad_since = pass;
  add_point(&t->points[n > POINTS ? index * POINTS / n : index], r);
}

static void scan(struct overview *view) {
  struct buf sql = {0};
  const struct snaps_pass *pass = NULL;
  buf_puts(&sql, "SELECT " SCAN_COLUMNS " FROM snapshots p WHERE p.sid = ?1");
  if (view->cli->epoch >= 0) { /* few of many */
    char passes[128];
    (void)snprintf(passes, sizeof passes, "IN (SELECT pass FROM snapshot_passes WHERE sid = ?1 AND epoch = %lld)",
                   (long long)view->cli->epoch); /* fits */
    buf_printf(&sql, " AND p.pass %s", passes);
    snaps_within(&sql, passes);
  }
  if (view->cli->tensor_kind)
    buf_printf(&sql, " AND p.kind %s 'gradient'", view->cli->tensor_kind == SNAPS_GRADIENT ? "=" : "<>");
  buf_puts(&sql, " ORDER BY p.snapshot");
  sqlite3_stmt *stmt = db_query(view->session->store, sql.data, view->session->sid);
  while (db_step(stmt)) {
    struct snaps_record r;
    snaps_record_read(stmt, SNAPS_NORM, &r);
    if (!pass || pass->number != r.pass)
      pass = snaps_pass_find(&view->passes, r.pass);
    if (pass)
      add_record(view, &r, pass);
  }
  buf_fini(&sql);
}

/* --- the order ----------------------------------------------------------------------------------------------------------- */

struct place {
  size_t first, tensor; /* first: the weight that it belongs to, or itself */
};

static int by_place(const void *a, const void *b) {
  const struct place *x = a, *y = b;
  if (x->first != y->first)
    return x->first < y->first ? -1 : 1;
  return x->tensor == x->first ? -1 : y->tensor == y->first ? 1 : x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

/* The weight of a gradient, or SIZE_MAX. */
static size_t weight_of(struct snaps_tensors *tensors, const struct snaps_tensor *gradient) {
  static const char suffix[] = ".grad";
  size_t len = sizeof suffix - 1;
  if (gradient->name_len <= len || memcmp(gradient->name + gradient->name_len - len, suffix, len) != 0)
    return SIZE_MAX;
  const struct snaps_record weight = {.name = {gradient->name, gradient->name_len - len},
                                      .model = {gradient->model, gradient->model_len},
                                      .what = SNAPS_WEIGHT};
  return snaps_tensor_at(tensors, &weight, false);
}

/* As recorded, which is the model's order, but each gradient behind its weight. */
static void sort(struct overview *view) {
  struct snaps_tensors *t = &view->tensors;
  struct place *places = buf_alloc((t->count + 1) * sizeof *places);
  for (size_t i = 0; i < t->count; i++) {
    size_t weight = t->items[i].what == SNAPS_GRADIENT ? weight_of(t, &t->items[i]) : SIZE_MAX;
    places[i] = (struct place){weight == SIZE_MAX ? i : weight, i};
    view->kinds[t->items[i].what]++;
    view->bad = view->bad || view->tallies[i].bad_since;
    view->torn = view->torn || view->tallies[i].torn;
    view->models = view->models || t->items[i].model_len != t->items[0].model_len ||
                   memcmp(t->items[i].model, t->items[0].model, t->items[0].model_len) != 0;
  }
  if (t->count)
    qsort(places, t->count, sizeof *places, by_place);
  view->order = buf_alloc((t->count + 1) * sizeof *view->order);
  for (size_t i = 0; i < t->count; i++)
    view->order[i] = places[i].tensor;
  free(places);
}

/* --- what is shown ------------------------------------------------------------------------------------------------------- */

enum { TENSOR, MODEL, KIND, SHAPE, DTYPE, SNAPSHOTS, MEAN, STD, NORM, NORMS, NANS, INFS, BAD_SINCE, TORN, HISTOGRAM, COLUMNS };

static void add_histogram(const struct snaps_record *r, bool utf8, struct buf *out) {
  uint64_t counts[TENSOR_BINS];
  if (!isnan(r->min) && snaps_counts(r->histogram, counts, TENSOR_BINS))
    sparkline_counts(counts, TENSOR_BINS, 1, utf8, out);
}

static struct out_cell text_or_null(const struct buf *buf) {
  return buf->len ? out_text_len(buf->data, buf->len) : out_null();
}

static int row(struct overview *view, struct out *out, sqlite3_stmt *last, size_t tensor) {
  const struct snaps_tensor *name = &view->tensors.items[tensor];
  const struct tally *t = &view->tallies[tensor];
  struct buf norms = {0}, histogram = {0}, since = {0};
  struct snaps_record r;
  char mean[32], std[32], norm[32];
  bool utf8 = view->cli->style.utf8;
  snaps_record_read(last, SNAPS_ALL, &r);
  sparkline_values(t->points, view->passes.count < POINTS ? view->passes.count : POINTS, utf8, &norms);
  add_histogram(&r, utf8, &histogram);
  if (t->bad_since)
    snaps_pass_say(t->bad_since, &since);
  bool read = snaps_is_read(&r);
  const struct out_cell cells[COLUMNS] = {
      [TENSOR] = out_text_len(name->name, name->name_len),
      [MODEL] = out_text_len(name->model, name->model_len),
      [KIND] = out_text(name->what == SNAPS_GRADIENT ? "gradient" : "weight"),
      [SHAPE] = out_text_len(r.shape.text, r.shape.len),
      [DTYPE] = out_text_len(r.dtype.text, r.dtype.len),
      [SNAPSHOTS] = out_int(t->snapshots),
      [MEAN] = snaps_number(r.mean, mean),
      [STD] = snaps_number(r.std, std),
      [NORM] = snaps_number(r.norm, norm),
      [NORMS] = text_or_null(&norms),
      [NANS] = read ? out_int(r.nans) : out_null(),
      [INFS] = read ? out_int(r.infs + r.neg_infs) : out_null(),
      [BAD_SINCE] = text_or_null(&since),
      [TORN] = out_int(t->torn),
      [HISTOGRAM] = text_or_null(&histogram),
  };
  int error = out_row(out, cells);
  buf_fini(&norms);
  buf_fini(&histogram);
  buf_fini(&since);
  return error;
}

static int print_rows(struct overview *view, int64_t limit) {
  struct out_column columns[COLUMNS] = {
      [TENSOR] = {"tensor", NULL, 0, OUT_CUT},
      [MODEL] = {"model", NULL, 0, view->models ? OUT_CUT : OUT_NO_TABLE},
      [KIND] = {"kind", NULL, 0, 0},
      [SHAPE] = {"shape", NULL, 0, 0},
      [DTYPE] = {"dtype", NULL, 0, 0},
      [SNAPSHOTS] = {"snapshots", NULL, OUT_AS_COUNT, 0},
      [MEAN] = {"mean", NULL, OUT_AS_COUNT, 0},
      [STD] = {"std", NULL, OUT_AS_COUNT, 0},
      [NORM] = {"norm", NULL, OUT_AS_COUNT, 0},
      [NORMS] = {"norms", "NORM BY TIME", 0, 0},
      [NANS] = {"nan", NULL, OUT_AS_COUNT, 0},
      [INFS] = {"inf", NULL, OUT_AS_COUNT, 0},
      [BAD_SINCE] = {"bad_since", "BAD SINCE", 0, view->bad ? 0 : OUT_NO_TABLE},
      [TORN] = {"torn", NULL, OUT_AS_COUNT, view->torn ? 0 : OUT_NO_TABLE},
      [HISTOGRAM] = {"histogram", NULL, 0, 0},
  };
  size_t points = view->passes.count < POINTS ? view->passes.count : POINTS;
  const struct snaps_fit fits[COLUMNS] = {
      [MODEL] = {12, 6}, [KIND] = {9, 7},       [SHAPE] = {13, 5},
      [DTYPE] = {9, 2},  [SNAPSHOTS] = {10, 3}, [MEAN] = {11, 4},
      [STD] = {10, 4},   [NORM] = {10, 0},      [NORMS] = {(uint8_t)(1 + (points > 12 ? points : 12)), 9},
      [NANS] = {5, 0},   [INFS] = {5, 0},       [BAD_SINCE] = {16, 0},
      [TORN] = {5, 1},   [HISTOGRAM] = {17, 8}};
  size_t longest = 0;
  for (size_t i = 0; i < view->tensors.count && (int64_t)i < limit; i++) {
    size_t len = view->tensors.items[view->order[i]].name_len;
    longest = len > longest ? len : longest;
  }
  snaps_fit(view->cli, columns, fits, COLUMNS, longest);
  struct out *out = out_begin(stdout, OUT_TABLE, &view->cli->style, columns, COLUMNS);
  sqlite3_stmt *last =
      db_query(view->session->store, "SELECT " SNAPS_COLUMNS " FROM snapshots p WHERE sid = ?1 AND snapshot = ?2",
               view->session->sid, 0);
  int error = 0;
  for (size_t i = 0; i < view->tensors.count && (int64_t)i < limit && !error; i++) {
    sqlite3_reset(last);
    sqlite3_bind_int64(last, 2, view->tallies[view->order[i]].last);
    if (sqlite3_step(last) != SQLITE_ROW) /* it was there a moment ago */
      db_die(view->session->store, "snapshots", -EBADMSG);
    error = row(view, out, last, view->order[i]);
  }
  sqlite3_finalize(last);
  int ended = out_end(out);
  return error ? error : ended;
}

static void print_head(const struct overview *view, size_t ranks) {
  const struct pick_session *s = view->session;
  char passes[UNITS_MAX], weights[UNITS_MAX], gradients[UNITS_MAX];
  struct buf last = {0};
  snaps_pass_say(&view->passes.items[view->passes.count - 1], &last);
  printf("Session %.8s", s->id);
  if (s->rank >= 0)
    printf(", rank %lld", (long long)s->rank);
  if (ranks > 1)
    printf(" (of %zu with sessions here; --rank N shows another)", ranks);
  printf(": %s of %s and %s, the last %s\n\n", units_of((int64_t)view->passes.count, "snapshot", "snapshots", passes),
         units_of((int64_t)view->kinds[SNAPS_WEIGHT], "weight", "weights", weights),
         units_of((int64_t)view->kinds[SNAPS_GRADIENT], "gradient", "gradients", gradients), last.data);
  buf_fini(&last);
}

static int overview(const struct cli *cli, const struct pick_session *session, size_t ranks) {
  struct overview view = {.cli = cli, .session = session};
  int64_t limit = cmd_limit(cli);
  int error = 0;
  snaps_passes_read(session->store, session->sid, &view.passes);
  keep_epoch(&view);
  scan(&view);
  sort(&view);
  if (view.tensors.count) {
    print_head(&view, ranks);
    error = print_rows(&view, limit);
  }
  int status = cli_written(error);
  if (!error && (int64_t)view.tensors.count > limit)
    cmd_more(cli, limit);
  cmd_none(cli, "snapshots", (int64_t)view.tensors.count);
  snaps_passes_fini(&view.passes);
  snaps_tensors_fini(&view.tensors);
  free(view.tallies);
  free(view.order);
  return status;
}

int snaps_table(const struct cli *cli, const struct pick_session *sessions, size_t count) {
  const struct pick_session *session = snaps_session(sessions, count);
  struct job job;
  if (!session) {
    cmd_none(cli, "snapshots", 0);
    return CLI_OK;
  }
  job_find(sessions, count, session, &job);
  for (size_t i = job.count; i-- > 0;) /* the lowest rank that has any */
    session = snaps_session(job.ranks[i], 1) ? job.ranks[i] : session;
  int status = cli->arg_count ? snaps_rows(cli, &job) : overview(cli, session, job.count);
  job_fini(&job);
  return status;
}
