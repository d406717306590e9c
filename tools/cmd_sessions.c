/* cirron-query sessions */
#include <string.h>

#include "../proto/store_abi.h"
#include "cmd.h"
#include "jsontext.h"
#include "pick.h"
#include "units.h"

static const struct out_column columns[] = {
    {"id", "SESSION", OUT_AS_ID, 0},
    {"started", "STARTED", OUT_AS_TIME, OUT_NO_DATA},
    {"duration", "LASTED", OUT_AS_DURATION, OUT_NO_DATA},
    {"ended", "STATE", 0, OUT_NO_DATA},
    {"pid", NULL, 0, 0},
    {"ppid", NULL, 0, OUT_NO_TABLE},
    {"rank", NULL, 0, 0},
    {"local_rank", NULL, 0, OUT_NO_TABLE},
    {"world_size", NULL, 0, OUT_NO_TABLE},
    {"host", NULL, 0, 0},
    {"argv", NULL, 0, OUT_NO_TABLE},
    {"exe", NULL, 0, OUT_NO_TABLE},
    {"cwd", NULL, 0, OUT_NO_TABLE},
    {"python_version", NULL, 0, OUT_NO_TABLE},
    {"run_id", NULL, 0, OUT_NO_TABLE},
    {"state", NULL, 0, OUT_NO_TABLE},
    {"exit_code", NULL, 0, OUT_NO_TABLE},
    {"exit_signal", NULL, 0, OUT_NO_TABLE},
    {"start_ns", NULL, 0, OUT_NO_TABLE},
    {"end_ns", NULL, 0, OUT_NO_TABLE},
    {"last_ns", NULL, 0, OUT_NO_TABLE},
    {"spans", NULL, OUT_AS_COUNT, 0},
    {"marks", NULL, OUT_AS_COUNT, 0},
    {"emitted_spans", NULL, 0, OUT_NO_TABLE},
    {"emitted_marks", NULL, 0, OUT_NO_TABLE},
    {"dropped", NULL, 0, OUT_NO_TABLE},
    {"dropped_total", "DROPPED", OUT_AS_COUNT, 0},
    {"own_cost", "OWN COST", OUT_AS_COUNT, OUT_NO_DATA},
    {"overhead_ns", NULL, 0, OUT_NO_TABLE},
    {"overhead_ratio", NULL, 0, OUT_NO_TABLE},
    {"attrs", NULL, 0, OUT_NO_TABLE},
    {"command", NULL, 0, OUT_NO_DATA | OUT_CUT},
};

enum { COLUMNS = sizeof columns / sizeof *columns };

/* "finished", "exit 1", "SIGKILL", "running", "lost" */
static void ending(const struct pick_session *s, struct buf *out) {
  char name[UNITS_MAX];
  if (s->exit_signal > 0)
    buf_puts(out, units_signal((int)s->exit_signal, name));
  else if (s->exit_code > 0)
    buf_printf(out, "exit %lld", (long long)s->exit_code);
  else
    buf_puts(out, s->state);
}

static struct out_cell text_cell(const struct buf *buf) {
  return out_text_len(buf_text(buf), buf->len);
}

static int row(struct out *out, const struct pick_session *s) {
  struct buf argv = {0}, dropped = {0}, attrs = {0}, command = {0}, end = {0};
  struct out_cell cells[COLUMNS], *c = cells;
  int64_t until = s->end_ns ? s->end_ns : s->last_ns;
  char cost[UNITS_MAX];
  bool measured = s->overhead_ns > 0 && until > s->start_ns;
  jsontext_add(&argv, s->argv, s->argv ? strlen(s->argv) : 0, JSON_ARRAY, "[]");
  jsontext_add(&dropped, s->dropped, s->dropped ? strlen(s->dropped) : 0, JSON_OBJECT, "{}");
  jsontext_add(&attrs, s->attrs, s->attrs ? strlen(s->attrs) : 0, JSON_OBJECT, "{}");
  pick_command(s, &command);
  ending(s, &end);
  *c++ = out_text(s->id);
  *c++ = out_int(s->start_ns);
  *c++ = until ? out_int(until - s->start_ns) : out_null();
  *c++ = text_cell(&end);
  *c++ = out_int(s->pid);
  *c++ = out_int_or_null(s->ppid, -1);
  *c++ = out_int_or_null(s->rank, -1);
  *c++ = out_int_or_null(s->local_rank, -1);
  *c++ = out_int_or_null(s->world_size, -1);
  *c++ = out_text(s->host);
  *c++ = out_raw_json(argv.data, argv.len);
  *c++ = out_text(s->exe);
  *c++ = out_text(s->cwd);
  *c++ = out_text(s->python_version);
  *c++ = out_text(s->run_id);
  *c++ = out_text(s->state);
  *c++ = out_int_or_null(s->exit_code, -1);
  *c++ = out_int_or_null(s->exit_signal, -1);
  *c++ = out_int(s->start_ns);
  *c++ = out_int_or_null(s->end_ns, 0);
  *c++ = out_int_or_null(s->last_ns, 0);
  *c++ = out_int(s->spans);
  *c++ = out_int(s->marks);
  *c++ = out_int(s->emitted_spans);
  *c++ = out_int(s->emitted_marks);
  *c++ = out_raw_json(dropped.data, dropped.len);
  *c++ = out_int(s->dropped_total);
  *c++ = measured ? out_text(units_share(s->overhead_ns, until - s->start_ns, cost)) : out_null();
  *c++ = out_int(s->overhead_ns);
  *c++ = measured ? out_real((double)s->overhead_ns / (double)(until - s->start_ns)) : out_null();
  *c++ = out_raw_json(attrs.data, attrs.len);
  *c++ = text_cell(&command);
  int error = out_row(out, cells);
  struct buf *all[] = {&argv, &dropped, &attrs, &command, &end};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    buf_fini(all[i]);
  return error;
}

int cmd_sessions(const struct cli *cli) {
  struct pick_session *sessions;
  size_t count;
  int status = pick_sessions(cli, &sessions, &count);
  if (status)
    return status;
  /* Oldest first; of more than the limit, the latest. */
  size_t limit = cli->limit > 0 && (size_t)cli->limit < count ? (size_t)cli->limit : count;
  struct out *out = out_begin(stdout, cli->format, &cli->style, columns, COLUMNS);
  for (size_t i = count - limit; i < count && !row(out, &sessions[i]); i++)
    ;
  cmd_none(cli, "sessions", (int64_t)count);
  pick_free(sessions, count);
  return cli_written(out_end(out));
}
