/* cirron-query ranks [--steps]: reads what the ranks of a job did, has it compared (ranks.c), and tells. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/ring_abi.h"
#include "../proto/store_abi.h"
#include "cmd.h"
#include "collective.h"
#include "db.h"
#include "job.h"
#include "ranks.h"
#include "say.h"
#include "spans.h"
#include "units.h"

#define RECORDS_MAX 20000000 /* of all ranks together; of more, the latest */
#define TIME_MAX (INT64_C(1) << 62)
#define RANKS_SAID 8

static const struct out_column columns[] = {
    {"rank", NULL, 0, 0},
    {"session_id", "SESSION", OUT_AS_ID, 0},
    {"host", NULL, 0, 0},
    {"state", NULL, 0, 0},
    {"steps", NULL, OUT_AS_COUNT, 0},
    {"step_mean_ns", "MEAN", OUT_AS_DURATION, 0},
    {"step_median_ns", "MEDIAN", OUT_AS_DURATION, 0},
    {"step_p95_ns", "P95", OUT_AS_DURATION, 0},
    {"data", NULL, OUT_AS_DURATION, OUT_NO_DATA},
    {"forward", NULL, OUT_AS_DURATION, OUT_NO_DATA},
    {"backward", NULL, OUT_AS_DURATION, OUT_NO_DATA},
    {"optimizer", NULL, OUT_AS_DURATION, OUT_NO_DATA},
    {"other", NULL, OUT_AS_DURATION, OUT_NO_DATA},
    {"data_load_ns", NULL, 0, OUT_NO_TABLE},
    {"forward_ns", NULL, 0, OUT_NO_TABLE},
    {"backward_ns", NULL, 0, OUT_NO_TABLE},
    {"optimizer_ns", NULL, 0, OUT_NO_TABLE},
    {"other_ns", NULL, 0, OUT_NO_TABLE},
    {"collective_ns", "COLLECTIVES", OUT_AS_DURATION, 0},
    {"waited_ns", "WAITED", OUT_AS_DURATION, 0},
    {"waits_for", "FOR", 0, 0},
    {"caused_ns", "WAITED FOR IT", OUT_AS_DURATION, 0},
    {"slowest_in", "SLOWEST IN", OUT_AS_COUNT, 0},
    {"slow", NULL, 0, OUT_NO_TABLE},
    {"waits", NULL, 0, OUT_NO_TABLE},
};

enum { COLUMNS = sizeof columns / sizeof *columns };

static const struct out_column step_columns[] = {
    {"index", "STEP", 0, 0},
    {"ranks", NULL, 0, 0},
    {"dur_ns", "LONGEST", OUT_AS_DURATION, 0},
    {"skew_ns", "SKEW", OUT_AS_DURATION, 0},
    {"slowest", NULL, 0, 0},
};

enum { STEP_COLUMNS = sizeof step_columns / sizeof *step_columns };

/* Texts that came up, with numbers in the order in which they did: groups and hosts of all stores. */
struct texts {
  char **list;
  size_t *lens, count;
};

static uint32_t text_number(struct texts *texts, const char *text, size_t len) {
  for (size_t i = 0; i < texts->count; i++)
    if (texts->lens[i] == len && memcmp(texts->list[i], text, len) == 0)
      return (uint32_t)i;
  texts->list = buf_realloc(texts->list, (texts->count + 1) * sizeof *texts->list);
  texts->lens = buf_realloc(texts->lens, (texts->count + 1) * sizeof *texts->lens);
  texts->list[texts->count] = buf_alloc(len + 1);
  memcpy(texts->list[texts->count], text, len);
  texts->lens[texts->count] = len;
  return (uint32_t)texts->count++;
}

static void texts_fini(struct texts *texts) {
  for (size_t i = 0; i < texts->count; i++)
    free(texts->list[i]);
  free(texts->list);
  free(texts->lens);
}

/* --- reading ------------------------------------------------------------------------------------------------------------- */

struct reading {
  const struct pick_session *session;
  struct ranks_input *in;
  uint64_t *step_spans; /* beside in->steps */
  size_t step_room, call_room;
  struct texts *groups;
  struct spans_names *names;
  int64_t from_ns; /* only what began since */
  /* What a name's text says, for the name that was looked up last. */
  uint32_t last_name;
  struct {
    uint32_t group;
    bool meets;
  } last;
};

