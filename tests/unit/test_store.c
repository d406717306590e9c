// links: collectord/store.c collectord/store_block.c collectord/store_checkpoint.c collectord/store_lock.c collectord/store_erase.c collectord/store_migrate.c collectord/store_open.c collectord/store_rows.c collectord/store_sql.c collectord/schema.c collectord/utf8.c proto/block.c proto/erase.c proto/histogram.c
/* The store as the collector uses it: what it opens and refuses, what stays after commit, rollback, kill -9 and a full disk. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectord/schema.h"
#include "collectord/store.h"
#include "collectord/store_internal.h"
#include "collectord/store_migrate.h"
#include "proto/erase.h"
#include "proto/histogram.h"
#include "proto/ring_abi.h"
#include "proto/store_abi.h"

struct fixture {
  char folder[64], path[96], lock[112];
  struct store *store;
};

static struct store *open_or_fail(const char *path) {
  char why[256] = "";
  struct store *store = NULL;
  if (store_open(path, &store, why, sizeof why))
    fail_msg("%s", why);
  return store;
}

static int set_up(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  strcpy(f->folder, "/tmp/cirron-test-XXXXXX");
  assert_non_null(mkdtemp(f->folder));
  snprintf(f->path, sizeof f->path, "%s/t.db", f->folder);
  snprintf(f->lock, sizeof f->lock, "%s.lock", f->path);
  *state = f;
  return 0;
}

static int set_up_open(void **state) {
  set_up(state);
  struct fixture *f = *state;
  f->store = open_or_fail(f->path);
  return 0;
}

static int tear_down(void **state) {
  struct fixture *f = *state;
  store_close(f->store);
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", f->folder);
  assert_int_equal(system(command), 0);
  free(f);
  return 0;
}

/* All rows of a query through a connection of its own: columns with |, rows with newlines, NULL as ~. */
static char *answer(const char *path, const char *sql) {
  static char text[8192];
  sqlite3 *db;
  sqlite3_stmt *s;
  size_t used = 0;
  text[0] = 0;
  assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
  if (sqlite3_prepare_v2(db, sql, -1, &s, NULL))
    fail_msg("%s: %s", sql, sqlite3_errmsg(db));
  while (sqlite3_step(s) == SQLITE_ROW && used < sizeof text - 600)
    for (int i = 0, n = sqlite3_column_count(s); i < n; i++) {
      const char *value = (const char *)sqlite3_column_text(s, i);
      used += (size_t)snprintf(text + used, 512, "%s%s", value ? value : "~", i + 1 < n ? "|" : "\n");
    }
  sqlite3_finalize(s);
  sqlite3_close(db);
  return text;
}

#define ASK(sql, want) assert_string_equal(answer(f->path, sql), want)

static void run_sql(const char *path, const char *sql) {
  sqlite3 *db;
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  if (sqlite3_exec(db, sql, NULL, NULL, NULL))
    fail_msg("%s: %s", sql, sqlite3_errmsg(db));
  sqlite3_close(db);
}

static void write_file(const char *path, const void *data, size_t len) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, len, file), len);
  fclose(file);
}

static size_t read_file(const char *path, char *data, size_t room) {
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  size_t n = fread(data, 1, room, file);
  fclose(file);
  return n;
}

/* ---- open ---- */

