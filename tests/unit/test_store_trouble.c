// links: collectord/store.c collectord/store_block.c collectord/store_checkpoint.c collectord/store_lock.c collectord/store_erase.c collectord/store_migrate.c collectord/store_open.c collectord/store_rows.c collectord/store_snapshots.c collectord/store_sql.c collectord/schema.c collectord/utf8.c proto/block.c proto/erase.c proto/histogram.c
/* Others in the store, no room, kill -9, and the WAL while others read. */
#include <errno.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectord/store_internal.h"
#include "proto/ring_abi.h"
#include "tests/support/store_file.h"

static void test_busy(void **state) {
  struct fixture *f = *state;
  sqlite3 *other;
  uint32_t out;
  assert_int_equal(sqlite3_open(f->path, &other), SQLITE_OK);
  assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
  assert_int_equal(store_name(f->store, "a", 1, &out), -EBUSY);
  assert_false(store_dirty(f->store));
  store_rollback(f->store);
  assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
  assert_int_equal(store_name(f->store, "a", 1, &out), 0);
  assert_int_equal(store_commit(f->store), 0);
  sqlite3_close(other);
}

static int fill(struct store *store, uint64_t *good) {
  static char text[2000];
  static uint64_t next;
  for (;;) {
    uint32_t out;
    int rc = 0;
    for (int i = 0; !rc && i < 20; i++) {
      memset(text, 'x', sizeof text);
      snprintf(text, sizeof text, "%d", (int)next++);
      rc = store_name(store, text, sizeof text, &out);
    }
    rc = rc ? rc : store_commit(store);
    if (rc)
      return rc;
    *good += 20;
  }
}

static void test_full(void **state) {
  struct fixture *f = *state;
  uint64_t good = 0;
  assert_int_equal(sqlite3_exec(f->store->db, "PRAGMA max_page_count = 300", NULL, NULL, NULL), SQLITE_OK);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(fill(f->store, &good), -ENOSPC);
    uint32_t out;
    assert_int_equal(store_name(f->store, "more, in vain", 13, &out),
                     -EIO); /* SQLite gave the transaction up: not outside of one */
    assert_int_equal(store_commit(f->store), -EIO);
    store_rollback(f->store);
    assert_false(store_dirty(f->store));
  }
  assert_true(good > 0);
  assert_int_equal(sqlite3_exec(f->store->db, "PRAGMA max_page_count = 400", NULL, NULL, NULL), SQLITE_OK);
  uint64_t before = good;
  assert_int_equal(fill(f->store, &good), -ENOSPC);
  assert_true(good > before);
  store_rollback(f->store);
  char want[32];
  snprintf(want, sizeof want, "%d\n", (int)good);
  ASK("SELECT count(*) FROM names", want);
  ASK("PRAGMA integrity_check", "ok\n");
}

/* The same with a real disk: a small one in memory. */
static void test_full_disk(void **state) {
  struct fixture *f = *state;
  if (mount("cirron-test", f->folder, "tmpfs", 0, "size=3m")) {
    print_message("skipped: no right to mount a file system\n");
    skip();
  }
  f->store = open_or_fail(f->path);
  char ballast[96], want[32];
  snprintf(ballast, sizeof ballast, "%s/ballast", f->folder);
  static char zeroes[1 << 19];
  write_file(ballast, zeroes, sizeof zeroes);
  uint64_t good = 0, before;
  int first = fill(f->store, &good);
  store_rollback(f->store);
  before = good;
  int second = fill(f->store, &good);
  store_rollback(f->store);
  unlink(ballast);
  int third = fill(f->store, &good);
  store_rollback(f->store);
  snprintf(want, sizeof want, "%d\n", (int)good);
  char *count = strdup(answer(f->path, "SELECT count(*) FROM names"));
  char *check = strdup(answer(f->path, "PRAGMA integrity_check"));
  store_close(f->store);
  f->store = NULL;
  assert_int_equal(umount(f->folder), 0);
  assert_int_equal(first, -ENOSPC);
  assert_int_equal(second, -ENOSPC);
  assert_int_equal(third, -ENOSPC);
  assert_true(before > 0 && good > before);
  assert_string_equal(count, want);
  assert_string_equal(check, "ok\n");
  free(count);
  free(check);
}

struct taken {
  struct span_row *rows;
  size_t n;
  int64_t block;
};

static int take(int64_t block, const struct block *rows, void *arg) {
  struct taken *taken = arg;
  memcpy(taken->rows, rows->rows, rows->count * sizeof *rows->rows);
  taken->n = rows->count;
  taken->block = block;
  return 0;
}

/* A writer as the collector: each transaction holds a block's new rows and how far the ring was read. Says each commit on `out`. */
static void write_until_killed(const char *path, int out) {
  static struct span_row rows[BLOCK_MAX];
  struct store *store;
  char why[256];
  int64_t sid, block = 0;
  uint64_t tail = 0;
  size_t n = 0;
  if (store_open(path, &store, why, sizeof why) ||
      (store_session_find(store, 1, &sid) && store_session_add(store, &(struct session_row){.prefix = 1}, &sid)) ||
      store_ring_tail_get(store, sid, 1, &tail))
    _exit(1);
  struct taken taken = {.rows = rows};
  if (store_blocks_unsealed(store, sid, take, &taken))
    _exit(1);
  n = taken.n;
  block = taken.block;
  for (;;) {
    for (int i = 0; i < 300 && n < BLOCK_MAX; i++) {
      tail++;
      rows[n++] = (struct span_row){.id = tail, .name = 1, .start_ns = (int64_t)tail};
    }
    bool full = n == BLOCK_MAX;
    if (store_block_put(store, sid, rows, n, full, &block) || store_open_spans(store, sid, rows, 20) ||
        store_ring_tail(store, sid, 1, tail) || store_commit(store) || write(out, &tail, sizeof tail) != sizeof tail)
      _exit(1);
    if (full)
      n = 0, block = 0;
  }
}

