/* The stream of spans pushed at a callback, and the longest of them (spans.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "spans.h"
#include "spans_internal.h"

typedef int each_fn(const struct span_row *row, const struct spans_session *session, void *arg);

static int each_of_chunk(struct spans *spans, each_fn *each, void *arg) {
  const struct span_row *rows = spans->chunk;
  size_t n = spans->chunk_rows;
  int rc = 0;
  for (size_t i = 0; !rc && i < n; i++)
    if (spans->all_rows || spans_passes(spans, &rows[i]))
      rc = each(&rows[i], &spans->session, arg);
  return rc;
}

int spans_each(sqlite3 *db, const struct spans_filter *filter, each_fn *each, void *arg) {
  struct spans *spans;
  int rc = spans_open(db, filter, &spans);
  if (rc)
    return rc;
  while ((rc = spans_chunk(spans)) == 1 && !(rc = each_of_chunk(spans, each, arg)))
    ;
  spans_close(spans);
  return rc;
}

/* ---- the longest ---- */

/* The n best so far are a heap with the worst on top. */
struct candidate {
  int64_t duration_ns, sid, block;
  size_t at;           /* in its block */
  struct span_row row; /* with attrs of its own */
};

struct slowest {
  struct candidate *heap;
  size_t n, room, limit;
};

/* Does a stand before b in the result? */
static bool better(const struct candidate *a, const struct candidate *b) {
  if (a->duration_ns != b->duration_ns)
    return a->duration_ns > b->duration_ns;
  if (a->sid != b->sid)
    return a->sid < b->sid;
  return a->block != b->block ? a->block < b->block : a->at < b->at;
}

static int by_rank(const void *a, const void *b) {
  return better(a, b) ? -1 : 1;
}

static void sift_down(struct slowest *s, size_t at) {
  for (;;) {
    size_t worst = at;
    for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < s->n; child++)
      if (better(&s->heap[worst], &s->heap[child]))
        worst = child;
    if (worst == at)
      return;
    struct candidate c = s->heap[at];
    s->heap[at] = s->heap[worst];
    s->heap[worst] = c;
    at = worst;
  }
}

static void sift_up(struct slowest *s, size_t at) {
  while (at && better(&s->heap[(at - 1) / 2], &s->heap[at])) {
    struct candidate c = s->heap[at];
    s->heap[at] = s->heap[(at - 1) / 2];
    s->heap[(at - 1) / 2] = c;
    at = (at - 1) / 2;
  }
}

static int attrs_keep(struct candidate *c) {
  if (!c->row.attrs)
    return 0;
  char *copy = malloc(c->row.attrs_len);
  if (!copy)
    return -ENOMEM;
  memcpy(copy, c->row.attrs, c->row.attrs_len);
  c->row.attrs = copy;
  return 0;
}

static int candidate_add(struct slowest *s, struct candidate c) {
  bool full = s->n == s->limit;
  if (full && !better(&c, &s->heap[0]))
    return 0;
  if (!full && s->n == s->room) {
    size_t room = s->room ? 2 * s->room : 32;
    struct candidate *heap = reallocarray(s->heap, room, sizeof *heap);
    if (!heap)
      return -ENOMEM;
    s->heap = heap;
    s->room = room;
  }
  int rc = attrs_keep(&c);
  if (rc)
    return rc;
  if (full) {
    free((char *)s->heap[0].row.attrs);
    s->heap[0] = c;
    sift_down(s, 0);
  } else {
    s->heap[s->n++] = c;
    sift_up(s, s->n - 1);
  }
  return 0;
}

static int block_search(struct spans *spans, struct slowest *s, int64_t block, int64_t sid) {
  int rc = spans->session.sid == sid ? 1 : spans_session_load(spans, sid);
  if (rc != 1)
    return rc;
  rc = spans_block_load(spans, block, sid);
  for (size_t i = 0; !rc && i < spans->chunk_rows; i++) {
    const struct span_row *row = &spans->chunk[i];
    if (row->end_ns == SPANS_NO_END || !spans_passes(spans, row))
      continue;
    rc = candidate_add(s, (struct candidate){spans_duration(row), sid, block, i, *row});
  }
  return rc;
}

/* The conditions are those of the stream (spans_blocks_bind). */
static const char *const sql_slowest =
    "SELECT block, sid, max_dur_ns, names FROM block_meta WHERE (?1 = 0 OR sid = ?1) AND min_id <= ?2 AND max_id >= ?3"
    " AND min_start_ns <= ?4 AND max_end_ns >= ?5 AND max_dur_ns >= ?6 ORDER BY max_dur_ns DESC, sid, block";

static int search(struct spans *spans, sqlite3_stmt *blocks, struct slowest *s) {
  int rc;
  while ((rc = sqlite3_step(blocks)) == SQLITE_ROW) {
    /* Not even its longest would be better than the worst we have; of equal ones the first counts, and the blocks come in that order. */
    const struct candidate best = {
        sqlite3_column_int64(blocks, 2), sqlite3_column_int64(blocks, 1), sqlite3_column_int64(blocks, 0), 0, {0}};
    if (s->n == s->limit && !better(&best, &s->heap[0]))
      return 0;
    if (!spans_block_wanted(spans, (const char *)sqlite3_column_text(blocks, 3)))
      continue;
    rc = block_search(spans, s, sqlite3_column_int64(blocks, 0), sqlite3_column_int64(blocks, 1));
    if (rc < 0)
      return rc;
  }
  return spans_errno(rc);
}

static int give(struct spans *spans, struct slowest *s, each_fn *each, void *arg) {
  int rc = 0;
  if (s->n)
    qsort(s->heap, s->n, sizeof *s->heap, by_rank);
  for (size_t i = 0; !rc && i < s->n; i++) {
    rc = spans->session.sid == s->heap[i].sid ? 1 : spans_session_load(spans, s->heap[i].sid);
    if (rc == 1)
      rc = each(&s->heap[i].row, &spans->session, arg);
  }
  return rc;
}

int spans_slowest(sqlite3 *db, const struct spans_filter *filter, size_t n, each_fn *each, void *arg) {
  struct spans *spans = NULL;
  struct spans_filter f = *filter;
  struct slowest s = {.limit = n};
  sqlite3_stmt *blocks = NULL;
  bool closed = !f.which || f.which & SPANS_CLOSED;
  if (!n || !closed || (f.names && !f.names_count))
    return 0;
  if (f.columns)
    f.columns |= BLOCK_END;
  int rc = spans_open(db, &f, &spans);
  if (rc)
    return rc;
  rc = spans_errno(sqlite3_prepare_v2(db, sql_slowest, -1, &blocks, NULL));
  rc = rc ? rc : spans_blocks_bind(spans, blocks, f.sid);
  rc = rc ? rc : search(spans, blocks, &s);
  rc = rc ? rc : give(spans, &s, each, arg);
  (void)sqlite3_finalize(blocks); /* rc is known; until here it held on to one moment of the store */
  spans_close(spans);
  for (size_t i = 0; i < s.n; i++)
    free((char *)s.heap[i].row.attrs);
  free(s.heap);
  return rc;
}