static int64_t sane(int64_t value) {
  return value < 0 ? 0 : value < TIME_MAX ? value : TIME_MAX;
}

static void read_steps(struct reading *r) {
  sqlite3_stmt *stmt = db_query(r->session->store,
                                "SELECT span, idx, start_ns, end_ns, data_load_ns, forward_ns, backward_ns, optimizer_ns"
                                " FROM steps WHERE sid = ?1 AND start_ns >= ?2 ORDER BY start_ns, span",
                                r->session->sid, r->from_ns);
  struct ranks_input *in = r->in;
  while (db_step(stmt)) {
    if (in->step_count == r->step_room) {
      r->step_room = r->step_room ? 2 * r->step_room : 256;
      in->steps = buf_realloc(in->steps, r->step_room * sizeof *in->steps);
      r->step_spans = buf_realloc(r->step_spans, r->step_room * sizeof *r->step_spans);
    }
    struct ranks_step *s = &in->steps[in->step_count];
    bool indexed = sqlite3_column_type(stmt, 1) != SQLITE_NULL;
    *s = (struct ranks_step){.index = indexed ? sane(sqlite3_column_int64(stmt, 1)) : (int64_t)in->step_count,
                             .start_ns = sane(sqlite3_column_int64(stmt, 2)),
                             .end_ns = sane(sqlite3_column_int64(stmt, 3))};
    int64_t other = s->end_ns - s->start_ns;
    for (int p = RANKS_DATA; p <= RANKS_OPTIMIZER; p++) {
      s->phase_ns[p] = sane(sqlite3_column_int64(stmt, 4 + p));
      other = other > s->phase_ns[p] ? other - s->phase_ns[p] : 0; /* phases of several threads can overlap */
    }
    s->phase_ns[RANKS_OTHER] = other;
    r->step_spans[in->step_count++] = (uint64_t)sqlite3_column_int64(stmt, 0);
  }
}

static void look_up(struct reading *r, uint32_t name) {
  struct collective c;
  size_t len = 0;
  const char *text = spans_name(r->names, name, &len);
  collective_parse(text ? text : "", text ? len : 0, &c);
  r->last_name = name;
  r->last.group = text_number(r->groups, c.group, c.group_len);
  r->last.meets = collective_meets(c.op, c.op_len);
}

/* What lies in no phase is no part of the step's rest either. */
static void take_from_rest(struct reading *r, const struct ranks_call *call, uint64_t parent) {
  size_t low = 0, high = r->in->step_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (r->in->steps[middle].start_ns <= call->start_ns)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == 0 || r->step_spans[low - 1] != parent)
    return;
  int64_t *rest = &r->in->steps[low - 1].phase_ns[RANKS_OTHER], length = call->end_ns - call->start_ns;
  *rest = *rest > length ? *rest - length : 0;
}

static int add_call(const struct span_row *row, const struct spans_session *session, void *arg) {
  static const char async[] = "\"async\":true";
  struct reading *r = arg;
  struct ranks_input *in = r->in;
  (void)session;
  if (in->call_count == r->call_room) {
    r->call_room = r->call_room ? 2 * r->call_room : 1024;
    in->calls = buf_realloc(in->calls, r->call_room * sizeof *in->calls);
  }
  if (row->module != r->last_name || !in->call_count)
    look_up(r, row->module);
  bool whole = !(row->flags & SPAN_ERROR) && !(row->attrs_len && memmem(row->attrs, row->attrs_len, async, sizeof async - 1));
  struct ranks_call call = {.number = row->index >= 0 ? row->index : RANKS_NO_NUMBER,
                            .group = r->last.group,
                            .meets = r->last.meets && whole,
                            .start_ns = sane(row->start_ns),
                            .end_ns = sane(row->end_ns)};
  if (call.end_ns < call.start_ns)
    return 0;
  in->calls[in->call_count++] = call;
  take_from_rest(r, &call, row->parent);
  return 0;
}

static int is_ddp(const struct span_row *row, const struct spans_session *session, void *arg) {
  (void)session;
  return row->module == *(uint32_t *)arg;
}

