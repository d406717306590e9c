/* Gathers the facts of a report from the tables of steps, epochs, roll-ups and marks; raw spans are not read. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../proto/histogram.h"
#include "../proto/ring_abi.h"
#include "../proto/store_abi.h"
#include "db.h"
#include "jsontext.h"
#include "report.h"

#define SCOPES 10

static int64_t number(sqlite3_stmt *stmt, int column, int64_t none) {
  return sqlite3_column_type(stmt, column) == SQLITE_NULL ? none : sqlite3_column_int64(stmt, column);
}

static char *copy(sqlite3_stmt *stmt, int column, size_t *len) {
  const char *text = (const char *)sqlite3_column_text(stmt, column);
  *len = text ? (size_t)sqlite3_column_bytes(stmt, column) : 0;
  char *made = buf_alloc(*len + 1);
  if (text)
    memcpy(made, text, *len);
  return made;
}

static void gather_length(struct report *out) {
  const struct pick_session *s = out->session;
  struct timespec now;
  out->now_ns = s->end_ns ? s->end_ns : s->last_ns ? s->last_ns : s->start_ns;
  if (strcmp(s->state, SESSION_RUNNING) == 0 && clock_gettime(CLOCK_REALTIME, &now) == 0) {
    int64_t now_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    out->now_ns = now_ns > out->now_ns ? now_ns : out->now_ns;
  }
  out->duration_ns = out->now_ns > s->start_ns ? out->now_ns - s->start_ns : 0;
}

/* A pass that has no end is what it was at last: it becomes an epoch with its first update. */
static void gather_epochs(const struct cli *cli, struct report *out) {
  size_t cap = 0;
  sqlite3_stmt *stmt = db_query(
      cli->store,
      "SELECT e.span, e.parent, CASE o.kind WHEN ?2 THEN 'epoch' WHEN ?3 THEN 'eval' ELSE e.kind END, coalesce(e.idx, o.idx),"
      " e.start_ns, e.end_ns FROM epochs e LEFT JOIN open_spans o ON o.sid = e.sid AND o.span = e.span"
      " WHERE e.sid = ?1 ORDER BY e.span",
      out->session->sid, SPAN_EPOCH, SPAN_EVAL);
  while (db_step(stmt)) {
    if (out->epochs_count == cap) {
      cap = cap ? 2 * cap : 64;
      out->epochs = buf_realloc(out->epochs, cap * sizeof *out->epochs);
    }
    const char *kind = (const char *)sqlite3_column_text(stmt, 2);
    struct report_epoch e = {.span = (uint64_t)sqlite3_column_int64(stmt, 0),
                             .parent = (uint64_t)sqlite3_column_int64(stmt, 1),
                             .eval = kind && strcmp(kind, "eval") == 0,
                             .index = number(stmt, 3, REPORT_NO_INDEX),
                             .start_ns = sqlite3_column_int64(stmt, 4),
                             .end_ns = number(stmt, 5, 0)};
    int64_t end = e.end_ns ? e.end_ns : out->now_ns;
    e.duration_ns = end > e.start_ns ? end - e.start_ns : 0;
    out->evals += e.eval;
    out->training_epochs += !e.eval;
    out->epochs[out->epochs_count++] = e;
  }
}

/* By span, which is the order of the array. */
static struct report_epoch *find_epoch(struct report *out, uint64_t span) {
  size_t low = 0, high = out->epochs_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (out->epochs[middle].span < span)
      low = middle + 1;
    else
      high = middle;
  }
  return low < out->epochs_count && out->epochs[low].span == span ? &out->epochs[low] : NULL;
}

static void gather_evals(struct report *out) {
  for (size_t i = 0; i < out->epochs_count; i++) {
    struct report_epoch *e = &out->epochs[i], *parent = find_epoch(out, e->parent);
    if (!e->eval || (parent && parent->eval))
      continue;
    out->eval_ns += e->duration_ns;
    if (parent) {
      parent->evals++;
      parent->eval_ns += e->duration_ns;
    }
  }
}

#define STEP_COLUMNS "span, epoch, idx, start_ns, end_ns, data_load_ns, forward_ns, backward_ns, optimizer_ns, error"

