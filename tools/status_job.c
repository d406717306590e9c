#include "status_job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/ring_abi.h"
#include "../proto/store_abi.h"
#include "collective.h"
#include "db.h"
#include "spans.h"

#define PATIENCE_NS INT64_C(5000000000) /* others wait that long for a rank, and three of its steps: it is stalled */
#define PATIENCE_STEPS 3
#define MISSING_SHOWN 64 /* ranks without a session */
#define LOOK_BACK_NS INT64_C(60000000000)

static bool is_running(const struct pick_session *session) {
  return strcmp(session->state, SESSION_RUNNING) == 0;
}

/* --- what is open -------------------------------------------------------------------------------------------------------- */

static char *copied(sqlite3_stmt *stmt, int column, size_t *len) {
  const char *text = (const char *)sqlite3_column_text(stmt, column);
  *len = text ? (size_t)sqlite3_column_bytes(stmt, column) : 0;
  char *copy = text ? buf_alloc(*len + 1) : NULL;
  if (copy)
    memcpy(copy, text, *len + 1);
  return copy;
}

static void read_open(struct status_place *r) {
  sqlite3_stmt *stmt = db_query(r->session->store,
                                "SELECT o.span, o.parent, o.kind, o.idx, o.start_ns, o.tid, n.text, m.text FROM open_spans o"
                                " LEFT JOIN names n ON n.name = o.name LEFT JOIN names m ON m.name = o.module"
                                " WHERE o.sid = ?1 AND o.kind <> ?2 ORDER BY o.start_ns, o.span",
                                r->session->sid, SPAN_SESSION);
  while (db_step(stmt)) {
    r->open = buf_realloc(r->open, (r->open_count + 1) * sizeof *r->open);
    struct status_open *o = &r->open[r->open_count++];
    *o = (struct status_open){.span = (uint64_t)sqlite3_column_int64(stmt, 0),
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

static int worth(const struct status_open *o, int64_t pid) {
  return o->kind == SPAN_COLLECTIVE ? 3 : o->kind >= SPAN_EPOCH && o->kind <= SPAN_BATCH ? 2 : o->tid == pid ? 1 : 0;
}

/* The innermost span of the thread that a person wants to hear of: one in a collective, else that which trains. Of collectives in several
 * threads, the longest. */
static const struct status_open *innermost(const struct status_place *r) {
  const struct status_open *best = NULL;
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

static const struct status_open *parent_of(const struct status_place *r, const struct status_open *o) {
  for (size_t i = 0; i < r->open_count; i++)
    if (r->open[i].span == o->parent)
      return &r->open[i];
  return NULL;
}

static void read_rank(struct status_place *r, int64_t now_ns) {
  const struct pick_session *s = r->session;
  read_open(r);
  for (const struct status_open *o = innermost(r); o && r->depth < STATUS_CHAIN_MAX; o = parent_of(r, o))
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

static int64_t patience(const struct status_place *ranks, size_t count) {
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

/* What of it matters for who waits for whom. Of a job that is over, a rank that was interrupted counts as running up to then. */
static struct status_rank facts(const struct status_place *r, int64_t rank, bool runs) {
  const struct status_open *o = r->depth ? r->chain[0] : NULL;
  struct status_rank f = {.rank = rank, .number = STATUS_NO_NUMBER, .peer = -1, .reached = -1, .known = r->session};
  if (!r->session)
    return f;
  f.running = runs ? is_running(r->session) : r->open_count > 0;
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

/* --- the job ------------------------------------------------------------------------------------------------------------- */

/* Of a job that has ended, the moment when the first of its ranks did that was in the middle of something. */
static int64_t end_of(const struct job *job) {
  int64_t end = 0;
  for (size_t i = 0; i < job->count; i++) {
    const struct pick_session *s = job->ranks[i];
    int64_t at = s->end_ns ? s->end_ns : s->last_ns;
    bool open = db_value(s->store, 0, "SELECT 1 FROM open_spans WHERE sid = ?1 AND kind <> ?2 LIMIT 1", s->sid, SPAN_SESSION);
    if (open && at && (!end || at < end))
      end = at;
  }
  return end;
}

/* The ranks in order, with those that are missing between them. */
static void place_ranks(const struct job *job, struct status_job *out) {
  size_t missing = job->world_size > (int64_t)job->count ? (size_t)job->world_size - job->count : 0;
  size_t most = job->count + (missing < MISSING_SHOWN ? missing : MISSING_SHOWN);
  out->places = buf_alloc((most + 1) * sizeof *out->places);
  out->ranks = buf_alloc((most + 1) * sizeof *out->ranks);
  memset(out->places, 0, most * sizeof *out->places);
  for (size_t have = 0; out->count < most; out->count++) {
    int64_t next = out->count ? out->ranks[out->count - 1].rank + 1 : 0;
    bool there = have < job->count && (job->ranks[have]->rank <= next || most - out->count <= job->count - have);
    struct status_place *p = &out->places[out->count];
    p->session = there ? job->ranks[have++] : NULL;
    p->step = p->epoch = SPAN_NO_INDEX;
    if (there)
      read_rank(p, out->now_ns);
    out->ranks[out->count] = facts(p, there ? p->session->rank : next, out->runs);
  }
}

void status_job_read(const struct job *job, int64_t now_ns, struct status_job *out) {
  *out = (struct status_job){.now_ns = now_ns};
  for (size_t i = 0; i < job->count; i++)
    out->runs |= is_running(job->ranks[i]);
  if (!out->runs)
    out->now_ns = end_of(job);
  place_ranks(job, out);
  const struct status_rank *first = status_wait_find(out->ranks, out->count, out->now_ns, &out->wait) ? out->wait.first : NULL;
  for (size_t i = 0; first && first->op_len && first->number != STATUS_NO_NUMBER && i < out->count; i++)
    if (out->ranks[i].known && !out->ranks[i].op_len)
      out->ranks[i].reached = reached(out->places[i].session, first, out->wait.since_ns);
  status_judge(out->ranks, out->count, out->now_ns, patience(out->places, out->count), &out->wait);
}

void status_job_fini(struct status_job *job) {
  for (size_t i = 0; i < job->count; i++) {
    for (size_t k = 0; k < job->places[i].open_count; k++) {
      free(job->places[i].open[k].name);
      free(job->places[i].open[k].module);
    }
    free(job->places[i].open);
  }
  free(job->places);
  free(job->ranks);
  *job = (struct status_job){0};
}
