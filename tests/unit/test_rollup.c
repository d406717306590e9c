// links: collectord/rollup.c collectord/tree.c collectord/idmap.c collectord/text.c collectord/utf8.c proto/histogram.c
/* The small tables of ingest: ids, nodes, sums; and texts made fit for the store. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "collectord/rollup.h"
#include "collectord/text.h"
#include "collectord/tree.h"
#include "proto/histogram.h"
#include "proto/ring_abi.h"

#define KEYS 3000u

static void a_map_is_like_an_array(void **state) {
  (void)state;
  struct idmap map = {0};
  static uint32_t want[KEYS];
  uint32_t got;
  srandom(3);
  for (int i = 0; i < 100000; i++) {
    uint64_t key = 1 + (uint64_t)random() % (KEYS - 1);
    if (random() % 3 == 0) {
      idmap_remove(&map, key << 32);
      want[key] = 0;
    } else {
      want[key] = 1 + (uint32_t)i;
      assert_int_equal(idmap_put(&map, key << 32, want[key]), 0);
    }
  }
  size_t count = 0;
  for (uint64_t key = 1; key < KEYS; key++) {
    assert_int_equal(idmap_get(&map, key << 32, &got), want[key] != 0);
    if (want[key])
      assert_int_equal(got, want[key]);
    count += want[key] != 0;
  }
  assert_int_equal(map.count, count);
  assert_false(idmap_get(&map, 0, &got));
  idmap_clear(&map);
  assert_false(idmap_get(&map, 1ull << 32, &got));
  idmap_fini(&map);
}

static void add(struct rollups *r, uint64_t epoch, uint32_t name, int64_t total, int64_t self) {
  assert_int_equal(rollups_add(r, &(struct rollup_span){.epoch = epoch, .name = name, .total_ns = total, .self_ns = self}), 0);
}

static const struct rollup *get(const struct rollups *r, uint64_t epoch, uint32_t name) {
  for (size_t i = 0; i < r->count; i++)
    if (r->list[i]->epoch == epoch && r->list[i]->name == name)
      return r->list[i];
  return NULL;
}

static void sums_and_bounds(void **state) {
  (void)state;
  struct rollups r = {0};
  for (int64_t i = 1; i <= 1000; i++)
    add(&r, 2, 1 + (uint32_t)(i % 100), i, i / 2);
  const struct rollup *one = get(&r, 2, 8); /* 7, 107, .. 907 */
  assert_int_equal(one->count, 10);
  assert_int_equal(one->min_ns, 7);
  assert_int_equal(one->max_ns, 907);
  assert_int_equal(one->total_ns, 4570);
  assert_int_equal(one->histogram[histogram_bin(7)], 1);
  assert_int_equal(r.count, 100);
  rollups_fini(&r);
}

static void an_epoch_that_never_was_goes_into_another(void **state) {
  (void)state;
  struct rollups r = {0};
  add(&r, 5, 1, 10, 10);
  add(&r, 0, 1, 30, 30);
  add(&r, 5, 2, 20, 20);
  assert_int_equal(rollups_merge(&r, 5, 0), 0);
  assert_int_equal(get(&r, 0, 1)->count, 2);
  assert_int_equal(get(&r, 0, 1)->min_ns, 10);
  assert_int_equal(get(&r, 0, 2)->total_ns, 20);
  assert_int_equal(get(&r, 5, 1)->count, 0);
  rollups_fini(&r);
}

static void a_forgotten_epoch_counts_as_none(void **state) {
  (void)state;
  struct rollups r = {0};
  add(&r, 5, 1, 10, 10);
  add(&r, 6, 1, 10, 10);
  rollups_forget(&r, 5);
  assert_null(get(&r, 5, 1));
  assert_int_equal(get(&r, 6, 1)->count, 1);
  add(&r, 5, 1, 10, 10);
  assert_null(get(&r, 5, 1));
  assert_int_equal(get(&r, 0, 1)->count, 1);
  rollups_fini(&r);
}

static void too_many_names_are_refused_not_kept(void **state) {
  (void)state;
  struct rollups r = {0};
  for (uint32_t i = 0; i < ROLLUP_MAX + 10; i++)
    add(&r, 0, i + 1, 1, 1);
  assert_int_equal(r.count, ROLLUP_MAX);
  assert_int_equal(r.refused, 10);
  rollups_fini(&r);
}

