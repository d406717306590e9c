/* What a collector has stored, as one text. For the tests of collectord/ingest*.c. */
#ifndef CIRRON_TEST_INGEST_DUMP_H
#define CIRRON_TEST_INGEST_DUMP_H

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/ingest_script.h"

static inline void dump_sql(sqlite3 *db, const char *sql, FILE *out) {
  sqlite3_stmt *st;
  if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
    fail_msg("%s: %s", sql, sqlite3_errmsg(db));
  while (sqlite3_step(st) == SQLITE_ROW) {
    for (int i = 0; i < sqlite3_column_count(st); i++)
      fprintf(out, "%s|", sqlite3_column_text(st, i) ? (const char *)sqlite3_column_text(st, i) : "NULL");
    fputc('\n', out);
  }
  sqlite3_finalize(st);
}

static inline int by_id(const void *a, const void *b) {
  const struct span_row *x = a, *y = b;
  return x->id < y->id ? -1 : x->id > y->id;
}

static inline void apply_moves(sqlite3 *db, struct span_row *rows, size_t n) {
  sqlite3_stmt *st;
  assert_int_equal(sqlite3_prepare_v2(db, "SELECT span, since_ns, parent FROM moves ORDER BY move", -1, &st, NULL), SQLITE_OK);
  while (sqlite3_step(st) == SQLITE_ROW)
    for (size_t i = 0; i < n; i++)
      if (rows[i].parent == (uint64_t)sqlite3_column_int64(st, 0) && rows[i].start_ns >= sqlite3_column_int64(st, 1) &&
          rows[i].id != (uint64_t)sqlite3_column_int64(st, 2))
        rows[i].parent = (uint64_t)sqlite3_column_int64(st, 2);
  sqlite3_finalize(st);
}

static inline struct span_row *all_spans(sqlite3 *db, size_t *count) {
  struct span_row *rows = NULL;
  size_t n = 0;
  for (int sealed = 0; sealed <= 1; sealed++) {
    sqlite3_stmt *st;
    assert_int_equal(
        sqlite3_prepare_v2(db, "SELECT data FROM blocks JOIN block_meta USING(block) WHERE sealed = ?1", -1, &st, NULL),
        SQLITE_OK);
    sqlite3_bind_int(st, 1, sealed);
    size_t first = n;
    while (sqlite3_step(st) == SQLITE_ROW) {
      struct block b = {0};
      assert_int_equal(block_decode(sqlite3_column_blob(st, 0), (size_t)sqlite3_column_bytes(st, 0), &b), 0);
      rows = realloc(rows, (n + b.count) * sizeof *rows);
      memcpy(rows + n, b.rows, b.count * sizeof *rows);
      n += b.count;
      block_fini(&b);
    }
    sqlite3_finalize(st);
    if (sealed)
      apply_moves(db, rows + first, n - first);
  }
  qsort(rows, n, sizeof *rows, by_id);
  *count = n;
  return rows;
}

static inline char *dump(const struct run *r, bool sums) {
  sqlite3 *db;
  char *text;
  size_t len, n;
  FILE *out = open_memstream(&text, &len);
  assert_int_equal(sqlite3_open_v2(r->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
  struct span_row *rows = all_spans(db, &n);
  for (size_t i = 0; i < n; i++) {
    char sql[128];
    snprintf(sql, sizeof sql, "SELECT text FROM names WHERE name = %u", rows[i].name);
    fprintf(out, "%lld < %lld %lld-%lld kind %d %lld ", (long long)rows[i].id, (long long)rows[i].parent,
            (long long)(rows[i].start_ns - WALL), (long long)(rows[i].end_ns - WALL), rows[i].kind, (long long)rows[i].index);
    dump_sql(db, sql, out);
  }
  free(rows);
  fprintf(out, "steps\n");
  dump_sql(db, "SELECT * FROM steps ORDER BY span", out);
  fprintf(out, "epochs\n");
  dump_sql(db, "SELECT * FROM epochs ORDER BY span", out);
  fprintf(out, "marks\n");
  dump_sql(db, "SELECT mark, span, text, value, ts_ns FROM marks JOIN names USING(name) ORDER BY mark", out);
  fprintf(out, "open\n");
  dump_sql(db, "SELECT span, parent, text, kind FROM open_spans JOIN names USING(name) ORDER BY span", out);
  if (sums) {
    fprintf(out, "rollups\n");
    dump_sql(db,
             "SELECT epoch, text, kind, count, errors, total_ns, self_ns, min_ns, max_ns, hex(histogram) FROM rollups"
             " JOIN names USING(name) WHERE count > 0 ORDER BY epoch, text, kind",
             out);
  }
  fprintf(out, "session\n");
  dump_sql(db, "SELECT spans, marks, last_ns FROM sessions", out);
  sqlite3_close(db);
  fclose(out);
  return text;
}

#endif
