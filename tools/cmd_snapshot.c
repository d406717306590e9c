/* cirron-query snapshot now: asks the collector, then looks into the store until what was asked for is in it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../proto/store_abi.h"
#include "cmd.h"
#include "command.h"
#include "db.h"
#include "pick.h"
#include "say.h"
#include "snaps.h"
#include "units.h"

#define REPLY_MS 10000
#define LOOK_MS 100
#define TIMEOUT_S 30

struct waiting {
  const struct pick_session *session;
  int64_t before; /* the latest pass when it was asked for */
  bool done, ended;
  struct snaps_pass pass;
};

static void sleep_ms(long ms) {
  const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* All that is read through a connection is one moment of the store: the next one. */
static void look_again(sqlite3 *db) {
  int rc = sqlite3_exec(db, "COMMIT; BEGIN", NULL, NULL, NULL);
  if (rc != SQLITE_OK)
    db_die(db, "the store", rc);
}

static int64_t latest(const struct pick_session *s) {
  return snaps_kept(s->store) ? db_value(s->store, 0, "SELECT max(pass) FROM snapshot_passes WHERE sid = ?", s->sid) : 0;
}

static void look(struct waiting *w) {
  struct snaps_passes passes;
  snaps_passes_read(w->session->store, w->session->sid, &passes);
  for (size_t i = 0; i < passes.count && !w->done; i++)
    if (passes.items[i].number > w->before && passes.items[i].reason == SNAPS_COMMAND) {
      w->pass = passes.items[i];
      w->done = true;
    }
  snaps_passes_fini(&passes);
  w->ended = !db_value(w->session->store, 0, "SELECT 1 FROM sessions WHERE sid = ? AND state = '" SESSION_RUNNING "'",
                       w->session->sid);
}

/* True: as many as were told have theirs, or will have none any more. */
static bool look_at_all(struct waiting *list, size_t count, uint32_t told) {
  size_t done = 0, open = 0;
  look_again(list[0].session->store);
  for (size_t i = 0; i < count; i++) {
    if (!list[i].done && !list[i].ended)
      look(&list[i]);
    done += list[i].done;
    open += !list[i].done && !list[i].ended;
  }
  return done >= told || !open;
}

/* --- what came of it ----------------------------------------------------------------------------------------------------- */

static struct out_cell index_cell(int64_t index) {
  return out_int_or_null(index, SNAPS_NO_INDEX);
}

static int show(const struct cli *cli, const struct waiting *list, size_t count) {
  static const struct out_column columns[] = {{"session_id", "SESSION", OUT_AS_ID, 0},
                                              {"rank", NULL, 0, 0},
                                              {"pass", "SNAPSHOT", OUT_AS_COUNT, 0},
                                              {"epoch", NULL, OUT_AS_COUNT, 0},
                                              {"step", NULL, OUT_AS_COUNT, 0},
                                              {"records", "TENSORS", OUT_AS_COUNT, 0},
                                              {"torn", NULL, OUT_AS_COUNT, 0},
                                              {"list_ns", "LISTED IN", OUT_AS_DURATION, 0},
                                              {"wait_ns", "TRAINING WAITED", OUT_AS_DURATION, 0},
                                              {"read_ns", "READ IN", OUT_AS_DURATION, 0},
                                              {"blob_errno", NULL, 0, OUT_NO_TABLE}};
  enum { COLUMNS = sizeof columns / sizeof *columns };
  struct out *out = out_begin(stdout, cli->format, &cli->style, columns, COLUMNS);
  int error = 0;
  for (size_t i = 0; i < count && !error; i++) {
    const struct snaps_pass *p = &list[i].pass;
    if (list[i].done)
      error = out_row(out, (const struct out_cell[COLUMNS]){out_text(list[i].session->id),
                                                            out_int_or_null(list[i].session->rank, -1), out_int(p->number),
                                                            index_cell(p->epoch), index_cell(p->step), out_int(p->records),
                                                            out_int(p->torn), out_int(p->list_ns), out_int(p->wait_ns),
                                                            out_int(p->read_ns), out_int_or_null(p->blob_error, 0)});
  }
  int ended = out_end(out);
  return error ? error : ended;
}

static int tell_missing(const struct waiting *list, size_t count, uint32_t told, int64_t timeout) {
  size_t done = 0, missing = 0;
  for (size_t i = 0; i < count; i++)
    done += list[i].done;
  for (size_t i = 0; i < count && done < told; i++) {
    const struct waiting *w = &list[i];
    if (!w->done && w->ended)
      say("session %.8s ended before it took a snapshot", w->session->id);
    else if (!w->done)
      say("session %.8s took no snapshot within %lld s: it takes one at the end of its next step, of models that it knows",
          w->session->id, (long long)timeout);
    missing += !w->done;
  }
  return missing ? CLI_ERROR : CLI_OK;
}

/* --- asking -------------------------------------------------------------------------------------------------------------- */

/* Of one session, or, with NULL, of all that run. */
static int ask(const struct waiting *list, size_t count, const struct pick_session *one, uint32_t *told) {
  struct buf why = {0};
  struct command_reply reply = {0};
  const char **directories = buf_alloc((count + 1) * sizeof *directories);
  size_t n = 0;
  for (size_t i = 0; i < count; i++)
    if (list[i].session->cwd && list[i].session->cwd[0] == '/')
      directories[n++] = list[i].session->cwd;
  int fd = command_connect(sqlite3_db_filename(list[0].session->store, "main"), directories, n, &why);
  int err = fd < 0 ? -1 : command_snapshot(fd, one ? one->prefix : 0, REPLY_MS, &reply, &why);
  if (err)
    say("%s", buf_text(&why));
  else if (reply.error == ESRCH || (!reply.error && !reply.sessions))
    say(one ? "the collector knows no such session that runs and takes snapshots" : "no session runs that takes snapshots");
  else if (reply.error == EPERM)
    say("the session belongs to another user: only that user, or root, may ask for a snapshot of it");
  else if (reply.error)
    say("the collector refuses: %s", strerror(reply.error));
  *told += reply.sessions;
  free(directories);
  buf_fini(&why);
  return err || reply.error || !reply.sessions ? CLI_ERROR : CLI_OK;
}

static int ask_all(const struct cli *cli, const struct waiting *list, size_t count, uint32_t *told) {
  int status = CLI_OK;
  if (!cli->session && cli->rank < 0)
    return ask(list, count, NULL, told);
  for (size_t i = 0; i < count && !status; i++)
    status = ask(list, count, list[i].session, told);
  return status;
}

static int take(const struct cli *cli, struct waiting *list, size_t count) {
  uint32_t told = 0;
  int64_t timeout = cli->timeout >= 0 ? cli->timeout : TIMEOUT_S;
  int status = ask_all(cli, list, count, &told);
  if (status)
    return status;
  int64_t deadline = now_ms() + timeout * 1000;
  while (!look_at_all(list, count, told) && now_ms() < deadline)
    sleep_ms(LOOK_MS);
  bool any = false;
  for (size_t i = 0; i < count; i++)
    any = any || list[i].done;
  int written = any || cli->format != OUT_TABLE ? cli_written(show(cli, list, count)) : CLI_OK;
  status = tell_missing(list, count, told, timeout);
  return status ? status : written;
}

/* Those that run: of them those that train, if any does; loaders' processes and the like have nothing to take. */
static size_t choose(struct pick_session *sessions, size_t count, bool training, struct waiting *out) {
  size_t n = 0;
  for (size_t i = 0; i < count; i++)
    if (strcmp(sessions[i].state, SESSION_RUNNING) == 0 && (!training || pick_trains(&sessions[i])))
      out[n++] = (struct waiting){.session = &sessions[i], .before = latest(&sessions[i])};
  return n;
}

int cmd_snapshot(const struct cli *cli) {
  struct pick_session *sessions;
  size_t count;
  if (strcmp(cli->args[0], "now") != 0) {
    say("snapshot '%s': it has to be now", cli->args[0]);
    return CLI_USAGE;
  }
  int status = pick_sessions(cli, &sessions, &count);
  if (status)
    return status;
  struct waiting *list = buf_alloc((count + 1) * sizeof *list);
  size_t running = choose(sessions, count, true, list);
  running = running ? running : choose(sessions, count, false, list);
  if (running)
    status = take(cli, list, running);
  else if (cli->session)
    say("session %.8s does not run any more", sessions[0].id);
  else
    say("no session runs");
  free(list);
  pick_free(sessions, count);
  return running ? status : CLI_ERROR;
}
