/* cirron-query steps [--slowest] */
#include <stdlib.h>

#include "cmd.h"
#include "db.h"
#include "pick.h"
#include "spans.h"

static const struct out_column columns[] = {
    {"id", NULL, 0, OUT_NO_TABLE},
    {"session_id", "SESSION", OUT_AS_ID, 0},
    {"rank", NULL, 0, 0},
    {"epoch", NULL, 0, 0},
    {"epoch_id", NULL, 0, OUT_NO_TABLE},
    {"index", "STEP", 0, 0},
    {"start_ns", NULL, 0, OUT_NO_TABLE},
    {"end_ns", NULL, 0, OUT_NO_TABLE},
    {"at", "AT", OUT_AS_DURATION, OUT_NO_DATA},
    {"dur_ns", "DURATION", OUT_AS_DURATION, 0},
    {"data_load_ns", "DATA", OUT_AS_DURATION, 0},
    {"forward_ns", "FORWARD", OUT_AS_DURATION, 0},
    {"backward_ns", "BACKWARD", OUT_AS_DURATION, 0},
    {"optimizer_ns", "OPTIMIZER", OUT_AS_DURATION, 0},
    {"other_ns", "OTHER", OUT_AS_DURATION, 0},
    {"data_loads", NULL, 0, OUT_NO_TABLE},
    {"forwards", NULL, 0, OUT_NO_TABLE},
    {"backwards", NULL, 0, OUT_NO_TABLE},
    {"optimizers", NULL, 0, OUT_NO_TABLE},
    {"cpu_ns", NULL, 0, OUT_NO_TABLE},
    {"gpu_ns", NULL, 0, OUT_NO_TABLE},
    {"thread_id", NULL, 0, OUT_NO_TABLE},
    {"error", NULL, 0, 0},
};

enum { COLUMNS = sizeof columns / sizeof *columns };

static const char query[] =
    "SELECT s.prefix, s.id, s.start_ns, t.span, t.epoch, e.idx, t.idx, t.start_ns, t.end_ns, t.data_load_ns,"
    " t.forward_ns, t.backward_ns, t.optimizer_ns, t.data_loads, t.forwards, t.backwards, t.optimizers,"
    " t.cpu_ns, t.gpu_ns, coalesce(t.rank, s.rank), t.tid, t.error"
    " FROM sessions s JOIN steps t ON t.sid = s.sid"
    " LEFT JOIN epochs e ON e.sid = t.sid AND e.span = t.epoch WHERE ";

static struct out_cell number(sqlite3_stmt *stmt, int column) {
  return sqlite3_column_type(stmt, column) == SQLITE_NULL ? out_null() : out_int(sqlite3_column_int64(stmt, column));
}

static int row(struct out *out, sqlite3_stmt *stmt) {
  char id[33], epoch_id[33];
  const char *prefix = (const char *)sqlite3_column_text(stmt, 0);
  uint64_t session = strtoull(prefix ? prefix : "", NULL, 16);
  int64_t start = sqlite3_column_int64(stmt, 7), end = sqlite3_column_int64(stmt, 8), other = end - start;
  spans_id_text(session, (uint64_t)sqlite3_column_int64(stmt, 3), id);
  spans_id_text(session, (uint64_t)sqlite3_column_int64(stmt, 4), epoch_id);
  for (int i = 9; i <= 12; i++)
    other -= sqlite3_column_int64(stmt, i);
  const struct out_cell cells[COLUMNS] = {
      out_text(id),
      out_text((const char *)sqlite3_column_text(stmt, 1)),
      number(stmt, 19),
      number(stmt, 5),
      sqlite3_column_int64(stmt, 4) ? out_text(epoch_id) : out_null(),
      number(stmt, 6),
      out_int(start),
      out_int(end),
      out_int(start - sqlite3_column_int64(stmt, 2)),
      out_int(end - start),
      number(stmt, 9),
      number(stmt, 10),
      number(stmt, 11),
      number(stmt, 12),
      out_int(other > 0 ? other : 0), /* phases of several threads can overlap */
      number(stmt, 13),
      number(stmt, 14),
      number(stmt, 15),
      number(stmt, 16),
      number(stmt, 17),
      number(stmt, 18),
      number(stmt, 20),
      out_bool(sqlite3_column_int64(stmt, 21) != 0),
  };
  return out_row(out, cells);
}

struct listing {
  const struct pick_session *sessions;
  size_t count;
  struct out *out;
  int64_t limit, shown;
  bool more; /* than the limit */
  int error;
};

static int list_store(const struct cli *cli, void *arg) {
  struct listing *list = arg;
  struct buf sql = {0};
  buf_puts(&sql, query);
  pick_where(cli, list->sessions, list->count, "s.sid", &sql);
  buf_puts(&sql, cli->slowest ? " ORDER BY t.end_ns - t.start_ns DESC, s.sid, t.span" : " ORDER BY s.sid, t.span");
  sqlite3_stmt *stmt = db_query(cli->store, sql.data);
  while (!list->error && (list->more = db_step(stmt)) && list->shown < list->limit) {
    list->error = row(list->out, stmt);
    list->shown++;
  }
  if (list->more)
    sqlite3_finalize(stmt);
  buf_fini(&sql);
  return list->more || list->error;
}

int cmd_steps(const struct cli *cli) {
  struct listing list = {.limit = cmd_limit(cli)};
  struct pick_session *sessions;
  if (!cmd_one_order(cli))
    return CLI_USAGE;
  int status = pick_sessions(cli, &sessions, &list.count);
  if (status)
    return status;
  list.sessions = sessions;
  list.out = out_begin(stdout, cli->format, &cli->style, columns, COLUMNS);
  (void)cmd_each_store(cli, list_store, &list); /* what ended it is in the list */
  status = cli_written(out_end(list.out));
  if (list.more && !list.error)
    cmd_more(cli, list.shown);
  cmd_none(cli, "steps", list.shown);
  pick_free(sessions, list.count);
  return status;
}
