// links: collectord/ingest.c collectord/ingest_open.c collectord/ingest_write.c collectord/names.c collectord/tree.c collectord/rollup.c collectord/idmap.c collectord/text.c collectord/store.c collectord/store_block.c collectord/store_checkpoint.c collectord/store_lock.c collectord/store_erase.c collectord/store_migrate.c collectord/store_open.c collectord/store_rows.c collectord/store_snapshots.c collectord/store_sql.c collectord/store_takeover.c collectord/schema.c collectord/utf8.c proto/block.c proto/erase.c proto/histogram.c
/* From records to rows: single facts, what a commit writes, and what nonsense does. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/ingest_dump.h"
#include "tests/support/ingest_script.h"

static void steps_know_their_phases_and_epoch(void **state) {
  (void)state;
  struct script s = training(1, 3, true);
  struct run r = run_new(&s);
  advance(&r, SIZE_MAX);
  commit(&r, true);
  assert_int_equal(number(&r, "SELECT count(*) FROM steps"), 3);
  assert_int_equal(number(&r, "SELECT count(*) FROM steps WHERE epoch = 2 AND parent = 2 AND rank = 3 AND tid = 77"), 3);
  assert_int_equal(
      number(&r, "SELECT count(*) FROM steps WHERE data_loads = 1 AND forwards = 1 AND backwards = 1 AND optimizers = 1"), 3);
  assert_int_equal(number(&r, "SELECT min(data_load_ns > 0 AND data_load_ns + forward_ns + backward_ns + optimizer_ns"
                              " <= end_ns - start_ns) FROM steps"),
                   1);
  assert_int_equal(number(&r, "SELECT count(*) FROM epochs WHERE kind = 'epoch' AND end_ns IS NOT NULL AND idx = 0"), 1);
  assert_int_equal(number(&r, "SELECT count FROM rollups JOIN names USING(name) WHERE text = 'forward' AND epoch = 2"), 3);
  assert_int_equal(number(&r, "SELECT start_ns FROM steps WHERE idx = 0"),
                   WALL + (int64_t)s.events[1].open.start_ns); /* its data_load began it */
  run_free(&r);
  script_free(&s);
}

static void self_time_is_without_children(void **state) {
  (void)state;
  struct script s = training(1, 1, true);
  struct run r = run_new(&s);
  advance(&r, SIZE_MAX);
  commit(&r, true);
  assert_int_equal(
      number(&r, "SELECT a.total_ns - a.self_ns - b.total_ns FROM rollups a JOIN names x USING(name), rollups b JOIN names y"
                 " ON b.name = y.name WHERE x.text = 'save' AND y.text = 'write'"),
      0);
  run_free(&r);
  script_free(&s);
}

static void open_spans_show_while_they_are(void **state) {
  (void)state;
  struct script s = training(1, 3, false);
  struct run r = run_new(&s);
  advance(&r, 20); /* into the first step; its update makes the epoch certain */
  commit(&r, false);
  assert_int_equal(number(&r, "SELECT count(*) FROM open_spans WHERE kind = 1 AND span = 1 AND parent = 0 AND tid = 77"), 1);
  assert_int_equal(number(&r, "SELECT count(*) FROM open_spans WHERE kind = 2"), 1);
  assert_int_equal(number(&r, "SELECT count(*) FROM epochs WHERE end_ns IS NULL"), 1);
  advance(&r, SIZE_MAX);
  commit(&r, false);
  assert_int_equal(number(&r, "SELECT count(*) FROM open_spans"), 1);
  assert_int_equal(number(&r, "SELECT count(*) FROM epochs WHERE end_ns IS NULL"), 0);
  run_free(&r);
  script_free(&s);
}

