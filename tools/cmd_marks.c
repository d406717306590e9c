/* cirron-query marks */
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "db.h"
#include "jsontext.h"
#include "pick.h"
#include "say.h"
#include "spans.h"

static const struct out_column columns[] = {
    {"id", NULL, 0, OUT_NO_TABLE},
    {"at", "TIME", OUT_AS_TIME, OUT_NO_DATA},
    {"span_id", NULL, 0, OUT_NO_TABLE},
    {"name", NULL, 0, OUT_CUT},
    {"value_type", "TYPE", 0, 0},
    {"value", NULL, 0, OUT_CUT},
    {"attrs", NULL, 0, OUT_NO_TABLE},
    {"ts_ns", NULL, 0, OUT_NO_TABLE},
    {"kind", NULL, 0, 0},
    {"session_id", "SESSION", OUT_AS_ID, 0},
};

enum { COLUMNS = sizeof columns / sizeof *columns };

/* NaN and the infinities are stored as texts, and stay such in JSON; a bool is stored as 0 or 1. */
static struct out_cell value_cell(sqlite3_stmt *stmt, int column, const char *type) {
  switch (sqlite3_column_type(stmt, column)) {
  case SQLITE_INTEGER:
    if (strcmp(type, "float") == 0)
      return out_real(sqlite3_column_double(stmt, column));
    return strcmp(type, "bool") == 0 ? out_bool(sqlite3_column_int64(stmt, column) != 0)
                                     : out_int(sqlite3_column_int64(stmt, column));
  case SQLITE_FLOAT:
    return out_real(sqlite3_column_double(stmt, column));
  case SQLITE_NULL:
    return out_null();
  default: {
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    return out_text_len(text ? text : "", (size_t)sqlite3_column_bytes(stmt, column));
  }
  }
}

static int row(struct out *out, sqlite3_stmt *stmt, struct buf *attrs) {
  char id[33], span_id[33];
  const char *prefix = (const char *)sqlite3_column_text(stmt, 0), *type = (const char *)sqlite3_column_text(stmt, 5);
  uint64_t number = strtoull(prefix ? prefix : "", NULL, 16), span = (uint64_t)sqlite3_column_int64(stmt, 3);
  const char *name = (const char *)sqlite3_column_text(stmt, 4);
  spans_id_text(number, (uint64_t)sqlite3_column_int64(stmt, 2), id);
  spans_id_text(number, span, span_id);
  buf_clear(attrs);
  jsontext_add(attrs, (const char *)sqlite3_column_text(stmt, 7), (size_t)sqlite3_column_bytes(stmt, 7), JSON_OBJECT, "{}");
  const struct out_cell cells[COLUMNS] = {
      out_text(id),
      out_int(sqlite3_column_int64(stmt, 8)),
      span ? out_text(span_id) : out_null(),
      out_text_len(name ? name : "", (size_t)sqlite3_column_bytes(stmt, 4)),
      out_text(type ? type : "string"),
      value_cell(stmt, 6, type ? type : ""),
      out_raw_json(attrs->data, attrs->len),
      out_int(sqlite3_column_int64(stmt, 8)),
      out_text((const char *)sqlite3_column_text(stmt, 9)),
      out_text((const char *)sqlite3_column_text(stmt, 1)),
  };
  return out_row(out, cells);
}

int cmd_marks(const struct cli *cli) {
  struct pick_session *sessions;
  struct buf sql = {0}, attrs = {0};
  size_t count;
  uint32_t name = 0;
  int status = pick_sessions(cli, &sessions, &count);
  if (status)
    return status;
  if (cli->name && spans_name_find(cli->store, cli->name, strlen(cli->name), &name) != 0)
    say("nothing in this store has the name '%s'", cli->name);
  buf_puts(&sql, "SELECT s.prefix, s.id, m.mark, m.span, n.text, m.value_type, m.value, m.attrs, m.ts_ns, m.kind"
                 " FROM sessions s JOIN marks m ON m.sid = s.sid LEFT JOIN names n ON n.name = m.name WHERE ");
  pick_where(cli, sessions, count, "s.sid", &sql);
  buf_printf(&sql, " AND (?1 < 0 OR m.name = ?1) ORDER BY s.sid, m.mark");
  int64_t limit = cmd_limit(cli), shown = 0;
  struct out *out = out_begin(stdout, cli->format, &cli->style, columns, COLUMNS);
  sqlite3_stmt *stmt = db_query(cli->store, sql.data, cli->name ? (sqlite3_int64)name : -1);
  int error = 0;
  bool more = false;
  while (!error && (more = db_step(stmt)) && shown < limit) {
    error = row(out, stmt, &attrs);
    shown++;
  }
  if (more)
    sqlite3_finalize(stmt);
  status = cli_written(out_end(out));
  if (more && !error)
    cmd_more(cli, shown);
  cmd_none(cli, "marks", shown);
  pick_free(sessions, count);
  buf_fini(&sql);
  buf_fini(&attrs);
  return status;
}