static struct report_step read_step(sqlite3_stmt *stmt) {
  struct report_step s = {.found = true,
                          .span = (uint64_t)sqlite3_column_int64(stmt, 0),
                          .index = number(stmt, 2, REPORT_NO_INDEX),
                          .epoch_index = REPORT_NO_INDEX,
                          .start_ns = sqlite3_column_int64(stmt, 3),
                          .error = sqlite3_column_int64(stmt, 9) != 0};
  s.duration_ns = sqlite3_column_int64(stmt, 4) - s.start_ns;
  int64_t other = s.duration_ns;
  for (int i = 0; i < REPORT_OTHER; i++) {
    s.phase_ns[i] = sqlite3_column_int64(stmt, 5 + i);
    other -= s.phase_ns[i];
  }
  s.phase_ns[REPORT_OTHER] = other > 0 ? other : 0;
  return s;
}

/* What is kept of each step while the medians are looked for. */
struct length {
  int64_t duration_ns;
  uint64_t span;
};

struct lengths {
  struct length *items;
  size_t count, cap, epoch_from; /* items of the present epoch begin there */
};

static int compare_lengths(const void *a, const void *b) {
  const struct length *x = a, *y = b;
  return x->duration_ns < y->duration_ns ? -1 : x->duration_ns > y->duration_ns;
}

/* Quickselect: moves the items around. */
static struct length median_of(struct length *items, size_t count) {
  size_t low = 0, high = count - 1, want = (count - 1) / 2;
  while (low < high) {
    int64_t pivot = items[low + (high - low) / 2].duration_ns;
    size_t i = low, j = high;
    for (;;) {
      while (items[i].duration_ns < pivot)
        i++;
      while (items[j].duration_ns > pivot)
        j--;
      if (i >= j)
        break;
      struct length other = items[i];
      items[i++] = items[j];
      items[j--] = other;
    }
    if (want <= j)
      high = j;
    else
      low = j + 1;
    if (high - low < 8) {
      qsort(items + low, high - low + 1, sizeof *items, compare_lengths);
      break;
    }
  }
  return items[want];
}

static void end_epoch(struct lengths *lengths, struct report_epoch *epoch) {
  if (epoch && lengths->count > lengths->epoch_from)
    epoch->median_ns = median_of(lengths->items + lengths->epoch_from, lengths->count - lengths->epoch_from).duration_ns;
  lengths->epoch_from = lengths->count;
}

static void add_step(struct report *out, const struct report_step *step, struct report_epoch *epoch, struct lengths *lengths) {
  if (lengths->count == lengths->cap) {
    lengths->cap = lengths->cap ? 2 * lengths->cap : 1024;
    lengths->items = buf_realloc(lengths->items, lengths->cap * sizeof *lengths->items);
  }
  lengths->items[lengths->count++] = (struct length){step->duration_ns, step->span};
  if (out->steps++ == 0) {
    out->first = *step;
    out->first_start_ns = step->start_ns;
  } else if (!out->slowest.found || step->duration_ns > out->slowest.duration_ns) {
    out->slowest = *step;
  }
  out->step_ns += step->duration_ns;
  out->step_errors += step->error;
  for (int i = 0; i < REPORT_PHASES; i++)
    out->phase_ns[i] += step->phase_ns[i];
  if (step->start_ns + step->duration_ns > out->last_end_ns)
    out->last_end_ns = step->start_ns + step->duration_ns;
  if (!epoch)
    return;
  if (epoch->steps++ == 0)
    out->first_data_ns += step->phase_ns[REPORT_DATA];
  epoch->step_ns += step->duration_ns;
  epoch->data_ns += step->phase_ns[REPORT_DATA];
}

static void find_median(const struct cli *cli, struct report *out, struct lengths *lengths) {
  struct length median = median_of(lengths->items, lengths->count);
  out->median_ns = median.duration_ns;
  sqlite3_stmt *stmt = db_query(cli->store, "SELECT " STEP_COLUMNS " FROM steps WHERE sid = ? AND span = ?", out->session->sid,
                                (sqlite3_int64)median.span);
  if (db_step(stmt)) {
    struct report_epoch *epoch = find_epoch(out, (uint64_t)sqlite3_column_int64(stmt, 1));
    out->median = read_step(stmt);
    out->median.epoch_index = epoch ? epoch->index : REPORT_NO_INDEX;
    sqlite3_finalize(stmt);
  }
}

