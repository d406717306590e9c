// links: tools/tree.c tools/buf.c tools/spans.c tools/spans_each.c tools/spans_moves.c tools/spans_names.c proto/block.c proto/erase.c proto/histogram.c collectord/store.c collectord/store_block.c collectord/store_checkpoint.c collectord/store_lock.c collectord/store_erase.c collectord/store_migrate.c collectord/store_open.c collectord/store_rows.c collectord/store_snapshots.c collectord/store_sql.c collectord/schema.c collectord/utf8.c
/* What of a tree is shown, and trees that no sound trace has. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectord/store.h"
#include "proto/ring_abi.h"
#include "tools/spans.h"
#include "tools/tree.h"

static char folder[] = "/tmp/test_tree.XXXXXX";
static struct store *store;
static struct span_row *rows;
static size_t count;
static int64_t sid;
static char path[64];
static struct tree tree;
static sqlite3 *db;

static void begin(void) {
  char why[256];
  static unsigned number;
  snprintf(path, sizeof path, "%s/%u.db", folder, number++);
  assert_int_equal(store_open(path, &store, why, sizeof why), 0);
  const struct session_row row = {
      .prefix = 7, .pid = 1, .ppid = 1, .rank = -1, .local_rank = -1, .world_size = -1, .attrs_json = "{}", .start_ns = 1000};
  assert_int_equal(store_session_add(store, &row, &sid), 0);
  count = 0;
}

static void put(uint64_t id, uint64_t parent, const char *text, int64_t start, int64_t length, uint8_t flags) {
  struct span_row row = {.id = id,
                         .parent = parent,
                         .start_ns = start,
                         .end_ns = start + length,
                         .index = SPAN_NO_INDEX,
                         .cpu_ns = SPAN_NO_TIME,
                         .gpu_ns = SPAN_NO_TIME,
                         .flags = flags};
  int64_t block = 0;
  assert_int_equal(store_name(store, text, strlen(text), &row.name), 0);
  rows[count++] = row;
  if (count == BLOCK_MAX) {
    assert_int_equal(store_block_put(store, sid, rows, count, true, &block), 0);
    count = 0;
  }
}

static void load(void) {
  int64_t block = 0;
  if (count)
    assert_int_equal(store_block_put(store, sid, rows, count, true, &block), 0);
  assert_int_equal(store_commit(store), 0);
  store_close(store);
  assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
  assert_int_equal(tree_load(db, sid, &tree), 0);
}

static void end(void) {
  tree_fini(&tree);
  sqlite3_close(db);
}

static size_t shown(void) {
  size_t n = 0;
  for (size_t i = 0; i < tree.count; i++)
    n += !tree.nodes[i].hidden;
  return n;
}

static void children_lie_in_order_of_begin(void **state) {
  (void)state;
  begin();
  put(3, 1, "b", 3000, 10, 0);
  put(2, 1, "a", 4000, 10, 0); /* begun later under a smaller number */
  put(1, 0, "root", 1000, 9000, 0);
  load();
  assert_int_equal(tree.count, 3);
  assert_int_equal(tree.roots, 1);
  const struct tree_node *root = &tree.nodes[tree.order[0]];
  assert_int_equal(root->id, 1);
  assert_int_equal(root->count, 2);
  assert_int_equal(tree.nodes[tree.order[root->first]].id, 3);
  assert_int_equal(tree.nodes[tree.order[root->first + 1]].id, 2);
  end();
}

static void few_are_all_shown(void **state) {
  (void)state;
  begin();
  put(1, 0, "root", 0, 9000, 0);
  for (uint64_t i = 0; i < TREE_KEPT; i++)
    put(2 + i, 1, "step", (int64_t)(100 * i), 50, 0);
  load();
  tree_collapse(&tree);
  assert_int_equal(shown(), 1 + TREE_KEPT);
  assert_int_equal(tree.groups_count, 0);
  end();
}

