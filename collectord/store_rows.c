/* The store's rows for readers of plain SQL: marks, steps, epochs, roll-ups (store.h). */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/histogram.h"
#include "../proto/ring_abi.h"
#include "store.h"
#include "store_internal.h"

/* ---- marks ---- */

static const char *mark_type_text(uint8_t type) {
  static const char *const texts[] = {
      [MARK_FLOAT] = "float", [MARK_INT] = "int", [MARK_BOOL] = "bool", [MARK_STRING] = "string"};
  return type < sizeof texts / sizeof *texts ? texts[type] : NULL;
}

static int mark_value(struct store *store, const struct mark_row *row) {
  enum { AT = 8 };
  switch (row->type) {
  case MARK_FLOAT:
    if (isnan(row->f))
      return store_bind_string(store, SQL_MARK_ADD, AT, "NaN");
    if (isinf(row->f))
      return store_bind_string(store, SQL_MARK_ADD, AT, row->f > 0 ? "Infinity" : "-Infinity");
    return store_errno(store->db, sqlite3_bind_double(store->statements[SQL_MARK_ADD], AT, row->f));
  case MARK_BOOL:
    store_bind_int(store, SQL_MARK_ADD, AT, row->i != 0);
    return 0;
  case MARK_INT:
    store_bind_int(store, SQL_MARK_ADD, AT, row->i);
    return 0;
  default:
    return store_bind_text(store, SQL_MARK_ADD, AT, row->text ? row->text : "", row->text ? row->text_len : 0);
  }
}

int store_mark(struct store *store, int64_t sid, const struct mark_row *row) {
  const char *type = mark_type_text(row->type);
  if (!type)
    return -EINVAL;
  int rc = store_begin(store);
  if (rc)
    return rc;
  const int64_t numbers[] = {sid, (int64_t)row->id, (int64_t)row->span, row->name, row->ts_ns};
  for (int i = 0; i < 5; i++)
    store_bind_int(store, SQL_MARK_ADD, 1 + i, numbers[i]);
  rc = store_bind_string(store, SQL_MARK_ADD, 6, row->summary ? "summary" : "point");
  rc = rc ? rc : store_bind_string(store, SQL_MARK_ADD, 7, type);
  rc = rc ? rc : mark_value(store, row);
  rc = rc ? rc : store_bind_text(store, SQL_MARK_ADD, 9, row->attrs_len ? row->attrs : NULL, row->attrs_len);
  if (!rc)
    return store_run(store, SQL_MARK_ADD);
  store_done(store, SQL_MARK_ADD);
  return rc;
}

/* ---- steps and epochs ---- */

int store_step(struct store *store, int64_t sid, const struct step_row *row) {
  int rc = store_begin(store);
  if (rc)
    return rc;
  store_bind_int(store, SQL_STEP_ADD, 1, sid);
  store_bind_int(store, SQL_STEP_ADD, 2, (int64_t)row->span);
  store_bind_int(store, SQL_STEP_ADD, 3, (int64_t)row->parent);
  store_bind_int_unless(store, SQL_STEP_ADD, 4, (int64_t)row->epoch, 0);
  store_bind_int_unless(store, SQL_STEP_ADD, 5, row->index, SPAN_NO_INDEX);
  store_bind_int(store, SQL_STEP_ADD, 6, row->start_ns);
  store_bind_int(store, SQL_STEP_ADD, 7, row->end_ns);
  for (int i = 0; i < 4; i++) {
    store_bind_int(store, SQL_STEP_ADD, 8 + i, row->phase_ns[i]);
    store_bind_int(store, SQL_STEP_ADD, 12 + i, row->phase_count[i]);
  }
  store_bind_int_unless(store, SQL_STEP_ADD, 16, row->cpu_ns, SPAN_NO_TIME);
  store_bind_int_unless(store, SQL_STEP_ADD, 17, row->gpu_ns, SPAN_NO_TIME);
  store_bind_int_unless(store, SQL_STEP_ADD, 18, row->rank, -1);
  store_bind_int(store, SQL_STEP_ADD, 19, row->tid);
  store_bind_int(store, SQL_STEP_ADD, 20, row->error);
  return store_run(store, SQL_STEP_ADD);
}