static void gather_steps(const struct cli *cli, struct report *out) {
  struct lengths lengths = {0};
  struct report_epoch *epoch = NULL;
  uint64_t present = 0;
  sqlite3_stmt *stmt =
      db_query(cli->store, "SELECT " STEP_COLUMNS " FROM steps WHERE sid = ? ORDER BY span", out->session->sid);
  while (db_step(stmt)) {
    uint64_t span = (uint64_t)sqlite3_column_int64(stmt, 1);
    if (span != present) {
      end_epoch(&lengths, epoch);
      epoch = find_epoch(out, span);
      present = span;
    }
    struct report_step step = read_step(stmt);
    step.epoch_index = epoch ? epoch->index : REPORT_NO_INDEX;
    add_step(out, &step, epoch, &lengths);
  }
  end_epoch(&lengths, epoch);
  if (lengths.count)
    find_median(cli, out, &lengths);
  free(lengths.items);
}

static int64_t quantile_of(const uint64_t *counts, double q, int64_t least, int64_t most) {
  return (int64_t)histogram_quantile(counts, q, (uint64_t)(least > 0 ? least : 0), (uint64_t)(most > 0 ? most : 0));
}

/* Batches of a framework are counted like steps, from the roll-ups; what is in them is not known by phase. */
static void gather_batches(const struct cli *cli, struct report *out) {
  uint64_t all[HISTOGRAM_BINS] = {0};
  int64_t least = INT64_MAX, most = 0;
  sqlite3_stmt *stmt = db_query(cli->store,
                                "SELECT epoch, count, errors, total_ns, min_ns, max_ns, histogram FROM rollups"
                                " WHERE sid = ? AND kind = ?",
                                out->session->sid, SPAN_BATCH);
  while (db_step(stmt)) {
    uint64_t one[HISTOGRAM_BINS] = {0};
    struct report_epoch *epoch = find_epoch(out, (uint64_t)sqlite3_column_int64(stmt, 0));
    int64_t low = sqlite3_column_int64(stmt, 4), high = sqlite3_column_int64(stmt, 5);
    const void *packed = sqlite3_column_blob(stmt, 6);
    size_t len = (size_t)sqlite3_column_bytes(stmt, 6);
    out->unit = "batch";
    out->steps += sqlite3_column_int64(stmt, 1);
    out->step_errors += sqlite3_column_int64(stmt, 2);
    out->step_ns += sqlite3_column_int64(stmt, 3);
    least = low < least ? low : least;
    most = high > most ? high : most;
    (void)histogram_add_packed(all, packed, len); /* a damaged one adds nothing */
    if (epoch && histogram_add_packed(one, packed, len) == 0) {
      epoch->steps += sqlite3_column_int64(stmt, 1);
      epoch->step_ns += sqlite3_column_int64(stmt, 3);
      epoch->median_ns = quantile_of(one, 0.5, low, high);
    }
  }
  if (out->steps)
    out->median_ns = quantile_of(all, 0.5, least, most);
}

static int64_t evals_between(const struct report *out, int64_t from, int64_t to) {
  int64_t sum = 0;
  for (size_t i = 0; i < out->epochs_count; i++)
    if (out->epochs[i].eval && out->epochs[i].start_ns >= from && out->epochs[i].start_ns < to)
      sum += out->epochs[i].duration_ns;
  return sum;
}

static int64_t positive(int64_t value) {
  return value > 0 ? value : 0;
}

static void gather_outside(struct report *out) {
  if (!out->first_start_ns)
    return;
  int64_t start = out->session->start_ns;
  out->before_ns = positive(out->first_start_ns - start - evals_between(out, start, out->first_start_ns));
  out->after_ns = positive(out->now_ns - out->last_end_ns - evals_between(out, out->last_end_ns, INT64_MAX));
  out->between_ns = positive(out->duration_ns - out->step_ns - out->before_ns - out->after_ns - out->eval_ns);
}

