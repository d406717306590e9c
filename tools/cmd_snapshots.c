/* cirron-query snapshots [TENSOR] */
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "db.h"
#include "jsontext.h"
#include "pick.h"
#include "spans.h"

static const struct out_column columns[] = {
    {"id", NULL, 0, OUT_NO_TABLE},
    {"span_id", NULL, 0, OUT_NO_TABLE},
    {"at", "TIME", OUT_AS_TIME, OUT_NO_DATA},
    {"tensor_name", "TENSOR", 0, OUT_CUT},
    {"shape", NULL, 0, 0},
    {"dtype", NULL, 0, 0},
    {"mode", NULL, 0, 0},
    {"mean", NULL, 0, OUT_NO_DATA},
    {"std", NULL, 0, OUT_NO_DATA},
    {"min", NULL, 0, OUT_NO_DATA},
    {"max", NULL, 0, OUT_NO_DATA},
    {"norm", NULL, 0, OUT_NO_DATA},
    {"stats", NULL, 0, OUT_NO_TABLE},
    {"blob_uri", NULL, 0, OUT_NO_TABLE},
    {"ts_ns", NULL, 0, OUT_NO_TABLE},
    {"attrs", NULL, 0, OUT_NO_TABLE},
    {"session_id", "SESSION", OUT_AS_ID, 0},
};

enum { COLUMNS = sizeof columns / sizeof *columns };

static struct out_cell text_cell(sqlite3_stmt *stmt, int column) {
  const char *text = (const char *)sqlite3_column_text(stmt, column);
  return out_text_len(text, (size_t)sqlite3_column_bytes(stmt, column));
}

static void add_json(struct buf *out, sqlite3_stmt *stmt, int column, json_type type, const char *instead) {
  const char *text = (const char *)sqlite3_column_text(stmt, column);
  jsontext_add(out, text, (size_t)sqlite3_column_bytes(stmt, column), type, instead);
}

/* A number of the stats, which may be one of the special floats as text. */
static struct out_cell stat(json_t *stats, const char *name) {
  json_t *value = json_object_get(stats, name);
  if (json_is_number(value))
    return out_real(json_number_value(value));
  return out_text(json_string_value(value));
}

static int row(struct out *out, sqlite3_stmt *stmt) {
  char id[33], span_id[33];
  struct buf shape = {0}, stats = {0}, attrs = {0};
  const char *prefix = (const char *)sqlite3_column_text(stmt, 0);
  uint64_t number = strtoull(prefix ? prefix : "", NULL, 16), span = (uint64_t)sqlite3_column_int64(stmt, 3);
  spans_id_text(number, (uint64_t)sqlite3_column_int64(stmt, 2), id);
  spans_id_text(number, span, span_id);
  add_json(&shape, stmt, 5, JSON_ARRAY, "[]");
  add_json(&stats, stmt, 8, JSON_OBJECT, "null");
  add_json(&attrs, stmt, 11, JSON_OBJECT, "{}");
  json_t *parsed = jsontext_parse(stats.data, stats.len, JSON_OBJECT);
  const struct out_cell cells[COLUMNS] = {
      out_text(id),
      span ? out_text(span_id) : out_null(),
      out_int(sqlite3_column_int64(stmt, 10)),
      text_cell(stmt, 4),
      out_raw_json(shape.data, shape.len),
      text_cell(stmt, 6),
      text_cell(stmt, 7),
      stat(parsed, "mean"),
      stat(parsed, "std"),
      stat(parsed, "min"),
      stat(parsed, "max"),
      stat(parsed, "norm"),
      out_raw_json(stats.data, stats.len),
      text_cell(stmt, 9),
      out_int(sqlite3_column_int64(stmt, 10)),
      out_raw_json(attrs.data, attrs.len),
      text_cell(stmt, 1),
  };
  int error = out_row(out, cells);
  json_decref(parsed);
  buf_fini(&shape);
  buf_fini(&stats);
  buf_fini(&attrs);
  return error;
}

int cmd_snapshots(const struct cli *cli) {
  struct pick_session *sessions;
  struct buf sql = {0};
  size_t count;
  int error = 0, status = pick_sessions(cli, &sessions, &count);
  if (status)
    return status;
  buf_puts(&sql,
           "SELECT s.prefix, s.id, p.snapshot, p.span, p.tensor_name, p.shape, p.dtype, p.mode, p.stats, p.blob_uri, p.ts_ns,"
           " p.attrs FROM sessions s JOIN snapshots p ON p.sid = s.sid WHERE ");
  pick_where(cli, sessions, count, "s.sid", &sql);
  buf_puts(&sql, " AND (?1 IS NULL OR p.tensor_name = ?1 OR p.tensor_name GLOB ?1) ORDER BY s.sid, p.snapshot");
  sqlite3_stmt *stmt = db_query(cli->store, sql.data);
  if (cli->arg_count)
    sqlite3_bind_text(stmt, 1, cli->args[0], -1, SQLITE_STATIC);
  struct out *out = out_begin(stdout, cli->format, &cli->style, columns, COLUMNS);
  int64_t limit = cmd_limit(cli), shown = 0;
  bool more = false;
  while (!error && (more = db_step(stmt)) && shown < limit) {
    error = row(out, stmt);
    shown++;
  }
  if (more)
    sqlite3_finalize(stmt);
  status = cli_written(out_end(out));
  if (more && !error)
    cmd_more(cli, shown);
  cmd_none(cli, "snapshots", shown);
  pick_free(sessions, count);
  buf_fini(&sql);
  return status;
}
