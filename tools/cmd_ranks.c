/* cirron-query ranks [--steps]: reads what the ranks of a job did, has it compared (ranks.c), and tells. */
#include <string.h>
#include <time.h>

#include "../proto/ring_abi.h"
#include "../proto/store_abi.h"
#include "cmd.h"
#include "db.h"
#include "job.h"
#include "ranks.h"
#include "ranks_read.h"
#include "say.h"
#include "status_job.h"
#include "units.h"

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
    {"role", NULL, 0, OUT_NO_TABLE},
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

/* --- telling ------------------------------------------------------------------------------------------------------------- */

struct view {
  const struct cli *cli;
  const struct job *job;
  struct ranks_input *in;
  struct ranks_result result;
  struct status_job status; /* who waits for whom now, or did when it ended */
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

/* As status has it. */
static const char *role(const struct view *v, const struct pick_session *session) {
  for (size_t i = 0; i < v->status.count; i++)
    if (v->status.places[i].session == session)
      return status_role_name(v->status.ranks[i].role);
  return NULL;
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
      out_text(role(v, s)),
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
  int64_t excess;
  printf("Rank %lld is slow: the slowest in %lld of %lld %s; others waited %s for it", (long long)v->in[r->slow].rank,
         (long long)row->last, (long long)r->compared, units_name(v, r->compared), units_duration(row->caused_ns, caused));
  if (r->compared_ns)
    printf(", %s of the time%s", units_share(row->caused_ns, r->compared_ns, share), r->by_steps ? " of the steps" : "");
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
  struct buf stall = {0};
  status_say(&v->status, v->cli->style.utf8, &stall);
  fputs(buf_text(&stall), stdout);
  buf_fini(&stall);
}

/* --- the job ------------------------------------------------------------------------------------------------------------- */

/* Is there something to compare in it? */
static bool works(const struct pick_session *s) {
  return pick_trains(s) ||
         db_value(s->store, 0, "SELECT 1 FROM rollups WHERE sid = ?1 AND kind = ?2 LIMIT 1", s->sid, SPAN_COLLECTIVE);
}

/* That of --session, else the latest of several ranks with something to compare, else the latest. */
static const struct pick_session *anchor(const struct cli *cli, const struct pick_session *sessions, size_t count) {
  const struct pick_session *found = NULL;
  bool asked = cli->session && strcmp(cli->session, "last") != 0;
  for (size_t i = count; i-- > 0;) {
    const struct pick_session *s = &sessions[i];
    if (s->world_size < 2 || s->rank < 0 || (asked && strncmp(s->id, cli->session, strlen(cli->session)) != 0))
      continue;
    if (asked || works(s))
      return s;
    found = found ? found : s;
  }
  return found;
}

static int compare(const struct cli *cli, const struct job *job) {
  bool hosts;
  struct view v = {.cli = cli, .job = job, .in = ranks_read(job, &hosts)};
  struct timespec now;
  ranks_compare(v.in, job->count, &v.result);
  clock_gettime(CLOCK_REALTIME, &now);
  status_job_read(job, (int64_t)now.tv_sec * 1000000000 + now.tv_nsec, &v.status);
  int error = cli->steps ? show_steps(&v) : show_rows(&v);
  if (!error && cli->format == OUT_TABLE)
    say_all(&v, hosts);
  ranks_read_fini(v.in, job->count);
  ranks_fini(&v.result);
  status_job_fini(&v.status);
  return cli_written(error);
}

int cmd_ranks(const struct cli *cli) {
  struct pick_session *sessions;
  struct job job;
  size_t count;
  int status = pick_sessions_of_all(cli, &sessions, &count);
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