/* Spans by name, longest in sum first. Where there are steps the automatic ones are told by phase already. */
static void gather_scopes(const struct cli *cli, struct report *out) {
  sqlite3_stmt *stmt =
      db_query(cli->store,
               "SELECT n.text, r.kind, sum(r.count), sum(r.errors), sum(r.total_ns), sum(r.self_ns), min(r.min_ns),"
               " max(r.max_ns), r.name FROM rollups r LEFT JOIN names n ON n.name = r.name WHERE r.sid = ?1"
               " AND r.kind <> ?2 AND (NOT ?3 OR r.kind IN (?4, ?5, ?7)) GROUP BY r.name, r.kind"
               " ORDER BY sum(r.total_ns) DESC LIMIT ?6",
               out->session->sid, SPAN_SESSION, out->first.found, SPAN_USER, SPAN_FETCH, SCOPES, SPAN_COLLECTIVE);
  out->scopes = buf_alloc(SCOPES * sizeof *out->scopes);
  while (db_step(stmt)) {
    struct report_scope *s = &out->scopes[out->scopes_count++];
    uint64_t counts[HISTOGRAM_BINS] = {0};
    s->name = copy(stmt, 0, &s->name_len);
    s->kind = sqlite3_column_int(stmt, 1);
    s->count = sqlite3_column_int64(stmt, 2);
    s->errors = sqlite3_column_int64(stmt, 3);
    s->total_ns = sqlite3_column_int64(stmt, 4);
    s->self_ns = sqlite3_column_int64(stmt, 5);
    s->min_ns = sqlite3_column_int64(stmt, 6);
    s->max_ns = sqlite3_column_int64(stmt, 7);
    sqlite3_stmt *packed = db_query(cli->store, "SELECT histogram FROM rollups WHERE sid = ? AND name = ? AND kind = ?",
                                    out->session->sid, sqlite3_column_int64(stmt, 8), s->kind);
    while (db_step(packed))
      (void)histogram_add_packed(counts, sqlite3_column_blob(packed, 0), (size_t)sqlite3_column_bytes(packed, 0));
    s->median_ns = quantile_of(counts, 0.5, s->min_ns, s->max_ns);
  }
}

static void gather_kinds(const struct cli *cli, struct report *out) {
  sqlite3_stmt *stmt =
      db_query(cli->store, "SELECT kind, sum(count) FROM rollups WHERE sid = ? GROUP BY kind", out->session->sid);
  while (db_step(stmt)) {
    int kind = sqlite3_column_int(stmt, 0);
    if (kind >= 0 && kind < SPAN_KINDS)
      out->kinds[kind] = sqlite3_column_int64(stmt, 1);
  }
}

static void gather_errors(const struct cli *cli, struct report *out) {
  sqlite3_stmt *stmt = db_query(cli->store,
                                "SELECT n.text, sum(r.errors) AS errors FROM rollups r LEFT JOIN names n ON n.name = r.name"
                                " WHERE r.sid = ? AND r.errors > 0 GROUP BY r.name ORDER BY errors DESC, n.text",
                                out->session->sid);
  while (db_step(stmt)) {
    out->errors = buf_realloc(out->errors, (out->errors_count + 1) * sizeof *out->errors);
    struct report_error *error = &out->errors[out->errors_count++];
    error->name = copy(stmt, 0, &error->name_len);
    error->count = sqlite3_column_int64(stmt, 1);
  }
}

static void add_open(struct report *out, sqlite3_stmt *stmt) {
  struct report_open o = {.kind = sqlite3_column_int(stmt, 2),
                          .index = number(stmt, 3, REPORT_NO_INDEX),
                          .start_ns = sqlite3_column_int64(stmt, 4)};
  o.name = copy(stmt, 0, &o.name_len);
  if (sqlite3_column_type(stmt, 1) != SQLITE_NULL)
    o.module = copy(stmt, 1, &o.module_len);
  out->open = buf_realloc(out->open, (out->open_count + 1) * sizeof *out->open);
  out->open[out->open_count++] = o;
}

