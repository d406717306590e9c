/* A store in a folder of its own, and questions to it. For the tests of collectord/store*.c. */
#ifndef CIRRON_TEST_STORE_FILE_H
#define CIRRON_TEST_STORE_FILE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectord/store.h"
#include "proto/histogram.h"
#include "proto/ring_abi.h"

struct fixture {
  char folder[64], path[96], lock[112];
  struct store *store;
};

static inline struct store *open_or_fail(const char *path) {
  char why[256] = "";
  struct store *store = NULL;
  if (store_open(path, &store, why, sizeof why))
    fail_msg("%s", why);
  return store;
}

static inline int set_up(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  strcpy(f->folder, "/tmp/cirron-test-XXXXXX");
  assert_non_null(mkdtemp(f->folder));
  snprintf(f->path, sizeof f->path, "%s/t.db", f->folder);
  snprintf(f->lock, sizeof f->lock, "%s.lock", f->path);
  *state = f;
  return 0;
}

static inline int set_up_open(void **state) {
  set_up(state);
  struct fixture *f = *state;
  f->store = open_or_fail(f->path);
  return 0;
}

static inline int tear_down(void **state) {
  struct fixture *f = *state;
  store_close(f->store);
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", f->folder);
  assert_int_equal(system(command), 0);
  free(f);
  return 0;
}

/* All rows of a query through a connection of its own: columns with |, rows with newlines, NULL as ~. */
static inline char *answer(const char *path, const char *sql) {
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

static inline void run_sql(const char *path, const char *sql) {
  sqlite3 *db;
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  if (sqlite3_exec(db, sql, NULL, NULL, NULL))
    fail_msg("%s: %s", sql, sqlite3_errmsg(db));
  sqlite3_close(db);
}

static inline void write_file(const char *path, const void *data, size_t len) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, len, file), len);
  fclose(file);
}

static inline size_t read_file(const char *path, char *data, size_t room) {
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  size_t n = fread(data, 1, room, file);
  fclose(file);
  return n;
}

struct found {
  int blocks, stop_at;
  size_t rows;
  int64_t last_block;
  uint64_t last_id;
};

static inline int find(int64_t block, const struct block *rows, void *arg) {
  struct found *found = arg;
  assert_true(block > found->last_block);
  found->rows += rows->count;
  found->last_block = block;
  found->last_id = rows->rows[rows->count - 1].id;
  return ++found->blocks == found->stop_at ? 7 : 0;
}

static inline void session_with_all(struct store *store, uint64_t prefix, const char *state_word, int blocks) {
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
  for (uint64_t i = 1; i <= 1500; i++)
    assert_int_equal(
        store_snapshot(store, sid,
                       &(struct snapshot_row){
                           .id = i, .pass = 1, .mode = "stats", .tensor = "w", .model = "", .dtype = "", .attrs = "{}"}),
        0);
  assert_int_equal(store_snapshot_pass(store, sid, &(struct snapshot_pass_row){.pass = 1, .reason = "epoch", .mode = "stats"}),
                   0);
  assert_int_equal(store_epoch(store, sid, &epoch, -1), 0);
  assert_int_equal(store_open_spans(store, sid, rows, 1200), 0);
  assert_int_equal(store_move(store, sid, 3, 1, 1), 0);
  assert_int_equal(store_ring_tail(store, sid, 1, 9), 0);
  assert_int_equal(store_rollup(store, sid, &(struct rollup_row){.name = 1, .histogram = histogram}), 0);
  const struct session_state state = {.state = state_word, .end_ns = (int64_t)prefix, .spans = 77, .dropped_json = "{}"};
  assert_int_equal(store_session_update(store, sid, &state), 0);
  assert_int_equal(store_commit(store), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define TEST_OPEN(name) cmocka_unit_test_setup_teardown(name, set_up_open, tear_down)

#endif