static void doubtful_spans_dissolve_at_the_end(void **state) {
  (void)state;
  struct script s = {.id = SPAN_ROOT, .now = 1000};
  s.segment = maker_segment(PREFIX, &s.segment_fd);
  struct ring_open pass = begin(&s, SPAN_EVAL, "eval", SPAN_ROOT, SPAN_DOUBTFUL);
  struct ring_open step = begin(&s, SPAN_STEP, "step", pass.id, SPAN_DOUBTFUL);
  leaf(&s, SPAN_FORWARD, "forward", step.id);
  struct ring_open user = begin(&s, SPAN_USER, "inside", step.id, 0);
  struct run r = run_new(&s);
  advance(&r, SIZE_MAX);
  commit(&r, false);
  assert_int_equal(number(&r, "SELECT count(*) FROM open_spans"), 4);
  commit(&r, true);
  assert_int_equal(number(&r, "SELECT count(*) FROM open_spans"), 2); /* the root and the user's */
  char sql[96];
  snprintf(sql, sizeof sql, "SELECT parent FROM open_spans WHERE span = %d", (int)user.id);
  assert_int_equal(number(&r, sql), SPAN_ROOT);
  char *text = dump(&r, true);
  assert_non_null(strstr(text, "4 < 1 "));
  assert_non_null(strstr(text, "rollups\n0|forward|6|1|"));
  free(text);
  run_free(&r);
  script_free(&s);
}

/* The record of a span found no room in the ring: its children must not hang in the air. */
static void children_of_a_lost_span_are_its_parents(void **state) {
  (void)state;
  struct script s = {.id = SPAN_ROOT, .now = 1000};
  s.segment = maker_segment(PREFIX, &s.segment_fd);
  struct ring_open outer = begin(&s, SPAN_USER, "outer", SPAN_ROOT, 0);
  struct ring_open lost = begin(&s, SPAN_USER, "lost", outer.id, 0);
  leaf(&s, SPAN_USER, "kept", lost.id);
  size_t seen = s.count;
  gone(&s, lost.id);
  struct run r = run_new(&s);
  advance(&r, seen);
  commit(&r, false);
  advance(&r, SIZE_MAX);
  for (int i = 0; i < 2; i++) { /* its record may be on its way yet */
    char *text = dump(&r, false);
    assert_non_null(strstr(text, "4 < 3 "));
    free(text);
    commit(&r, false);
  }
  char *text = dump(&r, false);
  assert_non_null(strstr(text, "4 < 2 "));
  free(text);
  run_free(&r);
  script_free(&s);
}

static void nonsense_is_counted(void **state) {
  (void)state;
  struct script s = training(1, 1, true);
  struct run r = run_new(&s);
  struct ring_record bad[] = {
      {.span = {.type = RING_SPAN, .id = 0}},
      {.span = {.type = RING_SPAN, .id = 5, .parent = 5}},
      {.span = {.type = RING_SPAN, .id = UINT64_MAX, .parent = 1}},
      {.span = {.type = RING_SPAN, .id = 5, .parent = 1, .kind = SPAN_KINDS}},
      {.span = {.type = RING_SPAN, .id = 5, .parent = 1, .kind = SPAN_SESSION}},
      {.span = {.type = RING_SPAN, .id = 5, .parent = 1, .end_ns = UINT64_MAX}},
      {.mark = {.type = RING_MARK, .id = 0, .value_type = MARK_INT}},
      {.mark = {.type = RING_MARK, .id = 5, .value_type = 0}},
      {.mark = {.type = RING_MARK, .id = 5, .value_type = 99}},
      {.move = {.type = RING_MOVE, .span = 7, .parent = 7}},
      {.move = {.type = RING_MOVE, .span = 0, .parent = 7}},
  };
  size_t n = sizeof bad / sizeof *bad;
  for (size_t i = 0; i < n; i++)
    assert_int_equal(ingest_record(&r.in, r.store, &bad[i], 1), 0);
  assert_int_equal(r.in.damaged, n);
  assert_int_equal(r.in.row_count + r.in.mark_count, 0);
  /* Kept, but without what makes no sense: a name that is not there, an end before the begin, attributes that are no JSON. */
  struct ring_record odd = {.span = {.type = RING_SPAN, .id = 9, .parent = 0, .name = 200000, .start_ns = 50, .end_ns = 40}};
  odd.text_len = 2;
  memcpy(odd.text, "{]", 2);
  assert_int_equal(ingest_record(&r.in, r.store, &odd, 1), 0);
  assert_int_equal(r.in.row_count, 1);
  assert_int_equal(r.in.rows[0].span.name, 0);
  assert_int_equal(r.in.rows[0].span.parent, SPAN_ROOT);
  assert_int_equal(r.in.rows[0].span.end_ns - r.in.rows[0].span.start_ns, 0);
  assert_null(r.in.rows[0].span.attrs);
  commit(&r, true);
  run_free(&r);
  script_free(&s);
}

