/* cirron-query snapshots [TENSOR]: tables for people are made in snaps_table.c and snaps_rows.c, here all records, one by one. */
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "db.h"
#include "jsontext.h"
#include "pick.h"
#include "snaps.h"
#include "snaps_table.h"
#include "spans.h"

static const struct out_column columns[] = {
    {"id", NULL, 0, 0},    {"span_id", NULL, 0, 0}, {"tensor_name", NULL, 0, 0}, {"shape", NULL, 0, 0},
    {"dtype", NULL, 0, 0}, {"mode", NULL, 0, 0},    {"stats", NULL, 0, 0},       {"blob_uri", NULL, 0, 0},
    {"ts_ns", NULL, 0, 0}, {"attrs", NULL, 0, 0},   {"session_id", NULL, 0, 0},  {"model", NULL, 0, 0},
    {"kind", NULL, 0, 0},  {"torn", NULL, 0, 0},    {"pass", NULL, 0, 0},        {"epoch", NULL, 0, 0},
    {"step", NULL, 0, 0},
};

enum { COLUMNS = sizeof columns / sizeof *columns };

static struct out_cell text_cell(struct snaps_text text) {
  return out_text_len(text.text, text.len);
}

static struct out_cell number_cell(sqlite3_stmt *stmt, int column) {
  return sqlite3_column_type(stmt, column) == SQLITE_NULL ? out_null() : out_int(sqlite3_column_int64(stmt, column));
}

struct listing {
  const struct pick_session *sessions;
  size_t count;
  struct out *out;
  struct buf shape, stats, attrs;
  int64_t limit, shown;
  int error;
  bool more; /* than the limit */
};

static void row(struct listing *list, sqlite3_stmt *stmt) {
  char id[33], span_id[33];
  struct snaps_record r;
  const char *text = (const char *)sqlite3_column_text(stmt, SNAPS_COLUMNS_COUNT);
  uint64_t prefix = strtoull(text ? text : "", NULL, 16);
  snaps_record_read(stmt, SNAPS_ALL, &r);
  spans_id_text(prefix, (uint64_t)r.id, id);
  spans_id_text(prefix, (uint64_t)r.span, span_id);
  buf_clear(&list->shape);
  buf_clear(&list->stats);
  buf_clear(&list->attrs);
  jsontext_add(&list->shape, r.shape.text, r.shape.len, JSON_ARRAY, "[]");
  snaps_stats_json(&r, &list->stats);
  jsontext_add(&list->attrs, r.attrs.text, r.attrs.len, JSON_OBJECT, "{}");
  const struct out_cell cells[COLUMNS] = {
      out_text(id),
      r.span ? out_text(span_id) : out_null(),
      text_cell(r.name),
      out_raw_json(list->shape.data, list->shape.len),
      text_cell(r.dtype),
      text_cell(r.mode),
      snaps_is_read(&r) ? out_raw_json(list->stats.data, list->stats.len) : out_null(),
      text_cell(r.blob),
      out_int(r.ts_ns),
      out_raw_json(list->attrs.data, list->attrs.len),
      out_text((const char *)sqlite3_column_text(stmt, SNAPS_COLUMNS_COUNT + 1)),
      text_cell(r.model),
      text_cell(r.kind),
      out_bool(r.torn),
      out_int(r.pass),
      number_cell(stmt, SNAPS_COLUMNS_COUNT + 2),
      number_cell(stmt, SNAPS_COLUMNS_COUNT + 3),
  };
  list->error = out_row(list->out, cells);
  list->shown++;
}

static int list_store(const struct cli *cli, void *arg) {
  struct listing *list = arg;
  struct buf sql = {0};
  if (!snaps_kept(cli->store))
    return 0;
  buf_puts(&sql, "SELECT " SNAPS_COLUMNS ", s.prefix, s.id, q.epoch, q.step FROM sessions s JOIN snapshots p ON p.sid = s.sid"
                 " LEFT JOIN snapshot_passes q ON q.sid = p.sid AND q.pass = p.pass WHERE ");
  pick_where(cli, list->sessions, list->count, "s.sid", &sql);
  snaps_where(cli, &sql);
  buf_puts(&sql, " ORDER BY s.sid, p.snapshot");
  sqlite3_stmt *stmt = db_query(cli->store, sql.data);
  snaps_bind(cli, stmt);
  while (!list->error && (list->more = db_step(stmt)) && list->shown < list->limit)
    row(list, stmt);
  if (list->more)
    sqlite3_finalize(stmt);
  buf_fini(&sql);
  return list->more || list->error;
}

static int list_all(const struct cli *cli, const struct pick_session *sessions, size_t count) {
  struct listing list = {.sessions = sessions, .count = count, .limit = cmd_limit(cli)};
  list.out = out_begin(stdout, cli->format, &cli->style, columns, COLUMNS);
  (void)cmd_each_store(cli, list_store, &list); /* what ended it is in the list */
  buf_fini(&list.shape);
  buf_fini(&list.stats);
  buf_fini(&list.attrs);
  return cli_written(out_end(list.out));
}

int cmd_snapshots(const struct cli *cli) {
  struct pick_session *sessions;
  size_t count;
  int status = pick_sessions(cli, &sessions, &count);
  if (status)
    return status;
  status = cli->format == OUT_TABLE ? snaps_table(cli, sessions, count) : list_all(cli, sessions, count);
  pick_free(sessions, count);
  return status;
}
