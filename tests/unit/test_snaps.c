// links: tools/snaps.c tools/first_bad.c tools/moment.c tools/db.c tools/vtab_spans.c tools/vtab_args.c tools/spans.c tools/spans_each.c tools/spans_moves.c tools/spans_names.c tools/say.c tools/text.c tools/buf.c tools/units.c collectord/schema.c proto/block.c
/* Records of snapshots: counts as JSON, distances, which records are of the same tensor, where the first bad one is. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectord/schema.h"
#include "tools/first_bad.h"
#include "tools/snaps.h"

static struct snaps_text text(const char *s) {
  return (struct snaps_text){s, strlen(s)};
}

static void counts(void **state) {
  uint64_t got[3] = {9, 9, 9};
  static const char *const wrong[] = {"",
                                      "[",
                                      "[]",
                                      "[1,2]",
                                      "[1,2,3,4]",
                                      "[1,2,3",
                                      "1,2,3",
                                      "[1,2,-3]",
                                      "[1,2,]",
                                      "[1,2,x]",
                                      "[1,2,3]]",
                                      "[1 2,3]",
                                      "[1,2,3.0]",
                                      "[,,,]",
                                      "{}",
                                      "null",
                                      "[1,2,12345678901234567890123]"};
  (void)state;
  assert_true(snaps_counts(text("[0,18446744,3]"), got, 3));
  assert_true(got[0] == 0 && got[1] == 18446744 && got[2] == 3);
  assert_true(snaps_counts(text("[ 1 , 2, 3 ]"), got, 3));
  assert_true(got[0] == 1 && got[2] == 3);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char *exact = malloc(strlen(wrong[i]) + 1); /* so that a sanitizer sees reading too far */
    memcpy(exact, wrong[i], strlen(wrong[i]));
    if (snaps_counts((struct snaps_text){exact, strlen(wrong[i])}, got, 3))
      fail_msg("%s was taken", wrong[i]);
    free(exact);
  }
  assert_false(snaps_counts((struct snaps_text){0}, got, 3));
}

static void distance(void **state) {
  uint64_t low[TENSOR_MAGNITUDES] = {[3] = 4}, high[TENSOR_MAGNITUDES] = {[9] = 8},
           half[TENSOR_MAGNITUDES] = {[3] = 1, [9] = 1};
  const struct snaps_record four = {.count = 4}, eight = {.count = 8}, two = {.count = 2}, zero = {.count = 5, .zeros = 5},
                            bad = {.count = 2, .nans = 1, .neg_infs = 1}, none = {.count = 0}, unread = {.count = -1};
  const uint64_t nothing[TENSOR_MAGNITUDES] = {0};
  (void)state;
  assert_true(snaps_distance(&four, low, &four, low) == 0);
  assert_true(snaps_distance(&four, low, &eight, high) == 1);
  assert_true(snaps_distance(&four, low, &two, half) == 0.5);
  assert_true(snaps_distance(&four, low, &zero, nothing) == 1);
  assert_true(snaps_distance(&zero, nothing, &bad, nothing) == 1);
  assert_true(snaps_distance(&bad, nothing, &bad, nothing) == 0);
  assert_true(isnan(snaps_distance(&four, low, &none, nothing)) && isnan(snaps_distance(&unread, nothing, &four, low)));
}

static void stats_as_json(void **state) {
  const struct snaps_record constant = {.count = 2,
                                        .min = 3,
                                        .max = 3,
                                        .mean = 3,
                                        .norm = INFINITY,
                                        .histogram = text("[2,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]"),
                                        .magnitude = text("[1]")},
                            unread = {.count = -1},
                            nothing = {.count = 0, .mean = NAN, .std = NAN, .min = NAN, .max = NAN, .norm = NAN},
                            wide = {.count = 2,
                                    .min = -1.7e308,
                                    .max = 1.7e308,
                                    .histogram = text("[1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1]")};
  struct buf out = {0};
  (void)state;
  snaps_stats_json(&unread, &out);
  assert_string_equal(out.data, "null");
  buf_clear(&out);
  snaps_stats_json(&constant, &out);
  assert_non_null(strstr(out.data, "\"mean\":3.0,\"std\":0.0,\"min\":3.0,\"max\":3.0,\"norm\":\"Infinity\""));
  assert_non_null(strstr(out.data, "\"bins\":[3.0,3.0625,"));
  assert_non_null(strstr(out.data, ",4.0],\"counts\":[2,0,"));
  assert_non_null(strstr(out.data, "\"magnitude\":null}"));
  buf_clear(&out);
  snaps_stats_json(&nothing, &out);
  assert_string_equal(out.data, "{\"mean\":null,\"std\":null,\"min\":null,\"max\":null,\"norm\":null,\"histogram\":null,"
                                "\"count\":0,\"nan\":0,\"inf\":0,\"neg_inf\":0,\"zero\":0,\"magnitude\":null}");
  buf_clear(&out);
  snaps_stats_json(&wide, &out);
  assert_null(strstr(out.data, "Inf"));
  buf_fini(&out);
}

