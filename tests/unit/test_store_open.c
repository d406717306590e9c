// links: collectord/store.c collectord/store_block.c collectord/store_checkpoint.c collectord/store_lock.c collectord/store_erase.c collectord/store_migrate.c collectord/store_open.c collectord/store_rows.c collectord/store_snapshots.c collectord/store_sql.c collectord/schema.c collectord/utf8.c proto/block.c proto/erase.c proto/histogram.c
/* What the store opens, refuses and brings to the present version. */
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectord/schema.h"
#include "collectord/store_migrate.h"
#include "proto/store_abi.h"
#include "tests/support/store_file.h"

static void test_new_store(void **state) {
  struct fixture *f = *state;
  ASK("SELECT version, written_by LIKE 'collectord %' FROM schema_version", "1|1\n2|1\n");
  ASK("PRAGMA journal_mode", "wal\n");
  ASK("SELECT application_id, user_version FROM pragma_application_id, pragma_user_version", "1128878670|2\n");
  assert_false(store_dirty(f->store));
  int64_t sid;
  struct session_row row = {.prefix = 5};
  assert_int_equal(store_session_add(f->store, &row, &sid), 0);
  assert_true(store_dirty(f->store));
  assert_int_equal(store_commit(f->store), 0);
  assert_false(store_dirty(f->store));
  store_close(f->store);
  f->store = open_or_fail(f->path);
  assert_int_equal(store_session_find(f->store, 5, &sid), 0);
  assert_int_equal(store_session_find(f->store, 6, &sid), -ENOENT);
  ASK("SELECT count(*) FROM schema_version", "2\n");
}

static void test_id_is_in_the_file(void **state) { /* also when its WAL is lost */
  struct fixture *f = *state;
  char head[100];
  assert_int_equal(read_file(f->path, head, sizeof head), sizeof head);
  assert_memory_equal(head + 68, "CIRN", 4);
}

static void test_empty_file_becomes_a_store(void **state) {
  struct fixture *f = *state;
  write_file(f->path, "", 0);
  f->store = open_or_fail(f->path);
  ASK("SELECT count(*) FROM sessions", "0\n");
}

/* Refused with this error, a line that names the path and tells `says`; and nothing was changed or left. */
static void refused(struct fixture *f, const char *path, int error, const char *says) {
  static char before[1 << 16], after[1 << 16];
  struct stat st;
  bool regular = !stat(path, &st) && S_ISREG(st.st_mode);
  size_t had = regular ? read_file(path, before, sizeof before) : 0;
  bool lock_was = !access(f->lock, F_OK);
  char why[300] = "";
  struct store *store = NULL;
  assert_int_equal(store_open(path, &store, why, sizeof why), error);
  assert_null(store);
  if (!strstr(why, path) || !strstr(why, says) || strchr(why, '\n'))
    fail_msg("unfit message: %s", why);
  if (regular) {
    assert_int_equal(read_file(path, after, sizeof after), had);
    assert_memory_equal(before, after, had);
  }
  assert_int_equal(!access(f->lock, F_OK), lock_was);
  assert_int_equal(store_open(path, &store, NULL, 0), error);
}

static void test_refuses_locked(void **state) {
  struct fixture *f = *state;
  char pid[32], link[96];
  snprintf(pid, sizeof pid, "(pid %ld)", (long)getpid());
  refused(f, f->path, -EWOULDBLOCK, pid);
  snprintf(link, sizeof link, "%s/link.db", f->folder);
  assert_int_equal(symlink(f->path, link), 0);
  char why[300];
  struct store *store = NULL;
  assert_int_equal(store_open(link, &store, why, sizeof why), -EWOULDBLOCK);
  store_close(f->store);
  f->store = open_or_fail(f->path);
}

static void test_refuses_no_database(void **state) {
  struct fixture *f = *state;
  static char text[20000];
  memset(text, 'x', sizeof text);
  static const size_t sizes[] = {1, 15, 100, 511, 512, 4096, sizeof text};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    write_file(f->path, text, sizes[i]);
    refused(f, f->path, -EBADMSG, "not an SQLite database");
  }
}

