// links: collectord/store.c collectord/store_block.c collectord/store_checkpoint.c collectord/store_lock.c collectord/store_erase.c collectord/store_migrate.c collectord/store_open.c collectord/store_rows.c collectord/store_snapshots.c collectord/store_sql.c collectord/schema.c collectord/utf8.c proto/block.c proto/erase.c proto/histogram.c tools/spans.c tools/spans_each.c tools/spans_moves.c tools/spans_names.c tools/vtab_args.c tools/vtab_spans.c
/* What the collector's store writes, read back through the stream of spans and the table `spans`. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectord/store.h"
#include "proto/ring_abi.h"
#include "proto/store_abi.h"
#include "tools/spans.h"
#include "tools/vtab_spans.h"

#define T0 1700000000000000000ll

struct fixture {
  char folder[64], path[96];
  struct store *store;
  sqlite3 *db; /* read only, with the table */
  int64_t sid;
};

static int set_up(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  strcpy(f->folder, "/tmp/cirron-test-XXXXXX");
  assert_non_null(mkdtemp(f->folder));
  snprintf(f->path, sizeof f->path, "%s/t.db", f->folder);
  char why[256] = "";
  if (store_open(f->path, &f->store, why, sizeof why))
    fail_msg("%s", why);
  assert_int_equal(sqlite3_open_v2(f->path, &f->db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
  assert_int_equal(vtab_spans_register(f->db), SQLITE_OK);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  struct fixture *f = *state;
  assert_int_equal(sqlite3_close(f->db), SQLITE_OK); /* nothing of ours is left in it */
  store_close(f->store);
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", f->folder);
  assert_int_equal(system(command), 0);
  free(f);
  return 0;
}

static int64_t add_session(struct fixture *f, uint64_t prefix, int64_t rank) {
  struct session_row row = {.prefix = prefix, .pid = 4000 + (int64_t)prefix, .rank = rank, .local_rank = -1, .world_size = -1};
  assert_int_equal(store_session_add(f->store, &row, &f->sid), 0);
  return f->sid;
}

static uint32_t name(struct fixture *f, const char *text) {
  uint32_t out;
  assert_int_equal(store_name(f->store, text, strlen(text), &out), 0);
  return out;
}

static void put(struct fixture *f, int64_t sid, const struct span_row *rows, size_t n) {
  int64_t block = 0;
  assert_int_equal(store_block_put(f->store, sid, rows, n, true, &block), 0);
}

static struct span_row span(uint64_t id, uint64_t parent, uint32_t name_no, int64_t start, int64_t length) {
  return (struct span_row){.id = id,
                           .parent = parent,
                           .name = name_no,
                           .start_ns = T0 + start,
                           .end_ns = T0 + start + length,
                           .index = SPAN_NO_INDEX,
                           .cpu_ns = SPAN_NO_TIME,
                           .gpu_ns = SPAN_NO_TIME,
                           .tid = 7};
}

/* All rows of a query as one text: columns with |, rows with newlines, NULL as ~. */
static char *answer(struct fixture *f, const char *sql) {
  static char text[16384];
  sqlite3_stmt *s;
  size_t used = 0;
  text[0] = 0;
  if (sqlite3_prepare_v2(f->db, sql, -1, &s, NULL))
    fail_msg("%s: %s", sql, sqlite3_errmsg(f->db));
  int rc;
  while ((rc = sqlite3_step(s)) == SQLITE_ROW && used < sizeof text - 600)
    for (int i = 0, n = sqlite3_column_count(s); i < n; i++) {
      const char *value = (const char *)sqlite3_column_text(s, i);
      used += (size_t)snprintf(text + used, 512, "%s%s", value ? value : "~", i + 1 < n ? "|" : "\n");
    }
  if (rc != SQLITE_DONE)
    fail_msg("%s: %s", sql, sqlite3_errmsg(f->db));
  sqlite3_finalize(s);
  return text;
}

#define ASK(sql, want) assert_string_equal(answer(f, sql), want)

static void test_columns(void **state) {
  struct fixture *f = *state;
  int64_t sid = add_session(f, 0xabc, 3);
  struct span_row rows[4] = {span(1, 0, name(f, "cirron.session"), 0, 1000), span(2, 1, name(f, "forward"), 10, 5),
                             span(3, 1, name(f, "load \"it\""), 20, 0), span(4, 3, 0, 30, -10)};
  rows[0].kind = SPAN_SESSION;
  rows[1].kind = SPAN_FORWARD;
  rows[1].flags = SPAN_MODE_TRAIN | SPAN_ERROR;
  rows[1].module = name(f, "Res\"Net\n");
  rows[1].exception = name(f, "ValueError");
  rows[1].attrs = "{\"b\":1.50,\"big\":123456789012345678901234567890,\"mode\":\"x\"}";
  rows[1].attrs_len = (uint32_t)strlen(rows[1].attrs);
  rows[1].cpu_ns = 4;
  rows[1].gpu_ns = 3;
  rows[1].index = -5;
  rows[2].attrs = "{\"cut";
  rows[2].attrs_len = 5;
  rows[3].flags = SPAN_MODE_EVAL;
  put(f, sid, rows, 4);
  struct span_row open = span(5, 2, name(f, "open"), 40, 0);
  open.kind = SPAN_STEP;
  open.index = 9;
  assert_int_equal(store_open_spans(f->store, sid, &open, 1), 0);
  assert_int_equal(store_commit(f->store), 0);
  ASK("SELECT id, name, parent_id, idx, start_ns, end_ns, dur_ns, kind, mode, module, exception, error, state FROM spans",
      "0000000000000abc0000000000000001|cirron.session|~|~|1700000000000000000|1700000000000001000|1000|session|~|~|~|0|"
      "closed\n"
      "0000000000000abc0000000000000002|forward|0000000000000abc0000000000000001|-5|1700000000000000010|1700000000000000015|5|"
      "forward|train|Res\"Net\n|ValueError|1|closed\n"
      "0000000000000abc0000000000000003|load "
      "\"it\"|0000000000000abc0000000000000001|~|1700000000000000020|1700000000000000020|0|"
      "user|~|~|~|0|closed\n"
      "0000000000000abc0000000000000004|~|0000000000000abc0000000000000003|~|1700000000000000030|1700000000000000020|0|"
      "user|eval|~|~|0|closed\n"
      "0000000000000abc0000000000000005|open|0000000000000abc0000000000000002|9|1700000000000000040|~|~|step|~|~|~|0|"
      "unfinished\n");
  ASK("SELECT attrs FROM spans",
      "{}\n"
      "{\"b\":1.50,\"big\":123456789012345678901234567890,\"mode\":\"train\",\"module\":\"Res\\\"Net\\n\","
      "\"exception\":\"ValueError\"}\n"
      "{\"unreadable\":\"{\\\"cut\"}\n{\"mode\":\"eval\"}\n{}\n");
  ASK("SELECT session_id, cpu_ns, gpu_ns, thread_id, pid, rank, sid, span, parent, name_id FROM spans WHERE idx = -5",
      "0000000000000abc0000000000000000|4|3|7|6748|3|1|2|1|2\n");
  ASK("SELECT count(*), count(DISTINCT rowid) FROM spans", "5|5\n");
  ASK("SELECT count(*) FROM (SELECT * FROM spans LIMIT 1)", "1\n");
  assert_int_equal(sqlite3_exec(f->db, "INSERT INTO spans(id) VALUES(1)", NULL, NULL, NULL), SQLITE_ERROR);
}

/* Three sessions of some blocks; in each, span n has name n % 5 and starts at 10 * n. */
static void many(struct fixture *f) {
  static struct span_row rows[200];
  char text[8];
  for (uint64_t session = 1; session <= 3; session++) {
    int64_t sid = add_session(f, session, session == 2 ? 0 : -1);
    for (uint64_t i = 0; i < 1000; i++) {
      snprintf(text, sizeof text, "n%d", (int)(i / 200 % 2 ? i % 5 + 5 : i % 5));
      rows[i % 200] = span(i + 1, i / 10, name(f, text), (int64_t)i * 10, (int64_t)(i * 7919 % 1000));
      if (i % 200 == 199)
        put(f, sid, rows, 200);
    }
  }
  assert_int_equal(store_commit(f->store), 0);
}

/* Each condition gives what SQLite finds by itself in a copy of all rows. */
static void test_conditions(void **state) {
  struct fixture *f = *state;
  many(f);
  static const char *const conditions[] = {
      "sid = 2",
      "sid = '2'",
      "sid = 2.5",
      "sid = 99",
      "sid IN (1, 3)",
      "sid IS NULL",
      "sid = NULL",
      "sid = 1 AND sid = 2",
      "session_id = '00000000000000020000000000000000'",
      "session_id = 'none'",
      "session_id = 5",
      "session_id = x'00'",
      "id = '0000000000000003000000000000000a'",
      "id = '0000000000000003000000000000000A'",
      "id = 'zz'",
      "id = 1",
      "id = '0000000000000003000000000000000A' COLLATE NOCASE",
      "id = '00000000000000090000000000000001'",
      "span = 5",
      "span = 1000 AND sid = 3",
      "span = 0",
      "span IN (1, 200, 201, 999)",
      "span = 5 AND span = 6",
      "name = 'n7'",
      "name = 'N7'",
      "name = 'N7' COLLATE NOCASE",
      "name = 'not there'",
      "name IN ('n1', 'n6')",
      "name LIKE 'n%'",
      "name_id = 3",
      "name_id = -1",
      "name_id = 1e30",
      "name = 'n1' AND name_id = 2",
      "name IS NULL",
      "start_ns >= 1700000000000005000",
      "start_ns > 1700000000000005000",
      "start_ns < 1700000000000000100",
      "start_ns <= 0",
      "start_ns > 0",
      "start_ns > -5",
      "start_ns < 'text'",
      "start_ns > 'text'",
      "start_ns >= 1.7e18",
      "start_ns < 1e300",
      "start_ns > -1e300",
      "start_ns = 1700000000000005000",
      "start_ns BETWEEN 1700000000000001000 AND 1700000000000001100",
      "end_ns >= 1700000000000009000",
      "end_ns < 1700000000000000500",
      "end_ns = 1700000000000000000",
      "end_ns > 5 AND start_ns > 9",
      "dur_ns > 990",
      "dur_ns >= 990",
      "dur_ns < 10",
      "dur_ns = 999",
      "dur_ns = 0",
      "dur_ns > 5000",
      "dur_ns >= 990.5",
      "dur_ns > 900 AND sid = 1 AND name = 'n2' AND start_ns < 1700000000000009000",
      "rank IS NULL",
      "rank = 0",
      "1",
  };
  char sql[512];
  assert_int_equal(
      sqlite3_exec(f->db,
                   "CREATE TEMP TABLE c(session_id TEXT, id TEXT, name TEXT, start_ns INTEGER, end_ns INTEGER, dur_ns "
                   "INTEGER, rank INTEGER, sid INTEGER, span INTEGER, name_id INTEGER);"
                   "INSERT INTO c SELECT session_id, id, name, start_ns, end_ns, dur_ns, rank, sid, span, name_id FROM "
                   "spans",
                   NULL, NULL, NULL),
      SQLITE_OK);
  ASK("SELECT count(*) FROM c", "3000\n");
  for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++) {
    snprintf(sql, sizeof sql, "SELECT count(*), min(id), max(id), sum(span * 7 + sid), sum(dur_ns) FROM spans WHERE %s",
             conditions[i]);
    char *got = strdup(answer(f, sql));
    snprintf(sql, sizeof sql, "SELECT count(*), min(id), max(id), sum(span * 7 + sid), sum(dur_ns) FROM c WHERE %s",
             conditions[i]);
    if (strcmp(got, answer(f, sql)))
      fail_msg("WHERE %s: %s instead of %s", conditions[i], got, answer(f, sql));
    free(got);
  }
}

static void test_joins(void **state) {
  struct fixture *f = *state;
  many(f);
  ASK("SELECT count(*) FROM spans c JOIN spans p ON p.sid = c.sid AND p.span = c.parent WHERE c.sid = 1", "990\n");
  ASK("SELECT count(*) FROM spans c JOIN spans p ON p.id = c.parent_id WHERE c.sid = 3 AND c.span < 300", "289\n");
  ASK("SELECT count(*) FROM spans WHERE session_id IN (SELECT id FROM sessions WHERE rank = 0) AND dur_ns > 900", "99\n");
  ASK("WITH RECURSIVE up(s) AS (SELECT 1000 UNION ALL SELECT parent FROM up JOIN spans ON sid = 2 AND span = s WHERE parent > "
      "0)"
      " SELECT group_concat(s) FROM up",
      "1000,99,9\n");
}

static void test_order(void **state) {
  struct fixture *f = *state;
  many(f);
  sqlite3_stmt *s;
  int64_t last_sid = 0, last_span = 0;
  assert_int_equal(sqlite3_prepare_v2(f->db, "SELECT sid, span FROM spans", -1, &s, NULL), SQLITE_OK);
  while (sqlite3_step(s) == SQLITE_ROW) {
    int64_t sid = sqlite3_column_int64(s, 0), number = sqlite3_column_int64(s, 1);
    assert_true(sid > last_sid || (sid == last_sid && number == last_span + 1));
    last_sid = sid;
    last_span = number;
  }
  assert_int_equal(last_sid, 3);
  sqlite3_finalize(s);
}

static void test_moves(void **state) {
  struct fixture *f = *state;
  int64_t sid = add_session(f, 1, -1), other = add_session(f, 2, -1);
  uint32_t n = name(f, "x");
  struct span_row rows[] = {span(10, 1, n, 0, 1), span(11, 1, n, 100, 1), span(12, 5, n, 100, 1), span(13, 6, n, 50, 1)};
  put(f, sid, rows, 4);
  put(f, other, rows, 4);
  struct span_row open = span(14, 1, n, 100, 0);
  assert_int_equal(store_open_spans(f->store, sid, &open, 1), 0);
  assert_int_equal(store_move(f->store, sid, 6, T0, 7), 0);       /* 13 -> 7 */
  assert_int_equal(store_move(f->store, sid, 1, T0 + 100, 5), 0); /* 11, 14 -> 5 */
  assert_int_equal(store_move(f->store, sid, 5, T0 + 100, 6), 0); /* 11, 12, 14 -> 6, past the first move */
  assert_int_equal(store_move(f->store, sid, 8, T0, 9), 0);
  assert_int_equal(store_move(f->store, sid, 7, T0 + 51, 9), 0); /* began later */
  assert_int_equal(store_commit(f->store), 0);
  ASK("SELECT sid, span, parent FROM spans", "1|10|1\n1|11|6\n1|12|6\n1|13|7\n1|14|6\n2|10|1\n2|11|1\n2|12|5\n2|13|6\n");
  ASK("SELECT parent_id FROM spans WHERE span = 11 AND sid = 1", "00000000000000010000000000000006\n");
  ASK("SELECT a.parent, b.parent FROM spans a JOIN spans b ON b.span = a.span WHERE a.sid = 1 AND b.sid = 2",
      "1|1\n6|1\n6|5\n7|6\n");
}

static int gather(const struct span_row *row, const struct spans_session *session, void *arg) {
  int64_t *sums = arg;
  sums[0]++;
  sums[1] += (int64_t)row->id + session->sid * 10000;
  sums[2] += spans_duration(row);
  return 0;
}

static int stop_at_third(const struct span_row *row, const struct spans_session *session, void *arg) {
  (void)row, (void)session;
  return ++*(int *)arg == 3 ? 42 : 0;
}

static void test_each(void **state) {
  struct fixture *f = *state;
  many(f);
  int64_t all[3] = {0}, some[3] = {0}, none[3] = {0};
  struct spans_filter filter = {0};
  assert_int_equal(spans_each(f->db, &filter, gather, all), 0);
  assert_int_equal(all[0], 3000);
  assert_int_equal(all[1], 3 * 500500 + 1000 * 10000 * 6);
  uint32_t wanted[2];
  assert_int_equal(spans_name_find(f->db, "n7", 2, &wanted[0]), 0);
  assert_int_equal(spans_name_find(f->db, "n1", 2, &wanted[1]), 0);
  assert_int_equal(spans_name_find(f->db, "n", 1, &wanted[1]), -ENOENT);
  filter = (struct spans_filter){.names = wanted, .names_count = 2, .sid = 3, .columns = BLOCK_END};
  assert_int_equal(spans_each(f->db, &filter, gather, some), 0);
  assert_int_equal(some[0], 200);
  filter.names_count = 0;
  assert_int_equal(spans_each(f->db, &filter, gather, none), 0);
  assert_int_equal(none[0], 0);
  int calls = 0;
  filter = (struct spans_filter){0};
  assert_int_equal(spans_each(f->db, &filter, stop_at_third, &calls), 42);
  assert_int_equal(calls, 3);
  assert_int_equal(sqlite3_next_stmt(f->db, NULL) != NULL, 0); /* everything was finalized */
}

static int keep_durations(const struct span_row *row, const struct spans_session *session, void *arg) {
  int64_t **at = arg;
  *(*at)++ = spans_duration(row) * 1000000 + session->sid * 10000 + (int64_t)row->id;
  return 0;
}

static void test_slowest(void **state) {
  struct fixture *f = *state;
  many(f);
  int64_t got[3001], *end = got;
  struct spans_filter filter = {0};
  assert_int_equal(spans_slowest(f->db, &filter, 7, keep_durations, &end), 0);
  assert_int_equal(end - got, 7);
  for (int i = 0; i < 6; i++) /* 999 three times, once a session, then 998 ... */
    assert_true(got[i] / 1000000 == 999 - i / 3 && got[i] / 10000 % 100 == i % 3 + 1);
  end = got;
  assert_int_equal(spans_slowest(f->db, &filter, 5000, keep_durations, &end), 0);
  assert_int_equal(end - got, 3000);
  for (int i = 1; i < 3000; i++)
    assert_true(got[i - 1] / 1000000 >= got[i] / 1000000);
  end = got;
  filter = (struct spans_filter){.sid = 2, .max_start_ns = T0 + 1000};
  assert_int_equal(spans_slowest(f->db, &filter, 3, keep_durations, &end), 0);
  assert_true(end - got == 3 && got[0] / 10000 % 100 == 2);
  end = got;
  assert_int_equal(spans_slowest(f->db, &filter, 0, keep_durations, &end), 0);
  filter = (struct spans_filter){.sid = 99};
  assert_int_equal(spans_slowest(f->db, &filter, 5, keep_durations, &end), 0);
  assert_ptr_equal(end, got);
}

/* The writer goes on while a statement is half read: it shows the moment it began at. */
static void test_one_moment(void **state) {
  struct fixture *f = *state;
  many(f);
  struct spans *spans;
  struct spans_filter filter = {0};
  const struct span_row *row;
  const struct spans_session *session;
  int64_t count = 1;
  assert_int_equal(spans_open(f->db, &filter, &spans), 0);
  assert_int_equal(spans_next(spans, &row, &session), 1);
  int64_t sid = add_session(f, 77, -1);
  struct span_row more = span(1, 0, 1, 0, 0);
  put(f, sid, &more, 1);
  put(f, 3, &more, 1);
  assert_int_equal(store_commit(f->store), 0);
  int rc;
  while ((rc = spans_next(spans, &row, &session)) == 1)
    count++;
  assert_int_equal(rc, 0);
  assert_int_equal(count, 3000);
  spans_close(spans);
  ASK("SELECT count(*) FROM spans", "3002\n");
}

static void test_damage(void **state) {
  struct fixture *f = *state;
  many(f);
  sqlite3 *db;
  assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
  assert_int_equal(sqlite3_exec(db, "UPDATE blocks SET data = x'c101' WHERE block = 7", NULL, NULL, NULL), SQLITE_OK);
  struct spans_filter filter = {0};
  int64_t sums[3] = {0};
  assert_int_equal(spans_each(f->db, &filter, gather, sums), -EBADMSG);
  assert_int_equal(sqlite3_exec(f->db, "SELECT count(*) FROM spans", NULL, NULL, NULL), SQLITE_CORRUPT);
  assert_non_null(strstr(sqlite3_errmsg(f->db), "damaged"));
  ASK("SELECT count(*) FROM spans WHERE sid = 1", "1000\n");
  assert_int_equal(sqlite3_exec(db, "DELETE FROM blocks WHERE block = 7", NULL, NULL, NULL), SQLITE_OK);
  assert_int_equal(spans_each(f->db, &filter, gather, sums), -EBADMSG);
  sqlite3_close(db);
  assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
  assert_int_equal(vtab_spans_register(db), SQLITE_OK);
  assert_int_equal(spans_each(db, &filter, gather, sums), -EBADMSG);
  assert_int_equal(sqlite3_exec(db, "SELECT * FROM spans", NULL, NULL, NULL), SQLITE_CORRUPT);
  sqlite3_close(db);
}

static void test_ids(void **state) {
  (void)state;
  char text[33];
  uint64_t prefix = 0, number = 0;
  spans_id_text(UINT64_MAX, 0x12, text);
  assert_string_equal(text, "ffffffffffffffff0000000000000012");
  assert_true(spans_id_parse(text, 32, &prefix, &number));
  assert_true(prefix == UINT64_MAX && number == 0x12);
  assert_false(spans_id_parse(text, 31, &prefix, &number));
  text[5] = 'g';
  assert_false(spans_id_parse(text, 32, &prefix, &number));
  assert_false(spans_id_parse(NULL, 32, &prefix, &number));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_columns), TEST(test_conditions), TEST(test_joins),      TEST(test_order),  TEST(test_moves),
      TEST(test_each),    TEST(test_slowest),    TEST(test_one_moment), TEST(test_damage), cmocka_unit_test(test_ids),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
