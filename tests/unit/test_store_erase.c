// links: collectord/store.c collectord/store_block.c collectord/store_checkpoint.c collectord/store_lock.c collectord/store_erase.c collectord/store_migrate.c collectord/store_open.c collectord/store_rows.c collectord/store_snapshots.c collectord/store_sql.c collectord/schema.c collectord/utf8.c proto/block.c proto/erase.c proto/histogram.c
/* Removing sessions from a store. */
#include <errno.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>

#include "collectord/store_internal.h"
#include "proto/erase.h"
#include "proto/store_abi.h"
#include "tests/support/store_file.h"

static void test_erase(void **state) {
  struct fixture *f = *state;
  struct store_oldest oldest;
  int64_t before, after, left = 1;
  assert_int_equal(store_oldest(f->store, &oldest), -ENOENT);
  session_with_all(f->store, 30, SESSION_RUNNING, 1);
  session_with_all(f->store, 20, SESSION_FINISHED, 60);
  session_with_all(f->store, 10, SESSION_LOST, 2);
  assert_int_equal(store_oldest(f->store, &oldest), 0);
  assert_true(oldest.sid == 3 && oldest.ended_ns == 10 && oldest.spans == 77);
  assert_int_equal(store_erase(f->store, 1), -ENOENT); /* running */
  assert_int_equal(store_erase(f->store, 2), 0);
  assert_int_equal(store_shrink(f->store, 1, &left), -EBUSY);
  assert_int_equal(store_commit(f->store), 0);
  ASK("SELECT sid, id, state FROM sessions WHERE sid = 2", "2|erased 2|erased\n");
  int64_t sid;
  assert_int_equal(store_session_find(f->store, 20, &sid), -ENOENT);
  assert_int_equal(store_used(f->store, &before), 0);
  bool more = true;
  int steps = 0;
  for (; more; steps++) {
    assert_int_equal(store_erase_some(f->store, &more), 0);
    assert_int_equal(store_commit(f->store), 0);
    assert_true(f->store->wal_pages < 4096 + 2000);
  }
  assert_in_range(steps, 8, 40);
  assert_int_equal(store_used(f->store, &after), 0);
  assert_true(after < before / 2);
  ASK("SELECT sid FROM sessions ORDER BY sid", "1\n3\n");
  ASK("SELECT count(*) = sum(sid = 1) + sum(sid = 3) FROM marks", "1\n");
  ASK("SELECT group_concat(sid) FROM snapshot_passes", "1,3\n");
  ASK("SELECT sid, count(*) FROM snapshots GROUP BY sid", "1|1500\n3|1500\n");
  ASK("SELECT (SELECT count(*) FROM blocks), (SELECT count(*) FROM block_meta), (SELECT count(*) FROM steps)", "3|3|5000\n");
  while (left)
    assert_int_equal(store_shrink(f->store, 100, &left), 0);
  ASK("PRAGMA freelist_count", "0\n");
  ASK("PRAGMA integrity_check", "ok\n");
}

/* Whoever adds a table with rows of sessions has to say in proto/erase.c how they go. */
static void test_erase_knows_all_tables(void **state) {
  struct fixture *f = *state;
  sqlite3_stmt *s;
  static const char sql[] =
      "SELECT m.name FROM sqlite_schema m JOIN pragma_table_info(m.name) t WHERE m.type = 'table' AND t.name = 'sid'";
  int found = 0;
  assert_int_equal(sqlite3_prepare_v2(f->store->db, sql, -1, &s, NULL), SQLITE_OK);
  for (; sqlite3_step(s) == SQLITE_ROW; found++) {
    const char *name = (const char *)sqlite3_column_text(s, 0);
    const char *const *at = erase_tables;
    while (*at && strcmp(*at, name) != 0)
      at++;
    if (!*at)
      fail_msg("proto/erase.c does not know the table %s", name);
  }
  sqlite3_finalize(s);
  assert_int_equal(found, 12);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST_OPEN(test_erase),
      TEST_OPEN(test_erase_knows_all_tables),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
