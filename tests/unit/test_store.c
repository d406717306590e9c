// links: collectord/store.c collectord/store_block.c collectord/store_checkpoint.c collectord/store_lock.c collectord/store_erase.c collectord/store_migrate.c collectord/store_open.c collectord/store_rows.c collectord/store_snapshots.c collectord/store_sql.c collectord/schema.c collectord/utf8.c proto/block.c proto/erase.c proto/histogram.c
/* The store as the collector fills it: names, sessions and rows, and what stays after a rollback. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/histogram.h"
#include "proto/ring_abi.h"
#include "proto/store_abi.h"
#include "tests/support/store_file.h"

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

static void test_snapshots(void **state) {
  struct fixture *f = *state;
  static const int64_t shape[] = {3, 0, -INT64_MAX};
  static const struct tensor_stats stats = {.count = 7,
                                            .nans = 1,
                                            .infs = 2,
                                            .neg_infs = 1,
                                            .zeros = 3,
                                            .mean = 0.5,
                                            .std = 0,
                                            .min = -1.5,
                                            .max = 1e300,
                                            .norm = INFINITY,
                                            .histogram = {[0] = 4, [15] = INT64_MAX},
                                            .magnitude = {[31] = 9}};
  struct snapshot_row row = {.id = 1ull << 63,
                             .pass = 2,
                             .span = 3,
                             .tensor = "a\0b\xff",
                             .tensor_len = 4,
                             .model = "net",
                             .model_len = 3,
                             .dtype = "float32",
                             .dtype_len = 7,
                             .shape = shape,
                             .ndim = 3,
                             .mode = "full",
                             .stats = &stats,
                             .blob_uri = "file:///x",
                             .ts_ns = 5,
                             .torn = true,
                             .attrs = "{}"};
  assert_int_equal(store_snapshot(f->store, 1, &row), 0);
  row.stats = NULL, row.blob_uri = NULL, row.gradient = true, row.mode = "stats", row.ndim = 0;
  assert_int_equal(store_snapshot(f->store, 1, &row), 0); /* replaces */
  row.id = 4, row.stats = &stats, row.ndim = 3, row.torn = false, row.mode = "full", row.blob_uri = "file:///x";
  assert_int_equal(store_snapshot(f->store, 1, &row), 0);
  struct tensor_stats none = {.count = 1, .nans = 1, .mean = NAN, .std = NAN, .min = NAN, .max = NAN, .norm = NAN};
  row.id = 5, row.stats = &none;
  assert_int_equal(store_snapshot(f->store, 1, &row), 0);
  struct snapshot_pass_row pass = {.pass = 2,
                                   .span = 3,
                                   .epoch = 4,
                                   .step = SPAN_NO_INDEX,
                                   .reason = "steps",
                                   .mode = "sampled",
                                   .ts_ns = 5,
                                   .records = 6,
                                   .list_ns = 7,
                                   .read_ns = 8,
                                   .wait_ns = 9,
                                   .torn = 10,
                                   .blobs = 3};
  assert_int_equal(store_snapshot_pass(f->store, 1, &pass), 0);
  pass.pass = 3, pass.epoch = SPAN_NO_INDEX, pass.step = 0, pass.own = true, pass.blob_error = ENOSPC, pass.blobs = 0;
  assert_int_equal(store_snapshot_pass(f->store, 1, &pass), 0);
  assert_int_equal(store_commit(f->store), 0);
  ASK("SELECT snapshot, pass, span, hex(tensor_name), model, kind, shape, dtype, mode, count, nans, infs, neg_infs, zeros, "
      "mean, std,"
      " min, max, norm, histogram, magnitude, blob_uri, ts_ns, torn, attrs FROM snapshots WHERE sid = 1 ORDER BY snapshot",
      "-9223372036854775808|2|3|610062EFBFBD|net|gradient|[]|float32|stats|~|~|~|~|~|~|~|~|~|~|~|~|~|5|1|{}\n"
      "4|2|3|610062EFBFBD|net|gradient|[3,0,-9223372036854775807]|float32|full|7|1|2|1|3|0.5|0.0|-1.5|1.0e+300|Inf|"
      "[4,0,0,0,0,0,0,0,0,0,0,0,0,0,0,9223372036854775807]|[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,9]|"
      "file:///x|5|0|{}\n"
      "5|2|3|610062EFBFBD|net|gradient|[3,0,-9223372036854775807]|float32|full|1|1|0|0|0|~|~|~|~|~|"
      "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]|[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]|file:///x|5|0|{}\n");
  ASK("SELECT * FROM snapshot_passes",
      "1|2|3|4|~|steps|sampled|5|6|7|8|9|10|0|3|~\n1|3|3|~|0|steps|sampled|5|6|7|8|9|10|1|0|28\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST_OPEN(test_names),
      TEST_OPEN(test_rollback),
      TEST_OPEN(test_sessions),
      TEST_OPEN(test_blocks),
      TEST_OPEN(test_open_spans_moves_rings),
      TEST_OPEN(test_marks),
      TEST_OPEN(test_steps_and_epochs),
      TEST_OPEN(test_rollups),
      TEST_OPEN(test_snapshots),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
