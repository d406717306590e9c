/* cirron-query first-bad: the first number that was not finite, of what was marked and of weights and gradients, and the last good one. */
#include <stdlib.h>
#include <string.h>

#include "../proto/store_abi.h"
#include "cmd.h"
#include "job.h"
#include "jsontext.h"
#include "report.h"
#include "say.h"
#include "snaps_table.h"
#include "text.h"
#include "units.h"

#define MARKS_SHOWN 8

struct finding {
  const struct pick_session *session;
  struct report marks; /* its values alone */
  struct first_bad tensors;
  const struct report_value **bad; /* those that are, the first first */
  size_t bad_count;
};

static bool is_bad(const struct finding *f) {
  return f->bad_count || f->tensors.pass;
}

static bool tensors_first(const struct finding *f) {
  return f->tensors.pass && (!f->bad_count || f->tensors.pass->ts_ns < f->bad[0]->bad_ts_ns);
}

static int64_t when(const struct finding *f) {
  return tensors_first(f) ? f->tensors.pass->ts_ns : f->bad_count ? f->bad[0]->bad_ts_ns : INT64_MAX;
}

static int by_mark(const void *a, const void *b) {
  const struct report_value *x = *(const struct report_value *const *)a, *y = *(const struct report_value *const *)b;
  return (x->bad_mark > y->bad_mark) - (x->bad_mark < y->bad_mark);
}

static void find(const struct cli *cli, const struct pick_session *session, struct finding *out) {
  struct cli one = *cli;
  one.store = session->store;
  *out = (struct finding){.session = session, .marks = {.session = session}};
  report_marks(&one, &out->marks);
  first_bad_find(session, &out->tensors);
  out->bad = buf_alloc((out->marks.values_count + 1) * sizeof *out->bad);
  for (size_t i = 0; i < out->marks.values_count; i++)
    if (out->marks.values[i].bad_count)
      out->bad[out->bad_count++] = &out->marks.values[i];
  if (out->bad_count)
    qsort(out->bad, out->bad_count, sizeof *out->bad, by_mark);
}

static void finding_fini(struct finding *f) {
  for (size_t i = 0; i < f->marks.values_count; i++)
    free(f->marks.values[i].name);
  free(f->marks.values);
  free(f->bad);
  first_bad_fini(&f->tensors);
}

static void good_place(const struct finding *f, const struct report_value *v, struct moment *out) {
  moment_find(f->session->store, f->session->sid, v->good_mark, v->good_ts_ns, out);
}

/* --- what cannot be told ------------------------------------------------------------------------------------------------- */

static void not_judged(const struct finding *f, void (*each)(void *arg, const char *line), void *arg) {
  const struct first_bad *t = &f->tensors;
  bool only_epochs = true;
  struct buf line = {0};
  char a[UNITS_MAX], b[UNITS_MAX];
  for (size_t i = 0; i < t->passes.count; i++)
    only_epochs = only_epochs && t->passes.items[i].reason == SNAPS_EPOCH;
  if (!f->marks.values_count)
    each(arg, "the loss: no number was marked");
  if (!t->kept)
    each(arg, "weights and gradients: this store was written by a version that took no snapshots");
  else if (!t->passes.count)
    each(arg, "weights and gradients: there are no snapshots (CIRRON_SNAPSHOTS)");
  else if (only_epochs)
    each(arg, "weights and gradients between the ends of epochs (CIRRON_SNAPSHOT_STEPS=N has snapshots every N steps)");
  if (t->passes.count && !t->gradients)
    each(arg, "gradients: there were none when the snapshot was taken, they had been set to None");
  if (t->unread) {
    buf_printf(&line, "%s of %s in that snapshot: not read", units_count(t->unread, a),
               units_of(t->records, "tensor", "tensors", b));
    each(arg, line.data);
  }
  buf_clear(&line);
  if (t->torn) {
    buf_printf(&line, "%s of that snapshot %s torn: training went on while it was read, so numbers may be of a step later",
               units_of(t->torn, "tensor", "tensors", a), t->torn == 1 ? "is" : "are");
    each(arg, line.data);
  }
  buf_clear(&line);
  if (f->session->dropped_total > 0) {
    buf_printf(&line, "%s that %s lost", units_of(f->session->dropped_total, "record", "records", a),
               f->session->dropped_total == 1 ? "was" : "were");
    each(arg, line.data);
  }
  if (strcmp(f->session->state, SESSION_RUNNING) == 0)
    each(arg, "what is to come: it is still running");
  buf_fini(&line);
}