static void test_refuses_foreign(void **state) {
  struct fixture *f = *state;
  run_sql(f->path, "PRAGMA application_id = 7");
  refused(f, f->path, -EMEDIUMTYPE, "another program (application id 0x00000007)");
  unlink(f->path);
  run_sql(f->path, "CREATE TABLE sessions(a)");
  refused(f, f->path, -EMEDIUMTYPE, "another program");
  unlink(f->path);
  run_sql(f->path, "PRAGMA user_version = 3");
  refused(f, f->path, -EMEDIUMTYPE, "another program");
}

static void test_refuses_newer(void **state) {
  struct fixture *f = *state;
  store_close(open_or_fail(f->path));
  run_sql(f->path, "PRAGMA user_version = 4");
  refused(f, f->path, -EPROTONOSUPPORT, "newer cirron (schema 4, this one knows up to 2)");
}

static void test_refuses_damaged(void **state) {
  struct fixture *f = *state;
  static char file[1 << 20];
  store_close(open_or_fail(f->path));
  size_t len = read_file(f->path, file, sizeof file);
  memset(file + 100, 0xa5, 4096 - 100); /* the schema's root page */
  write_file(f->path, file, len);
  refused(f, f->path, -EBADMSG, "damaged");
  unlink(f->path);
  run_sql(f->path, "PRAGMA application_id = 1128878670"); /* ours, and nothing in it */
  refused(f, f->path, -EBADMSG, "damaged");
  unlink(f->path);
  store_close(open_or_fail(f->path));
  run_sql(f->path, "DROP TABLE rollups");
  refused(f, f->path, -EBADMSG, "no such table: rollups");
  unlink(f->path);
  store_close(open_or_fail(f->path));
  len = read_file(f->path, file, sizeof file);
  write_file(f->path, file, len / 2);
  refused(f, f->path, -EBADMSG, "damaged");
}

static void test_refuses_bad_places(void **state) {
  struct fixture *f = *state;
  char path[128];
  snprintf(path, sizeof path, "%s/none/t.db", f->folder);
  refused(f, path, -ENOENT, "none can't be used (No such file or directory); make it first");
  snprintf(path, sizeof path, "%s/../%s/", f->folder, f->folder + 5);
  refused(f, f->folder, -EISDIR, "is a folder");
  write_file(f->path, "", 0);
  snprintf(path, sizeof path, "%s/t.db/t.db", f->folder);
  refused(f, path, -ENOTDIR, "not a folder");
  unlink(f->path);
  assert_int_equal(mkfifo(f->path, 0600), 0);
  refused(f, f->path, -EINVAL, "regular file");
  refused(f, "/dev/null", -EINVAL, "regular file");
}

/* Root may write anywhere, so another user tries. */
static int as_nobody(struct fixture *f, char *why, size_t why_len) {
  int ends[2], status;
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  if (!child) {
    struct store *store;
    if (!geteuid() && (setgid(65534) || setuid(65534)))
      _exit(99);
    int rc = store_open(f->path, &store, why, why_len);
    if (write(ends[1], why, why_len) != (ssize_t)why_len)
      _exit(98);
    _exit(-rc);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(read(ends[0], why, why_len), why_len);
  close(ends[0]);
  close(ends[1]);
  return -WEXITSTATUS(status);
}

static void test_refuses_unwritable(void **state) {
  struct fixture *f = *state;
  char why[300] = "";
  assert_int_equal(chmod(f->folder, 0555), 0);
  assert_int_equal(as_nobody(f, why, sizeof why), -EACCES);
  assert_non_null(strstr(why, "make the folder writable"));
  assert_int_equal(chmod(f->folder, 0777), 0);
  write_file(f->path, "", 0);
  assert_int_equal(chmod(f->path, 0444), 0);
  assert_int_equal(as_nobody(f, why, sizeof why), -EACCES);
  assert_non_null(strstr(why, "change its permissions"));
}

/* ---- from version to version ---- */

static char *golden(const char *path) {
  char *text = NULL;
  size_t len = 0;
  FILE *f = fopen(path, "re");
  assert_non_null(f);
  assert_true(getdelim(&text, &len, 0, f) > 0);
  fclose(f);
  return text;
}

/* A store as cirron 0.1.0 wrote it. */
static void make_v1(const struct fixture *f) {
  sqlite3 *db;
  char *sql = golden("tests/unit/golden/store_v1.sql"), *error = NULL;
  assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
  if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK)
    fail_msg("%s", error);
  sqlite3_close(db);
  free(sql);
}

