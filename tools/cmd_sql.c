/* cirron-query sql QUERY: one statement that reads. */
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "cmd.h"
#include "db.h"
#include "say.h"

static int refuse(const struct cli *cli, int rc) {
  if (rc == SQLITE_AUTH)
    say("sql: the store is only read; SELECT (and PRAGMA table_info) is what works here");
  else
    say("sql: %s", sqlite3_errmsg(cli->store));
  return CLI_ERROR;
}

static int prepare(const struct cli *cli, sqlite3_stmt **stmt) {
  const char *rest;
  if (db_restrict(cli->store) != 0)
    return refuse(cli, SQLITE_ERROR);
  int rc = sqlite3_prepare_v2(cli->store, cli->args[0], -1, stmt, &rest);
  if (rc != SQLITE_OK)
    return refuse(cli, rc);
  rest += strspn(rest, " \t\r\n;");
  if (!*stmt || *rest) {
    say("sql: %s; give one statement", *stmt ? "there is more after the first statement" : "there is no statement");
    sqlite3_finalize(*stmt);
    return CLI_USAGE;
  }
  if (!sqlite3_stmt_readonly(*stmt)) {
    sqlite3_finalize(*stmt);
    return refuse(cli, SQLITE_AUTH);
  }
  return CLI_OK;
}

/* Bytes are shown as hex digits. */
static struct out_cell blob(sqlite3_stmt *stmt, int column, struct buf *hex) {
  const unsigned char *bytes = sqlite3_column_blob(stmt, column);
  int len = sqlite3_column_bytes(stmt, column);
  for (int i = 0; i < len; i++)
    buf_printf(hex, "%02x", bytes[i]);
  return out_text_len(buf_text(hex), hex->len);
}

static struct out_cell cell(sqlite3_stmt *stmt, int column, struct buf *hex) {
  switch (sqlite3_column_type(stmt, column)) {
  case SQLITE_INTEGER:
    return out_int(sqlite3_column_int64(stmt, column));
  case SQLITE_FLOAT:
    return out_real(sqlite3_column_double(stmt, column));
  case SQLITE_TEXT: {
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    return out_text_len(text ? text : "", (size_t)sqlite3_column_bytes(stmt, column));
  }
  case SQLITE_BLOB:
    return blob(stmt, column, hex);
  default:
    return out_null();
  }
}

int cmd_sql(const struct cli *cli) {
  sqlite3_stmt *stmt = NULL;
  int status = prepare(cli, &stmt);
  if (status)
    return status;
  int count = sqlite3_column_count(stmt), rc = SQLITE_DONE, error = 0;
  struct out_column *columns = buf_alloc((size_t)count * sizeof *columns);
  struct out_cell *cells = buf_alloc((size_t)count * sizeof *cells);
  struct buf *hex = buf_alloc((size_t)count * sizeof *hex);
  for (int i = 0; i < count; i++)
    columns[i] = (struct out_column){.name = sqlite3_column_name(stmt, i), .flags = count > 1 && i + 1 == count ? OUT_CUT : 0};
  struct out *out = out_begin(stdout, cli->format, &cli->style, columns, (size_t)count);
  int64_t limit = cli->limit > 0 ? cli->limit : INT64_MAX;
  for (int64_t n = 0; !error && n < limit && (rc = sqlite3_step(stmt)) == SQLITE_ROW; n++) {
    for (int i = 0; i < count; i++) {
      buf_clear(&hex[i]);
      cells[i] = cell(stmt, i, &hex[i]);
    }
    error = out_row(out, cells);
  }
  status = cli_written(out_end(out));
  if (rc != SQLITE_ROW && rc != SQLITE_DONE)
    status = refuse(cli, rc);
  for (int i = 0; i < count; i++)
    buf_fini(&hex[i]);
  free(hex);
  free(cells);
  free(columns);
  sqlite3_finalize(stmt);
  return status;
}