/* The innermost open span of the thread that trains, else of the main thread, else of any, and what is around it. */
static void gather_open(const struct cli *cli, struct report *out) {
  int64_t sid = out->session->sid;
  out->unfinished = db_value(cli->store, 0, "SELECT count(*) FROM open_spans WHERE sid = ? AND kind <> ?", sid, SPAN_SESSION);
  sqlite3_stmt *stmt = db_query(
      cli->store,
      "WITH RECURSIVE leaf(span) AS (SELECT span FROM open_spans WHERE sid = ?1 AND kind <> ?2 ORDER BY"
      " tid IN (SELECT tid FROM open_spans WHERE sid = ?1 AND kind IN (?4, ?5)) DESC, tid = ?3 DESC, span DESC LIMIT 1),"
      " chain(span, parent, level) AS ("
      "  SELECT o.span, o.parent, 0 FROM open_spans o JOIN leaf USING (span) WHERE o.sid = ?1"
      "  UNION ALL SELECT o.span, o.parent, level + 1 FROM chain c JOIN open_spans o ON o.sid = ?1 AND o.span = c.parent"
      "  WHERE level < 100)"
      " SELECT n.text, m.text, o.kind, o.idx, o.start_ns FROM chain c JOIN open_spans o ON o.sid = ?1 AND o.span = c.span"
      " LEFT JOIN names n ON n.name = o.name LEFT JOIN names m ON m.name = o.module WHERE o.kind <> ?2 ORDER BY level DESC",
      sid, SPAN_SESSION, out->session->pid, SPAN_STEP, SPAN_EPOCH);
  while (db_step(stmt))
    add_open(out, stmt);
}

/* The agent's own marks of this name: attributes, value, time. */
static sqlite3_stmt *agents_marks(const struct cli *cli, const struct report *report, const char *name) {
  sqlite3_stmt *stmt = db_query(cli->store,
                                "SELECT m.attrs, m.value, m.ts_ns FROM marks m JOIN names n USING (name) WHERE m.sid = ?1"
                                " AND n.text = ?2 ORDER BY m.mark",
                                report->session->sid);
  int error = sqlite3_bind_text(stmt, 2, name, -1, SQLITE_STATIC);
  if (error != SQLITE_OK)
    db_die(cli->store, "marks", error);
  return stmt;
}

static json_t *attrs_of(sqlite3_stmt *mark) {
  const char *text = (const char *)sqlite3_column_text(mark, 0);
  return jsontext_parse(text, text ? strlen(text) : 0, JSON_OBJECT);
}

static void gather_sheds(const struct cli *cli, struct report *out) {
  sqlite3_stmt *stmt = agents_marks(cli, out, SHED_MARK);
  while (db_step(stmt)) {
    json_t *attrs = attrs_of(stmt);
    out->sheds = buf_realloc(out->sheds, (out->sheds_count + 1) * sizeof *out->sheds);
    struct report_shed *shed = &out->sheds[out->sheds_count++];
    shed->what = copy(stmt, 1, &shed->what_len);
    shed->ts_ns = sqlite3_column_int64(stmt, 2);
    shed->share = json_number_value(json_object_get(attrs, "cost_ppm")) / 1e6;
    json_decref(attrs);
  }
}

static void framework_fini(struct report_framework *f) {
  for (size_t i = 0; i < f->missing_count; i++)
    free(f->missing[i]);
  free(f->missing);
  free(f->package);
  free(f->version);
  free(f->tested);
}

static char *text_in(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return buf_strdup(text ? text : "");
}

static struct report_framework framework_of(const json_t *attrs) {
  const json_t *missing = json_object_get(attrs, "missing");
  struct report_framework f = {.package = text_in(attrs, "package"),
                               .version = text_in(attrs, "version"),
                               .tested = text_in(attrs, "tested"),
                               .in_range = json_is_true(json_object_get(attrs, "in_range")),
                               .observed = json_integer_value(json_object_get(attrs, "observed"))};
  f.missing = buf_alloc((json_array_size(missing) + 1) * sizeof *f.missing);
  for (size_t i = 0; i < json_array_size(missing); i++) {
    const char *name = json_string_value(json_array_get(missing, i));
    if (name)
      f.missing[f.missing_count++] = buf_strdup(name);
  }
  return f;
}

