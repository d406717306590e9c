/* See spool_snapshot.h. */
#include "spool_snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "spool_out.h"

/* What lies behind the struct, and where. */
static const struct snapshot_entry *entries_of(const struct spool_snapshot *s) {
  return (const struct snapshot_entry *)(s->blobs + ((strlen(s->blobs) + 8) & ~(size_t)7));
}

static const struct snapshot_result *results_of(const struct spool_snapshot *s) {
  return (const struct snapshot_result *)(entries_of(s) + s->area.count);
}

static const char *text_of(const struct spool_snapshot *s) {
  return (const char *)(results_of(s) + s->area.count);
}

struct spool_snapshot *spool_snapshot_copy(const struct snapshot_area *area, const char *blobs) {
  size_t uri = (strlen(blobs) + 8) & ~(size_t)7, entries = area->count * sizeof(struct snapshot_entry),
         results = area->count * sizeof(struct snapshot_result);
  struct spool_snapshot *s = malloc(sizeof *s + uri + entries + results + area->text_bytes);
  if (!s)
    return NULL;
  s->next = NULL;
  s->area = *area;
  memset(s->blobs, 0, uri);
  memcpy(s->blobs, blobs, strlen(blobs));
  char *to = s->blobs + uri;
  memcpy(to, (const char *)area + SNAPSHOT_ENTRIES_OFFSET, entries);
  memcpy(to + entries, (const char *)area + SNAPSHOT_RESULTS_OFFSET(area->entries), results);
  memcpy(to + entries + results, (const char *)area + SNAPSHOT_TEXT_OFFSET(area->entries), area->text_bytes);
  return s;
}

void spool_snapshot_free(struct spool_snapshot *list) {
  while (list) {
    struct spool_snapshot *next = list->next;
    free(list);
    list = next;
  }
}

/* --- records ------------------------------------------------------------------------------------------------------------- */

static void put_name(struct out *out, const struct spool_snapshot *s, uint32_t at) {
  uint32_t len = 0;
  const char *text = text_of(s) + at;
  if (at)
    memcpy(&len, text, sizeof len);
  out_string(out, text + sizeof len, len);
}

static void put_shape(struct out *out, const struct spool_snapshot *s, const struct snapshot_entry *e) {
  for (unsigned i = 0; i < e->ndim; i++) {
    int64_t size;
    memcpy(&size, text_of(s) + e->shape + i * sizeof size, sizeof size);
    out_putf(out, i ? ",%lld" : "%lld", (long long)size);
  }
}

static void put_dtype(struct out *out, const struct spool_snapshot *s, const struct snapshot_entry *e) {
  if (e->dtype == TENSOR_NONE)
    put_name(out, s, e->dtype_name);
  else if (e->flags & SNAPSHOT_COMPLEX)
    out_puts(out, e->dtype == TENSOR_F32 ? "\"complex64\"" : "\"complex128\"");
  else
    out_putf(out, "\"%s\"", tensor_dtype_name((enum tensor_dtype)e->dtype));
}

static void put_counts(struct out *out, const uint64_t *counts, unsigned n) {
  for (unsigned i = 0; i < n; i++)
    out_putf(out, i ? ",%llu" : "%llu", (unsigned long long)counts[i]);
}

static void put_bins(struct out *out, const struct tensor_stats *t) {
  double high = t->max > t->min ? t->max : t->min + 1;
  for (unsigned i = 0; i <= TENSOR_BINS; i++) {
    out_puts(out, i ? "," : "");
    out_number(out, i == TENSOR_BINS ? high : t->min + (high - t->min) * i / TENSOR_BINS);
  }
}

static void put_finite(struct out *out, const struct tensor_stats *t) {
  const double numbers[] = {t->mean, t->std, t->min, t->max, t->norm};
  const char *const names[] = {"mean", "std", "min", "max", "norm"};
  for (unsigned i = 0; i < 5; i++) {
    out_putf(out, "\"%s\":", names[i]);
    out_number(out, numbers[i]);
    out_puts(out, ",");
  }
  out_puts(out, "\"histogram\":{\"bins\":[");
  put_bins(out, t);
  out_puts(out, "],\"counts\":[");
  put_counts(out, t->histogram, TENSOR_BINS);
  out_puts(out, "]},");
}

