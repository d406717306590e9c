/* cirron-query status: what each rank of the jobs that run does now, and who waits for whom. Works while they hang, because a span that is
 * open is in the store within moments of its begin. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../proto/ring_abi.h"
#include "../proto/store_abi.h"
#include "cmd.h"
#include "collective.h"
#include "db.h"
#include "job.h"
#include "say.h"
#include "spans.h"
#include "status.h"
#include "text.h"
#include "units.h"

#define PATIENCE_NS INT64_C(5000000000) /* others wait that long for a rank, and three of its steps: it is stalled */
#define PATIENCE_STEPS 3
#define MISSING_SHOWN 64 /* rows of ranks without a session */
#define RANKS_SAID 8     /* in one line */
#define CHAIN_MAX 64     /* open spans in each other, at most (agent/scope.h) */
#define LOOK_BACK_NS INT64_C(60000000000)

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

struct open {
  uint64_t span, parent;
  int64_t kind, index, start_ns, tid;
  char *name, *module;
  size_t name_len, module_len;
};

struct rank {                         /* what is shown of one, beside status.h's */
  const struct pick_session *session; /* NULL: missing */
  struct open *open;
  size_t open_count;
  const struct open *chain[CHAIN_MAX]; /* of the thread that trains, innermost first */
  size_t depth;
  int64_t quiet_ns;    /* since it last began or ended something */
  int64_t step, epoch; /* or SPAN_NO_INDEX */
};

struct view {
  const struct cli *cli;
  struct out *out;
  struct buf verdicts;
  int64_t now_ns, shown;
  int error;
};

/* --- what is open -------------------------------------------------------------------------------------------------------- */

static char *copied(sqlite3_stmt *stmt, int column, size_t *len) {
  const char *text = (const char *)sqlite3_column_text(stmt, column);
  *len = text ? (size_t)sqlite3_column_bytes(stmt, column) : 0;
  char *copy = text ? buf_alloc(*len + 1) : NULL;
  if (copy)
    memcpy(copy, text, *len + 1);
  return copy;
}

static void read_open(struct rank *r) {
  sqlite3_stmt *stmt = db_query(r->session->store,
                                "SELECT o.span, o.parent, o.kind, o.idx, o.start_ns, o.tid, n.text, m.text FROM open_spans o"
                                " LEFT JOIN names n ON n.name = o.name LEFT JOIN names m ON m.name = o.module"
                                " WHERE o.sid = ?1 AND o.kind <> ?2 ORDER BY o.start_ns, o.span",
                                r->session->sid, SPAN_SESSION);
  while (db_step(stmt)) {
    r->open = buf_realloc(r->open, (r->open_count + 1) * sizeof *r->open);
    struct open *o = &r->open[r->open_count++];
    *o = (struct open){.span = (uint64_t)sqlite3_column_int64(stmt, 0),
                       .parent = (uint64_t)sqlite3_column_int64(stmt, 1),
                       .kind = sqlite3_column_int64(stmt, 2),
                       .index = SPAN_NO_INDEX,
                       .start_ns = sqlite3_column_int64(stmt, 4),
                       .tid = sqlite3_column_int64(stmt, 5)};
    if (sqlite3_column_type(stmt, 3) != SQLITE_NULL)
      o->index = sqlite3_column_int64(stmt, 3);
    o->name = copied(stmt, 6, &o->name_len);
    o->module = copied(stmt, 7, &o->module_len);
  }
}

static int worth(const struct open *o, int64_t pid) {
  return o->kind == SPAN_COLLECTIVE ? 3 : o->kind >= SPAN_EPOCH && o->kind <= SPAN_BATCH ? 2 : o->tid == pid ? 1 : 0;
}

/* The innermost span of the thread that a person wants to hear of: one in a collective, else that which trains. Of collectives in several
 * threads, the longest. */
static const struct open *innermost(const struct rank *r) {
  const struct open *best = NULL;
  for (size_t i = 0; i < r->open_count; i++) {
    int w = worth(&r->open[i], r->session->pid), than = best ? worth(best, r->session->pid) : -1;
    if (w > than || (w == than && w < 3))
      best = &r->open[i];
  }
  for (size_t i = 0; best && best->kind != SPAN_COLLECTIVE && i < r->open_count; i++)
    if (r->open[i].tid == best->tid)
      best = &r->open[i]; /* in order of their begin */
  return best;
}

static const struct open *parent_of(const struct rank *r, const struct open *o) {
  for (size_t i = 0; i < r->open_count; i++)
    if (r->open[i].span == o->parent)
      return &r->open[i];
  return NULL;
}

