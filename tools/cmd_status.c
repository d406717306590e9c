/* cirron-query status: what each rank of the jobs that run does now, and who waits for whom. Works while they hang, because a span that is
 * open is in the store within moments of its begin. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../proto/ring_abi.h"
#include "../proto/store_abi.h"
#include "cmd.h"
#include "db.h"
#include "say.h"
#include "status_job.h"

static const struct out_column columns[] = {
    {"rank", NULL, 0, 0},
    {"session_id", "SESSION", OUT_AS_ID, 0},
    {"host", NULL, 0, 0},
    {"pid", NULL, 0, 0},
    {"role", "STATE", 0, 0},
    {"state", NULL, 0, OUT_NO_TABLE},
    {"epoch", NULL, 0, OUT_NO_TABLE},
    {"step", NULL, 0, 0},
    {"in", NULL, 0, OUT_CUT},
    {"open_ns", "FOR", OUT_AS_DURATION, 0},
    {"quiet_ns", "LAST SIGN", OUT_AS_DURATION, 0},
    {"op", NULL, 0, OUT_NO_TABLE},
    {"group", NULL, 0, OUT_NO_TABLE},
    {"number", NULL, 0, OUT_NO_TABLE},
    {"waits_for", "WAITS FOR", 0, 0},
};

enum { COLUMNS = sizeof columns / sizeof *columns };

struct view {
  const struct cli *cli;
  struct out *out;
  struct buf verdicts;
  int64_t now_ns, shown;
  int error;
};

/* --- rows ---------------------------------------------------------------------------------------------------------------- */

static void waits_for(const struct cli *cli, const struct status_rank *f, size_t count, struct buf *out) {
  bool table = cli->format == OUT_TABLE;
  size_t said = 0;
  buf_puts(out, table ? "" : "[");
  for (size_t i = 0; i < count && (!table || said < STATUS_RANKS_SAID); i++)
    if (f[i].awaited)
      buf_printf(out, "%s%lld", said++ ? "," : "", (long long)f[i].rank);
  buf_puts(out, table ? "" : "]");
}

static struct out_cell index_cell(int64_t index) {
  return out_int_or_null(index, SPAN_NO_INDEX);
}

static void show(struct view *view, const struct status_place *r, const struct status_rank *f, const struct buf *awaited) {
  const struct pick_session *s = r->session;
  const struct status_open *o = r->depth ? r->chain[0] : NULL;
  struct buf in = {0};
  bool waiting = f->role == STATUS_WAITS, table = view->cli->format == OUT_TABLE;
  status_say_chain(r, view->cli->style.utf8 || !table, &in);
  const struct out_cell cells[COLUMNS] = {
      s && s->rank < 0 ? out_null() : out_int(f->rank),
      out_text(s ? s->id : NULL),
      out_text(s ? s->host : NULL),
      s ? out_int(s->pid) : out_null(),
      out_text(status_role_name(f->role)),
      out_text(s ? s->state : NULL),
      index_cell(r->epoch),
      index_cell(r->step),
      in.len ? out_text_len(in.data, in.len) : out_null(),
      o ? out_int(view->now_ns - o->start_ns) : out_null(),
      s ? out_int(r->quiet_ns) : out_null(),
      f->op_len ? out_text_len(f->op, f->op_len) : out_null(),
      f->op_len ? out_text_len(f->group, f->group_len) : out_null(),
      out_int_or_null(f->number, STATUS_NO_NUMBER),
      !table    ? out_raw_json(waiting ? awaited->data : "[]", waiting ? awaited->len : 2)
      : waiting ? out_text_len(buf_text(awaited), awaited->len)
                : out_null(),
  };
  view->error = out_row(view->out, cells);
  view->shown++;
  buf_fini(&in);
}

static bool wanted(const struct view *view, const struct status_place *r, int64_t rank) {
  const struct cli *cli = view->cli;
  if (cli->rank >= 0 && cli->rank != rank)
    return false;
  return !cli->session || strcmp(cli->session, "last") == 0 ||
         (r->session && strncmp(r->session->id, cli->session, strlen(cli->session)) == 0);
}

static void show_job(struct view *view, const struct job *job) {
  struct status_job now;
  struct buf awaited = {0};
  status_job_read(job, view->now_ns, &now);
  waits_for(view->cli, now.ranks, now.count, &awaited);
  for (size_t i = 0; i < now.count && !view->error; i++)
    if (wanted(view, &now.places[i], now.ranks[i].rank))
      show(view, &now.places[i], &now.ranks[i], &awaited);
  status_say(&now, view->cli->style.utf8, &view->verdicts);
  status_job_fini(&now);
  buf_fini(&awaited);
}

/* --- jobs ---------------------------------------------------------------------------------------------------------------- */

/* Each job that runs, by the latest of its sessions that does; of --session, its own. */
static void show_jobs(struct view *view, const struct pick_session *sessions, size_t count) {
  struct job *jobs = NULL;
  size_t job_count = 0;
  for (size_t i = count; i-- > 0 && !view->error;) {
    const struct pick_session *s = &sessions[i];
    bool running = strcmp(s->state, SESSION_RUNNING) == 0, told = false;
    for (size_t j = 0; j < job_count && !told; j++)
      told = pick_same_job(s, jobs[j].ranks[0]);
    if (!running || told)
      continue;
    struct job job;
    job_find(sessions, count, s, &job);
    bool asked = !view->cli->session || strcmp(view->cli->session, "last") == 0;
    for (size_t k = 0; k < job.count && !asked; k++)
      asked = strncmp(job.ranks[k]->id, view->cli->session, strlen(view->cli->session)) == 0;
    if (asked && job.count)
      show_job(view, &job);
    jobs = buf_realloc(jobs, (job_count + 1) * sizeof *jobs);
    jobs[job_count] = job;
    job_count += job.count > 0;
    if (view->cli->session && strcmp(view->cli->session, "last") == 0)
      break;
  }
  for (size_t j = 0; j < job_count; j++)
    job_fini(&jobs[j]);
  free(jobs);
}

/* Where nobody writes, what runs is not known: it is shown as it was. */
static int tell_old(const struct cli *cli, void *arg) {
  (void)arg;
  const char *path = sqlite3_db_filename(cli->store, "main");
  if (path && db_writer(path) == DB_WRITER_NONE &&
      db_value(cli->store, 0, "SELECT count(*) FROM sessions WHERE state = '" SESSION_RUNNING "'"))
    say("%s: no collector writes to it now; this is how it was when the last one ended", path);
  return 0;
}

int cmd_status(const struct cli *cli) {
  struct view view = {.cli = cli};
  struct pick_session *sessions;
  struct timespec now;
  size_t count;
  int status = pick_sessions_of_all(cli, &sessions, &count);
  if (status)
    return status;
  clock_gettime(CLOCK_REALTIME, &now);
  view.now_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
  view.out = out_begin(stdout, cli->format, &cli->style, columns, COLUMNS);
  show_jobs(&view, sessions, count);
  status = cli_written(out_end(view.out));
  if (!status && cli->format == OUT_TABLE && view.verdicts.len)
    printf("\n%s", view.verdicts.data);
  (void)cmd_each_store(cli, tell_old, NULL);
  if (cli->format == OUT_TABLE && !view.shown)
    say("no session runs%s", cli->session || cli->rank >= 0 ? " that fits" : "");
  buf_fini(&view.verdicts);
  pick_free(sessions, count);
  return status;
}
