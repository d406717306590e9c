/* The table `spans` for SQLite, on top of the stream of spans (spans.h). Which conditions it passes on is in vtab_args.c. */
#include "vtab_spans.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/ring_abi.h"
#include "spans.h"
#include "spans_internal.h"
#include "vtab_args.h"

/* How each is declared, and the columns of a block that it is made from. */
static const struct {
  const char *declared;
  unsigned needs;
} columns[COL_COUNT] = {
    [COL_SESSION_ID] = {"session_id TEXT", 0},
    [COL_ID] = {"id TEXT", BLOCK_ID},
    [COL_NAME] = {"name TEXT", BLOCK_NAME},
    [COL_PARENT_ID] = {"parent_id TEXT", BLOCK_PARENT},
    [COL_IDX] = {"idx INTEGER", BLOCK_INDEX},
    [COL_START] = {"start_ns INTEGER", BLOCK_START},
    [COL_END] = {"end_ns INTEGER", BLOCK_END},
    [COL_DUR] = {"dur_ns INTEGER", BLOCK_END},
    [COL_CPU] = {"cpu_ns INTEGER", BLOCK_CPU},
    [COL_GPU] = {"gpu_ns INTEGER", BLOCK_GPU},
    [COL_THREAD] = {"thread_id INTEGER", BLOCK_TID},
    [COL_PID] = {"pid INTEGER", 0},
    [COL_RANK] = {"rank INTEGER", 0},
    [COL_KIND] = {"kind TEXT", BLOCK_KIND},
    [COL_MODE] = {"mode TEXT", BLOCK_FLAGS},
    [COL_MODULE] = {"module TEXT", BLOCK_MODULE},
    [COL_EXCEPTION] = {"exception TEXT", BLOCK_EXCEPTION},
    [COL_ERROR] = {"error INTEGER", BLOCK_FLAGS},
    [COL_STATE] = {"state TEXT", BLOCK_END},
    [COL_ATTRS] = {"attrs TEXT", BLOCK_FLAGS | BLOCK_MODULE | BLOCK_EXCEPTION | BLOCK_ATTRS},
    [COL_SID] = {"sid INTEGER HIDDEN", 0},
    [COL_SPAN] = {"span INTEGER HIDDEN", BLOCK_ID},
    [COL_PARENT] = {"parent INTEGER HIDDEN", BLOCK_PARENT},
    [COL_NAME_NO] = {"name_id INTEGER HIDDEN", BLOCK_NAME},
};

static const char *const kind_texts[SPAN_KINDS] = {
    [SPAN_USER] = "user",       [SPAN_SESSION] = "session",   [SPAN_EPOCH] = "epoch",
    [SPAN_EVAL] = "eval",       [SPAN_STEP] = "step",         [SPAN_DATA_LOAD] = "data_load",
    [SPAN_FORWARD] = "forward", [SPAN_BACKWARD] = "backward", [SPAN_OPTIMIZER] = "optimizer_step",
    [SPAN_BATCH] = "batch",     [SPAN_FETCH] = "fetch",       [SPAN_COLLECTIVE] = "collective",
};

struct table {
  sqlite3_vtab base;
  sqlite3 *db;
};

struct cursor {
  sqlite3_vtab_cursor base;
  sqlite3 *db;
  struct spans *spans; /* NULL until the first xFilter */
  struct spans_names *names;
  sqlite3_stmt *merge;
  const struct span_row *row; /* NULL: at the end */
  const struct spans_session *session;
};

static int result_code(int error) {
  switch (error) {
  case 0:
    return SQLITE_OK;
  case -ENOMEM:
    return SQLITE_NOMEM;
  case -EBUSY:
    return SQLITE_BUSY;
  case -EBADMSG:
    return SQLITE_CORRUPT;
  case -EINTR:
    return SQLITE_INTERRUPT;
  default:
    return SQLITE_IOERR;
  }
}

/* ---- the table ---- */

static int declare(sqlite3 *db) {
  sqlite3_str *sql = sqlite3_str_new(db);
  for (int i = 0; i < COL_COUNT; i++)
    sqlite3_str_appendf(sql, "%s%s", i ? ", " : "CREATE TABLE spans(", columns[i].declared);
  sqlite3_str_appendall(sql, ")");
  char *text = sqlite3_str_finish(sql);
  int rc = text ? sqlite3_declare_vtab(db, text) : SQLITE_NOMEM;
  sqlite3_free(text);
  return rc;
}

static int x_connect(sqlite3 *db, void *aux, int argc, const char *const *argv, sqlite3_vtab **out, char **error) {
  (void)aux, (void)argc, (void)argv, (void)error;
  int rc = declare(db);
  if (rc)
    return rc;
  struct table *table = sqlite3_malloc(sizeof *table);
  if (!table)
    return SQLITE_NOMEM;
  *table = (struct table){.db = db};
  *out = &table->base;
  return SQLITE_OK;
}

static int x_disconnect(sqlite3_vtab *vtab) {
  sqlite3_free(vtab);
  return SQLITE_OK;
}

