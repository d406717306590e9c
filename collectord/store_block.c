/* The store's raw spans: blocks, open spans, moves, and how far the rings were read (store.h). */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/ring_abi.h"
#include "store.h"
#include "store_internal.h"

/* ---- what block_meta says of a block ---- */

/* Ids are compared as the signed numbers that SQLite has, here and by readers. The times hold for starts and ends alike, also of a span
 * that ends before it starts: a reader may rule the block out by either. */
struct block_meta {
  int64_t min_id, max_id, min_start_ns, max_end_ns, max_dur_ns;
};

static int64_t duration_of(const struct span_row *row) {
  int64_t duration;
  if (__builtin_sub_overflow(row->end_ns, row->start_ns, &duration))
    return row->end_ns > row->start_ns ? INT64_MAX : 0;
  return duration > 0 ? duration : 0;
}

static struct block_meta meta_of(const struct span_row *rows, size_t n) {
  struct block_meta m = {INT64_MAX, INT64_MIN, INT64_MAX, INT64_MIN, 0};
  for (size_t i = 0; i < n; i++) {
    int64_t id = (int64_t)rows[i].id, duration = duration_of(&rows[i]);
    m.min_id = id < m.min_id ? id : m.min_id;
    m.max_id = id > m.max_id ? id : m.max_id;
    int64_t start = rows[i].start_ns, end = rows[i].end_ns;
    int64_t first = end < start ? end : start, last = end < start ? start : end;
    m.min_start_ns = first < m.min_start_ns ? first : m.min_start_ns;
    m.max_end_ns = last > m.max_end_ns ? last : m.max_end_ns;
    m.max_dur_ns = duration > m.max_dur_ns ? duration : m.max_dur_ns;
  }
  return m;
}

#define NAME_SLOTS (2 * BLOCK_MAX)

