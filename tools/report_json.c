/* A report as one JSON object: the same facts as the text, times in nanoseconds, special floats as strings. */
#include <math.h>
#include <string.h>

#include "jsontext.h"
#include "report.h"
#include "text.h"
#include "units.h"

/* Any bytes: what is no UTF-8 becomes U+FFFD. */
static json_t *text_or_null(const char *text, size_t len) {
  struct buf json = {0};
  if (!text)
    return json_null();
  text_json(&json, text, len);
  json_t *value = json_loadb(json.data, json.len, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
  buf_fini(&json);
  return value ? value : json_null();
}

static json_t *text_of(const char *text) {
  return text_or_null(text, text ? strlen(text) : 0);
}

static json_t *index_of(int64_t index) {
  return index == REPORT_NO_INDEX ? json_null() : json_integer(index);
}

static json_t *known(int64_t value, int64_t none) {
  return value == none ? json_null() : json_integer(value);
}

static json_t *real_of(double value) {
  char text[UNITS_MAX];
  return isfinite(value) ? json_real(value) : json_string(units_real(value, text));
}

static json_t *parsed(const char *text, json_type type, json_t *instead) {
  json_t *value = jsontext_parse(text, text ? strlen(text) : 0, type);
  if (!value)
    return instead;
  json_decref(instead);
  return value;
}

static void set(json_t *object, const char *key, json_t *value) {
  json_object_set_new(object, key, value);
}

static json_t *session_object(const struct report *r) {
  const struct pick_session *s = r->session;
  json_t *o = json_object();
  set(o, "id", json_string(s->id));
  set(o, "pid", json_integer(s->pid));
  set(o, "ppid", known(s->ppid, -1));
  set(o, "rank", known(s->rank, -1));
  set(o, "world_size", known(s->world_size, -1));
  set(o, "host", text_of(s->host));
  set(o, "argv", parsed(s->argv, JSON_ARRAY, json_array()));
  set(o, "python_version", text_of(s->python_version));
  set(o, "run_id", text_of(s->run_id));
  set(o, "state", text_of(s->state));
  set(o, "exit_code", known(s->exit_code, -1));
  set(o, "exit_signal", known(s->exit_signal, -1));
  set(o, "start_ns", json_integer(s->start_ns));
  set(o, "end_ns", known(s->end_ns, 0));
  set(o, "spans", json_integer(s->spans));
  set(o, "marks", json_integer(s->marks));
  set(o, "overhead_ns", json_integer(s->overhead_ns));
  bool measured = s->overhead_ns > 0 && r->duration_ns > 0;
  set(o, "overhead_ratio", measured ? json_real((double)s->overhead_ns / (double)r->duration_ns) : json_null());
  return o;
}

static json_t *phases_object(const int64_t *phase_ns) {
  json_t *o = json_object();
  for (int i = 0; i < REPORT_PHASES; i++)
    set(o, report_phase_name((enum report_phase)i, true), json_integer(phase_ns[i]));
  return o;
}

static json_t *step_object(const struct report *r, const struct report_step *s) {
  int64_t excess;
  if (!s->found)
    return json_null();
  json_t *o = json_object();
  set(o, "index", index_of(s->index));
  set(o, "epoch", index_of(s->epoch_index));
  set(o, "start_ns", json_integer(s->start_ns));
  set(o, "dur_ns", json_integer(s->duration_ns));
  set(o, "phases_ns", phases_object(s->phase_ns));
  set(o, "error", json_boolean(s->error));
  enum report_phase culprit = report_culprit(r, s, &excess);
  set(o, "slow_phase", culprit == REPORT_PHASES ? json_null() : json_string(report_phase_name(culprit, true)));
  set(o, "slow_phase_excess_ns", json_integer(excess));
  return o;
}

static json_t *sheds_array(const struct report *r) {
  json_t *array = json_array();
  for (size_t i = 0; i < r->sheds_count; i++)
    json_array_append_new(array, json_pack("{s:o,s:I,s:f}", "what", text_or_null(r->sheds[i].what, r->sheds[i].what_len),
                                           "ts_ns", (json_int_t)r->sheds[i].ts_ns, "overhead_ratio", r->sheds[i].share));
  return array;
}

static json_t *frameworks_array(const struct report *r) {
  json_t *array = json_array();
  for (size_t i = 0; i < r->frameworks_count; i++) {
    const struct report_framework *f = &r->frameworks[i];
    json_t *missing = json_array();
    for (size_t k = 0; k < f->missing_count; k++)
      json_array_append_new(missing, text_of(f->missing[k]));
    json_array_append_new(array, json_pack("{s:o,s:o,s:o,s:b,s:I,s:o}", "package", text_of(f->package), "version",
                                           text_of(f->version), "tested", text_of(f->tested), "in_range", f->in_range,
                                           "observed", (json_int_t)f->observed, "missing", missing));
  }
  return array;
}

static json_t *training_object(const struct report *r) {
  struct buf verdict = {0}, hint = {0};
  json_t *o = json_object();
  set(o, "unit", json_string(r->unit));
  set(o, "steps", json_integer(r->steps));
  set(o, "epochs", json_integer((json_int_t)r->training_epochs));
  set(o, "step_ns", json_integer(r->step_ns));
  set(o, "median_ns", json_integer(r->median_ns));
  set(o, "step_errors", json_integer(r->step_errors));
  if (r->first.found) {
    set(o, "phases_ns", phases_object(r->phase_ns));
    set(o, "waiting_share", json_real(r->step_ns > 0 ? (double)r->phase_ns[REPORT_DATA] / (double)r->step_ns : 0));
  }
  bool said = report_say_waiting(r, &verdict, &hint);
  set(o, "waiting", said ? text_of(buf_text(&verdict)) : json_null());
  set(o, "hint", hint.len ? text_of(hint.data) : json_null());
  set(o, "first_step", step_object(r, &r->first));
  set(o, "median_step", step_object(r, &r->median));
  set(o, "slowest_step", step_object(r, &r->slowest));
  buf_fini(&verdict);
  buf_fini(&hint);
  return o;
}

static json_t *epochs_array(const struct report *r) {
  json_t *list = json_array();
  for (size_t i = 0; i < r->epochs_count; i++) {
    const struct report_epoch *e = &r->epochs[i];
    json_t *o = json_object();
    set(o, "kind", json_string(e->eval ? "eval" : "epoch"));
    set(o, "index", index_of(e->index));
    set(o, "start_ns", json_integer(e->start_ns));
    set(o, "end_ns", known(e->end_ns, 0));
    set(o, "dur_ns", json_integer(e->duration_ns));
    set(o, "steps", json_integer(e->steps));
    set(o, "step_ns", json_integer(e->step_ns));
    set(o, "median_ns", json_integer(e->median_ns));
    set(o, "data_load_ns", json_integer(e->data_ns));
    set(o, "evals", json_integer(e->evals));
    set(o, "eval_ns", json_integer(e->eval_ns));
    json_array_append_new(list, o);
  }
  return list;
}

static json_t *bad_object(const struct report_value *v) {
  json_t *o = json_object();
  set(o, "value", real_of(v->bad));
  set(o, "count", json_integer(v->bad_count));
  set(o, "step", index_of(v->bad_at.step));
  set(o, "in_step", json_boolean(v->bad_at.in_step));
  set(o, "epoch", index_of(v->bad_at.epoch));
  set(o, "ts_ns", json_integer(v->bad_ts_ns));
  return o;
}

static json_t *marks_array(const struct report *r) {
  json_t *list = json_array();
  for (size_t i = 0; i < r->values_count; i++) {
    const struct report_value *v = &r->values[i];
    json_t *o = json_object();
    set(o, "name", text_or_null(v->name, v->name_len));
    set(o, "count", json_integer(v->count));
    set(o, "first", real_of(v->first));
    set(o, "last", real_of(v->last));
    set(o, "min", v->finite ? real_of(v->min) : json_null());
    set(o, "max", v->finite ? real_of(v->max) : json_null());
    set(o, "first_not_finite", v->bad_count ? bad_object(v) : json_null());
    json_array_append_new(list, o);
  }
  return list;
}

static json_t *scopes_array(const struct report *r) {
  json_t *list = json_array();
  for (size_t i = 0; i < r->scopes_count; i++) {
    const struct report_scope *s = &r->scopes[i];
    json_t *o = json_object();
    set(o, "name", text_or_null(s->name, s->name_len));
    set(o, "kind", json_string(cli_kind_name(s->kind)));
    set(o, "count", json_integer(s->count));
    set(o, "errors", json_integer(s->errors));
    set(o, "total_ns", json_integer(s->total_ns));
    set(o, "self_ns", json_integer(s->self_ns));
    set(o, "min_ns", json_integer(s->min_ns));
    set(o, "max_ns", json_integer(s->max_ns));
    set(o, "median_ns", json_integer(s->median_ns));
    json_array_append_new(list, o);
  }
  return list;
}

static json_t *data_object(const struct report *r) {
  json_t *o = json_object(), *losses = json_object();
  for (size_t i = 0; i < r->losses_count; i++)
    set(losses, r->losses[i].reason, json_integer(r->losses[i].count));
  set(o, "complete", json_boolean(report_complete(r)));
  set(o, "lost", json_integer(r->lost));
  set(o, "dropped", losses);
  set(o, "unfinished", json_integer(r->unfinished));
  return o;
}

static json_t *open_array(const struct report *r) {
  json_t *list = json_array();
  for (size_t i = 0; i < r->open_count; i++) {
    const struct report_open *p = &r->open[i];
    json_t *o = json_object();
    set(o, "name", text_or_null(p->name, p->name_len));
    set(o, "kind", json_string(cli_kind_name(p->kind)));
    set(o, "index", index_of(p->index));
    set(o, "module", text_or_null(p->module, p->module_len));
    set(o, "start_ns", json_integer(p->start_ns));
    json_array_append_new(list, o);
  }
  return list;
}

static json_t *errors_array(const struct report *r) {
  json_t *list = json_array();
  for (size_t i = 0; i < r->errors_count; i++) {
    json_t *o = json_object();
    set(o, "name", text_or_null(r->errors[i].name, r->errors[i].name_len));
    set(o, "count", json_integer(r->errors[i].count));
    json_array_append_new(list, o);
  }
  return list;
}

static json_t *ranks_array(const struct report *r) {
  json_t *list = json_array();
  for (size_t i = 0; i < r->ranks_count; i++) {
    const struct report_rank *k = &r->ranks[i];
    json_t *o = json_object();
    set(o, "rank", json_integer(k->session->rank));
    set(o, "session_id", json_string(k->session->id));
    set(o, "steps", json_integer(k->steps));
    set(o, "step_ns", json_integer(k->step_ns));
    set(o, "data_load_ns", json_integer(k->data_ns));
    json_array_append_new(list, o);
  }
  return list;
}

static json_t *run_object(const struct report *r) {
  json_t *o = json_object();
  set(o, "dur_ns", json_integer(r->duration_ns));
  set(o, "before_ns", json_integer(r->before_ns));
  set(o, "steps_ns", json_integer(r->step_ns));
  set(o, "eval_ns", json_integer(r->eval_ns));
  set(o, "evals", json_integer((json_int_t)r->evals));
  set(o, "between_ns", json_integer(r->between_ns));
  set(o, "after_ns", json_integer(r->after_ns));
  return o;
}

static json_t *snapshots_object(const struct report *r) {
  const struct first_bad *t = &r->tensors;
  struct snaps_sums sums;
  json_t *o = json_object(), *bad = json_null();
  snaps_passes_sum(&t->passes, &sums);
  if (t->pass)
    bad = json_pack("{s:I,s:o,s:o,s:I,s:I,s:o}", "pass", (json_int_t)t->pass->number, "epoch", index_of(t->pass->epoch), "step",
                    index_of(t->pass->step), "ts_ns", (json_int_t)t->pass->ts_ns, "tensors", (json_int_t)t->count,
                    "tensor_name", text_or_null(t->tensors[0].name, t->tensors[0].name_len));
  set(o, "passes", json_integer((json_int_t)t->passes.count));
  set(o, "records", json_integer(sums.records));
  set(o, "tensors", json_integer(sums.tensors));
  set(o, "torn", json_integer(sums.torn));
  set(o, "list_ns", json_integer(sums.list_ns));
  set(o, "read_ns", json_integer(sums.read_ns));
  set(o, "wait_ns", json_integer(sums.wait_ns));
  set(o, "own", json_integer(sums.own));
  set(o, "with_blobs", json_integer(sums.blobs));
  set(o, "blob_errors", json_integer(sums.blob_errors));
  set(o, "last_blob_errno", sums.blob_error ? json_integer(sums.blob_error) : json_null());
  set(o, "first_not_finite", bad);
  return o;
}

json_t *report_json(const struct report *r) {
  struct buf ending = {0}, unseen = {0};
  json_t *o = json_object(), *others = json_array();
  report_say_ending(r, true, &ending);
  set(o, "session", session_object(r));
  set(o, "left_out", sheds_array(r));
  set(o, "frameworks", frameworks_array(r));
  set(o, "overhead_check", r->overhead.checked ? overhead_json(&r->overhead) : json_null());
  set(o, "ended", text_of(buf_text(&ending)));
  set(o, "open", open_array(r));
  set(o, "data", data_object(r));
  set(o, "training", r->steps ? training_object(r) : json_null());
  set(o, "not_seen", report_say_unseen(r, &unseen) ? text_of(buf_text(&unseen)) : json_null());
  set(o, "epochs", epochs_array(r));
  set(o, "run", run_object(r));
  set(o, "scopes", scopes_array(r));
  set(o, "marks", marks_array(r));
  set(o, "errors", errors_array(r));
  set(o, "ranks", ranks_array(r));
  set(o, "snapshots", r->tensors.passes.count ? snapshots_object(r) : json_null());
  for (size_t i = 0; i < r->sessions_count; i++)
    if (&r->sessions[i] != r->session)
      json_array_append_new(others, json_string(r->sessions[i].id));
  set(o, "other_sessions", others);
  buf_fini(&ending);
  buf_fini(&unseen);
  return o;
}