/* Any records whatever: nothing crashes, and the store takes them. */
static void noise(void **state) {
  (void)state;
  struct script s = training(1, 1, true);
  struct run r = run_new(&s);
  static struct ring_record record_of_noise;
  srandom(7);
  for (int i = 0; i < 30000; i++) {
    uint8_t *bytes = (uint8_t *)&record_of_noise.span;
    for (size_t k = 0; k < RING_CELL; k++)
      bytes[k] = k % 8 < 2 ? (uint8_t)random() : 0; /* small numbers, so that spans meet */
    bytes[0] = (uint8_t)(1 + random() % 4);
    bytes[1] = (uint8_t)(random() % 12);
    record_of_noise.text_len = record_of_noise.value_len = 0;
    assert_int_equal(ingest_record(&r.in, r.store, &record_of_noise, 1), 0);
    if (i % 7000 == 0)
      commit(&r, false);
  }
  commit(&r, true);
  run_free(&r);
  script_free(&s);
}

static void many_leaves(struct script *s, int n) {
  for (int i = 0; i < n; i++)
    leaf(s, SPAN_USER, "leaf", SPAN_ROOT);
}

/* A commit of a few rows writes a few rows: only the last, small block changes. */
static void small_commits_write_small_blocks(void **state) {
  (void)state;
  struct script s = {.id = SPAN_ROOT, .now = 1000};
  s.segment = maker_segment(PREFIX, &s.segment_fd);
  many_leaves(&s, 3000);
  struct run r = run_new(&s);
  int64_t first = 0;
  while (r.at < s.count) {
    advance(&r, 3 * 10); /* three events a span */
    commit(&r, false);
    first = first ? first : number(&r, "SELECT min(block) FROM block_meta");
    int64_t all = number(&r, "SELECT sum(count) FROM block_meta"),
            last = number(&r, "SELECT count FROM block_meta ORDER BY block DESC");
    assert_int_equal(all, r.in.spans);
    assert_true(last <= INGEST_PART_ROWS + 10);
    assert_int_equal(number(&r, "SELECT min(block) FROM block_meta"), first);
  }
  int64_t parts = number(&r, "SELECT count(*) FROM block_meta WHERE NOT sealed");
  assert_in_range(parts, 8, 3000 / INGEST_PART_ROWS + 1);
  int64_t changes = sqlite3_total_changes64(r.store->db);
  commit(&r, false); /* nothing new: nothing but the session's own row */
  assert_int_equal(sqlite3_total_changes64(r.store->db) - changes, 1);
  commit(&r, true);
  assert_int_equal(number(&r, "SELECT count(*) FROM blocks"), 1);
  assert_int_equal(number(&r, "SELECT count(*) FROM block_meta WHERE count = 3000"), 1);
  run_free(&r);
  script_free(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(steps_know_their_phases_and_epoch),
      cmocka_unit_test(self_time_is_without_children),
      cmocka_unit_test(open_spans_show_while_they_are),
      cmocka_unit_test(doubtful_spans_dissolve_at_the_end),
      cmocka_unit_test(children_of_a_lost_span_are_its_parents),
      cmocka_unit_test(nonsense_is_counted),
      cmocka_unit_test(noise),
      cmocka_unit_test(small_commits_write_small_blocks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