/* idxNum says which columns of blocks are looked at. */
static int x_best_index(sqlite3_vtab *vtab, sqlite3_index_info *info) {
  (void)vtab;
  unsigned needs = 0;
  for (int i = 0; i < COL_COUNT; i++)
    needs |= info->colUsed >> i & 1 ? columns[i].needs : 0;
  info->idxNum = (int)(needs ? needs : BLOCK_ID);
  return vtab_args_plan(info);
}

/* ---- the cursor ---- */

static int x_open(sqlite3_vtab *vtab, sqlite3_vtab_cursor **out) {
  struct cursor *cursor = sqlite3_malloc(sizeof *cursor);
  if (!cursor)
    return SQLITE_NOMEM;
  *cursor = (struct cursor){.db = ((struct table *)vtab)->db};
  cursor->names = spans_names_new(cursor->db);
  if (!cursor->names) {
    sqlite3_free(cursor);
    return SQLITE_NOMEM;
  }
  *out = &cursor->base;
  return SQLITE_OK;
}

static int x_close(sqlite3_vtab_cursor *base) {
  struct cursor *cursor = (struct cursor *)base;
  spans_close(cursor->spans);
  spans_names_free(cursor->names);
  (void)sqlite3_finalize(cursor->merge); /* tells of the last run's error again */
  sqlite3_free(cursor);
  return SQLITE_OK;
}

static int fail(struct cursor *cursor, int error) {
  cursor->row = NULL;
  if (error == -EBADMSG) {
    sqlite3_free(cursor->base.pVtab->zErrMsg);
    cursor->base.pVtab->zErrMsg = sqlite3_mprintf("spans: the store is damaged, or is none");
  }
  return result_code(error);
}

static int x_next(sqlite3_vtab_cursor *base) {
  struct cursor *cursor = (struct cursor *)base;
  int rc = spans_next(cursor->spans, &cursor->row, &cursor->session);
  if (rc == 1)
    return SQLITE_OK;
  cursor->row = NULL;
  return rc ? fail(cursor, rc) : SQLITE_OK;
}

static int x_filter(sqlite3_vtab_cursor *base, int columns_used, const char *args, int argc, sqlite3_value **argv) {
  struct cursor *cursor = (struct cursor *)base;
  struct vtab_args_limits c = {.filter.columns = (unsigned)columns_used};
  cursor->row = NULL;
  int rc = vtab_args_read(cursor->db, args, argc, argv, &c);
  if (rc)
    return fail(cursor, rc);
  if (c.none)
    return SQLITE_OK;
  rc = cursor->spans ? spans_restart(cursor->spans, &c.filter) : spans_open(cursor->db, &c.filter, &cursor->spans);
  return rc ? fail(cursor, rc) : x_next(base);
}

static int x_eof(sqlite3_vtab_cursor *base) {
  return !((struct cursor *)base)->row;
}

static int x_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *out) {
  *out = spans_rowid(((struct cursor *)base)->spans);
  return SQLITE_OK;
}

/* ---- values ---- */

static const char *mode_of(const struct span_row *row) {
  return row->flags & SPAN_MODE_TRAIN ? "train" : row->flags & SPAN_MODE_EVAL ? "eval" : NULL;
}

static void result_name(struct cursor *cursor, sqlite3_context *ctx, uint32_t name) {
  size_t len;
  const char *text = spans_name(cursor->names, name, &len);
  if (text)
    sqlite3_result_text64(ctx, text, len, SQLITE_TRANSIENT, SQLITE_UTF8);
}

static void result_id(sqlite3_context *ctx, uint64_t prefix, uint64_t number) {
  char id[33];
  spans_id_text(prefix, number, id);
  sqlite3_result_text(ctx, id, 32, SQLITE_TRANSIENT);
}

static void result_int_unless(sqlite3_context *ctx, int64_t value, int64_t null) {
  if (value != null)
    sqlite3_result_int64(ctx, value);
}

/* Attributes that are no JSON object stay readable, as a text in one. */
static const char merge_sql[] =
    "WITH own(x) AS (SELECT CASE WHEN ?1 IS NULL THEN '{}' WHEN NOT json_valid(?1) THEN json_object('unreadable', ?1)"
    "   WHEN json_type(?1) = 'object' THEN ?1 ELSE json_object('unreadable', ?1) END),"
    " a(x) AS (SELECT CASE WHEN ?2 IS NULL THEN x ELSE json_set(x, '$.mode', ?2) END FROM own),"
    " b(x) AS (SELECT CASE WHEN ?3 IS NULL THEN x ELSE json_set(x, '$.module', ?3) END FROM a)"
    " SELECT CASE WHEN ?4 IS NULL THEN x ELSE json_set(x, '$.exception', ?4) END FROM b";

static int bind_name(struct cursor *cursor, int at, uint32_t name) {
  size_t len = 0;
  const char *text = spans_name(cursor->names, name, &len);
  return text ? sqlite3_bind_text64(cursor->merge, at, text, len, SQLITE_STATIC, SQLITE_UTF8)
              : sqlite3_bind_null(cursor->merge, at);
}

