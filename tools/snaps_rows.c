/* cirron-query snapshots TENSOR: a row a snapshot, by tensor, then by time; of several ranks a row each, and what they are together. */
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "db.h"
#include "jsontext.h"
#include "snaps_table.h"
#include "sparkline.h"
#include "text.h"

struct line {
  size_t tensor;
  struct snaps_pass pass;
  int64_t rank;                        /* -1: none; MERGED */
  struct snaps_record r;               /* its texts are NULL */
  char *shape, *dtype, *blob, *remark; /* NULL: none */
  bool has_histogram, has_magnitude;
  uint64_t histogram[TENSOR_BINS], magnitude[TENSOR_MAGNITUDES];
};
#define MERGED INT64_MAX
#define MAGNITUDES_A_GLYPH 2

struct rows {
  const struct cli *cli;
  const struct job *job;
  struct snaps_tensors tensors;
  struct line *lines;
  size_t count, cap;
  int64_t limit;
  bool more;                                        /* tensors that are not kept, since they cannot be shown */
  bool models, shapes, whys, blobs, remarks, steps; /* columns that say something */
};

static char *copy(struct snaps_text text) {
  if (!text.text || !text.len)
    return NULL;
  char *made = buf_alloc(text.len + 1);
  memcpy(made, text.text, text.len);
  made[text.len] = '\0';
  return made;
}

static void add_words(struct buf *out, const char *words) {
  buf_printf(out, "%s%s", out->len ? ", " : "", words);
}

/* What the numbers do not say. */
static char *remark_of(const struct snaps_record *r) {
  static const char *const flags[] = {"sparse", "complex", "copy"};
  struct buf out = {0};
  json_t *attrs = jsontext_parse(r->attrs.text, r->attrs.len, JSON_OBJECT);
  const char *reason = json_string_value(json_object_get(attrs, "reason"));
  const char *error = json_string_value(json_object_get(attrs, "error"));
  if (r->torn)
    add_words(&out, "torn");
  if (!snaps_is_read(r))
    add_words(&out, "not read");
  if (reason || error)
    buf_printf(&out, "%s%s", out.len ? ": " : "", reason ? reason : error);
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    if (json_is_true(json_object_get(attrs, flags[i])))
      add_words(&out, flags[i]);
  json_decref(attrs);
  char *made = out.len ? buf_strdup(out.data) : NULL;
  buf_fini(&out);
  return made;
}

static struct line *new_line(struct rows *rows) {
  if (rows->count == rows->cap) {
    rows->cap = rows->cap ? 2 * rows->cap : 64;
    rows->lines = buf_realloc(rows->lines, rows->cap * sizeof *rows->lines);
  }
  memset(&rows->lines[rows->count], 0, sizeof *rows->lines);
  return &rows->lines[rows->count++];
}

static bool differ(const char *a, const char *b) {
  return strcmp(a ? a : "", b ? b : "") != 0;
}

static void add(struct rows *rows, const struct snaps_record *r, const struct snaps_pass *pass, int64_t rank) {
  size_t tensor = snaps_tensor_at(&rows->tensors, r, (int64_t)rows->tensors.count < rows->limit);
  if (tensor == SIZE_MAX) { /* each tensor has a row: those beyond the limit are never shown */
    rows->more = true;
    return;
  }
  struct line *line = new_line(rows);
  line->tensor = tensor;
  line->pass = *pass;
  line->rank = rank;
  line->shape = copy(r->shape);
  line->dtype = copy(r->dtype);
  line->blob = copy(r->blob);
  line->remark = remark_of(r);
  line->has_histogram = snaps_is_read(r) && !isnan(r->min) && snaps_counts(r->histogram, line->histogram, TENSOR_BINS);
  line->has_magnitude = snaps_is_read(r) && snaps_counts(r->magnitude, line->magnitude, TENSOR_MAGNITUDES);
  line->r = *r;
  snaps_record_drop_texts(&line->r);
  rows->models = rows->models || differ(rows->tensors.items[tensor].model, rows->tensors.items[0].model);
  rows->shapes = rows->shapes || differ(line->shape, rows->lines[0].shape) || differ(line->dtype, rows->lines[0].dtype);
  rows->whys = rows->whys || pass->reason != SNAPS_EPOCH;
  rows->steps = rows->steps || pass->step != SNAPS_NO_INDEX;
  rows->blobs = rows->blobs || line->blob;
  rows->remarks = rows->remarks || line->remark;
}