static void put_stats(struct out *out, const struct tensor_stats *t) {
  out_puts(out, "{");
  if (t->count > t->nans + t->infs + t->neg_infs)
    put_finite(out, t);
  else
    out_puts(out, "\"mean\":null,\"std\":null,\"min\":null,\"max\":null,\"norm\":null,\"histogram\":null,");
  out_putf(out, "\"count\":%llu,\"nan\":%llu,\"inf\":%llu,", (unsigned long long)t->count, (unsigned long long)t->nans,
           (unsigned long long)t->infs);
  out_putf(out, "\"neg_inf\":%llu,\"zero\":%llu,\"magnitude\":{\"exponents\":[", (unsigned long long)t->neg_infs,
           (unsigned long long)t->zeros);
  for (int i = 0; i < TENSOR_MAGNITUDES; i++)
    out_putf(out, i ? ",%d" : "%d", 2 * i - 48);
  out_puts(out, "],\"counts\":[");
  put_counts(out, t->magnitude, TENSOR_MAGNITUDES);
  out_puts(out, "]}}");
}

static void put_attrs(struct out *out, const struct spool_snapshot *s, const struct snapshot_entry *e, bool torn) {
  out_putf(out, "{\"kind\":\"%s\",\"model\":", e->flags & SNAPSHOT_GRADIENT ? "gradient" : "weight");
  put_name(out, s, e->model);
  if (torn)
    out_puts(out, ",\"torn\":true");
  if (e->flags & SNAPSHOT_SPARSE)
    out_puts(out, ",\"sparse\":true");
  if (e->reason) {
    out_puts(out, ",\"reason\":");
    put_name(out, s, e->reason);
  }
  out_puts(out, "}");
}

static void put_record(struct out *out, const struct spool_snapshot *s, uint32_t i, uint64_t wall_ns) {
  const struct snapshot_entry *e = &entries_of(s)[i];
  const struct snapshot_result *r = &results_of(s)[i];
  bool in_blob = r->flags & SNAPSHOT_IN_BLOB && s->blobs[0] && s->area.blobs & (e->flags & SNAPSHOT_GRADIENT ? 2u : 1u),
       torn = e->flags & SNAPSHOT_TORN || i >= s->area.torn_from;
  const char *mode = s->area.flags & SNAPSHOT_SAMPLED ? "sampled" : "full";
  out_puts(out, "{\"id\":");
  out_id(out, s->area.first_record + i);
  out_puts(out, ",\"span_id\":");
  out_id(out, s->area.span);
  out_puts(out, ",\"tensor_name\":");
  put_name(out, s, e->name);
  out_puts(out, ",\"shape\":[");
  put_shape(out, s, e);
  out_puts(out, "],\"dtype\":");
  put_dtype(out, s, e);
  out_putf(out, ",\"mode\":\"%s\",\"stats\":", in_blob ? mode : "stats");
  if (i < s->area.done && !r->error)
    put_stats(out, &r->stats);
  else
    out_puts(out, "null");
  out_puts(out, ",\"blob_uri\":");
  if (in_blob) {
    out_puts(out, "\"");
    out_escaped(out, s->blobs, strlen(s->blobs), false);
    out_putf(out, "/%s.safetensors\"", e->flags & SNAPSHOT_GRADIENT ? "gradients" : "weights");
  } else {
    out_puts(out, "null");
  }
  out_putf(out, ",\"ts_ns\":%llu,\"attrs\":", (unsigned long long)wall_ns);
  put_attrs(out, s, e, torn);
  out_puts(out, "}");
}

void spool_snapshot_put(struct out *out, const struct spool_snapshot *snapshot, uint64_t wall_minus_monotonic_ns, bool first) {
  for (uint32_t i = 0; i < snapshot->area.count && !out->error; i++) {
    if (i || !first)
      out_puts(out, ",");
    put_record(out, snapshot, i, snapshot->area.ts_ns + wall_minus_monotonic_ns);
  }
}