static int merge_bind(struct cursor *cursor) {
  const struct span_row *row = cursor->row;
  int rc = SQLITE_OK;
  if (!cursor->merge)
    rc = sqlite3_prepare_v3(cursor->db, merge_sql, sizeof merge_sql, SQLITE_PREPARE_PERSISTENT, &cursor->merge, NULL);
  if (!rc)
    rc = sqlite3_bind_text64(cursor->merge, 1, row->attrs, row->attrs_len, SQLITE_STATIC, SQLITE_UTF8);
  if (!rc)
    rc = sqlite3_bind_text(cursor->merge, 2, mode_of(row), -1, SQLITE_STATIC);
  rc = rc ? rc : bind_name(cursor, 3, row->module);
  return rc ? rc : bind_name(cursor, 4, row->exception);
}

static void result_attrs(struct cursor *cursor, sqlite3_context *ctx) {
  const struct span_row *row = cursor->row;
  if (!row->attrs && !mode_of(row) && !row->module && !row->exception) {
    sqlite3_result_text(ctx, "{}", 2, SQLITE_STATIC);
    return;
  }
  int rc = merge_bind(cursor);
  rc = rc ? rc : sqlite3_step(cursor->merge);
  if (rc == SQLITE_ROW)
    sqlite3_result_value(ctx, sqlite3_column_value(cursor->merge, 0));
  else
    sqlite3_result_error_code(ctx, rc);
  (void)sqlite3_reset(cursor->merge); /* rc is known */
}

static int x_column(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int column) {
  struct cursor *cursor = (struct cursor *)base;
  const struct span_row *row = cursor->row;
  const struct spans_session *session = cursor->session;
  switch (column) { /* what is left out is NULL */
  case COL_SESSION_ID:
    sqlite3_result_text(ctx, session->id, -1, SQLITE_TRANSIENT);
    break;
  case COL_ID:
    result_id(ctx, session->prefix, row->id);
    break;
  case COL_NAME:
    result_name(cursor, ctx, row->name);
    break;
  case COL_PARENT_ID:
    if (row->parent)
      result_id(ctx, session->prefix, row->parent);
    break;
  case COL_IDX:
    result_int_unless(ctx, row->index, SPAN_NO_INDEX);
    break;
  case COL_START:
    sqlite3_result_int64(ctx, row->start_ns);
    break;
  case COL_END:
    result_int_unless(ctx, row->end_ns, SPANS_NO_END);
    break;
  case COL_DUR:
    if (row->end_ns != SPANS_NO_END)
      sqlite3_result_int64(ctx, spans_duration(row));
    break;
  case COL_CPU:
    result_int_unless(ctx, row->cpu_ns, SPAN_NO_TIME);
    break;
  case COL_GPU:
    result_int_unless(ctx, row->gpu_ns, SPAN_NO_TIME);
    break;
  case COL_THREAD:
    sqlite3_result_int64(ctx, row->tid);
    break;
  case COL_PID:
    sqlite3_result_int64(ctx, session->pid);
    break;
  case COL_RANK:
    result_int_unless(ctx, session->rank, -1);
    break;
  case COL_KIND:
    sqlite3_result_text(ctx, row->kind < SPAN_KINDS ? kind_texts[row->kind] : "unknown", -1, SQLITE_STATIC);
    break;
  case COL_MODE:
    sqlite3_result_text(ctx, mode_of(row), -1, SQLITE_STATIC);
    break;
  case COL_MODULE:
    result_name(cursor, ctx, row->module);
    break;
  case COL_EXCEPTION:
    result_name(cursor, ctx, row->exception);
    break;
  case COL_ERROR:
    sqlite3_result_int(ctx, (row->flags & SPAN_ERROR) != 0);
    break;
  case COL_STATE:
    sqlite3_result_text(ctx, row->end_ns == SPANS_NO_END ? "unfinished" : "closed", -1, SQLITE_STATIC);
    break;
  case COL_ATTRS:
    result_attrs(cursor, ctx);
    break;
  case COL_SID:
    sqlite3_result_int64(ctx, session->sid);
    break;
  case COL_SPAN:
    sqlite3_result_int64(ctx, (int64_t)row->id);
    break;
  case COL_PARENT:
    sqlite3_result_int64(ctx, (int64_t)row->parent);
    break;
  case COL_NAME_NO:
    sqlite3_result_int64(ctx, row->name);
    break;
  default:
    break;
  }
  return SQLITE_OK;
}

static sqlite3_module module = {
    /* xCreate is left out: the table is there by itself and can't be made */
    .xConnect = x_connect,
    .xBestIndex = x_best_index,
    .xDisconnect = x_disconnect,
    .xOpen = x_open,
    .xClose = x_close,
    .xFilter = x_filter,
    .xNext = x_next,
    .xEof = x_eof,
    .xColumn = x_column,
    .xRowid = x_rowid,
};

int vtab_spans_register(sqlite3 *db) {
  return sqlite3_create_module_v2(db, "spans", &module, NULL, NULL);
}
