// links: collectord/store.c collectord/store_block.c collectord/store_checkpoint.c collectord/store_lock.c collectord/store_erase.c collectord/store_migrate.c collectord/store_open.c collectord/store_rows.c collectord/store_snapshots.c collectord/store_sql.c collectord/schema.c collectord/utf8.c proto/block.c proto/erase.c proto/histogram.c tools/spans.c tools/spans_each.c tools/spans_moves.c tools/spans_names.c tools/vtab_args.c tools/vtab_spans.c
/* Writing and reading a store while memory is short: each allocation fails in turn, alone or with all that follow. Nothing may break,
 * what was committed must be there afterwards, and the store be fit for use when there is memory again. */
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

static long fail_at;         /* 0: never; else the allocation that fails, counted down to 1 */
static bool failed, lasting; /* lasting: so do those that follow */

#ifndef __SANITIZE_ADDRESS__ /* which has a malloc of its own */
static bool refuse(void) {
  if (!fail_at || --fail_at)
    return false;
  failed = true;
  fail_at = lasting;
  return true;
}

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *malloc(size_t n) {
  return refuse() ? NULL : __libc_malloc(n);
}
void *calloc(size_t n, size_t m) {
  return refuse() ? NULL : __libc_calloc(n, m);
}
void *realloc(void *p, size_t n) {
  return refuse() ? NULL : __libc_realloc(p, n);
}
#endif

static char folder[64], path[96];

static int each(const struct span_row *row, const struct spans_session *session, void *arg) {
  (void)session;
  *(uint64_t *)arg += row->id;
  return 0;
}

static int nothing(int64_t block, const struct block *rows, void *arg) {
  (void)block, (void)rows, (void)arg;
  return 0;
}

static int write_some(struct store *store, uint64_t prefix) {
  static struct span_row rows[100];
  static uint32_t histogram[HISTOGRAM_BINS] = {[3] = 1};
  struct session_row session = {.prefix = prefix, .host = "bad \xff text", .rank = -1};
  struct mark_row mark = {.id = 101, .type = MARK_STRING, .text = "bad \xff", .text_len = 5};
  struct rollup_row rollup = {.histogram = histogram};
  int64_t sid, number = 0;
  uint32_t name;
  int rc = store_name(store, "a name that is new\xff", 19, &name);
  for (size_t i = 0; i < 100; i++)
    rows[i] = (struct span_row){
        .id = i + 1, .parent = 5, .name = 1, .start_ns = 5, .end_ns = 9, .attrs = "{\"a\":1}", .attrs_len = 7};
  rc = rc ? rc : store_session_add(store, &session, &sid);
  rc = rc ? rc : store_block_put(store, sid, rows, 50, false, &number);
  rc = rc ? rc : store_block_put(store, sid, rows, 100, false, &number);
  rc = rc ? rc : store_blocks_unsealed(store, sid, nothing, NULL);
  rc = rc ? rc : store_mark(store, sid, &mark);
  rc = rc ? rc : store_move(store, sid, 5, 0, 6);
  rc = rc ? rc : store_rollup(store, sid, &rollup);
  return rc ? rc : store_commit(store);
}

static int read_all(uint64_t *sum) {
  sqlite3 *db;
  struct spans_filter filter = {.names = (uint32_t[]){1, 2}, .names_count = 2};
  int rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL);
  rc = rc ? rc : vtab_spans_register(db);
  if (rc) {
    sqlite3_close(db);
    return -ENOMEM;
  }
  *sum = 0;
  rc = spans_each(db, &filter, each, sum);
  uint64_t slow = 0;
  rc = rc ? rc : spans_slowest(db, &filter, 3, each, &slow);
  if (!rc && sqlite3_exec(db, "SELECT *, sid FROM spans WHERE name_id = 1 ORDER BY attrs DESC, name", NULL, NULL, NULL))
    rc = -ENOMEM;
  if (!rc && sqlite3_exec(db, "SELECT * FROM spans WHERE id = '00000000000000010000000000000001'", NULL, NULL, NULL))
    rc = -ENOMEM;
  assert_int_equal(sqlite3_close(db), SQLITE_OK);
  return rc;
}

static void test_each_allocation(void **state) {
  (void)state;
#ifdef __SANITIZE_ADDRESS__
  print_message("skipped: the sanitizer has a malloc of its own\n");
  skip();
#endif
  uint64_t stored = 0, sum;
  long step = 1;
  for (long n = 1;; n += step) {
    struct store *store = NULL;
    failed = false;
    fail_at = n;
    int rc = store_open(path, &store, NULL, 0);
    rc = rc ? rc : write_some(store, (uint64_t)n);
    bool opened = store != NULL;
    store_close(store);
    fail_at = 0;
    assert_true(rc == 0 || failed);
    stored += rc == 0;
    if (!failed)
      break;
    if (opened) /* the way to there was walked */
      step = 7;
  }
  assert_true(stored > 0);
  long reads = 0;
  for (long n = 1;; n += 3) {
    failed = false;
    fail_at = n;
    int rc = read_all(&sum);
    fail_at = 0;
    assert_true(failed ? rc == 0 || rc == -ENOMEM || rc == -EIO : rc == 0);
    if (!failed)
      break;
    reads++;
  }
  assert_true(reads > 100);
  assert_int_equal(sum, stored * 5050);
}

/* The allocations of the rollback fail as well. */
static void test_memory_returns(void **state) {
  (void)state;
#ifdef __SANITIZE_ADDRESS__
  print_message("skipped: the sanitizer has a malloc of its own\n");
  skip();
#endif
  long n = 0;
  do {
    struct store *store = NULL;
    assert_int_equal(store_open(path, &store, NULL, 0), 0); /* anew: nothing is at hand yet */
    failed = false;
    lasting = true;
    fail_at = ++n;
    int rc = write_some(store, (uint64_t)(1000000 + 2 * n));
    if (rc)
      store_rollback(store);
    fail_at = 0;
    lasting = false;
    assert_true(rc == 0 || failed);
    assert_int_equal(write_some(store, (uint64_t)(1000001 + 2 * n)), 0);
    store_close(store);
  } while (failed);
  assert_true(n > 10);
}

int main(void) {
  bool quick = !access("/dev/shm", W_OK); /* hundreds of stores are made, and a disk would sync each */
  snprintf(folder, sizeof folder, "%s/cirron-test-XXXXXX", quick ? "/dev/shm" : "/tmp");
  if (!mkdtemp(folder))
    return 1;
  snprintf(path, sizeof path, "%s/t.db", folder);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_allocation), cmocka_unit_test(test_memory_returns)};
  int rc = cmocka_run_group_tests(tests, NULL, NULL);
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command) ? 1 : rc;
}
