#include "snapshot_rows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pass.h"
#include "session.h"
#include "store.h"
#include "text.h"

#define ENDED_FIRST "the process ended first"

static const struct snapshot_result *result_of(const struct pass *p, uint32_t i) {
  return i < p->at && pass_readable(p, i) ? &p->results[i] : NULL;
}

static bool has_stats(const struct pass *p, uint32_t i) {
  const struct snapshot_result *r = result_of(p, i);
  return r && !r->error;
}

bool snapshot_row_torn(const struct pass *pass, uint32_t i) {
  return has_stats(pass, i) && (i >= pass->torn_from || pass->entries[i].flags & SNAPSHOT_TORN);
}

/* ---- attrs ---- */

static const char *error_of(const struct session *s, const struct pass *p, uint32_t i) {
  if (!pass_readable(p, i) || has_stats(p, i))
    return NULL;
  if (i < p->at)
    return strerror(p->results[i].error);
  return s->phase == SESSION_ENDED || p->gone ? ENDED_FIRST : strerror(ECANCELED);
}

static void member(FILE *out, bool *any, const char *key, struct pass_text value) {
  fprintf(out, "%s\"%s\":", *any ? "," : "", key);
  text_json_string(out, (struct text_bytes){value.data, value.len});
  *any = true;
}

static void flag(FILE *out, bool *any, const char *key, bool set) {
  if (set)
    fprintf(out, "%s\"%s\":true", *any ? "," : "", key);
  *any |= set;
}

/* From malloc. */
static char *attrs_json(const struct session *s, const struct pass *p, uint32_t i) {
  const struct snapshot_entry *e = &p->entries[i];
  const char *error = error_of(s, p, i);
  char *text = NULL;
  size_t len;
  bool any = false;
  FILE *out = open_memstream(&text, &len);
  if (!out)
    return NULL;
  fputc('{', out);
  if (e->reason)
    member(out, &any, "reason", pass_text(p, e->reason));
  if (error)
    member(out, &any, "error", (struct pass_text){error, strlen(error)});
  flag(out, &any, "sparse", e->flags & SNAPSHOT_SPARSE);
  flag(out, &any, "complex", e->flags & SNAPSHOT_COMPLEX);
  flag(out, &any, "copy", e->flags & SNAPSHOT_COPY);
  fputc('}', out);
  return fclose(out) == 0 ? text : (free(text), NULL);
}

/* Most have nothing to say. */
static bool is_plain(const struct session *s, const struct pass *p, uint32_t i) {
  const struct snapshot_entry *e = &p->entries[i];
  return !e->reason && !(e->flags & (SNAPSHOT_SPARSE | SNAPSHOT_COMPLEX | SNAPSHOT_COPY)) && !error_of(s, p, i);
}

/* ---- one tensor ---- */

static struct pass_text dtype_of(const struct pass *p, const struct snapshot_entry *e, char room[32]) {
  const char *name = tensor_dtype_name((enum tensor_dtype)e->dtype);
  if (e->dtype_name || !name)
    return pass_text(p, e->dtype_name);
  if (!(e->flags & SNAPSHOT_COMPLEX))
    return (struct pass_text){name, strlen(name)};
  int len = snprintf(room, 32, "complex%zu", tensor_size((enum tensor_dtype)e->dtype) * 16);
  return (struct pass_text){room, (size_t)len};
}

static const char *set_mode(const struct pass *p) {
  return p->head.flags & SNAPSHOT_SAMPLED ? "sampled" : p->head.flags & SNAPSHOT_BLOBS ? "full" : "stats";
}

static const char *blob_of(const struct pass *p, uint32_t i, char *room, size_t size) {
  bool gradient = p->entries[i].flags & SNAPSHOT_GRADIENT;
  if (!has_stats(p, i) || !(p->results[i].flags & SNAPSHOT_IN_BLOB) || !(p->blobs & (gradient ? 2 : 1)) || !p->blob_uri)
    return NULL;
  (void)snprintf(room, size, "%s/%s.safetensors", p->blob_uri, gradient ? "gradients" : "weights"); /* fits: size is made so */
  return room;
}

int snapshot_row_write(const struct session *session, const struct pass *pass, uint32_t i, struct store *store) {
  const struct snapshot_entry *e = &pass->entries[i];
  struct pass_text name = pass_text(pass, e->name), model = pass_text(pass, e->model);
  size_t uri_size = pass->blob_uri ? strlen(pass->blob_uri) + 32 : 1;
  char *attrs = is_plain(session, pass, i) ? NULL : attrs_json(session, pass, i), *uri = malloc(uri_size), dtype_room[32];
  struct pass_text dtype = dtype_of(pass, e, dtype_room);
  int err = -ENOMEM;
  if (uri && (attrs || is_plain(session, pass, i))) {
    const char *blob = blob_of(pass, i, uri, uri_size);
    const struct snapshot_row row = {
        .id = pass->head.first_record + i,
        .pass = pass->number,
        .span = pass->head.span,
        .tensor = name.data,
        .tensor_len = name.len,
        .model = model.data,
        .model_len = model.len,
        .dtype = dtype.data,
        .dtype_len = dtype.len,
        .gradient = e->flags & SNAPSHOT_GRADIENT,
        .torn = snapshot_row_torn(pass, i),
        .shape = e->ndim ? (const int64_t *)(pass->text + e->shape) : NULL,
        .ndim = e->ndim,
        .mode = blob ? set_mode(pass) : "stats",
        .stats = has_stats(pass, i) ? &pass->results[i].stats : NULL,
        .blob_uri = blob,
        .ts_ns = ingest_wall(&session->ingest, pass->head.ts_ns),
        .attrs = attrs ? attrs : "{}",
    };
    err = store_snapshot(store, session->sid, &row);
  }
  free(attrs);
  free(uri);
  return err;
}

int snapshot_rows_end(const struct session *session, const struct pass *pass, struct store *store) {
  static const char *const reasons[] = {[SNAPSHOT_EPOCH] = "epoch", [SNAPSHOT_STEPS] = "steps", [SNAPSHOT_COMMAND] = "command"};
  const struct snapshot_area *h = &pass->head;
  const struct snapshot_pass_row row = {
      .pass = pass->number,
      .span = h->span,
      .epoch = h->epoch,
      .step = h->step,
      .reason = reasons[h->reason],
      .mode = set_mode(pass),
      .ts_ns = ingest_wall(&session->ingest, h->ts_ns),
      .records = h->count,
      .list_ns = (int64_t)h->list_ns,
      .read_ns = (int64_t)pass->read_ns,
      .wait_ns = (int64_t)pass->wait_ns,
      .torn = pass->torn,
      .blobs = pass->blobs,
      .own = h->flags & SNAPSHOT_OWN,
      .blob_error = pass->blob_error,
  };
  return store_snapshot_pass(store, session->sid, &row);
}