static size_t at(struct snaps_tensors *tensors, const char *name, const char *model, enum snaps_kind what, bool add) {
  const struct snaps_record r = {.name = text(name), .model = text(model), .what = what};
  return snaps_tensor_at(tensors, &r, add);
}

static void tensors(void **state) {
  struct snaps_tensors t = {0};
  char name[32];
  (void)state;
  assert_true(at(&t, "a", "m", SNAPS_WEIGHT, false) == SIZE_MAX && t.count == 0);
  assert_true(at(&t, "a", "m", SNAPS_WEIGHT, true) == 0);
  assert_true(at(&t, "a", "n", SNAPS_WEIGHT, true) == 1 && at(&t, "a", "m", SNAPS_GRADIENT, true) == 2);
  assert_true(at(&t, "am", "", SNAPS_WEIGHT, true) == 3 && at(&t, "", "am", SNAPS_WEIGHT, true) == 4);
  for (int i = 0; i < 5000; i++) {
    snprintf(name, sizeof name, "layer%d", i);
    assert_true(at(&t, name, "m", SNAPS_WEIGHT, true) == 5 + (size_t)i);
  }
  for (int i = 4999; i >= 0; i--) { /* against the guess */
    snprintf(name, sizeof name, "layer%d", i);
    assert_true(at(&t, name, "m", SNAPS_WEIGHT, false) == 5 + (size_t)i);
  }
  assert_true(at(&t, "a", "m", SNAPS_WEIGHT, true) == 0 && t.count == 5005);
  snaps_tensors_fini(&t);
}

static void says(struct snaps_pass pass, const char *want) {
  struct buf out = {0};
  snaps_pass_say(&pass, &out);
  assert_string_equal(out.data, want);
  buf_fini(&out);
}

static void passes(void **state) {
  const int64_t none = SNAPS_NO_INDEX;
  (void)state;
  says((struct snaps_pass){.epoch = 2, .step = none}, "after epoch 2");
  says((struct snaps_pass){.epoch = 2, .step = 7, .reason = SNAPS_STEPS}, "at step 7 of epoch 2");
  says((struct snaps_pass){.epoch = none, .step = 7, .reason = SNAPS_COMMAND}, "asked for at step 7");
  says((struct snaps_pass){.epoch = 1, .step = none, .reason = SNAPS_OTHER}, "in epoch 1");
  says((struct snaps_pass){.epoch = none, .step = none, .number = 9}, "number 9");
}

/* --- the first bad one --------------------------------------------------------------------------------------------------- */

static sqlite3 *db;

static void run(const char *sql) {
  char *error = NULL;
  if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK)
    fail_msg("%s: %s", sql, error);
}

static void add(int64_t pass, int64_t record, const char *name, const char *kind, const char *count, int nans, double norm) {
  char *sql =
      sqlite3_mprintf("INSERT INTO snapshots(sid, snapshot, pass, span, tensor_name, model, kind, shape, dtype, mode, count,"
                      " nans, infs, neg_infs, norm, ts_ns, torn, attrs) VALUES(1, %lld, %lld, 2, %Q, '', %Q, '[4]', 'float32',"
                      " 'stats', %s, %d, 0, 0, %f, 0, 0, '{}')",
                      (long long)record, (long long)pass, name, kind, count, nans, norm);
  run(sql);
  sqlite3_free(sql);
}

static void add_pass(int64_t pass, const char *reason, const char *epoch, const char *step, int64_t ts) {
  char *sql =
      sqlite3_mprintf("INSERT INTO snapshot_passes VALUES(1, %lld, 2, %s, %s, %Q, 'stats', %lld, 2, 0, 0, 0, 0, 0, 0, NULL)",
                      (long long)pass, epoch, step, reason, (long long)ts);
  run(sql);
  sqlite3_free(sql);
}