static void read_session(struct rows *rows, const struct pick_session *session) {
  struct buf sql = {0};
  struct snaps_passes passes;
  const struct snaps_pass *pass = NULL;
  if (!snaps_kept(session->store))
    return;
  snaps_passes_read(session->store, session->sid, &passes);
  buf_puts(&sql, "SELECT " SNAPS_COLUMNS " FROM snapshots p");
  if (rows->cli->epoch >= 0)
    buf_puts(&sql, " JOIN snapshot_passes q ON q.sid = p.sid AND q.pass = p.pass");
  buf_puts(&sql, " WHERE p.sid = ?1");
  snaps_where(rows->cli, &sql);
  buf_puts(&sql, " ORDER BY p.snapshot");
  sqlite3_stmt *stmt = db_query(session->store, sql.data, session->sid);
  snaps_bind(rows->cli, stmt);
  while (db_step(stmt)) {
    struct snaps_record r;
    snaps_record_read(stmt, SNAPS_ALL, &r);
    if (!pass || pass->number != r.pass)
      pass = snaps_pass_find(&passes, r.pass);
    if (pass)
      add(rows, &r, pass, session->rank);
  }
  snaps_passes_fini(&passes);
  buf_fini(&sql);
}

/* --- ranks together ------------------------------------------------------------------------------------------------------ */

static int compare(int64_t a, int64_t b) {
  return (a > b) - (a < b);
}

static int by_time(const void *a, const void *b) {
  const struct line *x = a, *y = b;
  int order = compare((int64_t)x->tensor, (int64_t)y->tensor);
  order = order ? order : compare(x->pass.number, y->pass.number);
  return order ? order : compare(x->rank, y->rank);
}

static bool together(const struct line *a, const struct line *b) {
  return a->tensor == b->tensor && a->pass.reason == b->pass.reason && a->pass.epoch == b->pass.epoch &&
         a->pass.step == b->pass.step;
}

static bool same_numbers(const struct line *a, const struct line *b) {
  const struct snaps_record *x = &a->r, *y = &b->r;
  return x->count == y->count && x->nans == y->nans && x->infs == y->infs && x->neg_infs == y->neg_infs &&
         x->zeros == y->zeros && (x->mean == y->mean || (isnan(x->mean) && isnan(y->mean))) &&
         (x->norm == y->norm || (isnan(x->norm) && isnan(y->norm))) &&
         memcmp(a->magnitude, b->magnitude, sizeof a->magnitude) == 0;
}

/* Adds what `r` has to what `sum` has, as if both were one tensor. */
static void merge(struct line *sum, const struct line *one) {
  struct snaps_record *s = &sum->r;
  const struct snaps_record *r = &one->r;
  double n = (double)(s->count - snaps_bad(s)), m = (double)(r->count - snaps_bad(r)), all = n + m;
  if (m > 0 && n > 0) {
    double apart = r->mean - s->mean, mean = s->mean + apart * (m / all);
    s->std = sqrt((n / all) * s->std * s->std + (m / all) * r->std * r->std + (n / all) * (m / all) * apart * apart);
    s->mean = mean;
    s->norm = hypot(s->norm, r->norm);
    s->min = fmin(s->min, r->min);
    s->max = fmax(s->max, r->max);
  } else if (m > 0) {
    s->mean = r->mean, s->std = r->std, s->norm = r->norm, s->min = r->min, s->max = r->max;
  }
  s->count += r->count;
  s->nans += r->nans;
  s->infs += r->infs;
  s->neg_infs += r->neg_infs;
  s->zeros += r->zeros;
  sum->has_magnitude = sum->has_magnitude && one->has_magnitude;
  for (int i = 0; i < TENSOR_MAGNITUDES; i++)
    sum->magnitude[i] += one->magnitude[i];
}

/* Behind the lines of the ranks: whether they are copies of each other, or what they are as one. Nothing where a rank was not read. */
static bool merged(const struct line *lines, size_t n, struct line *out) {
  bool same = true;
  *out = lines[0];
  out->rank = MERGED;
  out->has_histogram = false;
  out->shape = out->dtype = out->blob = NULL;
  for (size_t i = 0; i < n; i++)
    if (!snaps_is_read(&lines[i].r))
      return false;
  for (size_t i = 1; i < n; i++)
    same = same && same_numbers(&lines[0], &lines[i]);
  for (size_t i = 1; i < n && !same; i++)
    merge(out, &lines[i]);
  out->remark = same ? "the same in all ranks" : "all ranks as one";
  return true;
}