static bool backward_meets(const struct pick_session *s) {
  static const char name[] = "DistributedDataParallel";
  uint32_t id;
  if (spans_name_find(s->store, name, strlen(name), &id) != 0)
    return false;
  struct spans_filter filter = {
      .sid = s->sid, .kinds = 1u << SPAN_FORWARD, .which = SPANS_CLOSED, .columns = BLOCK_KIND | BLOCK_MODULE};
  int rc = spans_each(s->store, &filter, is_ddp, &id);
  if (rc < 0)
    db_die(s->store, "spans", rc);
  return rc == 1;
}

/* Since when to read, so that no more than `room` records come. 0: all. */
static int64_t since(const struct pick_session *s, int64_t room) {
  int64_t count =
      db_value(s->store, 0, "SELECT sum(count) FROM rollups WHERE sid = ?1 AND kind = ?2", s->sid, SPAN_COLLECTIVE) +
      db_value(s->store, 0, "SELECT count(*) FROM steps WHERE sid = ?", s->sid);
  int64_t last = s->last_ns > s->start_ns ? s->last_ns : s->start_ns;
  if (count <= room)
    return 0;
  say("rank %lld has %lld steps and collectives; only the latest are compared", (long long)s->rank, (long long)count);
  return last - (int64_t)((double)(last - s->start_ns) * (double)room / (double)count);
}

static void read_rank(const struct pick_session *s, int64_t room, struct texts *groups, struct texts *hosts,
                      struct ranks_input *in) {
  struct reading r = {.session = s, .in = in, .groups = groups, .names = spans_names_new(s->store), .from_ns = since(s, room)};
  struct spans_filter filter = {
      .sid = s->sid, .kinds = 1u << SPAN_COLLECTIVE, .which = SPANS_CLOSED, .min_start_ns = r.from_ns};
  *in = (struct ranks_input){.rank = s->rank, .backward_meets = backward_meets(s)};
  in->host = text_number(hosts, s->host ? s->host : "", s->host ? strlen(s->host) : 0);
  read_steps(&r);
  int rc = r.names ? spans_each(s->store, &filter, add_call, &r) : -ENOMEM;
  if (rc < 0)
    db_die(s->store, "spans", rc);
  spans_names_free(r.names);
  free(r.step_spans);
}

/* --- telling ------------------------------------------------------------------------------------------------------------- */

struct view {
  const struct cli *cli;
  const struct job *job;
  struct ranks_input *in;
  struct ranks_result result;
};

static struct out_cell by_step(const struct ranks_row *row, enum ranks_phase phase) {
  return row->steps ? out_int(row->phase_ns[phase] / row->steps) : out_null();
}

/* {"2": 1234}: by rank, in nanoseconds; those it waited for. */
static void waits_json(const struct view *v, size_t row, struct buf *out) {
  const char *comma = "";
  buf_puts(out, "{");
  for (size_t j = 0; j < v->result.n; j++)
    if (v->result.waits[row * v->result.n + j]) {
      buf_printf(out, "%s\"%lld\":%lld", comma, (long long)v->in[j].rank, (long long)v->result.waits[row * v->result.n + j]);
      comma = ",";
    }
  buf_puts(out, "}");
}

static int show_row(const struct view *v, struct out *out, size_t i) {
  const struct ranks_row *r = &v->result.rows[i];
  const struct pick_session *s = v->job->ranks[i];
  struct buf waits = {0};
  waits_json(v, i, &waits);
  const struct out_cell cells[COLUMNS] = {
      s->rank >= 0 ? out_int(s->rank) : out_null(),
      out_text(s->id),
      out_text(s->host),
      out_text(s->state),
      out_int(r->steps),
      r->steps ? out_int(r->mean_ns) : out_null(),
      r->steps ? out_int(r->median_ns) : out_null(),
      r->steps ? out_int(r->p95_ns) : out_null(),
      by_step(r, RANKS_DATA),
      by_step(r, RANKS_FORWARD),
      by_step(r, RANKS_BACKWARD),
      by_step(r, RANKS_OPTIMIZER),
      by_step(r, RANKS_OTHER),
      out_int(r->phase_ns[RANKS_DATA]),
      out_int(r->phase_ns[RANKS_FORWARD]),
      out_int(r->phase_ns[RANKS_BACKWARD]),
      out_int(r->phase_ns[RANKS_OPTIMIZER]),
      out_int(r->phase_ns[RANKS_OTHER]),
      out_int(r->collective_ns),
      out_int(r->waited_ns),
      r->waits_most_for != i ? out_int(v->in[r->waits_most_for].rank) : out_null(),
      out_int(r->caused_ns),
      out_int(r->last),
      out_bool(v->result.slow == (int64_t)i),
      out_raw_json(waits.data, waits.len),
  };
  int error = out_row(out, cells);
  buf_fini(&waits);
  return error;
}