/* Of each package the last word counts. */
static void gather_frameworks(const struct cli *cli, struct report *out) {
  sqlite3_stmt *stmt = agents_marks(cli, out, FRAMEWORK_MARK);
  while (db_step(stmt)) {
    json_t *attrs = attrs_of(stmt);
    struct report_framework f = framework_of(attrs);
    size_t at = 0;
    json_decref(attrs);
    while (at < out->frameworks_count && strcmp(out->frameworks[at].package, f.package) != 0)
      at++;
    if (at < out->frameworks_count) {
      framework_fini(&out->frameworks[at]);
    } else {
      out->frameworks = buf_realloc(out->frameworks, (at + 1) * sizeof *out->frameworks);
      out->frameworks_count++;
    }
    out->frameworks[at] = f;
  }
}

static void gather_losses(struct report *out) {
  const char *text = out->session->dropped, *reason;
  json_t *dropped = jsontext_parse(text, text ? strlen(text) : 0, JSON_OBJECT), *count;
  json_object_foreach(dropped, reason, count) {
    if (!json_is_integer(count) || json_integer_value(count) <= 0)
      continue;
    out->losses = buf_realloc(out->losses, (out->losses_count + 1) * sizeof *out->losses);
    out->losses[out->losses_count++] = (struct report_loss){buf_strdup(reason), json_integer_value(count)};
    out->lost += json_integer_value(count);
  }
  if (out->session->dropped_total > out->lost) /* more than the reasons say */
    out->lost = out->session->dropped_total;
  json_decref(dropped);
}

static int compare_ranks(const void *a, const void *b) {
  const struct report_rank *x = a, *y = b;
  return x->session->rank < y->session->rank ? -1 : x->session->rank > y->session->rank;
}

static void gather_ranks(struct report *out) {
  for (size_t i = 0; out->session->world_size > 1 && i < out->sessions_count; i++) {
    const struct pick_session *s = &out->sessions[i];
    if (s->rank < 0 || !pick_same_job(s, out->session))
      continue;
    sqlite3_stmt *stmt =
        db_query(s->store, "SELECT count(*), sum(end_ns - start_ns), sum(data_load_ns) FROM steps WHERE sid = ?", s->sid);
    if (!db_step(stmt))
      continue;
    if (sqlite3_column_int64(stmt, 0) > 0) {
      out->ranks = buf_realloc(out->ranks, (out->ranks_count + 1) * sizeof *out->ranks);
      out->ranks[out->ranks_count++] =
          (struct report_rank){s, sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1), sqlite3_column_int64(stmt, 2)};
    }
    sqlite3_finalize(stmt);
  }
  if (out->ranks_count)
    qsort(out->ranks, out->ranks_count, sizeof *out->ranks, compare_ranks);
}

void report_gather(const struct cli *cli, const struct pick_session *sessions, size_t count, const struct pick_session *session,
                   struct report *out) {
  *out = (struct report){.session = session, .sessions = sessions, .sessions_count = count, .unit = "step"};
  gather_length(out);
  gather_epochs(cli, out);
  gather_evals(out);
  gather_steps(cli, out);
  if (!out->steps)
    gather_batches(cli, out);
  gather_outside(out);
  gather_scopes(cli, out);
  gather_kinds(cli, out);
  gather_errors(cli, out);
  gather_open(cli, out);
  gather_losses(out);
  gather_sheds(cli, out);
  gather_frameworks(cli, out);
  gather_ranks(out);
  report_marks(cli, out);
  overhead_gather(cli->store, session, &out->overhead);
  first_bad_find(session, &out->tensors);
}

void report_fini(struct report *report) {
  for (size_t i = 0; i < report->values_count; i++)
    free(report->values[i].name);
  for (size_t i = 0; i < report->scopes_count; i++)
    free(report->scopes[i].name);
  for (size_t i = 0; i < report->open_count; i++) {
    free(report->open[i].name);
    free(report->open[i].module);
  }
  for (size_t i = 0; i < report->losses_count; i++)
    free(report->losses[i].reason);
  for (size_t i = 0; i < report->errors_count; i++)
    free(report->errors[i].name);
  for (size_t i = 0; i < report->sheds_count; i++)
    free(report->sheds[i].what);
  first_bad_fini(&report->tensors);
  free(report->sheds);
  for (size_t i = 0; i < report->frameworks_count; i++)
    framework_fini(&report->frameworks[i]);
  free(report->frameworks);
  free(report->errors);
  free(report->values);
  free(report->scopes);
  free(report->open);
  free(report->losses);
  free(report->epochs);
  free(report->ranks);
}