static int make(void **state) {
  (void)state;
  if (sqlite3_open(":memory:", &db) != SQLITE_OK)
    return -1;
  run(schema_sql);
  run(schema_2_sql);
  run("PRAGMA user_version = 2");
  for (int i = 0; i < 4; i++) { /* steps 10, 20, ... of 100 ns, and an epoch around the first two */
    char sql[256];
    snprintf(sql, sizeof sql, "INSERT INTO steps VALUES(1, %d, 2, 2, %d, %d, %d, 0,0,0,0, 0,0,0,0, NULL, NULL, NULL, NULL, 0)",
             10 * (i + 1), i, 1000 * i, 1000 * i + 100);
    run(sql);
  }
  return 0;
}

static int drop(void **state) {
  (void)state;
  return sqlite3_close(db) == SQLITE_OK ? 0 : -1;
}

static void first_of_several(void **state) {
  const struct pick_session session = {.store = db, .sid = 1};
  struct first_bad bad;
  struct buf line = {0};
  int64_t from, to;
  (void)state;
  add_pass(1, "epoch", "0", "NULL", 150);
  add(1, 12, "a", "weight", "4", 0, 1.5);
  add(1, 13, "b", "weight", "4", 0, 2.5);
  add_pass(4, "steps", "1", "3", 3150);
  add(4, 42, "a", "weight", "4", 4, 0);
  add(4, 43, "a.grad", "gradient", "4", 1, 7);
  add(4, 44, "b", "weight", "NULL", 0, 0);
  add_pass(5, "epoch", "2", "NULL", 4000);
  add(5, 50, "b", "weight", "4", 2, 0);
  first_bad_find(&session, &bad);
  assert_true(bad.kept && bad.passes.count == 3 && bad.pass->number == 4 && bad.good->number == 1);
  assert_true(bad.count == 2 && strcmp(bad.tensors[0].name, "a.grad") == 0 && isnan(bad.tensors[0].good_norm));
  assert_true(strcmp(bad.tensors[1].name, "a") == 0 && bad.tensors[1].good_norm == 1.5 && bad.tensors[1].nans == 4);
  assert_true(bad.records == 3 && bad.unread == 1 && bad.gradients == 1);
  assert_true(bad.good_at.step == 0 && !bad.good_at.in_step && bad.at.step == 3);
  assert_true(first_bad_steps(&bad, &from, &to) && from == 0 && to == 3);
  first_bad_say(&bad, true, &line);
  assert_string_equal(line.data, "a.grad and 1 more of 3 tensors are not finite in the snapshot at step 3 of epoch 1");
  buf_fini(&line);
  first_bad_fini(&bad);
}

static void none_is_bad(void **state) {
  const struct pick_session session = {.store = db, .sid = 1};
  struct first_bad bad;
  int64_t from, to;
  (void)state;
  first_bad_find(&session, &bad);
  assert_true(bad.kept && !bad.pass && !bad.good && !bad.count && !first_bad_steps(&bad, &from, &to));
  first_bad_fini(&bad);
  add_pass(1, "epoch", "0", "NULL", 150);
  add(1, 12, "a", "weight", "4", 0, 1);
  first_bad_find(&session, &bad);
  assert_true(!bad.pass && bad.good && bad.records == 1 && bad.good_at.step == 0);
  first_bad_fini(&bad);
  add(7, 60, "a", "weight", "4", 3, 1); /* of a snapshot that is not listed */
  first_bad_find(&session, &bad);
  assert_true(!bad.pass && bad.good);
  first_bad_fini(&bad);
  run("DROP TABLE snapshots; DROP TABLE snapshot_passes; PRAGMA user_version = 1");
  first_bad_find(&session, &bad);
  assert_true(!bad.kept && !bad.pass && !bad.good && !bad.passes.count);
  first_bad_fini(&bad);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counts),
      cmocka_unit_test(distance),
      cmocka_unit_test(stats_as_json),
      cmocka_unit_test(tensors),
      cmocka_unit_test(passes),
      cmocka_unit_test_setup_teardown(first_of_several, make, drop),
      cmocka_unit_test_setup_teardown(none_is_bad, make, drop),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