static int show_rows(const struct view *v) {
  struct out *out = out_begin(stdout, v->cli->format, &v->cli->style, columns, COLUMNS);
  for (size_t i = 0; i < v->result.n; i++)
    if ((v->cli->rank < 0 || v->in[i].rank == v->cli->rank) && show_row(v, out, i))
      break;
  return out_end(out);
}

static int show_steps(const struct view *v) {
  struct out *out = out_begin(stdout, v->cli->format, &v->cli->style, step_columns, STEP_COLUMNS);
  int64_t shown = 0;
  int error = 0;
  for (size_t u = 0; u < v->result.unit_count && !error; u++, shown++) {
    const struct ranks_unit *unit = &v->result.units[u];
    if (shown == cmd_limit(v->cli)) {
      cmd_more(v->cli, shown);
      break;
    }
    const struct out_cell cells[STEP_COLUMNS] = {
        out_int(unit->index),
        out_int((int64_t)unit->ranks),
        v->result.by_steps ? out_int(unit->step_ns) : out_null(),
        out_int(unit->skew_ns),
        unit->slowest >= 0 ? out_int(v->in[unit->slowest].rank) : out_null(),
    };
    error = out_row(out, cells);
  }
  return out_end(out);
}

static const char *units_name(const struct view *v, int64_t n) {
  return v->result.by_steps ? (n == 1 ? "step" : "steps") : (n == 1 ? "collective" : "collectives");
}

static void say_basis(const struct view *v, bool hosts) {
  const struct ranks_result *r = &v->result;
  char count[UNITS_MAX], median[UNITS_MAX], p95[UNITS_MAX];
  if (!r->collectives && !r->by_backward) {
    puts("Nothing was recorded that ranks wait for each other in, so who waited is not known; the steps can be compared by "
         "their length.");
    return;
  }
  printf("Compared by %s%s%s", r->collectives ? units_of((int64_t)r->collectives, "collective", "collectives", count) : "",
         r->collectives && r->by_backward ? " and by " : "",
         r->by_backward ? "the lengths of backward, in which gradients are exchanged" : "");
  printf("%s. A rank waited for others %s a %s (median), %s (p95).\n",
         hosts ? "; clocks of different hosts are not trusted" : "", units_duration(r->skew_median_ns, median),
         r->by_steps ? "step" : "collective", units_duration(r->skew_p95_ns, p95));
}

static void say_slow(const struct view *v) {
  static const char *const phases[] = {"data_load", "forward", "backward", "optimizer_step", "the rest of the step"};
  const struct ranks_result *r = &v->result;
  char caused[UNITS_MAX], share[UNITS_MAX], more[UNITS_MAX];
  if (r->slow < 0) {
    if (r->collectives || r->by_backward)
      puts("No rank stands out.");
    return;
  }
  const struct ranks_row *row = &r->rows[r->slow];
  int64_t compared = 0, steps_ns = 0, excess;
  for (size_t u = 0; u < r->unit_count; u++) {
    compared += r->units[u].ranks > 1;
    steps_ns += r->units[u].step_ns;
  }
  printf("Rank %lld is slow: the slowest in %lld of %lld %s; others waited %s for it", (long long)v->in[r->slow].rank,
         (long long)row->last, (long long)compared, units_name(v, compared), units_duration(row->caused_ns, caused));
  if (steps_ns)
    printf(", %s of the time of the steps", units_share(row->caused_ns, steps_ns, share));
  enum ranks_phase phase = ranks_excess(r, (size_t)r->slow, &excess);
  if (phase < RANKS_PHASES)
    printf(". A step of it has %s more in %s than others", units_duration(excess, more), phases[phase]);
  puts(".");
}