static void test_new_store(void **state) {
  struct fixture *f = *state;
  ASK("SELECT version, written_by LIKE 'collectord %' FROM schema_version", "1|1\n");
  ASK("PRAGMA journal_mode", "wal\n");
  ASK("SELECT application_id, user_version FROM pragma_application_id, pragma_user_version", "1128878670|1\n");
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
  ASK("SELECT count(*) FROM schema_version", "1\n");
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
  run_sql(f->path, "PRAGMA user_version = 2");
  refused(f, f->path, -EPROTONOSUPPORT, "newer cirron (schema 2, this one knows up to 1)");
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

/* ---- names, sessions ---- */

static void test_names(void **state) {
  struct fixture *f = *state;
  static char longest[3 * NAME_MAX_BYTES];
  uint32_t a, b, c, d, again;
  assert_int_equal(store_name(f->store, "", 0, &a), 0);
  assert_int_equal(store_name(f->store, "x\0y", 3, &b), 0);
  assert_int_equal(store_name(f->store, "x", 1, &c), 0);
  assert_int_equal(store_name(f->store, "x\0z", 3, &d), 0);
  assert_true(a && a != b && b != c && c != d && b != d);
  assert_int_equal(store_name(f->store, "x\0y", 3, &again), 0);
  assert_int_equal(again, b);
  assert_int_equal(store_name(f->store, "\xff\xfe", 2, &a), 0);
  assert_int_equal(store_name(f->store, "\xef\xbf\xbd\xef\xbf\xbd", 6, &again), 0);
  assert_int_equal(again, a);
  for (size_t i = 0; i < sizeof longest; i += 3)
    memcpy(longest + i, "\xe2\x82\xac", 3);
  assert_int_equal(store_name(f->store, longest, sizeof longest, &a), 0);
  assert_int_equal(store_name(f->store, longest, NAME_MAX_BYTES - 1, &again), 0);
  assert_int_equal(again, a);
  assert_int_equal(store_commit(f->store), 0);
  ASK("SELECT hex(text) FROM names WHERE name <= 3 ORDER BY name", "\n780079\n78\n");
  ASK("SELECT max(length(CAST(text AS BLOB))) FROM names", "4095\n");
}

static void test_rollback(void **state) {
  struct fixture *f = *state;
  uint32_t kept, lost, again;
  int64_t sid = 0, block = 0;
  struct session_row session = {.prefix = 9};
  struct span_row row = {.id = 1};
  assert_int_equal(store_name(f->store, "kept", 4, &kept), 0);
  assert_int_equal(store_session_add(f->store, &session, &sid), 0);
  assert_int_equal(store_commit(f->store), 0);
  unsigned generation = store_generation(f->store);
  assert_int_equal(store_name(f->store, "kept", 4, &again), 0);
  assert_false(store_dirty(f->store)); /* looking up opens nothing */
  store_rollback(f->store);
  assert_int_equal(store_generation(f->store), generation);

  assert_int_equal(store_name(f->store, "lost", 4, &lost), 0);
  assert_int_equal(store_block_put(f->store, sid, &row, 1, false, &block), 0);
  assert_int_equal(store_ring_tail(f->store, sid, 1, 64), 0);
  store_rollback(f->store);
  assert_false(store_dirty(f->store));
  assert_int_not_equal(store_generation(f->store), generation);
  uint64_t tail = 1;
  assert_int_equal(store_ring_tail_get(f->store, sid, 1, &tail), 0);
  assert_int_equal(tail, 0);
  assert_int_equal(store_name(f->store, "other", 5, &again), 0);
  assert_int_equal(again, lost); /* the number is free again: that is why the generation changes */

  session.prefix = 10; /* a stranger takes the block's number, too */
  int64_t other, other_block = 0;
  assert_int_equal(store_session_add(f->store, &session, &other), 0);
  row.id = 77;
  assert_int_equal(store_block_put(f->store, other, &row, 1, false, &other_block), 0);
  assert_int_equal(other_block, block);
  row.id = 1;
  assert_int_equal(store_block_put(f->store, sid, &row, 1, false, &block), 0);
  assert_int_not_equal(other_block, block);
  assert_int_equal(store_commit(f->store), 0);
  ASK("SELECT sid, min_id, count FROM block_meta ORDER BY block", "2|77|1\n1|1|1\n");
}

static int count_running(const struct running_session *row, void *arg) {
  struct running_session *out = arg;
  *out = *row;
  return out->prefix == 0xfedcba9876543210 ? 0 : 5;
}

static void test_sessions(void **state) {
  struct fixture *f = *state;
  struct session_row row = {.prefix = 0xfedcba9876543210,
                            .pid = 12,
                            .ppid = 11,
                            .uid = 1000,
                            .rank = 0,
                            .local_rank = -1,
                            .world_size = 2,
                            .host = "h\xffst",
                            .argv_json = "[\"a\"]",
                            .start_ns = 100};
  int64_t sid, found;
  assert_int_equal(store_session_add(f->store, &row, &sid), 0);
  assert_int_equal(store_commit(f->store), 0);
  ASK("SELECT id, prefix, state, pid, ppid, uid, rank, local_rank, world_size, host, exe, argv, attrs, start_ns, end_ns FROM "
      "sessions",
      "fedcba98765432100000000000000000|fedcba9876543210|running|12|11|1000|0|~|2|h\xef\xbf\xbdst|~|[\"a\"]|{}|100|~\n");
  assert_int_equal(store_session_add(f->store, &row, &sid), -EEXIST);
  store_rollback(f->store);
  assert_int_equal(store_session_find(f->store, row.prefix, &found), 0);
  struct running_session running = {0};
  assert_int_equal(store_sessions_running(f->store, count_running, &running), 0);
  assert_true(running.sid == found && running.pid == 12 && running.start_ns == 100 && running.last_ns == 0);
  struct session_state end = {.state = SESSION_KILLED,
                              .end_ns = 300,
                              .last_ns = 250,
                              .exit_code = -1,
                              .exit_signal = 9,
                              .spans = 4,
                              .marks = 3,
                              .emitted_spans = 6,
                              .emitted_marks = 3,
                              .dropped_json = "{\"ring_full\":2}",
                              .dropped_total = 2,
                              .overhead_ns = 55};
  assert_int_equal(store_session_update(f->store, found, &end), 0);
  assert_int_equal(store_session_update(f->store, 999, &end), -ENOENT);
  assert_int_equal(store_commit(f->store), 0);
  ASK("SELECT state, end_ns, last_ns, exit_code, exit_signal, spans, marks, emitted_spans, emitted_marks, dropped, "
      "dropped_total,"
      " overhead_ns FROM sessions",
      "killed|300|250|~|9|4|3|6|3|{\"ring_full\":2}|2|55\n");
  running.sid = 0;
  assert_int_equal(store_sessions_running(f->store, count_running, &running), 0);
  assert_int_equal(running.sid, 0);
}

/* ---- rows ---- */

struct found {
  int blocks, stop_at;
  size_t rows;
  int64_t last_block;
  uint64_t last_id;
};

static int find(int64_t block, const struct block *rows, void *arg) {
  struct found *found = arg;
  assert_true(block > found->last_block);
  found->rows += rows->count;
  found->last_block = block;
  found->last_id = rows->rows[rows->count - 1].id;
  return ++found->blocks == found->stop_at ? 7 : 0;
}

static struct found unsealed(struct store *store, int stop_at, int result) {
  struct found found = {.stop_at = stop_at};
  assert_int_equal(store_blocks_unsealed(store, 1, find, &found), result);
  return found;
}

static void test_blocks(void **state) {
  struct fixture *f = *state;
  static struct span_row rows[BLOCK_MAX];
  int64_t block = 0, second = 0;
  for (size_t i = 0; i < BLOCK_MAX; i++)
    rows[i] = (struct span_row){.id = i + 5, .name = 3 + i % 2 * 4, .start_ns = 1000 - (int64_t)i, .end_ns = 1000 + (int64_t)i};
  assert_int_equal(unsealed(f->store, 0, 0).blocks, 0);
  assert_int_equal(store_block_put(f->store, 1, rows, 0, false, &block), -EINVAL);
  assert_int_equal(store_block_put(f->store, 1, rows, 10, false, &block), 0);
  int64_t first = block;
  assert_int_equal(store_block_put(f->store, 1, rows, 20, false, &block), 0);
  assert_int_equal(block, first);
  struct found found = unsealed(f->store, 0, 0);
  assert_true(found.blocks == 1 && found.last_block == block && found.rows == 20 && found.last_id == 24);
  assert_int_equal(store_block_put(f->store, 1, rows + 20, 5, false, &second), 0);
  found = unsealed(f->store, 0, 0);
  assert_true(found.blocks == 2 && found.last_block == second && found.rows == 25 && found.last_id == 29);
  assert_true(unsealed(f->store, 1, 7).rows == 20);
  assert_int_equal(store_block_delete(f->store, second), 0);
  second = 0;
  assert_int_equal(store_block_put(f->store, 1, rows, BLOCK_MAX, true, &block), 0);
  assert_int_equal(unsealed(f->store, 0, 0).blocks, 0);
  int64_t sealed = block;
  assert_int_equal(store_block_put(f->store, 3, rows, 1, true, &block), 0); /* another session's: not written over */
  assert_int_not_equal(block, sealed);
  block = sealed;
  assert_int_equal(store_block_put(f->store, 1, rows, 1, false, &block), 0); /* sealed: not written over */
  assert_int_not_equal(block, sealed);
  assert_int_equal(store_block_delete(f->store, block), 0);
  for (size_t i = 0; i < BLOCK_MAX; i++)
    rows[i].name = UINT32_MAX - (uint32_t)i; /* as many names as there can be */
  rows[7].name = 0;
  rows[8].end_ns = INT64_MIN;
  rows[9].start_ns = INT64_MIN;
  rows[9].end_ns = INT64_MAX;
  assert_int_equal(store_block_put(f->store, 2, rows, BLOCK_MAX, false, &second), 0);
  assert_int_equal(store_commit(f->store), 0);
  ASK("SELECT sid, sealed, count, min_id, max_id, min_start_ns, max_end_ns, max_dur_ns, names FROM block_meta WHERE sid = 1",
      "1|1|4096|5|4100|-3095|5095|8190|[3,7]\n");
  ASK("SELECT min_start_ns, max_end_ns, max_dur_ns, json_array_length(names), names ->> 0, names ->> 1, names ->> 4095 FROM "
      "block_meta"
      " WHERE sid = 2",
      "-9223372036854775808|9223372036854775807|9223372036854775807|4096|0|4294963200|4294967295\n");
  assert_int_equal(store_block_delete(f->store, second), 0);
  assert_int_equal(store_commit(f->store), 0);
  ASK("SELECT (SELECT count(*) FROM blocks), (SELECT count(*) FROM block_meta)", "2|2\n");
}

static void test_open_spans_moves_rings(void **state) {
  struct fixture *f = *state;
  struct span_row rows[] = {
      {.id = 4, .parent = 1, .name = 2, .kind = SPAN_STEP, .index = 8, .start_ns = 50, .tid = 9, .flags = 2, .module = 6},
      {.id = 3, .index = SPAN_NO_INDEX},
      {.id = 3, .index = 1}}; /* twice: the later one */
  assert_int_equal(store_open_spans(f->store, 1, rows, 3), 0);
  assert_int_equal(store_open_spans(f->store, 2, rows, 1), 0);
  assert_int_equal(store_move(f->store, 1, 4, 60, 1), 0);
  assert_int_equal(store_ring_tail(f->store, 1, 1, UINT64_MAX), 0);
  assert_int_equal(store_ring_tail(f->store, 1, 1, 1ull << 63), 0);
  assert_int_equal(store_commit(f->store), 0);
  ASK("SELECT * FROM open_spans", "1|3|0|0|0|1|0|0|0|0\n1|4|1|2|4|8|50|9|2|6\n2|4|1|2|4|8|50|9|2|6\n");
  ASK("SELECT * FROM moves", "1|1|4|60|1\n");
  uint64_t tail;
  assert_int_equal(store_ring_tail_get(f->store, 1, 1, &tail), 0);
  assert_true(tail == 1ull << 63);
  assert_int_equal(store_open_spans(f->store, 1, NULL, 0), 0);
  assert_int_equal(store_commit(f->store), 0);
  ASK("SELECT count(*) FROM open_spans", "1\n");
}

static void test_marks(void **state) {
  struct fixture *f = *state;
  struct mark_row rows[] = {
      {.id = 1, .type = MARK_FLOAT, .f = 0.5, .attrs = "{}", .attrs_len = 2},
      {.id = 2, .type = MARK_FLOAT, .f = NAN, .summary = true},
      {.id = 3, .type = MARK_FLOAT, .f = -INFINITY},
      {.id = 4, .type = MARK_FLOAT, .f = INFINITY},
      {.id = 5, .type = MARK_INT, .i = INT64_MIN},
      {.id = 6, .type = MARK_BOOL, .i = 7},
      {.id = 7, .type = MARK_STRING, .text = "t\xff", .text_len = 2, .span = 3, .name = 9, .ts_ns = 11},
      {.id = 8, .type = MARK_STRING},
      {.id = 8, .type = MARK_INT, .i = 4}, /* twice: the later one */
      {.id = 9, .type = MARK_FLOAT, .f = 3},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    assert_int_equal(store_mark(f->store, 1, &rows[i]), 0);
  struct mark_row bad = {.id = 10, .type = 77};
  assert_int_equal(store_mark(f->store, 1, &bad), -EINVAL);
  assert_int_equal(store_commit(f->store), 0);
  ASK("SELECT mark, kind, value_type, typeof(value), value, attrs FROM marks",
      "1|point|float|real|0.5|{}\n2|summary|float|text|NaN|~\n3|point|float|text|-Infinity|~\n4|point|float|text|Infinity|~\n"
      "5|point|int|integer|-9223372036854775808|~\n6|point|bool|integer|1|~\n7|point|string|text|t\xef\xbf\xbd|~\n"
      "8|point|int|integer|4|~\n9|point|float|real|3.0|~\n");
  ASK("SELECT sid, span, name, ts_ns FROM marks WHERE mark = 7", "1|3|9|11\n");
}

static void test_steps_and_epochs(void **state) {
  struct fixture *f = *state;
  struct step_row step = {.span = 5,
                          .parent = 2,
                          .epoch = 2,
                          .index = 0,
                          .start_ns = 10,
                          .end_ns = 20,
                          .cpu_ns = SPAN_NO_TIME,
                          .gpu_ns = 3,
                          .phase_ns = {1, 2, 3, 4},
                          .phase_count = {5, 6, 7, 8},
                          .rank = -1,
                          .tid = 9,
                          .error = true};
  assert_int_equal(store_step(f->store, 1, &step), 0);
  step.span = 6;
  step.epoch = 0;
  step.index = SPAN_NO_INDEX;
  assert_int_equal(store_step(f->store, 1, &step), 0);
  struct span_row epoch = {
      .id = 2, .parent = 1, .kind = SPAN_EPOCH, .index = 0, .start_ns = 5, .cpu_ns = SPAN_NO_TIME, .tid = 9};
  assert_int_equal(store_epoch(f->store, 1, &epoch, 4), 0);
  epoch.end_ns = 30;
  assert_int_equal(store_epoch(f->store, 1, &epoch, 4), 0);
  epoch.id = 3;
  epoch.kind = SPAN_EVAL;
  epoch.end_ns = 0;
  assert_int_equal(store_epoch(f->store, 1, &epoch, -1), 0);
  epoch.kind = SPAN_STEP;
  assert_int_equal(store_epoch(f->store, 1, &epoch, -1), -EINVAL);
  assert_int_equal(store_commit(f->store), 0);
  ASK("SELECT * FROM steps", "1|5|2|2|0|10|20|1|2|3|4|5|6|7|8|~|3|~|9|1\n1|6|2|~|~|10|20|1|2|3|4|5|6|7|8|~|3|~|9|1\n");
  ASK("SELECT * FROM epochs", "1|2|1|epoch|0|5|30|~|4|9\n1|3|1|eval|0|5|~|~|~|9\n");
  assert_int_equal(store_epoch_delete(f->store, 1, 3), 0);
  assert_int_equal(store_commit(f->store), 0);
  ASK("SELECT span FROM epochs", "2\n");
}

static int take_rollup(const struct rollup_row *row, void *arg) {
  int64_t *sums = arg;
  sums[0]++;
  sums[1] += row->count;
  for (int i = 0; i < HISTOGRAM_BINS; i++)
    sums[2] += (int64_t)row->histogram[i] * (i + 1);
  assert_true(row->name == 7 && row->kind == SPAN_FORWARD && row->epoch == (1ull << 63) + (uint64_t)row->min_ns);
  assert_true(row->errors == 2 && row->total_ns == 30 && row->self_ns == 20 && row->max_ns == 15);
  return row->min_ns == 100 ? 42 : 0;
}

static void test_rollups(void **state) {
  struct fixture *f = *state;
  uint32_t histogram[HISTOGRAM_BINS] = {[0] = 1, [17] = UINT32_MAX, [512] = 3};
  int64_t want = 1 + 18 * (int64_t)UINT32_MAX + 513 * 3, sums[3] = {0};
  struct rollup_row row = {.epoch = 1ull << 63,
                           .name = 7,
                           .kind = SPAN_FORWARD,
                           .count = 3,
                           .errors = 2,
                           .total_ns = 30,
                           .self_ns = 20,
                           .min_ns = 0,
                           .max_ns = 15,
                           .histogram = histogram};
  assert_int_equal(store_rollup(f->store, 1, &row), 0);
  row.count = 4;
  assert_int_equal(store_rollup(f->store, 1, &row), 0);
  row.epoch++;
  row.min_ns++;
  assert_int_equal(store_rollup(f->store, 1, &row), 0);
  assert_int_equal(store_commit(f->store), 0);
  assert_int_equal(store_rollups_read(f->store, 1, take_rollup, sums), 0);
  assert_true(sums[0] == 2 && sums[1] == 8 && sums[2] == 2 * want);
  row.epoch += 99;
  row.min_ns += 99;
  assert_int_equal(store_rollup(f->store, 2, &row), 0);
  assert_int_equal(store_rollups_read(f->store, 2, take_rollup, sums), 42);
  store_rollback(f->store);
  run_sql(f->path, "UPDATE rollups SET histogram = x'ff'");
  assert_int_equal(store_rollups_read(f->store, 1, take_rollup, sums), -EBADMSG);
}

/* ---- trouble ---- */

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

/* ---- a session with rows in all tables ---- */

static void session_with_all(struct store *store, uint64_t prefix, const char *state_word, int blocks) {
  static struct span_row rows[BLOCK_MAX];
  static const uint32_t histogram[HISTOGRAM_BINS] = {[5] = 1};
  const struct span_row epoch = {.id = 3, .kind = SPAN_EPOCH};
  int64_t sid;
  for (size_t i = 0; i < BLOCK_MAX; i++)
    rows[i] = (struct span_row){.id = i + 1, .start_ns = (int64_t)(i * 977 % 4001), .end_ns = 9000, .name = 1};
  assert_int_equal(store_session_add(store, &(struct session_row){.prefix = prefix, .rank = -1}, &sid), 0);
  for (int i = 0; i < blocks; i++) {
    int64_t block = 0;
    assert_int_equal(store_block_put(store, sid, rows, BLOCK_MAX, true, &block), 0);
  }
  for (uint64_t i = 1; i <= 2500; i++) {
    assert_int_equal(store_step(store, sid, &(struct step_row){.span = i}), 0);
    assert_int_equal(store_mark(store, sid, &(struct mark_row){.id = i, .type = MARK_INT}), 0);
  }
  assert_int_equal(store_epoch(store, sid, &epoch, -1), 0);
  assert_int_equal(store_open_spans(store, sid, rows, 1200), 0);
  assert_int_equal(store_move(store, sid, 3, 1, 1), 0);
  assert_int_equal(store_ring_tail(store, sid, 1, 9), 0);
  assert_int_equal(store_rollup(store, sid, &(struct rollup_row){.name = 1, .histogram = histogram}), 0);
  const struct session_state state = {.state = state_word, .end_ns = (int64_t)prefix, .spans = 77, .dropped_json = "{}"};
  assert_int_equal(store_session_update(store, sid, &state), 0);
  assert_int_equal(store_commit(store), 0);
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
  ASK("SELECT max(version) FROM schema_version", "1\n");
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

/* The way of a later schema, with steps made up for the test: there is no second version yet. */
static void test_migrates(void **state) {
  struct fixture *f = *state;
  static const char *const steps[] = {
      schema_sql, "ALTER TABLE sessions ADD COLUMN colour TEXT; UPDATE sessions SET colour = 'blue'",
      "CREATE TABLE extra(sid INTEGER); INSERT INTO extra SELECT sid FROM sessions; DROP TABLE kernels"};
  static const char *const bad[] = {schema_sql, steps[1], "CREATE TABLE extra(sid INTEGER); INSERT INTO nowhere VALUES(1)"};
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
  assert_non_null(strstr(why, "newer cirron (schema 3, this one knows up to 1)"));
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

/* ---- removing ---- */

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
  assert_int_equal(found, 11);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define TEST_OPEN(name) cmocka_unit_test_setup_teardown(name, set_up_open, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST_OPEN(test_new_store),
      TEST_OPEN(test_id_is_in_the_file),
      TEST(test_empty_file_becomes_a_store),
      TEST_OPEN(test_refuses_locked),
      TEST(test_refuses_no_database),
      TEST(test_refuses_foreign),
      TEST(test_refuses_newer),
      TEST(test_refuses_damaged),
      TEST(test_refuses_bad_places),
      TEST(test_refuses_unwritable),
      TEST_OPEN(test_names),
      TEST_OPEN(test_rollback),
      TEST_OPEN(test_sessions),
      TEST_OPEN(test_blocks),
      TEST_OPEN(test_open_spans_moves_rings),
      TEST_OPEN(test_marks),
      TEST_OPEN(test_steps_and_epochs),
      TEST_OPEN(test_rollups),
      TEST_OPEN(test_busy),
      TEST_OPEN(test_full),
      TEST(test_full_disk),
      TEST(test_kill),
      TEST_OPEN(test_checkpoints_on_their_thread),
      TEST_OPEN(test_erase),
      TEST(test_opens_version_1),
      TEST(test_migrates),
      TEST(test_new_store_has_all_steps),
      TEST_OPEN(test_erase_knows_all_tables),
      TEST_OPEN(test_checkpoint_with_reader),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
