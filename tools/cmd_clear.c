/* cirron-query clear: the one command that writes. Works beside a collector, through SQLite's locks: its transactions are as small as those
 * of the collector's own retention, with pauses in which the collector has its turn. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../proto/erase.h"
#include "../proto/store_abi.h"
#include "buf.h"
#include "cmd.h"
#include "db.h"
#include "pick.h"
#include "say.h"
#include "units.h"

#define BUSY_MS 10000 /* a collector commits for a moment, four times a second */
#define PAUSE_NS 5000000
#define SHRINK_PAGES 256

static const struct out_column columns[] = {
    {"sessions", NULL, OUT_AS_COUNT, 0},
    {"spans", NULL, OUT_AS_COUNT, 0},
    {"marks", NULL, OUT_AS_COUNT, 0},
    {"bytes", "BYTES FREED", OUT_AS_COUNT, 0},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

struct plan {
  struct pick_session *sessions; /* the first `count` are to go */
  size_t count, all, running;
  int64_t spans, marks;
};

static int by_end(const void *a, const void *b) {
  const struct pick_session *x = a, *y = b;
  return x->end_ns == y->end_ns ? (x->sid > y->sid) - (x->sid < y->sid) : x->end_ns < y->end_ns ? -1 : 1;
}

/* Those that go come first. A session whose end is not known ended when it was last heard of. */
static void plan_make(const struct cli *cli, struct plan *plan) {
  struct pick_session *list = plan->sessions;
  size_t ended = 0;
  for (size_t i = 0; i < plan->all; i++) {
    struct pick_session s = list[i];
    if (strcmp(s.state, SESSION_RUNNING) == 0) {
      plan->running++;
      continue;
    }
    s.end_ns = s.end_ns ? s.end_ns : s.last_ns ? s.last_ns : s.start_ns;
    list[i] = list[ended];
    list[ended++] = s;
  }
  if (ended)
    qsort(list, ended, sizeof *list, by_end);
  if (cli->keep >= 0)
    ended = ended > (size_t)cli->keep ? ended - (size_t)cli->keep : 0;
  while (cli->before_ns && ended && list[ended - 1].end_ns >= cli->before_ns)
    ended--;
  plan->count = ended;
  for (size_t i = 0; i < ended; i++) {
    plan->spans += list[i].spans;
    plan->marks += list[i].marks;
  }
}

/* Nothing goes without a yes: --yes, or one typed at a terminal. */
static int confirm(const struct cli *cli, const struct plan *plan) {
  char sessions[UNITS_MAX], spans[UNITS_MAX], answer[16] = "";
  if (cli->yes)
    return CLI_OK;
  units_of((int64_t)plan->count, "session", "sessions", sessions);
  units_of(plan->spans, "span", "spans", spans);
  if (!isatty(0) || !isatty(2)) {
    say("this would remove %s with %s for ever; say so with --yes", sessions, spans);
    return CLI_USAGE;
  }
  say("this removes %s with %s for ever. Type yes to go on:", sessions, spans);
  if (fgets(answer, sizeof answer, stdin) && strcmp(answer, "yes\n") == 0)
    return CLI_OK;
  say("nothing was removed");
  return CLI_ERROR;
}

/* ---- writing ---- */

static int failed(sqlite3 *db, int rc) {
  if ((rc & 0xff) == SQLITE_READONLY || (rc & 0xff) == SQLITE_CANTOPEN)
    say("%s: cannot be written", sqlite3_db_filename(db, "main"));
  else if ((rc & 0xff) == SQLITE_BUSY)
    say("%s: locked by another program for more than %d s; try again", sqlite3_db_filename(db, "main"), BUSY_MS / 1000);
  else
    say("%s: removing failed: %s", sqlite3_db_filename(db, "main"), sqlite3_errmsg(db));
  return CLI_ERROR;
}

static int open_writing(const char *path, sqlite3 **out) {
  int rc = sqlite3_open_v2(path, out, SQLITE_OPEN_READWRITE, NULL);
  if (rc == SQLITE_OK)
    rc = sqlite3_busy_timeout(*out, BUSY_MS);
  if (rc == SQLITE_OK && sqlite3_db_readonly(*out, "main") == 1)
    rc = SQLITE_READONLY;
  if (rc == SQLITE_OK) /* as in db.c: a store may come from anybody */
    rc = sqlite3_db_config(*out, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
  return rc;
}

static void pause_a_little(void) {
  (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL); /* shorter does no harm */
}

/* All at once: from here on no reader sees them. Counts those that went, as some may run again or be gone by now. */
static int mark_all(sqlite3 *db, struct plan *plan) {
  size_t kept = 0;
  int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
  for (size_t i = 0; rc == SQLITE_OK && i < plan->count; i++) {
    bool marked = false;
    rc = erase_mark(db, plan->sessions[i].sid, &marked);
    kept += marked;
    if (!marked) {
      plan->spans -= plan->sessions[i].spans;
      plan->marks -= plan->sessions[i].marks;
    }
  }
  plan->count = kept;
  return rc == SQLITE_OK ? sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) : rc;
}

static int erase_all(sqlite3 *db) {
  bool more = true;
  int rc = SQLITE_OK;
  while (rc == SQLITE_OK && more) {
    rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    rc = rc ? rc : erase_some(db, &more);
    rc = rc ? rc : sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    if (more)
      pause_a_little();
  }
  for (int64_t left = 1; rc == SQLITE_OK && left;) {
    rc = erase_shrink(db, SHRINK_PAGES, &left);
    if (left)
      pause_a_little();
  }
  return rc;
}

static int64_t used_bytes(sqlite3 *db) {
  int64_t bytes = 0;
  return erase_used(db, &bytes) == SQLITE_OK ? bytes : 0;
}

static int remove_planned(const struct cli *cli, struct plan *plan) {
  sqlite3 *db = NULL;
  (void)sqlite3_exec(cli->store, "COMMIT", NULL, NULL,
                     NULL); /* what we read would keep the write-ahead log from being emptied */
  int rc = open_writing(sqlite3_db_filename(cli->store, "main"), &db);
  int64_t before = rc ? 0 : used_bytes(db);
  rc = rc ? rc : mark_all(db, plan);
  rc = rc ? rc : erase_all(db);
  if (rc) {
    int status = failed(db, rc);
    sqlite3_close(db);
    return status;
  }
  int64_t freed = before - used_bytes(db);
  sqlite3_close(db);
  struct out *out = out_begin(stdout, cli->format, &cli->style, columns, COLUMNS);
  const struct out_cell cells[COLUMNS] = {out_int((int64_t)plan->count), out_int(plan->spans), out_int(plan->marks),
                                          out_int(freed > 0 ? freed : 0)};
  int error = out_row(out, cells), error2 = out_end(out);
  return cli_written(error ? error : error2);
}

int cmd_clear(const struct cli *cli) {
  struct plan plan = {0};
  int status = pick_sessions(cli, &plan.sessions, &plan.all);
  if (status)
    return status;
  plan_make(cli, &plan);
  if (cli->session && plan.running) {
    say("session '%s' is running: it can be removed when it has ended", cli->session);
    status = CLI_ERROR;
  } else if (!plan.count) {
    say("there is nothing to remove%s", plan.running ? " but running sessions, which stay" : "");
  } else {
    status = confirm(cli, &plan);
    if (!status)
      status = remove_planned(cli, &plan);
  }
  pick_free(plan.sessions, plan.all);
  return status;
}