static int count_rollup(const struct rollup_row *row, void *arg) {
  *(int64_t *)arg += row->count;
  return 0;
}

static void test_opens_version_1(void **state) {
  struct fixture *f = *state;
  make_v1(f);
  f->store = open_or_fail(f->path);
  ASK("SELECT max(version) FROM schema_version", "2\n");
  ASK("SELECT (SELECT count(*) FROM snapshots), (SELECT count(*) FROM snapshot_passes), (SELECT count(*) FROM"
      " pragma_table_info('snapshots'))",
      "0|0|26\n");
  struct found found = {0};
  assert_int_equal(store_blocks_unsealed(f->store, 1, find, &found), 0);
  assert_true(found.rows == 11 && found.blocks == 1);
  int64_t spans = 0;
  assert_int_equal(store_rollups_read(f->store, 1, count_rollup, &spans), 0);
  assert_int_equal(spans, 11);
  int64_t sid = 0;
  assert_int_equal(store_session_find(f->store, 0xabcdef0123456789, &sid), 0);
  assert_int_equal(sid, 1);
  session_with_all(f->store, 5, SESSION_FINISHED, 1);
  ASK("SELECT count(*) FROM sessions", "2\n");
}

/* The way of a later schema, with steps made up for the test. */
static void test_migrates(void **state) {
  struct fixture *f = *state;
  static const char *const steps[] = {
      schema_sql, "ALTER TABLE sessions ADD COLUMN colour TEXT; UPDATE sessions SET colour = 'blue'",
      "CREATE TABLE extra(sid INTEGER); INSERT INTO extra SELECT sid FROM sessions; DROP TABLE kernels"};
  const char *const bad[] = {schema_sql, steps[1], "CREATE TABLE extra(sid INTEGER); INSERT INTO nowhere VALUES(1)"};
  const struct store_schema broken = {bad, 3}, later = {steps, 3};
  sqlite3 *db;
  make_v1(f);
  assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
  assert_int_equal(store_migrate(db, 1, &broken), SQLITE_ERROR); /* all or nothing */
  sqlite3_close(db);
  ASK("SELECT (SELECT count(*) FROM pragma_table_info('sessions') WHERE name = 'colour'), (SELECT count(*) FROM sqlite_schema "
      "WHERE"
      " name = 'extra'), (SELECT user_version FROM pragma_user_version)",
      "0|0|1\n");
  assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
  assert_int_equal(store_migrate(db, 1, &later), SQLITE_OK);
  assert_int_equal(store_migrate(db, 3, &later), SQLITE_OK); /* nothing to do */
  sqlite3_close(db);
  ASK("SELECT colour, sid FROM sessions JOIN extra USING(sid)", "blue|1\n");
  ASK("SELECT version FROM schema_version", "1\n2\n3\n");
  ASK("SELECT user_version, application_id FROM pragma_user_version, pragma_application_id", "3|1128878670\n");
  char why[256] = "";
  assert_int_equal(store_open(f->path, &f->store, why, sizeof why), -EPROTONOSUPPORT); /* this program is the older one now */
  assert_non_null(strstr(why, "newer cirron (schema 3, this one knows up to 2)"));
  ASK("SELECT colour FROM sessions", "blue\n");
}

/* A file made by all steps is the same as one that went through them. */
static void test_new_store_has_all_steps(void **state) {
  struct fixture *f = *state;
  sqlite3 *db;
  f->store = open_or_fail(f->path);
  assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
  assert_int_equal(store_migrate(db, 0, &store_schema), SQLITE_OK);
  sqlite3_close(db);
  ASK("SELECT count(*) = max(version) AND max(version) = (SELECT user_version FROM pragma_user_version) FROM schema_version",
      "1\n");
  ASK("PRAGMA auto_vacuum", "2\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST_OPEN(test_new_store),          TEST_OPEN(test_id_is_in_the_file), TEST(test_empty_file_becomes_a_store),
      TEST_OPEN(test_refuses_locked),     TEST(test_refuses_no_database),    TEST(test_refuses_foreign),
      TEST(test_refuses_newer),           TEST(test_refuses_damaged),        TEST(test_refuses_bad_places),
      TEST(test_refuses_unwritable),      TEST(test_opens_version_1),        TEST(test_migrates),
      TEST(test_new_store_has_all_steps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
