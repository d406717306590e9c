/* A report as text: the answers first, then the tables they rest on. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../proto/ring_abi.h"
#include "report.h"
#include "text.h"
#include "units.h"

#define BAR 24 /* columns of a full bar */
#define EPOCHS_SHOWN 12
#define VALUES_SHOWN 12
#define SESSIONS_SHOWN 3
#define ERRORS_SHOWN 4

static void heading(const struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void heading(const struct cli *cli, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fputs(cli->style.colour ? "\n\033[1m" : "\n", stdout);
  vprintf(format, args);
  fputs(cli->style.colour ? "\033[0m\n" : "\n", stdout);
  va_end(args);
}

/* "Ended     killed by SIGKILL": colour is an SGR number, 0 for none. */
static void fact(const struct cli *cli, const char *label, const char *text, int colour) {
  if (cli->style.colour && colour)
    printf("%-10s\033[%dm%s\033[0m\n", label, colour, text);
  else
    printf("%-10s%s\n", label, text);
}

enum { RED = 31, GREEN = 32, YELLOW = 33 };

static void add_shown(struct buf *out, const struct cli *cli, const char *text) {
  text_show_cut(out, text, strlen(text), cli->style.utf8, 100);
}

static void print_head(const struct cli *cli, const struct report *r) {
  const struct pick_session *s = r->session;
  struct buf command = {0}, line = {0};
  char text[UNITS_MAX];
  pick_command(s, &command);
  add_shown(&line, cli, buf_text(&command));
  printf(cli->style.colour ? "\033[1m%s\033[0m\n" : "%s\n", buf_text(&line));
  buf_clear(&line);
  buf_printf(&line, "  session %.8s, pid %lld", s->id, (long long)s->pid);
  if (s->host && *s->host) {
    buf_puts(&line, " on ");
    add_shown(&line, cli, s->host);
  }
  if (s->rank >= 0 && s->world_size > 0)
    buf_printf(&line, ", rank %lld of %lld", (long long)s->rank, (long long)s->world_size);
  else if (s->rank >= 0)
    buf_printf(&line, ", rank %lld", (long long)s->rank);
  if (s->python_version && *s->python_version) {
    buf_puts(&line, ", Python ");
    add_shown(&line, cli, s->python_version);
  }
  if (s->run_id && *s->run_id) {
    buf_puts(&line, ", run ");
    add_shown(&line, cli, s->run_id);
  }
  printf("%s\n  started %s", buf_text(&line), units_time(s->start_ns, text));
  printf(strcmp(s->state, "running") == 0 ? ", %s ago\n\n" : ", took %s\n\n", units_duration(r->duration_ns, text));
  buf_fini(&command);
  buf_fini(&line);
}

static void print_training(const struct cli *cli, const struct report *r) {
  struct buf line = {0};
  char text[UNITS_MAX];
  if (!r->steps)
    return;
  buf_printf(&line, "%s", units_of(r->steps, r->unit, strcmp(r->unit, "step") == 0 ? "steps" : "batches", text));
  if (r->training_epochs)
    buf_printf(&line, " in %s", units_of((int64_t)r->training_epochs, "epoch", "epochs", text));
  int64_t span_ns = r->first_start_ns ? r->last_end_ns - r->first_start_ns - r->eval_ns : r->step_ns;
  if (span_ns <= 0)
    span_ns = r->step_ns;
  if (span_ns > 0)
    buf_printf(&line, ", %s a second", units_rate((double)r->steps * 1e9 / (double)span_ns, text));
  buf_printf(&line, "; the median %s takes %s", r->unit, units_duration(r->median_ns, text));
  if (r->step_errors)
    buf_printf(&line, "; %s with an error", units_count(r->step_errors, text));
  fact(cli, "Training", line.data, 0);
  buf_fini(&line);
}

static void print_bad_mark(const struct cli *cli, const struct report_value *v, const char *label) {
  struct buf line = {0};
  char text[UNITS_MAX];
  if (!v)
    return;
  text_show_cut(&line, v->name, v->name_len, cli->style.utf8, 40);
  buf_printf(&line, " = %s", units_real(v->bad, text));
  moment_say(&v->bad_at, &line);
  buf_printf(&line, ", the first of %s that %s not finite", units_of(v->bad_count, "value", "values", text),
             v->bad_count == 1 ? "is" : "are");
  fact(cli, label, line.data, RED);
  buf_fini(&line);
}

static void print_bad_tensors(const struct cli *cli, const struct first_bad *bad, const char *label) {
  struct buf line = {0};
  if (!bad->pass)
    return;
  first_bad_say(bad, cli->style.utf8, &line);
  fact(cli, label, line.data, RED);
  fact(cli, "", "(`cirron-query first-bad` has all of it, and the last that was good)", 0);
  buf_fini(&line);
}

/* The earlier one first. */
static void print_bad(const struct cli *cli, const struct report *r) {
  static const char label[] = "First bad";
  const struct report_value *v = report_first_bad(r);
  bool tensors_first = r->tensors.pass && (!v || r->tensors.pass->ts_ns < v->bad_ts_ns);
  if (tensors_first)
    print_bad_tensors(cli, &r->tensors, label);
  print_bad_mark(cli, v, tensors_first ? "" : label);
  if (!tensors_first)
    print_bad_tensors(cli, &r->tensors, v ? "" : label);
}

static void print_errors(const struct cli *cli, const struct report *r) {
  struct buf line = {0};
  char text[UNITS_MAX];
  int64_t sum = 0;
  if (!r->errors_count)
    return;
  for (size_t i = 0; i < r->errors_count; i++)
    sum += r->errors[i].count;
  buf_printf(&line, "%s left by an exception: ", units_of(sum, "span", "spans", text));
  for (size_t i = 0; i < r->errors_count && i < ERRORS_SHOWN; i++) {
    buf_puts(&line, i ? ", " : "");
    text_show_cut(&line, r->errors[i].name, r->errors[i].name_len, cli->style.utf8, 40);
    buf_printf(&line, " %s", units_count(r->errors[i].count, text));
  }
  buf_puts(&line, r->errors_count > ERRORS_SHOWN ? ", ..." : "");
  fact(cli, "Errors", line.data, RED);
  buf_fini(&line);
}

/* What the agent measured of itself in the process. */
static void print_own_cost(const struct cli *cli, const struct report *r) {
  struct buf line = {0};
  char text[UNITS_MAX];
  if (r->session->overhead_ns <= 0)
    return;
  buf_printf(&line, "%s of the time", units_share(r->session->overhead_ns, r->duration_ns, text));
  buf_printf(&line, " (%s) went into recording", units_duration(r->session->overhead_ns, text));
  fact(cli, "Own cost", line.data, 0);
  buf_fini(&line);
}

static void print_sheds(const struct cli *cli, const struct report *r) {
  struct buf line = {0};
  char text[UNITS_MAX];
  for (size_t i = 0; i < r->sheds_count; i++) {
    const struct report_shed *s = &r->sheds[i];
    buf_clear(&line);
    text_show_cut(&line, s->what, s->what_len, cli->style.utf8, 60);
    buf_printf(&line, ", from %s on", units_duration(s->ts_ns - r->session->start_ns, text));
    buf_printf(&line, ": recording cost %.2f %% of the time, more than CIRRON_MAX_OVERHEAD allows", s->share * 100);
    fact(cli, i ? "" : "Left out", line.data, YELLOW);
  }
  buf_fini(&line);
}

static void print_frameworks(const struct cli *cli, const struct report *r) {
  struct buf line = {0};
  char text[UNITS_MAX];
  for (size_t i = 0; i < r->frameworks_count; i++) {
    const struct report_framework *f = &r->frameworks[i];
    buf_clear(&line);
    add_shown(&line, cli, f->package);
    buf_puts(&line, " ");
    add_shown(&line, cli, f->version);
    if (f->in_range)
      buf_printf(&line, ": %s observed", units_of(f->observed, "function is", "functions are", text));
    else
      buf_printf(&line, " was not tested with (%s were): %s observed", f->tested,
                 units_of(f->observed, "function is", "functions are", text));
    fact(cli, i ? "" : "Versions", line.data, YELLOW);
    for (size_t k = 0; k < f->missing_count; k++) {
      buf_clear(&line);
      buf_puts(&line, "not as expected: ");
      add_shown(&line, cli, f->missing[k]);
      fact(cli, "", line.data, 0);
    }
  }
  buf_fini(&line);
}

/* Under an overhead check steps are missing: that has to be said before any number is read. */
static void print_check(const struct cli *cli, const struct report *r) {
  struct buf line = {0};
  if (!r->overhead.checked)
    return;
  fact(cli, "Check", "this was an overhead check: about every second block of steps was not observed and is missing here",
       YELLOW);
  for (unsigned i = 0; overhead_say(&r->overhead, i, &line); i++)
    fact(cli, "", line.data, 0);
  buf_fini(&line);
}

static void print_answers(const struct cli *cli, const struct report *r) {
  struct buf line = {0}, hint = {0};
  bool running = strcmp(r->session->state, "running") == 0;
  bool well = strcmp(r->session->state, "finished") == 0 && r->session->exit_code <= 0 && r->session->exit_signal <= 0;
  report_say_ending(r, cli->style.utf8, &line);
  fact(cli, "Ended", line.data, running ? 0 : well ? GREEN : RED);
  if (r->session->exit_signal == 9)
    fact(cli, "", "(SIGKILL often comes from the kernel, when memory runs out, or from a job's limit)", 0);
  buf_clear(&line);
  report_say_complete(r, cli->style.utf8, &line);
  fact(cli, "Data", line.data, report_complete(r) ? 0 : YELLOW);
  print_training(cli, r);
  buf_clear(&line);
  if (report_say_waiting(r, &line, &hint))
    fact(cli, "Waiting", line.data, strstr(line.data, "bottleneck") ? YELLOW : 0);
  if (hint.len)
    fact(cli, "", hint.data, 0);
  buf_clear(&line);
  if (report_say_unseen(r, &line))
    fact(cli, "Not seen", line.data, YELLOW);
  print_bad(cli, r);
  print_errors(cli, r);
  print_own_cost(cli, r);
  print_sheds(cli, r);
  print_frameworks(cli, r);
  print_check(cli, r);
  buf_fini(&line);
  buf_fini(&hint);
}

static void add_bar(struct buf *out, const struct cli *cli, int64_t part, int64_t whole) {
  static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  int64_t units = whole > 0 ? (int64_t)((double)part / (double)whole * BAR * 8 + 0.5) : 0;
  for (int64_t i = 0; i < units / 8 && i < BAR; i++)
    buf_puts(out, cli->style.utf8 ? "█" : "#");
  if (cli->style.utf8 && units / 8 < BAR)
    buf_puts(out, eighths[units % 8]);
}

static int print_phases(const struct cli *cli, const struct report *r) {
  static const struct out_column columns[] = {{"phase", NULL, 0, 0},
                                              {"time", NULL, OUT_AS_DURATION, 0},
                                              {"share", NULL, OUT_AS_COUNT, 0},
                                              {"each", "A STEP", OUT_AS_DURATION, 0},
                                              {"bar", "", 0, 0}};
  char total[UNITS_MAX], share[UNITS_MAX];
  if (!r->first.found)
    return 0;
  heading(cli, "Where the time of a step goes (%s in all)", units_duration(r->step_ns, total));
  struct out *out = out_begin(stdout, OUT_TABLE, &cli->style, columns, 5);
  for (int i = 0; i < REPORT_PHASES; i++) {
    struct buf bar = {0};
    add_bar(&bar, cli, r->phase_ns[i], r->step_ns);
    out_row(out, (const struct out_cell[]){out_text(report_phase_name(i, false)), out_int(r->phase_ns[i]),
                                           out_text(units_share(r->phase_ns[i], r->step_ns, share)),
                                           out_int(r->phase_ns[i] / r->steps), out_text(buf_text(&bar))});
    buf_fini(&bar);
  }
  return out_end(out);
}

static int step_row(struct out *out, const char *which, const struct report_step *s, const char *remark) {
  return out_row(out, (const struct out_cell[]){out_text(which), out_int_or_null(s->index, REPORT_NO_INDEX),
                                                out_int_or_null(s->epoch_index, REPORT_NO_INDEX), out_int(s->duration_ns),
                                                out_int(s->phase_ns[0]), out_int(s->phase_ns[1]), out_int(s->phase_ns[2]),
                                                out_int(s->phase_ns[3]), out_int(s->phase_ns[4]), out_text(remark)});
}

static void add_culprit(const struct report *r, const struct report_step *step, struct buf *out) {
  char text[UNITS_MAX];
  int64_t excess;
  enum report_phase phase = report_culprit(r, step, &excess);
  if (phase != REPORT_PHASES)
    buf_printf(out, "%s +%s", report_phase_name(phase, false), units_duration(excess, text));
}

static int print_steps(const struct cli *cli, const struct report *r) {
  static const struct out_column columns[] = {{"which", "", 0, 0},
                                              {"step", NULL, OUT_AS_COUNT, 0},
                                              {"epoch", NULL, OUT_AS_COUNT, 0},
                                              {"duration", NULL, OUT_AS_DURATION, 0},
                                              {"data", NULL, OUT_AS_DURATION, 0},
                                              {"forward", NULL, OUT_AS_DURATION, 0},
                                              {"backward", NULL, OUT_AS_DURATION, 0},
                                              {"optimizer", NULL, OUT_AS_DURATION, 0},
                                              {"other", NULL, OUT_AS_DURATION, 0},
                                              {"remark", "", 0, OUT_CUT}};
  if (!r->first.found)
    return 0;
  struct buf first = {0}, slowest = {0};
  heading(cli, "Steps");
  struct out *out = out_begin(stdout, OUT_TABLE, &cli->style, columns, 10);
  buf_puts(&first, "warm-up: ");
  add_culprit(r, &r->first, &first);
  add_culprit(r, &r->slowest, &slowest);
  step_row(out, "first", &r->first, r->steps > 1 && r->first.duration_ns > 2 * r->median_ns ? first.data : "");
  if (r->steps > 2)
    step_row(out, "median", &r->median, "");
  if (r->slowest.found)
    step_row(out, "slowest after it", &r->slowest, buf_text(&slowest));
  buf_fini(&first);
  buf_fini(&slowest);
  return out_end(out);
}

static int epoch_row(struct out *out, const struct report *r, const struct report_epoch *e) {
  char share[UNITS_MAX], waiting[UNITS_MAX], evals[UNITS_MAX], evaluation[2 * UNITS_MAX + 4];
  if (e->evals)
    snprintf(evaluation, sizeof evaluation, "%s (%lld)", units_duration(e->eval_ns, evals), (long long)e->evals);
  return out_row(out, (const struct out_cell[]){
                          e->eval ? out_text("evaluation") : out_int_or_null(e->index, REPORT_NO_INDEX),
                          out_int(e->duration_ns), out_text(units_share(e->duration_ns, r->duration_ns, share)),
                          e->eval ? out_null() : out_int(e->steps), e->steps ? out_int(e->median_ns) : out_null(),
                          r->first.found && e->steps ? out_text(units_share(e->data_ns, e->step_ns, waiting)) : out_null(),
                          e->evals ? out_text(evaluation) : out_null(), out_text(e->end_ns ? "" : "no end")});
}

/* Evaluation passes inside an epoch are told with it; those outside have a row of their own. Of many rows the first and last
 * are shown. */
static int print_epochs(const struct cli *cli, const struct report *r) {
  bool batches = strcmp(r->unit, "batch") == 0;
  const struct out_column columns[] = {{"epoch", NULL, 0, 0},
                                       {"duration", NULL, OUT_AS_DURATION, 0},
                                       {"share", "OF RUN", OUT_AS_COUNT, 0},
                                       {"steps", batches ? "BATCHES" : NULL, OUT_AS_COUNT, 0},
                                       {"median", batches ? "MEDIAN BATCH" : "MEDIAN STEP", OUT_AS_DURATION, 0},
                                       {"waiting", NULL, OUT_AS_COUNT, 0},
                                       {"evaluation", NULL, OUT_AS_COUNT, 0},
                                       {"remark", "", 0, 0}};
  size_t shown = 0, at = 0, left_out = 0;
  for (size_t i = 0; i < r->epochs_count; i++)
    shown += !r->epochs[i].eval || r->epochs[i].parent <= SPAN_ROOT;
  if (!shown)
    return 0;
  heading(cli, "Epochs");
  struct out *out = out_begin(stdout, OUT_TABLE, &cli->style, columns, 8);
  for (size_t i = 0; i < r->epochs_count; i++) {
    if (r->epochs[i].eval && r->epochs[i].parent > SPAN_ROOT)
      continue;
    at++;
    if (shown <= EPOCHS_SHOWN || at <= EPOCHS_SHOWN / 2 || at > shown - EPOCHS_SHOWN / 2)
      epoch_row(out, r, &r->epochs[i]);
    else
      left_out++;
  }
  int error = out_end(out);
  if (left_out)
    printf("(%zu between the first and the last %d are left out; `cirron-query sql 'SELECT * FROM epochs'` has all)\n",
           left_out, EPOCHS_SHOWN / 2);
  return error;
}

static int print_outside(const struct cli *cli, const struct report *r) {
  static const struct out_column columns[] = {
      {"part", NULL, 0, 0}, {"time", NULL, OUT_AS_DURATION, 0}, {"share", "OF RUN", OUT_AS_COUNT, 0}};
  char evals[UNITS_MAX], label[2 * UNITS_MAX], share[UNITS_MAX];
  if (!r->first.found)
    return 0;
  snprintf(label, sizeof label, "evaluation (%s)", units_of((int64_t)r->evals, "pass", "passes", evals));
  const struct {
    const char *label;
    int64_t ns;
  } parts[] = {{"before the first step: imports, set-up", r->before_ns},
               {"the steps", r->step_ns},
               {label, r->eval_ns},
               {"between steps", r->between_ns},
               {"after the last step", r->after_ns}};
  heading(cli, "Where the time of the run goes (%s)", units_duration(r->duration_ns, share));
  struct out *out = out_begin(stdout, OUT_TABLE, &cli->style, columns, 3);
  for (size_t i = 0; i < 5; i++)
    if (parts[i].ns > 0)
      out_row(out, (const struct out_cell[]){out_text(parts[i].label), out_int(parts[i].ns),
                                             out_text(units_share(parts[i].ns, r->duration_ns, share))});
  return out_end(out);
}

static int print_scopes(const struct cli *cli, const struct report *r) {
  static const struct out_column columns[] = {{"name", NULL, 0, OUT_CUT},
                                              {"count", NULL, OUT_AS_COUNT, 0},
                                              {"total", NULL, OUT_AS_DURATION, 0},
                                              {"itself", NULL, OUT_AS_DURATION, 0},
                                              {"share", "OF RUN", OUT_AS_COUNT, 0},
                                              {"median", NULL, OUT_AS_DURATION, 0},
                                              {"longest", NULL, OUT_AS_DURATION, 0},
                                              {"errors", NULL, OUT_AS_COUNT, 0}};
  char share[UNITS_MAX];
  if (!r->scopes_count)
    return 0;
  heading(cli, r->first.found ? "Scopes of the program" : "Time by span (one within another counts for both)");
  struct out *out = out_begin(stdout, OUT_TABLE, &cli->style, columns, 8);
  for (size_t i = 0; i < r->scopes_count; i++) {
    const struct report_scope *s = &r->scopes[i];
    out_row(out, (const struct out_cell[]){out_text_len(s->name, s->name_len), out_int(s->count), out_int(s->total_ns),
                                           out_int(s->self_ns), out_text(units_share(s->total_ns, r->duration_ns, share)),
                                           out_int(s->median_ns), out_int(s->max_ns), out_int(s->errors)});
  }
  return out_end(out);
}

static int print_values(const struct cli *cli, const struct report *r) {
  static const struct out_column columns[] = {{"name", "MARK", 0, OUT_CUT},           {"values", NULL, OUT_AS_COUNT, 0},
                                              {"first", NULL, OUT_AS_COUNT, 0},       {"last", NULL, OUT_AS_COUNT, 0},
                                              {"least", NULL, OUT_AS_COUNT, 0},       {"greatest", NULL, OUT_AS_COUNT, 0},
                                              {"bad", "FIRST NOT FINITE", 0, OUT_CUT}};
  char text[UNITS_MAX];
  if (!r->values_count)
    return 0;
  heading(cli, "Marks");
  struct out *out = out_begin(stdout, OUT_TABLE, &cli->style, columns, report_first_bad(r) ? 7 : 6);
  for (size_t i = 0; i < r->values_count && i < VALUES_SHOWN; i++) {
    const struct report_value *v = &r->values[i];
    struct buf bad = {0};
    if (v->bad_count) {
      buf_puts(&bad, units_real(v->bad, text));
      moment_say(&v->bad_at, &bad);
    }
    out_row(out, (const struct out_cell[]){out_text_len(v->name, v->name_len), out_int(v->count), out_real(v->first),
                                           out_real(v->last), v->finite ? out_real(v->min) : out_null(),
                                           v->finite ? out_real(v->max) : out_null(), out_text(buf_text(&bad))});
    buf_fini(&bad);
  }
  int error = out_end(out);
  if (r->values_count > VALUES_SHOWN)
    printf("(%zu more names; `cirron-query marks` has all)\n", r->values_count - VALUES_SHOWN);
  return error;
}

static int print_ranks(const struct cli *cli, const struct report *r) {
  static const struct out_column columns[] = {{"rank", NULL, OUT_AS_COUNT, 0},
                                              {"session", NULL, OUT_AS_ID, 0},
                                              {"host", NULL, 0, OUT_CUT},
                                              {"steps", NULL, OUT_AS_COUNT, 0},
                                              {"mean", "MEAN STEP", OUT_AS_DURATION, 0},
                                              {"waiting", NULL, OUT_AS_COUNT, 0},
                                              {"state", NULL, 0, 0}};
  char share[UNITS_MAX];
  if (r->ranks_count < 2)
    return 0;
  heading(cli, "Ranks of this job (--rank N reports on another)");
  struct out *out = out_begin(stdout, OUT_TABLE, &cli->style, columns, 7);
  for (size_t i = 0; i < r->ranks_count; i++) {
    const struct report_rank *k = &r->ranks[i];
    out_row(out, (const struct out_cell[]){out_int(k->session->rank), out_text(k->session->id), out_text(k->session->host),
                                           out_int(k->steps), out_int(k->step_ns / k->steps),
                                           out_text(units_share(k->data_ns, k->step_ns, share)), out_text(k->session->state)});
  }
  return out_end(out);
}

/* Why there is nothing to say about training. */
static void print_no_training(const struct report *r) {
  if (r->steps)
    return;
  if (!r->scopes_count && !r->unfinished)
    puts("\nNothing was recorded but the process itself. Spans come from PyTorch, Keras, Lightning and the Trainer while they\n"
         "train or evaluate, and from `import cirron as ci` with ci.scope(...).");
  else if (r->evals && !r->training_epochs)
    puts("\nNo training step: it only evaluated (a step needs an optimizer's update).");
  else
    puts("\nNo training step was recorded. A step is a batch of a loader, or an update by an optimizer; `cirron-query tree` "
         "shows what\n"
         "there is.");
}

static void print_others(const struct cli *cli, const struct report *r) {
  struct buf line = {0}, command = {0};
  size_t others = 0;
  char text[UNITS_MAX];
  for (size_t i = r->sessions_count; i-- > 0;) {
    const struct pick_session *s = &r->sessions[i];
    if (s == r->session || pick_same_job(s, r->session) || others++ >= SESSIONS_SHOWN)
      continue;
    buf_clear(&command);
    pick_command(s, &command);
    buf_printf(&line, "%s%.8s (", line.len ? ", " : "", s->id);
    text_show_cut(&line, buf_text(&command), command.len, cli->style.utf8, 40);
    buf_puts(&line, ")");
  }
  if (others)
    printf("\nThe store has %s: %s%s. --session ID reports on one, `cirron-query sessions` lists all.\n",
           units_of((int64_t)others, "other session", "other sessions", text), buf_text(&line),
           others > SESSIONS_SHOWN ? ", ..." : "");
  buf_fini(&line);
  buf_fini(&command);
}

/* What was taken of weights and gradients, and what it cost. */
static void print_snapshots(const struct cli *cli, const struct report *r) {
  struct snaps_sums s;
  struct buf last = {0};
  char a[UNITS_MAX], b[UNITS_MAX];
  size_t count = r->tensors.passes.count;
  if (!count)
    return;
  snaps_passes_sum(&r->tensors.passes, &s);
  snaps_pass_say(&r->tensors.passes.items[count - 1], &last);
  heading(cli, "Snapshots");
  printf("%s of %s, the last %s; `cirron-query snapshots` shows them.\n", units_of((int64_t)count, "snapshot", "snapshots", a),
         units_of(s.tensors, "tensor", "tensors", b), last.data);
  printf("The training waited %s for them and listed them in %s", units_duration(s.wait_ns, a), units_duration(s.list_ns, b));
  printf("; reading and computing took %s", units_duration(s.read_ns, a));
  if (s.own)
    printf(", of %s in the process itself", units_of(s.own, "snapshot", "snapshots", a));
  puts(".");
  if (s.torn)
    printf("%s of %s %s torn: training went on before they were read (CIRRON_SNAPSHOT_WAIT_MS).\n", units_count(s.torn, a),
           units_of(s.records, "record", "records", b), s.torn == 1 ? "is" : "are");
  if (s.blobs)
    printf("%s wrote tensors to files.\n", units_of(s.blobs, "snapshot", "snapshots", a));
  if (s.blob_errors)
    printf("The files of %s could not be written: %s.\n", units_of(s.blob_errors, "snapshot", "snapshots", a),
           strerror((int)s.blob_error));
  buf_fini(&last);
}

int report_text(const struct cli *cli, const struct report *r) {
  int (*const parts[])(const struct cli *, const struct report *) = {print_phases, print_steps,  print_epochs, print_outside,
                                                                     print_scopes, print_values, print_ranks};
  int error = 0;
  print_head(cli, r);
  print_answers(cli, r);
  print_no_training(r);
  for (size_t i = 0; i < sizeof parts / sizeof *parts && !error; i++)
    error = parts[i](cli, r);
  print_snapshots(cli, r);
  print_others(cli, r);
  return error ? error : out_file_error(stdout);
}