int store_epoch(struct store *store, int64_t sid, const struct span_row *row, int64_t rank) {
  if (row->kind != SPAN_EPOCH && row->kind != SPAN_EVAL)
    return -EINVAL;
  int rc = store_begin(store);
  if (rc)
    return rc;
  store_bind_int(store, SQL_EPOCH_SET, 1, sid);
  store_bind_int(store, SQL_EPOCH_SET, 2, (int64_t)row->id);
  store_bind_int(store, SQL_EPOCH_SET, 3, (int64_t)row->parent);
  rc = store_bind_string(store, SQL_EPOCH_SET, 4, row->kind == SPAN_EPOCH ? "epoch" : "eval");
  store_bind_int_unless(store, SQL_EPOCH_SET, 5, row->index, SPAN_NO_INDEX);
  store_bind_int(store, SQL_EPOCH_SET, 6, row->start_ns);
  store_bind_int_unless(store, SQL_EPOCH_SET, 7, row->end_ns, 0);
  store_bind_int_unless(store, SQL_EPOCH_SET, 8, row->cpu_ns, SPAN_NO_TIME);
  store_bind_int_unless(store, SQL_EPOCH_SET, 9, rank, -1);
  store_bind_int(store, SQL_EPOCH_SET, 10, row->tid);
  if (!rc)
    return store_run(store, SQL_EPOCH_SET);
  store_done(store, SQL_EPOCH_SET);
  return rc;
}

int store_epoch_delete(struct store *store, int64_t sid, uint64_t span) {
  int rc = store_begin(store);
  if (rc)
    return rc;
  store_bind_int(store, SQL_EPOCH_DELETE, 1, sid);
  store_bind_int(store, SQL_EPOCH_DELETE, 2, (int64_t)span);
  return store_run(store, SQL_EPOCH_DELETE);
}

/* ---- roll-ups ---- */

int store_rollup(struct store *store, int64_t sid, const struct rollup_row *row) {
  int rc = store_begin(store);
  if (rc)
    return rc;
  uint8_t histogram[HISTOGRAM_PACKED_MAX];
  size_t len = histogram_pack(row->histogram, histogram);
  const int64_t numbers[] = {sid,         (int64_t)row->epoch, row->name,    row->kind,   row->count,
                             row->errors, row->total_ns,       row->self_ns, row->min_ns, row->max_ns};
  for (int i = 0; i < 10; i++)
    store_bind_int(store, SQL_ROLLUP_SET, 1 + i, numbers[i]);
  store_bind_blob(store, SQL_ROLLUP_SET, 11, histogram, len);
  return store_run(store, SQL_ROLLUP_SET);
}

static int rollup_get(sqlite3_stmt *s, struct rollup_row *row, uint32_t histogram[HISTOGRAM_BINS]) {
  uint64_t counts[HISTOGRAM_BINS] = {0};
  const uint8_t *data = sqlite3_column_blob(s, 9);
  int rc = histogram_add_packed(counts, data, (size_t)sqlite3_column_bytes(s, 9));
  if (rc)
    return rc;
  for (int i = 0; i < HISTOGRAM_BINS; i++)
    histogram[i] = counts[i] < UINT32_MAX ? (uint32_t)counts[i] : UINT32_MAX;
  *row = (struct rollup_row){
      .epoch = (uint64_t)sqlite3_column_int64(s, 0),
      .name = (uint32_t)sqlite3_column_int64(s, 1),
      .kind = (uint8_t)sqlite3_column_int(s, 2),
      .count = sqlite3_column_int64(s, 3),
      .errors = sqlite3_column_int64(s, 4),
      .total_ns = sqlite3_column_int64(s, 5),
      .self_ns = sqlite3_column_int64(s, 6),
      .min_ns = sqlite3_column_int64(s, 7),
      .max_ns = sqlite3_column_int64(s, 8),
      .histogram = histogram,
  };
  return 0;
}

int store_rollups_read(struct store *store, int64_t sid, int (*each)(const struct rollup_row *row, void *arg), void *arg) {
  uint32_t histogram[HISTOGRAM_BINS];
  struct rollup_row row;
  int rc;
  store_bind_int(store, SQL_ROLLUPS_READ, 1, sid);
  while ((rc = store_row(store, SQL_ROLLUPS_READ)) == 1) {
    rc = rollup_get(store->statements[SQL_ROLLUPS_READ], &row, histogram);
    if (!rc)
      rc = each(&row, arg);
    if (rc)
      break;
  }
  store_done(store, SQL_ROLLUPS_READ);
  return rc;
}