/* --- JSON ---------------------------------------------------------------------------------------------------------------- */

static json_t *text_or_null(const char *text, size_t len) {
  struct buf json = {0};
  text_json(&json, text, len);
  json_t *value = json_loadb(json.data, json.len, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
  buf_fini(&json);
  return value ? value : json_null();
}

static json_t *index_of(int64_t index) {
  return index == MOMENT_NO_INDEX ? json_null() : json_integer(index);
}

static json_t *real_of(double value) {
  char text[UNITS_MAX];
  return isnan(value) ? json_null() : isinf(value) ? json_string(units_real(value, text)) : json_real(value);
}

static json_t *moment_object(const struct moment *m, int64_t ts_ns) {
  return json_pack("{s:o,s:b,s:o,s:I}", "step", index_of(m->step), "in_step", m->in_step, "epoch", index_of(m->epoch), "ts_ns",
                   (json_int_t)ts_ns);
}

static json_t *mark_object(const struct finding *f, const struct report_value *v) {
  char text[UNITS_MAX];
  json_t *o = moment_object(&v->bad_at, v->bad_ts_ns), *good = json_null();
  if (v->has_good) {
    struct moment at;
    good_place(f, v, &at);
    good = moment_object(&at, v->good_ts_ns);
    json_object_set_new(good, "value", json_real(v->good));
  }
  json_object_set_new(o, "name", text_or_null(v->name, v->name_len));
  json_object_set_new(o, "value", json_string(units_real(v->bad, text)));
  json_object_set_new(o, "count", json_integer(v->bad_count));
  json_object_set_new(o, "last_good", good);
  return o;
}

static json_t *pass_object(const struct snaps_pass *pass, const struct moment *at) {
  if (!pass)
    return json_null();
  json_t *o = moment_object(at, pass->ts_ns);
  json_object_set_new(o, "pass", json_integer(pass->number));
  json_object_set_new(o, "reason", json_string(snaps_reason_name(pass->reason)));
  return o;
}

static json_t *tensor_object(const struct first_bad_tensor *t) {
  json_t *shape = jsontext_parse(t->shape, strlen(t->shape), JSON_ARRAY);
  return json_pack("{s:o,s:o,s:s,s:o,s:I,s:I,s:I,s:I,s:b,s:o}", "tensor_name", text_or_null(t->name, t->name_len), "model",
                   text_or_null(t->model, t->model_len), "kind", t->what == SNAPS_GRADIENT ? "gradient" : "weight", "shape",
                   shape ? shape : json_array(), "count", (json_int_t)t->count, "nan", (json_int_t)t->nans, "inf",
                   (json_int_t)t->infs, "neg_inf", (json_int_t)t->neg_infs, "torn", t->torn, "last_good_norm",
                   real_of(t->good_norm));
}

static json_t *snapshot_object(const struct first_bad *t) {
  int64_t from, to;
  json_t *o = pass_object(t->pass, &t->at), *tensors = json_array();
  for (size_t i = 0; i < t->count; i++)
    json_array_append_new(tensors, tensor_object(&t->tensors[i]));
  bool steps = first_bad_steps(t, &from, &to);
  json_object_set_new(o, "records", json_integer(t->records));
  json_object_set_new(o, "tensors", tensors);
  json_object_set_new(o, "began_after_step", steps ? json_integer(from) : json_null());
  json_object_set_new(o, "began_by_step", steps ? json_integer(to) : json_null());
  return o;
}

static void append_line(void *arg, const char *line) {
  json_array_append_new(arg, json_string(line));
}

static json_t *ranks_array(const struct finding *all, size_t count) {
  json_t *list = json_array();
  for (size_t i = 0; count > 1 && i < count; i++)
    json_array_append_new(list, json_pack("{s:I,s:s,s:b,s:o}", "rank", (json_int_t)all[i].session->rank, "session_id",
                                          all[i].session->id, "bad", is_bad(&all[i]), "ts_ns",
                                          is_bad(&all[i]) ? json_integer(when(&all[i])) : json_null()));
  return list;
}

static int print_json(const struct cli *cli, const struct finding *f, const struct finding *all, size_t count) {
  struct buf line = {0};
  json_t *o = json_object(), *marks = json_array(), *unknown = json_array();
  for (size_t i = 0; i < f->bad_count; i++)
    json_array_append_new(marks, mark_object(f, f->bad[i]));
  not_judged(f, append_line, unknown);
  json_object_set_new(o, "session_id", json_string(f->session->id));
  json_object_set_new(o, "rank", f->session->rank >= 0 ? json_integer(f->session->rank) : json_null());
  json_object_set_new(o, "bad", json_boolean(is_bad(f)));
  json_object_set_new(o, "first", !is_bad(f) ? json_null() : json_string(tensors_first(f) ? "snapshot" : "mark"));
  json_object_set_new(o, "marks", marks);
  json_object_set_new(o, "snapshot", f->tensors.pass ? snapshot_object(&f->tensors) : json_null());
  json_object_set_new(o, "last_good_snapshot", pass_object(f->tensors.good, &f->tensors.good_at));
  json_object_set_new(o, "snapshots", json_integer((json_int_t)f->tensors.passes.count));
  json_object_set_new(o, "not_judged", unknown);
  json_object_set_new(o, "ranks", ranks_array(all, count));
  if (cli->format == OUT_JSONL)
    jsontext_dump(&line, o);
  else
    json_dumpf(o, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(17));
  printf("%s\n", buf_text(&line));
  buf_fini(&line);
  json_decref(o);
  return out_file_error(stdout);
}

/* --- text ---------------------------------------------------------------------------------------------------------------- */

static void print_line(const char *label, const char *text) {
  printf("%-11s%s\n", label, text);
}

static void print_mark(const struct cli *cli, const struct finding *f, const struct report_value *v, const char *label) {
  struct buf line = {0};
  char text[UNITS_MAX];
  text_show_cut(&line, v->name, v->name_len, cli->style.utf8, 40);
  buf_printf(&line, " = %s", units_real(v->bad, text));
  moment_say(&v->bad_at, &line);
  buf_printf(&line, v->bad_count == 1 ? ", the only one of its values" : ", the first of %s that are not finite",
             units_of(v->bad_count, "value", "values", text));
  print_line(label, line.data);
  buf_clear(&line);
  if (v->has_good) {
    struct moment at;
    good_place(f, v, &at);
    buf_printf(&line, "the last good one: %s", units_real(v->good, text));
    moment_say(&at, &line);
    print_line("", line.data);
  } else {
    print_line("", "there was no good one before it");
  }
  buf_fini(&line);
}

static void print_steps(const struct first_bad *t, struct buf *line) {
  int64_t from, to;
  if (!first_bad_steps(t, &from, &to))
    return;
  if (to == from + 1)
    buf_printf(line, "; so it began in step %lld", (long long)to);
  else
    buf_printf(line, "; so it began in one of the steps %lld to %lld", (long long)from + 1, (long long)to);
}

static void print_pass(const struct cli *cli, const struct first_bad *t, const char *label) {
  struct buf line = {0};
  first_bad_say(t, cli->style.utf8, &line);
  print_line(label, line.data);
  buf_clear(&line);
  if (t->good) {
    buf_puts(&line, "the last good one: ");
    snaps_pass_say(t->good, &line);
    print_steps(t, &line);
  } else {
    buf_puts(&line, "it is the first snapshot");
  }
  print_line("", line.data);
  buf_fini(&line);
}

static void print_well(const struct finding *f) {
  const struct first_bad *t = &f->tensors;
  struct buf line = {0};
  char a[UNITS_MAX], b[UNITS_MAX];
  int64_t values = 0;
  for (size_t i = 0; i < f->marks.values_count; i++)
    values += f->marks.values[i].count;
  if (values)
    buf_printf(&line, "none: %s marked", units_of(values, "number", "numbers", a));
  if (t->passes.count)
    buf_printf(&line, "%s%s with %s",
               values ? " and " : "none: ", units_of((int64_t)t->passes.count, "snapshot", "snapshots", a),
               units_of(t->records, "tensor", "tensors", b));
  buf_puts(&line, line.len ? ", all finite" : "nothing to judge by");
  print_line("First bad", line.data);
  buf_fini(&line);
}

static void print_unknown(void *arg, const char *line) {
  bool *first = arg;
  print_line(*first ? "Not judged" : "", line);
  *first = false;
}

static void print_ranks(const struct finding *f, const struct finding *all, size_t count) {
  struct buf line = {0};
  char text[UNITS_MAX];
  for (size_t i = 0; i < count; i++) {
    if (&all[i] == f)
      continue;
    buf_printf(&line, "%srank %lld ", line.len ? ", " : "", (long long)all[i].session->rank);
    if (!is_bad(&all[i]))
      buf_puts(&line, "has none");
    else
      buf_printf(&line, "%s later", units_duration(when(&all[i]) - when(f), text));
  }
  if (line.len)
    print_line("Others", line.data);
  buf_fini(&line);
}

static int print_tensors(const struct cli *cli, const struct first_bad *t) {
  bool models = false;
  int64_t limit = cmd_limit(cli);
  int error = 0;
  for (size_t i = 1; i < t->count; i++)
    models = models || strcmp(t->tensors[i].model, t->tensors[0].model) != 0;
  const struct out_column columns[] = {{"tensor", NULL, 0, OUT_CUT},
                                       {"model", NULL, 0, models ? OUT_CUT : OUT_NO_TABLE},
                                       {"kind", NULL, 0, 0},
                                       {"shape", NULL, 0, 0},
                                       {"nan", NULL, OUT_AS_COUNT, 0},
                                       {"inf", "+INF", OUT_AS_COUNT, 0},
                                       {"neg_inf", "-INF", OUT_AS_COUNT, 0},
                                       {"count", "OF", OUT_AS_COUNT, 0},
                                       {"norm", "LAST GOOD NORM", OUT_AS_COUNT, 0},
                                       {"torn", "", 0, 0}};
  enum { COLUMNS = sizeof columns / sizeof *columns };
  if (!t->pass)
    return 0;
  putchar('\n');
  struct out *out = out_begin(stdout, OUT_TABLE, &cli->style, columns, COLUMNS);
  for (size_t i = 0; i < t->count && (int64_t)i < limit && !error; i++) {
    const struct first_bad_tensor *one = &t->tensors[i];
    char norm[32];
    error = out_row(out, (const struct out_cell[COLUMNS]){
                             out_text_len(one->name, one->name_len), out_text_len(one->model, one->model_len),
                             out_text(one->what == SNAPS_GRADIENT ? "gradient" : "weight"), out_text(one->shape),
                             out_int(one->nans), out_int(one->infs), out_int(one->neg_infs), out_int(one->count),
                             snaps_number(one->good_norm, norm), out_text(one->torn ? "torn" : "")});
  }
  int ended = out_end(out);
  if (!error && (int64_t)t->count > limit)
    cmd_more(cli, limit);
  return error ? error : ended;
}

static int print_text(const struct cli *cli, const struct finding *f, const struct finding *all, size_t count) {
  const char *label = "First bad";
  bool snapshot_first = tensors_first(f), first = true;
  printf("Session %.8s", f->session->id);
  if (f->session->rank >= 0)
    printf(", rank %lld", (long long)f->session->rank);
  puts("\n");
  if (!is_bad(f))
    print_well(f);
  if (snapshot_first)
    print_pass(cli, &f->tensors, label);
  for (size_t i = 0; i < f->bad_count && i < MARKS_SHOWN; i++)
    print_mark(cli, f, f->bad[i], i || snapshot_first ? "" : label);
  if (f->bad_count > MARKS_SHOWN)
    printf("%11s(%zu more names; --json has all)\n", "", f->bad_count - MARKS_SHOWN);
  if (f->tensors.pass && !snapshot_first)
    print_pass(cli, &f->tensors, "Then");
  print_ranks(f, all, count);
  not_judged(f, print_unknown, &first);
  return print_tensors(cli, &f->tensors);
}

/* Of a job all its ranks, and the one in which it began. */
static int judge(const struct cli *cli, const struct job *job) {
  struct finding *all = buf_alloc(job->count * sizeof *all), *found = all;
  for (size_t i = 0; i < job->count; i++) {
    find(cli, job->ranks[i], &all[i]);
    if (when(&all[i]) < when(found))
      found = &all[i];
  }
  int error = cli->format == OUT_TABLE ? print_text(cli, found, all, job->count) : print_json(cli, found, all, job->count);
  int status = cli_written(error);
  status = status ? status : is_bad(found) ? CLI_CHECK : CLI_OK;
  for (size_t i = 0; i < job->count; i++)
    finding_fini(&all[i]);
  free(all);
  return status;
}

int cmd_first_bad(const struct cli *cli) {
  struct pick_session *sessions;
  struct job job;
  size_t count;
  if (cli->format == OUT_CSV) {
    say("first-bad has no form csv; it has table, json and jsonl");
    return CLI_USAGE;
  }
  int status = pick_sessions(cli, &sessions, &count);
  if (status)
    return status;
  const struct pick_session *session = pick_main(sessions, count);
  if (session) {
    job_find(sessions, count, session, &job);
    status = judge(cli, &job);
    job_fini(&job);
  } else {
    say("there is no session in %s", cli->store_count > 1 ? "these stores" : "this store");
    status = CLI_ERROR;
  }
  pick_free(sessions, count);
  return status;
}