static void read_rank(struct rank *r, int64_t now_ns) {
  const struct pick_session *s = r->session;
  read_open(r);
  for (const struct open *o = innermost(r); o && r->depth < CHAIN_MAX; o = parent_of(r, o))
    r->chain[r->depth++] = o;
  int64_t last = s->last_ns > s->start_ns ? s->last_ns : s->start_ns;
  for (size_t i = 0; i < r->open_count; i++)
    last = r->open[i].start_ns > last ? r->open[i].start_ns : last;
  r->quiet_ns = now_ns > last ? now_ns - last : 0;
  r->step = db_value(s->store, SPAN_NO_INDEX, "SELECT idx FROM steps WHERE sid = ? ORDER BY span DESC LIMIT 1", s->sid);
  r->epoch = db_value(s->store, SPAN_NO_INDEX,
                      "SELECT idx FROM epochs WHERE sid = ? AND kind = 'epoch' ORDER BY span DESC LIMIT 1", s->sid);
  for (size_t i = 0; i < r->depth; i++)
    if (r->chain[i]->kind == SPAN_STEP && r->chain[i]->index != SPAN_NO_INDEX)
      r->step = r->chain[i]->index;
}

/* --- what it has done ---------------------------------------------------------------------------------------------------- */

struct look {
  struct spans_names *names;
  const struct status_rank *of; /* its group */
  int64_t found;
};

static int look_at(const struct span_row *row, const struct spans_session *session, void *arg) {
  struct look *look = arg;
  struct collective c;
  size_t len;
  const char *text = spans_name(look->names, row->module, &len);
  (void)session;
  if (!text || row->index < 0)
    return 0;
  collective_parse(text, len, &c);
  if (c.group_len == look->of->group_len && memcmp(c.group, look->of->group, c.group_len) == 0 && row->index > look->found)
    look->found = row->index;
  return 0;
}

/* Number of the last collective of the group that the rank has ended, or -1. The last minute nearly always knows. */
static int64_t reached(const struct pick_session *s, const struct status_rank *of, int64_t since_ns) {
  struct look look = {.names = spans_names_new(s->store), .of = of, .found = -1};
  for (int64_t back = LOOK_BACK_NS; look.found < 0; back *= 60) {
    bool all = since_ns - back < s->start_ns;
    struct spans_filter filter = {.sid = s->sid,
                                  .kinds = 1u << SPAN_COLLECTIVE,
                                  .which = SPANS_CLOSED,
                                  .min_end_ns = all ? 0 : since_ns - back,
                                  .columns = BLOCK_KIND | BLOCK_MODULE | BLOCK_INDEX | BLOCK_END | BLOCK_START};
    int rc = look.names ? spans_each(s->store, &filter, look_at, &look) : -ENOMEM;
    if (rc < 0)
      db_die(s->store, "spans", rc);
    if (all)
      break;
  }
  spans_names_free(look.names);
  return look.found;
}

static int found_one(const struct span_row *row, const struct spans_session *session, void *arg) {
  (void)session;
  return row->module == *(uint32_t *)arg;
}

/* Does its backward meet the other ranks? DistributedDataParallel does that where nobody sees it. */
static bool meets_in_backward(const struct pick_session *s) {
  static const char name[] = "DistributedDataParallel";
  uint32_t id;
  if (spans_name_find(s->store, name, strlen(name), &id) != 0)
    return false;
  struct spans_filter filter = {.sid = s->sid,
                                .kinds = 1u << SPAN_FORWARD,
                                .which = SPANS_CLOSED,
                                .min_end_ns = s->last_ns > LOOK_BACK_NS ? s->last_ns - LOOK_BACK_NS : 0,
                                .columns = BLOCK_KIND | BLOCK_MODULE | BLOCK_END | BLOCK_START};
  int rc = spans_each(s->store, &filter, found_one, &id);
  if (rc < 0)
    db_die(s->store, "spans", rc);
  return rc == 1;
}

static int64_t patience(const struct rank *ranks, size_t count) {
  int64_t most = PATIENCE_NS;
  for (size_t i = 0; i < count; i++) {
    const struct pick_session *s = ranks[i].session;
    int64_t step =
        s ? db_value(s->store, 0,
                     "SELECT avg(d) FROM (SELECT end_ns - start_ns AS d FROM steps WHERE sid = ? ORDER BY span DESC LIMIT 20)",
                     s->sid)
          : 0;
    if (step < INT64_MAX / PATIENCE_STEPS && PATIENCE_STEPS * step > most)
      most = PATIENCE_STEPS * step;
  }
  return most;
}