/* --- what is shown ------------------------------------------------------------------------------------------------------- */

enum {
  TENSOR,
  MODEL,
  SHAPE,
  DTYPE,
  EPOCH,
  STEP,
  WHY,
  RANK,
  MEAN,
  STD,
  MIN,
  MAX,
  NORM,
  COUNT,
  NANS,
  INFS,
  ZEROS,
  HISTOGRAM,
  MAGNITUDE,
  BLOB,
  REMARK,
  COLUMNS
};

static struct out_cell index_cell(int64_t index) {
  return out_int_or_null(index, SNAPS_NO_INDEX);
}

static struct out_cell text_or_null(const struct buf *buf) {
  return buf->len ? out_text_len(buf->data, buf->len) : out_null();
}

static int show(const struct rows *rows, struct out *out, const struct line *line) {
  const struct snaps_tensor *tensor = &rows->tensors.items[line->tensor];
  const struct snaps_record *r = &line->r;
  struct buf histogram = {0}, magnitude = {0};
  char numbers[5][32];
  bool read = snaps_is_read(r), utf8 = rows->cli->style.utf8;
  if (line->has_histogram)
    sparkline_counts(line->histogram, TENSOR_BINS, 1, utf8, &histogram);
  if (line->has_magnitude)
    sparkline_counts(line->magnitude, TENSOR_MAGNITUDES, MAGNITUDES_A_GLYPH, utf8, &magnitude);
  const struct out_cell cells[COLUMNS] = {
      [TENSOR] = out_text_len(tensor->name, tensor->name_len),
      [MODEL] = out_text_len(tensor->model, tensor->model_len),
      [SHAPE] = out_text(line->shape),
      [DTYPE] = out_text(line->dtype),
      [EPOCH] = index_cell(line->pass.epoch),
      [STEP] = index_cell(line->pass.step),
      [WHY] = out_text(snaps_reason_name(line->pass.reason)),
      [RANK] = line->rank == MERGED ? out_text("all") : out_int_or_null(line->rank, -1),
      [MEAN] = snaps_number(r->mean, numbers[0]),
      [STD] = snaps_number(r->std, numbers[1]),
      [MIN] = snaps_number(r->min, numbers[2]),
      [MAX] = snaps_number(r->max, numbers[3]),
      [NORM] = snaps_number(r->norm, numbers[4]),
      [COUNT] = read ? out_int(r->count) : out_null(),
      [NANS] = read ? out_int(r->nans) : out_null(),
      [INFS] = read ? out_int(r->infs + r->neg_infs) : out_null(),
      [ZEROS] = read ? out_int(r->zeros) : out_null(),
      [HISTOGRAM] = text_or_null(&histogram),
      [MAGNITUDE] = text_or_null(&magnitude),
      [BLOB] = out_text(line->blob),
      [REMARK] = out_text(line->remark ? line->remark : ""),
  };
  int error = out_row(out, cells);
  buf_fini(&histogram);
  buf_fini(&magnitude);
  return error;
}

static void print_head(const struct rows *rows) {
  const struct snaps_tensor *tensor = &rows->tensors.items[0];
  bool utf8 = rows->cli->style.utf8;
  struct buf head = {0};
  if (rows->tensors.count != 1 || rows->more)
    return;
  text_show_cut(&head, tensor->name, tensor->name_len, utf8, 100);
  if (tensor->model_len) {
    buf_puts(&head, " of ");
    text_show_cut(&head, tensor->model, tensor->model_len, utf8, 60);
  }
  buf_puts(&head, tensor->what == SNAPS_GRADIENT ? ", gradient" : ", weight");
  for (int i = 0; i < 2 && !rows->shapes; i++) {
    const char *text = i ? rows->lines[0].shape : rows->lines[0].dtype;
    buf_puts(&head, i ? " " : ", ");
    text_show_cut(&head, text ? text : "", text ? strlen(text) : 0, utf8, 60);
  }
  printf("%s\n\n", head.data);
  buf_fini(&head);
}