static void place(struct tree *tree, uint64_t id, uint64_t parent, uint8_t kind) {
  struct tree_node *node = tree_make(tree, id);
  node->parent = parent;
  node->kind = kind;
  node->placed = true;
}

static void the_nearest_epoch_is_found(void **state) {
  (void)state;
  struct tree tree = {0};
  place(&tree, 2, SPAN_ROOT, SPAN_EPOCH);
  place(&tree, 3, 2, SPAN_EVAL);
  place(&tree, 4, 3, SPAN_STEP);
  place(&tree, 5, 6, SPAN_USER); /* a circle of strangers */
  place(&tree, 6, 5, SPAN_USER);
  tree_make(&tree, 7); /* not placed */
  assert_int_equal(tree_epoch(&tree, 4), 3);
  assert_int_equal(tree_epoch(&tree, 2), 2);
  assert_int_equal(tree_epoch(&tree, 5), 0);
  assert_int_equal(tree_epoch(&tree, 7), 0);
  assert_int_equal(tree_epoch(&tree, 99), 0);
  assert_int_equal(tree_epoch(&tree, SPAN_ROOT), 0);
  tree_fini(&tree);
}

static void closed_nodes_go_open_ones_stay(void **state) {
  (void)state;
  struct tree tree = {0};
  for (uint64_t id = 2; id < 100; id++) {
    place(&tree, id, SPAN_ROOT, SPAN_USER);
    tree_find(&tree, id)->closed = id % 2;
    tree_find(&tree, id)->open = id % 2 == 0;
  }
  for (int i = 0; i < 50; i++)
    tree_trim(&tree);
  for (uint64_t id = 2; id < 100; id++)
    assert_int_equal(tree_find(&tree, id) != NULL, id % 2 == 0);
  tree_fini(&tree);
}

static bool json(const char *text) {
  /* On the heap, so that reading on is seen. */
  size_t n = strlen(text);
  char *copy = malloc(n ? n : 1);
  memcpy(copy, text, n);
  bool is = text_is_json_object(copy, n);
  free(copy);
  return is;
}

static void json_objects_and_others(void **state) {
  (void)state;
  assert_true(json("{}"));
  assert_true(json(" {\"a\" : [1, -2.5e+7, 0, true, false, null, \"\\u00e9\\n\", {}], \"b\":{\"c\":\"\xc3\xa9\"}} "));
  const char *bad[] = {"",
                       "{",
                       "}",
                       "[]",
                       "{}x",
                       "{\"a\"}",
                       "{\"a\":}",
                       "{\"a\":1,}",
                       "{a:1}",
                       "{\"a",
                       "{\"a\":01}",
                       "{\"a\":1.}",
                       "{\"a\":+1}",
                       "{\"a\":NaN}",
                       "{\"a\":\"\n\"}",
                       "{\"\\x\":1}",
                       "{\"a\":\"\xff\"}",
                       "{\"a\":\"\\u12g4\"}"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    if (json(bad[i]))
      fail_msg("%s passes", bad[i]);
  char deep[1000];
  memset(deep, '[', sizeof deep);
  memcpy(deep, "{\"a\":", 5);
  assert_false(text_is_json_object(deep, sizeof deep));
}

static void texts_become_utf8(void **state) {
  (void)state;
  char *text = text_utf8((struct text_bytes){"a\xff\0b", 4});
  assert_string_equal(text, "a\xef\xbf\xbd");
  free(text);
  size_t len;
  FILE *out = open_memstream(&text, &len);
  text_json_string(out, (struct text_bytes){"\"\\\n\0\xc3\xa9", 6});
  text_json_string(out, (struct text_bytes){NULL, 0});
  fclose(out);
  assert_string_equal(text, "\"\\\"\\\\\\u000a\\u0000\xc3\xa9\"\"\"");
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_map_is_like_an_array),
      cmocka_unit_test(sums_and_bounds),
      cmocka_unit_test(an_epoch_that_never_was_goes_into_another),
      cmocka_unit_test(a_forgotten_epoch_counts_as_none),
      cmocka_unit_test(too_many_names_are_refused_not_kept),
      cmocka_unit_test(the_nearest_epoch_is_found),
      cmocka_unit_test(closed_nodes_go_open_ones_stay),
      cmocka_unit_test(json_objects_and_others),
      cmocka_unit_test(texts_become_utf8),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
