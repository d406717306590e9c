#include "first_bad.h"

#include <stdlib.h>
#include <string.h>

#include "db.h"
#include "text.h"

#define NAME_COLUMNS 60

static char *copy(struct snaps_text text) {
  char *made = buf_alloc(text.len + 1);
  if (text.len)
    memcpy(made, text.text, text.len);
  made[text.len] = '\0';
  return made;
}

static void add(struct first_bad *out, const struct snaps_record *r, size_t *cap) {
  if (out->count == *cap) {
    *cap = *cap ? 2 * *cap : 64;
    out->tensors = buf_realloc(out->tensors, *cap * sizeof *out->tensors);
  }
  out->tensors[out->count++] = (struct first_bad_tensor){.name = copy(r->name),
                                                         .model = copy(r->model),
                                                         .shape = copy(r->shape),
                                                         .name_len = r->name.len,
                                                         .model_len = r->model.len,
                                                         .what = r->what,
                                                         .count = r->count,
                                                         .nans = r->nans,
                                                         .infs = r->infs,
                                                         .neg_infs = r->neg_infs,
                                                         .torn = r->torn,
                                                         .good_norm = NAN};
}

/* Gradients come before weights, whichever were listed first: that is how it travels. */
static void sort(struct first_bad *out) {
  struct first_bad_tensor *sorted = buf_alloc((out->count + 1) * sizeof *sorted);
  size_t n = 0;
  for (int weights = 0; weights < 2; weights++)
    for (size_t i = 0; i < out->count; i++)
      if ((out->tensors[i].what != SNAPS_GRADIENT) == weights)
        sorted[n++] = out->tensors[i];
  free(out->tensors);
  out->tensors = sorted;
}

static void read_pass(const struct pick_session *session, const struct snaps_pass *pass, struct first_bad *out) {
  size_t cap = 0;
  sqlite3_stmt *stmt = snaps_records(session->store, session->sid, pass->number);
  while (db_step(stmt)) {
    struct snaps_record r;
    snaps_record_read(stmt, SNAPS_ALL, &r);
    out->records++;
    out->unread += !snaps_is_read(&r);
    out->torn += r.torn;
    out->gradients += r.what == SNAPS_GRADIENT;
    if (snaps_is_read(&r) && snaps_bad(&r))
      add(out, &r, &cap);
  }
  sort(out);
}

/* How the tensors were when all was well. */
static void read_good(const struct pick_session *session, struct first_bad *out) {
  struct snaps_tensors tensors = {0};
  for (size_t i = 0; i < out->count; i++) {
    const struct first_bad_tensor *t = &out->tensors[i];
    const struct snaps_record r = {.name = {t->name, t->name_len}, .model = {t->model, t->model_len}, .what = t->what};
    if (snaps_tensor_at(&tensors, &r, true) != i) /* a name twice: the places would not be those of the list */
      goto done;
  }
  for (sqlite3_stmt *stmt = snaps_records(session->store, session->sid, out->good->number); db_step(stmt);) {
    struct snaps_record r;
    snaps_record_read(stmt, SNAPS_NORM, &r);
    size_t at = snaps_tensor_at(&tensors, &r, false);
    if (at != SIZE_MAX)
      out->tensors[at].good_norm = r.norm;
  }
done:
  snaps_tensors_fini(&tensors);
}

static void place(const struct pick_session *session, const struct snaps_pass *pass, struct moment *out) {
  int64_t first =
      db_value(session->store, 0, "SELECT min(snapshot) FROM snapshots WHERE sid = ? AND pass = ?", session->sid, pass->number);
  moment_find(session->store, session->sid, (uint64_t)first, pass->ts_ns, out);
  if (pass->step != SNAPS_NO_INDEX)
    out->step = pass->step;
  if (pass->epoch != SNAPS_NO_INDEX)
    out->epoch = pass->epoch;
}

void first_bad_find(const struct pick_session *session, struct first_bad *out) {
  int64_t number;
  *out = (struct first_bad){.kept = snaps_kept(session->store)};
  snaps_passes_read(session->store, session->sid, &out->passes);
  size_t count = out->passes.count;
  if (!count)
    return;
  if (snaps_first_bad(session->store, session->sid, &number))
    out->pass = snaps_pass_find(&out->passes, number);
  size_t before = out->pass ? (size_t)(out->pass - out->passes.items) : count;
  out->good = before ? &out->passes.items[before - 1] : NULL;
  read_pass(session, out->pass ? out->pass : out->good, out);
  if (!out->count) /* it has gone meanwhile, or was none */
    out->pass = NULL;
  if (out->pass)
    place(session, out->pass, &out->at);
  if (out->good)
    place(session, out->good, &out->good_at);
  if (out->pass && out->good)
    read_good(session, out);
}

void first_bad_fini(struct first_bad *bad) {
  for (size_t i = 0; i < bad->count; i++) {
    free(bad->tensors[i].name);
    free(bad->tensors[i].model);
    free(bad->tensors[i].shape);
  }
  free(bad->tensors);
  snaps_passes_fini(&bad->passes);
  *bad = (struct first_bad){0};
}

void first_bad_say(const struct first_bad *bad, bool utf8, struct buf *out) {
  text_show_cut(out, bad->tensors[0].name, bad->tensors[0].name_len, utf8, NAME_COLUMNS);
  if (bad->count > 1)
    buf_printf(out, " and %zu more of %lld tensors are", bad->count - 1, (long long)bad->records);
  else
    buf_puts(out, " is");
  buf_puts(out, " not finite in the snapshot ");
  snaps_pass_say(bad->pass, out);
}

bool first_bad_steps(const struct first_bad *bad, int64_t *from, int64_t *to) {
  if (!bad->pass || !bad->good || bad->at.step == MOMENT_NO_INDEX || bad->good_at.step == MOMENT_NO_INDEX ||
      bad->at.step <= bad->good_at.step)
    return false;
  *from = bad->good_at.step;
  *to = bad->at.step;
  return true;
}