static void many_become_one_line(void **state) {
  (void)state;
  begin();
  put(1, 0, "root", 0, INT64_C(1) << 40, 0);
  for (uint64_t i = 0; i < 60000; i++)
    put(2 + i, 1, "tick", (int64_t)(1000 * i), i == 777 ? 900 : 100 + (int64_t)(i % 11), i == 5 ? SPAN_ERROR : 0);
  load();
  tree_collapse(&tree);
  assert_int_equal(shown(), 1 + 3); /* the first, the slowest, the one with an error */
  assert_int_equal(tree.groups_count, 1);
  const struct tree_group *g = &tree.groups[0];
  assert_int_equal(g->count, 60000 - 3);
  assert_int_equal(g->errors, 0);
  assert_int_equal(g->min_ns, 100);
  assert_int_equal(g->max_ns, 110);
  assert_int_equal(g->median_ns, 105);
  size_t told = 0;
  for (size_t i = 0; i < tree.count; i++)
    told += tree.nodes[i].summary != TREE_NONE;
  assert_int_equal(told, 1);
  assert_int_equal(tree.nodes[2].summary, 0); /* id 3, the first that is hidden */
  end();
}

static void many_names_become_one_line_too(void **state) {
  char text[16];
  (void)state;
  begin();
  for (uint64_t i = 0; i < 1000; i++) {
    snprintf(text, sizeof text, "name %d", (int)i);
    put(2 + i, 0, text, (int64_t)(1000 * i), 100, 0);
  }
  load();
  tree_collapse(&tree);
  assert_true(shown() <= 101);
  assert_int_equal(tree.groups_count, 1);
  assert_true(tree.groups[0].mixed);
  assert_int_equal(tree.groups[0].count + shown(), 1000);
  end();
}

static void an_error_is_seen_from_above(void **state) {
  (void)state;
  begin();
  put(1, 0, "root", 0, 10000, 0);
  for (uint64_t i = 0; i < 10; i++) {
    put(10 + 2 * i, 1, "step", (int64_t)(100 * i), 50, 0);
    put(11 + 2 * i, 10 + 2 * i, "forward", (int64_t)(100 * i), 50, i == 6 ? SPAN_ERROR : 0);
  }
  load();
  tree_collapse(&tree);
  for (size_t i = 0; i < tree.count; i++)
    if (tree.nodes[i].id == 22 || tree.nodes[i].id == 10)
      assert_false(tree.nodes[i].hidden);
  assert_int_equal(tree.groups[0].count, 8);
  end();
}

static void unsound_parents(void **state) {
  (void)state;
  begin();
  put(1, 1, "its own", 0, 10, 0);
  put(2, 3, "a", 0, 10, 0);
  put(3, 2, "b", 0, 10, 0);
  put(4, 99, "lost", 0, 10, 0);
  load();
  assert_int_equal(tree.roots, 2); /* the first and the last; a and b are below each other only */
  tree_collapse(&tree);
  end();
}

static void a_deep_chain(void **state) {
  (void)state;
  begin();
  for (uint64_t i = 1; i <= 20000; i++)
    put(i, i - 1, "deep", (int64_t)i, 100000, 0);
  load();
  assert_int_equal(tree.roots, 1);
  tree_collapse(&tree);
  assert_int_equal(shown(), 20000);
  end();
}

static void nothing(void **state) {
  (void)state;
  begin();
  load();
  assert_int_equal(tree.count, 0);
  tree_collapse(&tree);
  end();
}

static int enter(void **state) {
  (void)state;
  rows = calloc(BLOCK_MAX, sizeof *rows);
  return rows && mkdtemp(folder) ? 0 : -1;
}

static int leave(void **state) {
  char command[sizeof folder + 16];
  (void)state;
  free(rows);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command) == 0 ? 0 : -1;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(children_lie_in_order_of_begin),
                                     cmocka_unit_test(few_are_all_shown),
                                     cmocka_unit_test(many_become_one_line),
                                     cmocka_unit_test(many_names_become_one_line_too),
                                     cmocka_unit_test(unsound_parents),
                                     cmocka_unit_test(an_error_is_seen_from_above),
                                     cmocka_unit_test(a_deep_chain),
                                     cmocka_unit_test(nothing)};
  return cmocka_run_group_tests(tests, enter, leave);
}