/* Every id up to the stored tail once, in order. */
static void check_content(struct fixture *f, uint64_t acknowledged) {
  sqlite3 *db;
  sqlite3_stmt *s;
  struct block block = {0};
  uint64_t next = 1, tail;
  assert_int_equal(sqlite3_open_v2(f->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_prepare_v2(db, "SELECT data, (SELECT tail FROM rings) FROM blocks ORDER BY block", -1, &s, NULL),
                   SQLITE_OK);
  while (sqlite3_step(s) == SQLITE_ROW) {
    tail = (uint64_t)sqlite3_column_int64(s, 1);
    assert_int_equal(block_decode(sqlite3_column_blob(s, 0), (size_t)sqlite3_column_bytes(s, 0), &block), 0);
    for (size_t i = 0; i < block.count; i++)
      assert_true(block.rows[i].id == next++);
  }
  assert_true(next == 1 || next - 1 == tail);
  assert_true(next - 1 >= acknowledged);
  sqlite3_finalize(s);
  sqlite3_close(db);
  block_fini(&block);
  ASK("PRAGMA integrity_check", "ok\n");
  ASK("SELECT count(*) <= 1, (SELECT sum(count) FROM block_meta) IS (SELECT tail FROM rings) FROM block_meta WHERE NOT sealed",
      "1|1\n");
}

static void test_kill(void **state) {
  struct fixture *f = *state;
  uint64_t acknowledged = 0;
  for (int round = 0; round < 25; round++) {
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (!child)
      write_until_killed(f->path, ends[1]);
    close(ends[1]);
    for (int i = 0; i <= round % 9; i++)
      assert_int_equal(read(ends[0], &acknowledged, sizeof acknowledged), sizeof acknowledged);
    kill(child, SIGKILL);
    uint64_t later;
    while (read(ends[0], &later, sizeof later) == sizeof later)
      acknowledged = later;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    check_content(f, acknowledged);
  }
  assert_true(acknowledged > 2 * BLOCK_MAX);
}

/* A reader that stays at an old moment keeps the WAL from being emptied, not the writer from writing. */
static void test_checkpoint_with_reader(void **state) {
  struct fixture *f = *state;
  sqlite3 *reader;
  sqlite3_stmt *s;
  uint32_t out;
  assert_int_equal(store_name(f->store, "first", 5, &out), 0);
  assert_int_equal(store_commit(f->store), 0);
  assert_int_equal(sqlite3_open_v2(f->path, &reader, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_prepare_v2(reader, "SELECT text FROM names", -1, &s, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_step(s), SQLITE_ROW);
  for (int i = 0; i < 50; i++) {
    char text[16];
    int n = snprintf(text, sizeof text, "n%d", i);
    assert_int_equal(store_name(f->store, text, (size_t)n, &out), 0);
    assert_int_equal(store_commit(f->store), 0);
    assert_int_equal(store_checkpoint(f->store), 0);
  }
  assert_int_equal(sqlite3_step(s), SQLITE_DONE);
  sqlite3_finalize(s);
  sqlite3_close(reader);
  assert_int_equal(store_checkpoint(f->store), 0);
  ASK("SELECT count(*) FROM names", "51\n");
}

/* Writes about this many pages in one transaction. */
static void grow(struct store *store, int pages) {
  static char text[3800];
  struct mark_row mark = {.type = MARK_STRING, .text = text, .text_len = sizeof text};
  static uint64_t id;
  memset(text, 'x', sizeof text);
  for (int i = 0; i < pages; i++) {
    mark.id = ++id;
    assert_int_equal(store_mark(store, 1, &mark), 0);
  }
  assert_int_equal(store_commit(store), 0);
}

static int64_t wal_size(const struct fixture *f) {
  char path[128];
  struct stat st;
  snprintf(path, sizeof path, "%s-wal", f->path);
  return stat(path, &st) ? 0 : st.st_size;
}

/* The thread copies while we go on; then the WAL starts anew. A reader at an old moment keeps it from that, until it is done. */
static void test_checkpoints_on_their_thread(void **state) {
  struct fixture *f = *state;
  sqlite3 *reader;
  for (int i = 0; i < 12; i++) {
    grow(f->store, 2000);
    store_checkpoint_wait(f->store->checkpoint);
    assert_int_equal(store_checkpoint_left(f->store->checkpoint), 0);
  }
  assert_true(wal_size(f) < 8000 * 4120);
  assert_true(store_wal_bytes(f->store) < 8000 * 4096);
  assert_int_equal(sqlite3_open_v2(f->path, &reader, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM names", NULL, NULL, NULL), SQLITE_OK);
  for (int i = 0; i < 8; i++) {
    grow(f->store, 2500);
    store_checkpoint_wait(f->store->checkpoint);
  }
  assert_true(store_checkpoint_left(f->store->checkpoint) > 10000);
  assert_true(wal_size(f) > 18000 * 4096);
  assert_int_equal(sqlite3_close(reader), SQLITE_OK);
  grow(f->store, 4200); /* asks again */
  store_checkpoint_wait(f->store->checkpoint);
  assert_int_equal(store_checkpoint_left(f->store->checkpoint), 0);
  grow(f->store, 1);
  assert_true(wal_size(f) <= 64 << 20);
  ASK("SELECT count(*) FROM marks", "48201\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST_OPEN(test_busy),
      TEST_OPEN(test_full),
      TEST(test_full_disk),
      TEST(test_kill),
      TEST_OPEN(test_checkpoints_on_their_thread),
      TEST_OPEN(test_checkpoint_with_reader),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
