#include "rollup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/histogram.h"

static size_t place(const struct rollups *r, uint64_t epoch, uint32_t name, uint8_t kind) {
  uint64_t h = (epoch * 0x9e3779b97f4a7c15ull) ^ ((uint64_t)name << 8 | kind) * 0xff51afd7ed558ccdull;
  h ^= h >> 31;
  h *= 0xbf58476d1ce4e5b9ull;
  return (size_t)(h >> 32) & (r->table_size - 1);
}

/* Where the key is in the table, or where it would be. */
static size_t probe(const struct rollups *r, uint64_t epoch, uint32_t name, uint8_t kind) {
  size_t i = place(r, epoch, name, kind);
  for (; r->table[i]; i = (i + 1) & (r->table_size - 1)) {
    const struct rollup *at = r->list[r->table[i] - 1];
    if (at->epoch == epoch && at->name == name && at->kind == kind)
      break;
  }
  return i;
}

static int rehash(struct rollups *r, size_t size) {
  uint32_t *table = calloc(size, sizeof *table);
  if (!table)
    return -ENOMEM;
  free(r->table);
  r->table = table;
  r->table_size = size;
  for (size_t i = 0; i < r->count; i++)
    r->table[probe(r, r->list[i]->epoch, r->list[i]->name, r->list[i]->kind)] = (uint32_t)i + 1;
  return 0;
}

static int make_room(struct rollups *r) {
  if (r->count * 2 >= r->table_size) {
    int err = rehash(r, r->table_size ? r->table_size * 2 : 64);
    if (err)
      return err;
  }
  if (r->count < r->room)
    return 0;
  size_t room = r->room ? r->room * 2 : 32;
  struct rollup **list = realloc(r->list, room * sizeof(struct rollup *));
  if (!list)
    return -ENOMEM;
  r->list = list;
  r->room = room;
  return 0;
}

/* -EOVERFLOW: there are too many. */
static int make(struct rollups *r, uint64_t epoch, uint32_t name, uint8_t kind) {
  if (r->count >= ROLLUP_MAX)
    return -EOVERFLOW;
  int err = make_room(r);
  if (err)
    return err;
  struct rollup *made = calloc(1, sizeof *made);
  if (!made)
    return -ENOMEM;
  made->epoch = epoch;
  made->name = name;
  made->kind = kind;
  r->list[r->count++] = made;
  r->table[probe(r, epoch, name, kind)] = (uint32_t)r->count;
  return 0;
}

/* As make. */
static int find_or_make(struct rollups *r, uint64_t epoch, uint32_t name, uint8_t kind, struct rollup **out) {
  size_t at = r->table_size ? probe(r, epoch, name, kind) : 0;
  if (!r->table_size || !r->table[at]) {
    int err = make(r, epoch, name, kind);
    if (err)
      return err;
    at = probe(r, epoch, name, kind);
  }
  *out = r->list[r->table[at] - 1];
  return 0;
}

static void widen(struct rollup *at, int64_t count, int64_t min_ns, int64_t max_ns) {
  if (!at->count || min_ns < at->min_ns)
    at->min_ns = min_ns;
  if (!at->count || max_ns > at->max_ns)
    at->max_ns = max_ns;
  at->count += count;
}

int rollups_add(struct rollups *rollups, const struct rollup_span *span) {
  uint32_t over;
  uint64_t epoch = idmap_get(&rollups->over, span->epoch, &over) ? 0 : span->epoch;
  struct rollup *at;
  int err = find_or_make(rollups, epoch, span->name, span->kind, &at);
  if (err == -EOVERFLOW) {
    rollups->refused++;
    return 0;
  }
  if (err)
    return err;
  widen(at, 1, span->total_ns, span->total_ns);
  at->errors += span->error;
  /* Lengths come from strangers: a sum that wraps is their nonsense, not our undefined behaviour. */
  at->total_ns = (int64_t)((uint64_t)at->total_ns + (uint64_t)span->total_ns);
  at->self_ns = (int64_t)((uint64_t)at->self_ns + (uint64_t)span->self_ns);
  at->histogram[histogram_bin(span->total_ns > 0 ? (uint64_t)span->total_ns : 0)]++;
  at->dirty = true;
  return 0;
}

static void accumulate(struct rollup *at, const struct rollup_row *row) {
  if (row->count > 0)
    widen(at, row->count, row->min_ns, row->max_ns);
  at->errors += row->errors;
  at->total_ns = (int64_t)((uint64_t)at->total_ns + (uint64_t)row->total_ns);
  at->self_ns = (int64_t)((uint64_t)at->self_ns + (uint64_t)row->self_ns);
  for (unsigned i = 0; i < HISTOGRAM_BINS; i++)
    at->histogram[i] += row->histogram[i];
}

int rollups_load(struct rollups *rollups, const struct rollup_row *row) {
  struct rollup *at;
  int err = find_or_make(rollups, row->epoch, row->name, row->kind, &at);
  if (err)
    return err == -EOVERFLOW ? 0 : err;
  accumulate(at, row);
  at->stored = true;
  return 0;
}

int rollups_merge(struct rollups *rollups, uint64_t epoch, uint64_t into) {
  size_t n = rollups->count; /* those made meanwhile belong to `into` */
  for (size_t i = 0; i < n; i++) {
    struct rollup *from = rollups->list[i];
    if (from->epoch != epoch || !from->count)
      continue;
    struct rollup *at;
    int err = find_or_make(rollups, into, from->name, from->kind, &at);
    if (err)
      return err == -EOVERFLOW ? 0 : err;
    accumulate(at, &(struct rollup_row){.count = from->count,
                                        .errors = from->errors,
                                        .total_ns = from->total_ns,
                                        .self_ns = from->self_ns,
                                        .min_ns = from->min_ns,
                                        .max_ns = from->max_ns,
                                        .histogram = from->histogram});
    at->dirty = true;
    struct rollup empty = {
        .epoch = epoch, .name = from->name, .kind = from->kind, .dirty = from->stored, .stored = from->stored};
    *from = empty;
  }
  return 0;
}

void rollups_forget(struct rollups *rollups, uint64_t epoch) {
  if (!epoch || idmap_put(&rollups->over, epoch, 1) != 0)
    return;
  size_t kept = 0;
  for (size_t i = 0; i < rollups->count; i++) {
    if (rollups->list[i]->epoch == epoch)
      free(rollups->list[i]);
    else
      rollups->list[kept++] = rollups->list[i];
  }
  rollups->count = kept;
  memset(rollups->table, 0, rollups->table_size * sizeof *rollups->table);
  for (size_t i = 0; i < kept; i++)
    rollups->table[probe(rollups, rollups->list[i]->epoch, rollups->list[i]->name, rollups->list[i]->kind)] = (uint32_t)i + 1;
}

void rollups_fini(struct rollups *rollups) {
  for (size_t i = 0; i < rollups->count; i++)
    free(rollups->list[i]);
  free(rollups->list);
  free(rollups->table);
  idmap_fini(&rollups->over);
  *rollups = (struct rollups){0};
}