static int by_value(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* The names of rows, each once, ascending. A hash table first: there are few of them, and sorting all rows is slow. */
static size_t names_of(const struct span_row *rows, size_t n, uint32_t names[BLOCK_MAX]) {
  static uint32_t slots[NAME_SLOTS]; /* the store has one thread */
  memset(slots, 0, sizeof slots);
  size_t count = 0;
  bool none = false;
  for (size_t i = 0; i < n; i++) {
    uint32_t name = rows[i].name;
    none |= !name;
    size_t at = name * 2654435761u % NAME_SLOTS;
    while (name && slots[at] && slots[at] != name)
      at = (at + 1) % NAME_SLOTS;
    if (!name || slots[at])
      continue;
    slots[at] = name;
    names[count++] = name;
  }
  qsort(names, count, sizeof *names, by_value);
  if (none && count < BLOCK_MAX) { /* 0 is the least; with BLOCK_MAX other names there is no row left for it */
    memmove(names + 1, names, count * sizeof *names);
    names[0] = 0;
    count++;
  }
  return count;
}

/* As a JSON array; from malloc, NULL: no memory. */
static char *names_json(const struct span_row *rows, size_t n) {
  static uint32_t names[BLOCK_MAX]; /* the store has one thread */
  size_t count = names_of(rows, n, names);
  char *json = malloc(11 * count + 3), *p = json;
  if (!json)
    return NULL;
  *p++ = '[';
  for (size_t i = 0; i < count; i++)
    p += sprintf(p, i ? ",%" PRIu32 : "%" PRIu32, names[i]);
  *p++ = ']';
  *p = 0;
  return json;
}

/* ---- blocks ---- */

static int block_data_put(struct store *store, const struct span_row *rows, size_t n, int64_t *block) {
  uint8_t *data;
  size_t len;
  int rc = block_encode(rows, n, &data, &len);
  if (rc)
    return rc;
  enum store_sql sql = *block ? SQL_BLOCK_UPDATE : SQL_BLOCK_ADD;
  store_bind_blob(store, sql, 1, data, len);
  if (*block)
    store_bind_int(store, sql, 2, *block);
  rc = store_run(store, sql);
  if (!rc && !*block)
    *block = sqlite3_last_insert_rowid(store->db);
  free(data);
  return rc;
}

static int block_meta_put(struct store *store, enum store_sql sql, int64_t block, int64_t sid, const struct span_row *rows,
                          size_t n, bool sealed) {
  struct block_meta m = meta_of(rows, n);
  char *names = names_json(rows, n);
  if (!names)
    return -ENOMEM;
  const int64_t values[] = {block, sid, sealed, (int64_t)n, m.min_id, m.max_id, m.min_start_ns, m.max_end_ns, m.max_dur_ns};
  for (int i = 0; i < 9; i++)
    store_bind_int(store, sql, 1 + i, values[i]);
  int rc = store_bind_string(store, sql, 10, names);
  if (rc)
    store_done(store, sql);
  else
    rc = store_run(store, sql);
  free(names);
  return rc;
}

int store_block_put(struct store *store, int64_t sid, const struct span_row *rows, size_t n, bool sealed, int64_t *block) {
  if (!n || n > BLOCK_MAX)
    return -EINVAL;
  int rc = store_begin(store);
  if (rc)
    return rc;
  int64_t number = *block;
  if (number) {
    rc = block_meta_put(store, SQL_BLOCK_META_UPDATE, number, sid, rows, n, sealed);
    if (!rc && !sqlite3_changes(store->db))
      number = 0; /* went with a transaction that was rolled back */
  }
  bool fresh = !number;
  if (!rc)
    rc = block_data_put(store, rows, n, &number);
  if (!rc && fresh)
    rc = block_meta_put(store, SQL_BLOCK_META_ADD, number, sid, rows, n, sealed);
  if (!rc)
    *block = number;
  return rc;
}

int store_blocks_unsealed(struct store *store, int64_t sid, int (*each)(int64_t block, const struct block *rows, void *arg),
                          void *arg) {
  sqlite3_stmt *s = store->statements[SQL_BLOCK_UNSEALED];
  struct block block = {0};
  int rc;
  store_bind_int(store, SQL_BLOCK_UNSEALED, 1, sid);
  while ((rc = store_row(store, SQL_BLOCK_UNSEALED)) == 1) {
    rc = block_decode(sqlite3_column_blob(s, 1), (size_t)sqlite3_column_bytes(s, 1), &block);
    if (!rc)
      rc = each(sqlite3_column_int64(s, 0), &block, arg);
    if (rc)
      break;
  }
  store_done(store, SQL_BLOCK_UNSEALED);
  block_fini(&block);
  return rc;
}

int store_block_delete(struct store *store, int64_t block) {
  int rc = store_begin(store);
  if (rc)
    return rc;
  store_bind_int(store, SQL_BLOCK_DELETE, 1, block);
  store_bind_int(store, SQL_BLOCK_META_DELETE, 1, block);
  rc = store_run(store, SQL_BLOCK_DELETE);
  int rc2 = store_run(store, SQL_BLOCK_META_DELETE);
  return rc ? rc : rc2;
}

/* ---- open spans, moves, rings ---- */

static int open_span_add(struct store *store, int64_t sid, const struct span_row *row) {
  store_bind_int(store, SQL_OPEN_ADD, 1, sid);
  store_bind_int(store, SQL_OPEN_ADD, 2, (int64_t)row->id);
  store_bind_int(store, SQL_OPEN_ADD, 3, (int64_t)row->parent);
  store_bind_int(store, SQL_OPEN_ADD, 4, row->name);
  store_bind_int(store, SQL_OPEN_ADD, 5, row->kind);
  store_bind_int_unless(store, SQL_OPEN_ADD, 6, row->index, SPAN_NO_INDEX);
  store_bind_int(store, SQL_OPEN_ADD, 7, row->start_ns);
  store_bind_int(store, SQL_OPEN_ADD, 8, row->tid);
  store_bind_int(store, SQL_OPEN_ADD, 9, row->flags);
  store_bind_int(store, SQL_OPEN_ADD, 10, row->module);
  return store_run(store, SQL_OPEN_ADD);
}

int store_open_spans(struct store *store, int64_t sid, const struct span_row *rows, size_t n) {
  int rc = store_begin(store);
  if (rc)
    return rc;
  store_bind_int(store, SQL_OPEN_CLEAR, 1, sid);
  rc = store_run(store, SQL_OPEN_CLEAR);
  for (size_t i = 0; !rc && i < n; i++)
    rc = open_span_add(store, sid, &rows[i]);
  return rc;
}

int store_move(struct store *store, int64_t sid, uint64_t span, int64_t since_ns, uint64_t parent) {
  int rc = store_begin(store);
  if (rc)
    return rc;
  store_bind_int(store, SQL_MOVE_ADD, 1, sid);
  store_bind_int(store, SQL_MOVE_ADD, 2, (int64_t)span);
  store_bind_int(store, SQL_MOVE_ADD, 3, since_ns);
  store_bind_int(store, SQL_MOVE_ADD, 4, (int64_t)parent);
  return store_run(store, SQL_MOVE_ADD);
}

int store_ring_tail(struct store *store, int64_t sid, uint32_t ring_no, uint64_t tail) {
  int rc = store_begin(store);
  if (rc)
    return rc;
  store_bind_int(store, SQL_RING_SET, 1, sid);
  store_bind_int(store, SQL_RING_SET, 2, ring_no);
  store_bind_int(store, SQL_RING_SET, 3, (int64_t)tail);
  return store_run(store, SQL_RING_SET);
}

int store_ring_tail_get(struct store *store, int64_t sid, uint32_t ring_no, uint64_t *tail) {
  store_bind_int(store, SQL_RING_GET, 1, sid);
  store_bind_int(store, SQL_RING_GET, 2, ring_no);
  int rc = store_row(store, SQL_RING_GET);
  if (rc >= 0)
    *tail = rc ? (uint64_t)sqlite3_column_int64(store->statements[SQL_RING_GET], 0) : 0;
  store_done(store, SQL_RING_GET);
  return rc < 0 ? rc : 0;
}
