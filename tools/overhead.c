/* See overhead.h. */
#include "overhead.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/ring_abi.h"
#include "db.h"
#include "jsontext.h"
#include "units.h"

#define SETTING "CIRRON_OVERHEAD_CHECK" /* among the session's attributes */

struct pairs {
  double *time, *time_share, *cpu, *cpu_share, *step_ns, *steps;
  size_t count, cap;
};

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_of(double *sorted, size_t count) {
  return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/* The k-th lowest and k-th highest value bound the median with 95 %: the largest k for which that is so; 0: none. Below the true
 * median lie so many of n values as heads in n throws. */
static size_t bound(size_t n) {
  double log_p = -(double)n * log(2), sum = 0; /* of exactly i heads */
  for (size_t i = 0; i < n; i++) {
    sum += exp(log_p);
    if (sum > 0.025)
      return i;
    log_p += log((double)(n - i)) - log((double)(i + 1));
  }
  return 0;
}

void overhead_estimate(double *differences, double *shares, size_t count, struct overhead_estimate *out) {
  size_t k = count ? bound(count) : 0;
  *out = (struct overhead_estimate){.known = k > 0};
  if (!count)
    return;
  qsort(differences, count, sizeof *differences, compare);
  qsort(shares, count, sizeof *shares, compare);
  out->median = median_of(differences, count);
  out->share = median_of(shares, count);
  if (!k)
    return;
  out->low = differences[k - 1];
  out->high = differences[count - k];
  out->share_low = shares[k - 1];
  out->share_high = shares[count - k];
}

static double number(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

static void add(struct pairs *p, const json_t *attrs) {
  double on_steps = number(attrs, "observed_steps"), off_steps = number(attrs, "unobserved_steps");
  if (!(on_steps > 0 && off_steps > 0))
    return;
  double on = number(attrs, "observed_ns") / on_steps, off = number(attrs, "unobserved_ns") / off_steps;
  double on_cpu = number(attrs, "observed_cpu_ns") / on_steps, off_cpu = number(attrs, "unobserved_cpu_ns") / off_steps;
  if (!(on > 0 && off > 0 && on_cpu > 0 && off_cpu > 0))
    return;
  double **all[] = {&p->time, &p->time_share, &p->cpu, &p->cpu_share, &p->step_ns, &p->steps};
  double values[] = {on - off, (on - off) / off, on_cpu - off_cpu, (on_cpu - off_cpu) / off_cpu, off, off_steps};
  size_t cap = p->count < p->cap ? p->cap : p->cap ? 2 * p->cap : 64;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (cap != p->cap)
      *all[i] = buf_realloc(*all[i], cap * sizeof(double));
    (*all[i])[p->count] = values[i];
  }
  p->cap = cap;
  p->count++;
}

static bool was_checked(const struct pick_session *session) {
  json_t *attrs = jsontext_parse(session->attrs, session->attrs ? strlen(session->attrs) : 0, JSON_OBJECT);
  bool found = json_object_get(attrs, SETTING) != NULL;
  json_decref(attrs);
  return found;
}

void overhead_gather(sqlite3 *store, const struct pick_session *session, struct overhead *out) {
  struct pairs p = {0};
  *out = (struct overhead){.checked = was_checked(session)};
  if (!out->checked)
    return;
  sqlite3_stmt *stmt = db_query(store,
                                "SELECT m.attrs FROM marks m JOIN names n USING (name) WHERE m.sid = ?"
                                " AND n.text = '" OVERHEAD_CHECK_MARK "' ORDER BY m.mark",
                                session->sid);
  while (db_step(stmt)) {
    const char *text = (const char *)sqlite3_column_text(stmt, 0);
    json_t *attrs = jsontext_parse(text, text ? strlen(text) : 0, JSON_OBJECT);
    add(&p, attrs);
    json_decref(attrs);
  }
  out->pairs = p.count;
  overhead_estimate(p.time, p.time_share, p.count, &out->time);
  overhead_estimate(p.cpu, p.cpu_share, p.count, &out->cpu);
  if (p.count) {
    qsort(p.step_ns, p.count, sizeof(double), compare);
    qsort(p.steps, p.count, sizeof(double), compare);
    out->step_ns = median_of(p.step_ns, p.count);
    out->steps = (int64_t)p.steps[p.count / 2];
  }
  double *all[] = {p.time, p.time_share, p.cpu, p.cpu_share, p.step_ns, p.steps};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    free(all[i]);
}

static void add_estimate(const char *what, const struct overhead_estimate *e, struct buf *out) {
  buf_printf(out, "%s: %+.2f us a step, %+.2f %% (95 %%: %+.2f to %+.2f %%)", what, e->median / 1e3, e->share * 100,
             e->share_low * 100, e->share_high * 100);
  if (e->share_low <= 0 && e->share_high >= 0)
    buf_puts(out, "; may as well be nothing");
}

bool overhead_say(const struct overhead *o, unsigned line, struct buf *out) {
  char text[UNITS_MAX], step[UNITS_MAX];
  buf_clear(out);
  if (!o->time.known && line == 0)
    buf_printf(out, "its cost is not known: %s of blocks, at least 6 are needed; a longer training gives more",
               units_of((int64_t)o->pairs, "pair", "pairs", text));
  else if (line == 0)
    add_estimate("recording costs, in time", &o->time, out);
  else if (o->time.known && line == 1)
    add_estimate("in CPU time of the training's thread", &o->cpu, out);
  else if (o->time.known && line == 2)
    buf_printf(out, "median of %s of blocks of %lld steps of %s", units_of((int64_t)o->pairs, "pair", "pairs", text),
               (long long)o->steps, units_duration((int64_t)o->step_ns, step));
  return out->len > 0;
}

static json_t *estimate_json(const struct overhead_estimate *e) {
  return json_pack("{s:f,s:o,s:o,s:f,s:o,s:o}", "ns", e->median, "ns_low", e->known ? json_real(e->low) : json_null(),
                   "ns_high", e->known ? json_real(e->high) : json_null(), "ratio", e->share, "ratio_low",
                   e->known ? json_real(e->share_low) : json_null(), "ratio_high",
                   e->known ? json_real(e->share_high) : json_null());
}

json_t *overhead_json(const struct overhead *o) {
  return json_pack("{s:I,s:I,s:f,s:o,s:o}", "pairs", (json_int_t)o->pairs, "block_steps", (json_int_t)o->steps,
                   "unobserved_step_ns", o->step_ns, "time", o->pairs ? estimate_json(&o->time) : json_null(), "cpu",
                   o->pairs ? estimate_json(&o->cpu) : json_null());
}