static struct status_rank facts(const struct rank *r, int64_t rank) {
  const struct open *o = r->depth ? r->chain[0] : NULL;
  struct status_rank f = {.rank = rank, .number = STATUS_NO_NUMBER, .peer = -1, .reached = -1, .known = r->session};
  if (!r->session)
    return f;
  f.running = strcmp(r->session->state, SESSION_RUNNING) == 0;
  if (o && o->kind == SPAN_COLLECTIVE && o->module) {
    struct collective c;
    collective_parse(o->module, o->module_len, &c);
    f.op = c.op;
    f.op_len = c.op_len;
    f.group = c.group;
    f.group_len = c.group_len;
    f.peer = c.peer;
    f.number = o->index;
    f.since_ns = o->start_ns;
  }
  for (size_t i = 0; !f.op_len && i < r->depth; i++)
    if (r->chain[i]->kind == SPAN_BACKWARD && meets_in_backward(r->session)) {
      f.backward = true;
      f.since_ns = r->chain[i]->start_ns;
    }
  return f;
}

/* --- in words ------------------------------------------------------------------------------------------------------------ */

static void say_open(const struct view *view, const struct open *o, struct buf *out) {
  bool collective = o->kind == SPAN_COLLECTIVE && o->module, utf8 = view->cli->style.utf8 || view->cli->format != OUT_TABLE;
  text_show_cut(out, collective ? o->module : o->name, collective ? o->module_len : o->name ? o->name_len : 0, utf8, 60);
  if (o->index != SPAN_NO_INDEX)
    buf_printf(out, " %lld", (long long)o->index);
}

/* "epoch 0 > step 12 > all_reduce 25" */
static void say_chain(const struct view *view, const struct rank *r, struct buf *out) {
  for (size_t i = r->depth; i-- > 0;) {
    say_open(view, r->chain[i], out);
    buf_puts(out, i ? " > " : "");
  }
}

/* "rank 2", "ranks 0, 1, 3": those that wait, or are waited for. */
static void say_ranks(const struct status_rank *ranks, size_t count, bool awaited, struct buf *out) {
  size_t n = 0, said = 0;
  for (size_t i = 0; i < count; i++)
    n += awaited ? ranks[i].awaited : ranks[i].role == STATUS_WAITS;
  buf_puts(out, n == 1 ? "rank" : "ranks");
  for (size_t i = 0; i < count && said < RANKS_SAID; i++)
    if (awaited ? ranks[i].awaited : ranks[i].role == STATUS_WAITS)
      buf_printf(out, "%s %lld", said++ ? "," : "", (long long)ranks[i].rank);
  if (n > said)
    buf_printf(out, " and %zu more", n - said);
}

static void say_wait(const struct status_wait *wait, struct buf *out) {
  const struct status_rank *first = wait->first;
  if (!first->op_len) {
    buf_puts(out, "backward, where gradients are exchanged");
    return;
  }
  text_show_cut(out, first->op, first->op_len, true, 40);
  if (first->number != STATUS_NO_NUMBER)
    buf_printf(out, " %lld", (long long)first->number);
  buf_puts(out, " of ");
  text_show_cut(out, first->group, first->group_len, true, 60);
}

/* "Rank 1 is stalled: in step 10, without a sign for 9.2 s." */
static void say_culprit(const struct view *view, const struct rank *r, const struct status_rank *f, struct buf *out) {
  char quiet[UNITS_MAX];
  buf_printf(out, "Rank %lld ", (long long)f->rank);
  if (f->role == STATUS_MISSING) {
    buf_puts(out, "has no session in this store.\n");
    return;
  }
  if (f->role == STATUS_ENDED) {
    buf_printf(out, "has ended (%s).\n", r->session->state);
    return;
  }
  buf_printf(out, "is %s: in ", status_role_name(f->role));
  if (r->depth)
    say_chain(view, r, out);
  else
    buf_puts(out, "no span");
  buf_printf(out, ", without a sign for %s.\n", units_duration(r->quiet_ns, quiet));
}