static int print_rows(const struct rows *rows, bool *more) {
  bool ranks = rows->job->count > 1, several = rows->tensors.count != 1 || rows->more;
  unsigned shape = several || rows->shapes ? 0 : OUT_NO_TABLE;
  struct out_column columns[COLUMNS] = {
      [TENSOR] = {"tensor", NULL, 0, several ? OUT_CUT : OUT_NO_TABLE},
      [MODEL] = {"model", NULL, 0, rows->models ? OUT_CUT : OUT_NO_TABLE},
      [SHAPE] = {"shape", NULL, 0, shape},
      [DTYPE] = {"dtype", NULL, 0, shape},
      [EPOCH] = {"epoch", NULL, OUT_AS_COUNT, 0},
      [STEP] = {"step", NULL, OUT_AS_COUNT, rows->steps ? 0 : OUT_NO_TABLE},
      [WHY] = {"why", NULL, 0, rows->whys ? 0 : OUT_NO_TABLE},
      [RANK] = {"rank", NULL, 0, ranks ? 0 : OUT_NO_TABLE},
      [MEAN] = {"mean", NULL, OUT_AS_COUNT, 0},
      [STD] = {"std", NULL, OUT_AS_COUNT, 0},
      [MIN] = {"min", NULL, OUT_AS_COUNT, 0},
      [MAX] = {"max", NULL, OUT_AS_COUNT, 0},
      [NORM] = {"norm", NULL, OUT_AS_COUNT, 0},
      [COUNT] = {"count", NULL, OUT_AS_COUNT, 0},
      [NANS] = {"nan", NULL, OUT_AS_COUNT, 0},
      [INFS] = {"inf", NULL, OUT_AS_COUNT, 0},
      [ZEROS] = {"zero", NULL, OUT_AS_COUNT, 0},
      [HISTOGRAM] = {"histogram", NULL, 0, 0},
      [MAGNITUDE] = {"magnitude", NULL, 0, ranks ? 0 : OUT_NO_TABLE},
      [BLOB] = {"blob", NULL, 0, rows->blobs ? OUT_CUT : OUT_NO_TABLE},
      [REMARK] = {"remark", "", 0, rows->remarks || ranks ? OUT_CUT : OUT_NO_TABLE},
  };
  static const struct snaps_fit fits[COLUMNS] = {
      [MODEL] = {12, 5}, [SHAPE] = {13, 4},     [DTYPE] = {9, 2},      [EPOCH] = {6, 0}, [STEP] = {8, 0},
      [WHY] = {8, 0},    [RANK] = {5, 0},       [MEAN] = {11, 7},      [STD] = {10, 7},  [MIN] = {10, 6},
      [MAX] = {10, 6},   [NORM] = {10, 0},      [COUNT] = {11, 3},     [NANS] = {5, 0},  [INFS] = {5, 0},
      [ZEROS] = {6, 3},  [HISTOGRAM] = {17, 8}, [MAGNITUDE] = {17, 0}, [BLOB] = {20, 1}, [REMARK] = {6, 0}};
  size_t longest = 0;
  for (size_t i = 0; several && i < rows->tensors.count; i++)
    longest = rows->tensors.items[i].name_len > longest ? rows->tensors.items[i].name_len : longest;
  snaps_fit(rows->cli, columns, fits, COLUMNS, longest);
  struct out *out = out_begin(stdout, OUT_TABLE, &rows->cli->style, columns, COLUMNS);
  int64_t shown = 0;
  int error = 0;
  for (size_t i = 0, end; i < rows->count && !error; i = end) {
    for (end = i; end < rows->count && together(&rows->lines[i], &rows->lines[end]); end++) {
      *more = *more || shown >= rows->limit;
      if (!error && !*more && ++shown)
        error = show(rows, out, &rows->lines[end]);
    }
    struct line all;
    if (ranks && end - i > 1 && !error && !*more && merged(&rows->lines[i], end - i, &all))
      error = show(rows, out, &all);
  }
  int ended = out_end(out);
  return error ? error : ended;
}

int snaps_rows(const struct cli *cli, const struct job *job) {
  struct rows rows = {.cli = cli, .job = job, .limit = cmd_limit(cli)};
  bool more = false;
  int error = 0;
  for (size_t i = 0; i < job->count; i++)
    read_session(&rows, job->ranks[i]);
  if (rows.count) {
    qsort(rows.lines, rows.count, sizeof *rows.lines, by_time);
    print_head(&rows);
    error = print_rows(&rows, &more);
  }
  int status = cli_written(error);
  if (!error && (more || rows.more))
    cmd_more(cli, rows.limit);
  cmd_none(cli, "snapshots", (int64_t)rows.count);
  for (size_t i = 0; i < rows.count; i++) {
    free(rows.lines[i].shape);
    free(rows.lines[i].dtype);
    free(rows.lines[i].blob);
    free(rows.lines[i].remark);
  }
  free(rows.lines);
  snaps_tensors_fini(&rows.tensors);
  return status;
}
