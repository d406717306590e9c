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

struct listing {
  const struct pick_session *sessions;
  size_t count;
  struct out *out;
  struct buf attrs;
  int64_t limit, shown;
  bool more, named; /* more than the limit; a store has the name */
  int error;
};

static int list_store(const struct cli *cli, void *arg) {
  struct listing *list = arg;
  struct buf sql = {0};
  uint32_t name = 0;
  if (cli->name && spans_name_find(cli->store, cli->name, strlen(cli->name), &name) == 0)
    list->named = true;
  buf_puts(&sql, "SELECT s.prefix, s.id, m.mark, m.span, n.text, m.value_type, m.value, m.attrs, m.ts_ns, m.kind"
                 " FROM sessions s JOIN marks m ON m.sid = s.sid LEFT JOIN names n ON n.name = m.name WHERE ");
  pick_where(cli, list->sessions, list->count, "s.sid", &sql);
  buf_printf(&sql, " AND (?1 < 0 OR m.name = ?1) ORDER BY s.sid, m.mark");
  sqlite3_stmt *stmt = db_query(cli->store, sql.data, cli->name ? (sqlite3_int64)name : -1);
  while (!list->error && (list->more = db_step(stmt)) && list->shown < list->limit) {
    list->error = row(list->out, stmt, &list->attrs);
    list->shown++;
  }
  if (list->more)
    sqlite3_finalize(stmt);
  buf_fini(&sql);
  return list->more || list->error;
}

int cmd_marks(const struct cli *cli) {
  struct listing list = {.limit = cmd_limit(cli)};
  struct pick_session *sessions;
  int status = pick_sessions(cli, &sessions, &list.count);
  if (status)
    return status;
  list.sessions = sessions;
  list.out = out_begin(stdout, cli->format, &cli->style, columns, COLUMNS);
  (void)cmd_each_store(cli, list_store, &list); /* what ended it is in the list */
  status = cli_written(out_end(list.out));
  if (cli->name && !list.named)
    say("nothing in %s has the name '%s'", cli->store_count > 1 ? "these stores" : "this store", cli->name);
  if (list.more && !list.error)
    cmd_more(cli, list.shown);
  cmd_none(cli, "marks", list.shown);
  pick_free(sessions, list.count);
  buf_fini(&list.attrs);
  return status;
}