static void say_verdict(struct view *view, const struct rank *ranks, const struct status_rank *f, size_t count,
                        const struct status_wait *wait) {
  struct buf *out = &view->verdicts;
  char since[UNITS_MAX];
  size_t said = 0;
  if (!wait->found || (!wait->awaited && !wait->first->op_len))
    return;
  for (size_t i = 0; i < count && said < RANKS_SAID; i++)
    if (f[i].awaited) {
      say_culprit(view, &ranks[i], &f[i], out);
      said++;
    }
  size_t at = out->len;
  say_ranks(f, count, false, out);
  if (out->len > at)
    out->data[at] = 'R';
  buf_printf(out, " %s ", wait->awaited ? (wait->waiting == 1 ? "waits for it in" : "wait for it in") : "wait in");
  say_wait(wait, out);
  buf_printf(out, ", since %s.\n", units_duration(view->now_ns - wait->since_ns, since));
  if (wait->differs)
    buf_puts(out, "They have called different operations there, which can never meet.\n");
}

/* --- rows ---------------------------------------------------------------------------------------------------------------- */

static void waits_for(const struct cli *cli, const struct status_rank *f, size_t count, struct buf *out) {
  bool table = cli->format == OUT_TABLE;
  size_t said = 0;
  buf_puts(out, table ? "" : "[");
  for (size_t i = 0; i < count && (!table || said < RANKS_SAID); i++)
    if (f[i].awaited)
      buf_printf(out, "%s%lld", said++ ? "," : "", (long long)f[i].rank);
  buf_puts(out, table ? "" : "]");
}

static struct out_cell index_cell(int64_t index) {
  return out_int_or_null(index, SPAN_NO_INDEX);
}

static void show(struct view *view, const struct rank *r, const struct status_rank *f, const struct buf *awaited) {
  const struct pick_session *s = r->session;
  const struct open *o = r->depth ? r->chain[0] : NULL;
  struct buf in = {0};
  bool waiting = f->role == STATUS_WAITS, table = view->cli->format == OUT_TABLE;
  say_chain(view, r, &in);
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

static bool wanted(const struct view *view, const struct rank *r, int64_t rank) {
  const struct cli *cli = view->cli;
  if (cli->rank >= 0 && cli->rank != rank)
    return false;
  return !cli->session || strcmp(cli->session, "last") == 0 ||
         (r->session && strncmp(r->session->id, cli->session, strlen(cli->session)) == 0);
}

static void show_job(struct view *view, const struct job *job) {
  size_t missing = job->world_size > (int64_t)job->count ? (size_t)job->world_size - job->count : 0;
  size_t most = job->count + (missing < MISSING_SHOWN ? missing : MISSING_SHOWN), count = 0;
  struct rank *ranks = buf_alloc(most * sizeof *ranks);
  struct status_rank *f = buf_alloc(most * sizeof *f);
  struct status_wait wait;
  struct buf awaited = {0};
  memset(ranks, 0, most * sizeof *ranks);
  for (size_t have = 0; count < most; count++) {
    int64_t next = count && f[count - 1].rank >= 0 ? f[count - 1].rank + 1 : 0;
    bool there =
        have < job->count && (job->ranks[have]->rank <= next || count - have >= MISSING_SHOWN || next >= job->world_size);
    struct rank *r = &ranks[count];
    r->session = there ? job->ranks[have++] : NULL;
    r->step = r->epoch = SPAN_NO_INDEX;
    if (there)
      read_rank(r, view->now_ns);
    f[count] = facts(r, there ? r->session->rank : next);
  }
  if (status_wait_find(f, count, view->now_ns, &wait))
    for (size_t i = 0; i < count; i++)
      if (f[i].known && !f[i].op_len && wait.first->op_len && wait.first->number != STATUS_NO_NUMBER)
        f[i].reached = reached(ranks[i].session, wait.first, wait.since_ns);
  status_judge(f, count, view->now_ns, patience(ranks, count), &wait);
  waits_for(view->cli, f, count, &awaited);
  for (size_t i = 0; i < count && !view->error; i++)
    if (wanted(view, &ranks[i], f[i].rank))
      show(view, &ranks[i], &f[i], &awaited);
  say_verdict(view, ranks, f, count, &wait);
  for (size_t i = 0; i < count; i++) {
    for (size_t k = 0; k < ranks[i].open_count; k++) {
      free(ranks[i].open[k].name);
      free(ranks[i].open[k].module);
    }
    free(ranks[i].open);
  }
  free(ranks);
  free(f);
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
  struct cli all = *cli; /* who waits for whom is known of all of a job */
  struct pick_session *sessions;
  struct timespec now;
  size_t count;
  all.session = NULL;
  all.rank = -1;
  int status = pick_sessions(&all, &sessions, &count);
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
