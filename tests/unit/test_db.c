// links: tools/db.c tools/say.c tools/text.c tools/buf.c tools/vtab_args.c tools/vtab_spans.c tools/spans.c tools/spans_each.c tools/spans_moves.c tools/spans_names.c proto/block.c proto/histogram.c
/* Finding and opening a store: every refusal is one line that names the file. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/store_abi.h"
#include "tools/db.h"

static char folder[] = "/tmp/test_db.XXXXXX";
static char why[512], note[512];

/* A database of the given numbers. */
static void make(const char *path, int application, int version, const char *sql) {
  char text[256];
  sqlite3 *db;
  unlink(path);
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  snprintf(text, sizeof text, "PRAGMA journal_mode=WAL; PRAGMA application_id=%d; PRAGMA user_version=%d; %s", application,
           version, sql);
  assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
  sqlite3_close(db);
}

#define TABLE "CREATE TABLE sessions(sid INTEGER PRIMARY KEY); INSERT INTO sessions VALUES(7)"

static int open_one(const char *path, sqlite3 **db) {
  why[0] = 0;
  return db_open(path, db, why, sizeof why, note, sizeof note);
}

static void refuses(const char *path, int error, const char *part) {
  sqlite3 *db = NULL;
  assert_int_equal(open_one(path, &db), error);
  assert_null(db);
  assert_non_null(strstr(why, part));
  assert_non_null(strstr(why, path));
  assert_null(strchr(why, '\n'));
}

static void write_file(const char *path, const char *text, size_t len) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, len, file), len);
  fclose(file);
}

static void bad_files(void **state) {
  static const char magic[4096] = "SQLite format 3";
  (void)state;
  refuses("absent.db", -ENOENT, "no such store");
  refuses("/", -EBADMSG, "a folder");
  refuses("/dev/null", -EBADMSG, "no file");
  write_file("empty.db", "", 0);
  refuses("empty.db", -EBADMSG, "empty");
  write_file("text.db", "some text that is longer than a header of SQLite", 48);
  refuses("text.db", -EBADMSG, "not a store");
  write_file("tiny.db", "SQLite", 6);
  refuses("tiny.db", -EBADMSG, "not a store");
  write_file("magic.db", magic, sizeof magic);
  refuses("magic.db", -EBADMSG, "magic.db");
}

static void other_databases(void **state) {
  (void)state;
  make("other.db", 0, 0, TABLE);
  refuses("other.db", -EMEDIUMTYPE, "not a cirron store");
  make("bare.db", 0, 0, "");
  refuses("bare.db", -EMEDIUMTYPE, "empty");
  make("newer.db", STORE_APPLICATION_ID, STORE_SCHEMA_VERSION + 1, TABLE);
  refuses("newer.db", -EPROTONOSUPPORT, "newer");
  make("older.db", STORE_APPLICATION_ID, 0, TABLE);
  refuses("older.db", -EPROTONOSUPPORT, "schema");
}

static void opens_and_only_reads(void **state) {
  sqlite3 *db;
  (void)state;
  make("good ?#%.db", STORE_APPLICATION_ID, STORE_SCHEMA_VERSION, TABLE);
  assert_int_equal(open_one("good ?#%.db", &db), 0);
  assert_string_equal(note, "");
  assert_int_equal(db_value(db, -1, "SELECT sid FROM sessions"), 7);
  assert_int_equal(db_value(db, -1, "SELECT sid FROM sessions WHERE sid = ?", 8), -1);
  assert_int_not_equal(sqlite3_exec(db, "DELETE FROM sessions", NULL, NULL, NULL), SQLITE_OK);
  assert_int_not_equal(sqlite3_exec(db, "CREATE TEMP TABLE t(x)", NULL, NULL, NULL), SQLITE_OK);
  sqlite3_close(db);
}

static void shows_one_moment(void **state) {
  sqlite3 *db, *writer;
  (void)state;
  make("live.db", STORE_APPLICATION_ID, STORE_SCHEMA_VERSION, TABLE);
  assert_int_equal(sqlite3_open("live.db", &writer), SQLITE_OK);
  assert_int_equal(open_one("live.db", &db), 0);
  assert_int_equal(sqlite3_exec(writer, "INSERT INTO sessions VALUES(8)", NULL, NULL, NULL), SQLITE_OK);
  assert_int_equal(db_value(db, -1, "SELECT count(*) FROM sessions"), 1);
  sqlite3_close(db);
  assert_int_equal(open_one("live.db", &db), 0);
  assert_int_equal(db_value(db, -1, "SELECT count(*) FROM sessions"), 2);
  sqlite3_close(db);
  sqlite3_close(writer);
}

static void restricted(void **state) {
  sqlite3 *db;
  (void)state;
  make("sql.db", STORE_APPLICATION_ID, STORE_SCHEMA_VERSION, TABLE);
  assert_int_equal(open_one("sql.db", &db), 0);
  assert_int_equal(db_restrict(db), 0);
  assert_int_equal(sqlite3_exec(db, "SELECT count(*), upper('a') FROM sessions", NULL, NULL, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_exec(db, "PRAGMA table_info(sessions)", NULL, NULL, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_exec(db,
                                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT * FROM n",
                                NULL, NULL, NULL),
                   SQLITE_OK);
  static const char *const refused[] = {"ATTACH 'x.db' AS x",
                                        "PRAGMA query_only=0",
                                        "PRAGMA journal_mode=DELETE",
                                        "PRAGMA user_version=5",
                                        "COMMIT",
                                        "VACUUM",
                                        "SELECT load_extension('x')"};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    assert_int_not_equal(sqlite3_exec(db, refused[i], NULL, NULL, NULL), SQLITE_OK);
  assert_int_not_equal(access("x.db", F_OK), 0);
  sqlite3_close(db);
}

static void is_found(void **state) {
  const char *path = NULL;
  (void)state;
  unsetenv("CIRRON_DB");
  if (access(DB_SYSTEM_STORE, F_OK) != 0) {
    assert_int_equal(db_find(NULL, &path, why, sizeof why), -ENOENT);
    assert_non_null(strstr(why, "--db"));
  }
  mkdir(".cirron", 0700);
  write_file(DB_USER_STORE, "x", 1);
  assert_int_equal(db_find(NULL, &path, why, sizeof why), 0);
  assert_string_equal(path, DB_USER_STORE);
  setenv("CIRRON_DB", "/from/env", 1);
  assert_int_equal(db_find(NULL, &path, why, sizeof why), 0);
  assert_string_equal(path, "/from/env");
  assert_int_equal(db_find("/option", &path, why, sizeof why), 0);
  assert_string_equal(path, "/option");
  setenv("CIRRON_DB", "", 1);
  assert_int_equal(db_find(NULL, &path, why, sizeof why), 0);
  assert_string_equal(path, DB_USER_STORE);
}

static int enter(void **state) {
  (void)state;
  return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int leave(void **state) {
  char command[sizeof folder + 16];
  (void)state;
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bad_files),        cmocka_unit_test(other_databases), cmocka_unit_test(opens_and_only_reads),
      cmocka_unit_test(shows_one_moment), cmocka_unit_test(restricted),      cmocka_unit_test(is_found)};
  return cmocka_run_group_tests(tests, enter, leave);
}