/* Ranks that are missing, ended before the others, or hang. */
static void say_gaps(const struct view *v) {
  const struct job *job = v->job;
  int64_t most = 0, missing = 0;
  for (size_t i = 0; i < job->count; i++)
    most = v->result.rows[i].steps > most ? v->result.rows[i].steps : most;
  for (int64_t rank = 0; rank < job->world_size; rank++)
    if (!job_rank(job, rank) && missing++ < RANKS_SAID)
      printf("Rank %lld has no session here.\n", (long long)rank);
  if (missing > RANKS_SAID)
    printf("%lld more have none.\n", (long long)missing - RANKS_SAID);
  for (size_t i = 0, said = 0; i < job->count && said < RANKS_SAID; i++) {
    const struct pick_session *s = job->ranks[i];
    bool ended = strcmp(s->state, SESSION_RUNNING) != 0, badly = ended && strcmp(s->state, SESSION_FINISHED) != 0;
    char name[UNITS_MAX], steps[UNITS_MAX];
    if (!badly && s->exit_code <= 0 && (v->result.rows[i].steps + 1 >= most || !ended))
      continue;
    said++;
    printf("Rank %lld ended after %s", (long long)s->rank, units_of(v->result.rows[i].steps, "step", "steps", steps));
    if (s->exit_signal > 0)
      printf(" (%s)", units_signal((int)s->exit_signal, name));
    else if (s->exit_code > 0)
      printf(" (exit %lld)", (long long)s->exit_code);
    else if (badly)
      printf(" (%s)", s->state);
    printf(v->result.rows[i].steps < most ? "; others have %lld.\n" : ".\n", (long long)most);
  }
}

static void say_all(const struct view *v, bool hosts) {
  puts("");
  say_slow(v);
  say_basis(v, hosts);
  say_gaps(v);
}

/* --- the job ------------------------------------------------------------------------------------------------------------- */

/* That of --session, else the latest of several ranks in which something was trained, else the latest. */
static const struct pick_session *anchor(const struct cli *cli, const struct pick_session *sessions, size_t count) {
  const struct pick_session *found = NULL;
  bool asked = cli->session && strcmp(cli->session, "last") != 0;
  for (size_t i = count; i-- > 0;) {
    const struct pick_session *s = &sessions[i];
    if (s->world_size < 2 || s->rank < 0 || (asked && strncmp(s->id, cli->session, strlen(cli->session)) != 0))
      continue;
    if (asked || pick_trains(s))
      return s;
    found = found ? found : s;
  }
  return found;
}

static int compare(const struct cli *cli, const struct job *job) {
  struct view v = {.cli = cli, .job = job, .in = buf_alloc((job->count + 1) * sizeof *v.in)};
  struct texts groups = {0}, hosts = {0};
  for (size_t i = 0; i < job->count; i++)
    read_rank(job->ranks[i], RECORDS_MAX / (int64_t)job->count, &groups, &hosts, &v.in[i]);
  ranks_compare(v.in, job->count, &v.result);
  int error = cli->steps ? show_steps(&v) : show_rows(&v);
  if (!error && cli->format == OUT_TABLE)
    say_all(&v, hosts.count > 1);
  for (size_t i = 0; i < job->count; i++) {
    free(v.in[i].steps);
    free(v.in[i].calls);
  }
  free(v.in);
  ranks_fini(&v.result);
  texts_fini(&groups);
  texts_fini(&hosts);
  return cli_written(error);
}

int cmd_ranks(const struct cli *cli) {
  struct cli all = *cli; /* a rank is compared with the others */
  struct pick_session *sessions;
  struct job job;
  size_t count;
  all.session = NULL;
  all.rank = -1;
  int status = pick_sessions(&all, &sessions, &count);
  if (status)
    return status;
  const struct pick_session *of = anchor(cli, sessions, count);
  if (of) {
    job_find(sessions, count, of, &job);
    status = compare(cli, &job);
    job_fini(&job);
  } else {
    say("no session of a job of several ranks is in %s", cli->store_count > 1 ? "these stores" : "this store");
    status = CLI_ERROR;
  }
  pick_free(sessions, count);
  return status;
}
