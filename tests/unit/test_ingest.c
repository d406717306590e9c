// links: collectord/ingest.c collectord/ingest_open.c collectord/ingest_write.c collectord/names.c collectord/tree.c collectord/rollup.c collectord/idmap.c collectord/text.c collectord/store.c collectord/store_block.c collectord/store_checkpoint.c collectord/store_lock.c collectord/store_erase.c collectord/store_migrate.c collectord/store_open.c collectord/store_rows.c collectord/store_sql.c collectord/store_takeover.c collectord/schema.c collectord/utf8.c proto/block.c proto/erase.c proto/histogram.c
/* From records to rows. The heart of it is replayed(): the same training, with commits, rollbacks and deaths of the collector at any
 * moment, must leave the same store as without. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectord/ingest.h"
#include "collectord/ring_reader.h"
#include "collectord/store_internal.h"
#include "tests/support/ring_maker.h"

#define PREFIX 0xabcdef0123456789ull
#define WALL 1700000000000000000ll /* wall clock where CLOCK_MONOTONIC is 0 */

/* ---- a training as a list of events ---- */

struct event {
  enum { OPEN, CLOSE, RECORD } what;
  uint64_t id; /* CLOSE */
  struct ring_open open;
  struct ring_record record;
};

struct script {
  struct event *events;
  size_t count, room;
  uint64_t id, now;
  struct ring_segment *segment;
  int segment_fd;
};

static struct event *add(struct script *s) {
  if (s->count == s->room) {
    s->room = s->room ? 2 * s->room : 256;
    s->events = realloc(s->events, s->room * sizeof *s->events);
    assert_non_null(s->events);
  }
  return memset(&s->events[s->count++], 0, sizeof *s->events);
}

static struct ring_open begin(struct script *s, uint8_t kind, const char *name, uint64_t parent, uint8_t flags) {
  struct ring_open open = {.id = ++s->id,
                           .parent = parent,
                           .start_ns = ++s->now,
                           .index = SPAN_NO_INDEX,
                           .name = maker_name(s->segment, name),
                           .kind = kind,
                           .flags = flags,
                           .tid = 77};
  struct event *e = add(s);
  e->what = OPEN;
  e->open = open;
  return open;
}

static void change(struct script *s, const struct ring_open *open) { /* of an entry that is open */
  struct event *e = add(s);
  e->what = OPEN;
  e->open = *open;
}

static void gone(struct script *s, uint64_t id) {
  struct event *e = add(s);
  e->what = CLOSE;
  e->id = id;
}

static void record(struct script *s, const void *cell, const char *text) {
  struct event *e = add(s);
  e->what = RECORD;
  memcpy(&e->record.span, cell, RING_CELL);
  e->record.text_len = strlen(text);
  memcpy(e->record.text, text, strlen(text));
  e->record.cells = 1;
}

static void end_at(struct script *s, const struct ring_open *open, uint64_t end_ns) {
  struct ring_span span = {.type = RING_SPAN,
                           .kind = open->kind,
                           .name = open->name,
                           .id = open->id,
                           .parent = open->parent,
                           .start_ns = open->start_ns,
                           .end_ns = end_ns,
                           .index = open->index,
                           .cpu_ns = SPAN_NO_TIME};
  record(s, &span, open->id % 5 ? "" : "{\"n\":[1,2.5e3,\"\\u00e9\"]}");
  gone(s, open->id);
}

static void end(struct script *s, const struct ring_open *open) {
  s->now += 1 + open->id % 13;
  end_at(s, open, s->now);
}

static void move(struct script *s, uint64_t span, uint64_t since_ns, uint64_t parent) {
  struct ring_move m = {.type = RING_MOVE, .span = span, .parent = parent, .since_ns = since_ns};
  record(s, &m, "");
}

static void mark(struct script *s, uint64_t span) {
  struct ring_mark m = {.type = RING_MARK,
                        .value_type = MARK_FLOAT,
                        .id = ++s->id,
                        .span = span,
                        .name = maker_name(s->segment, "loss"),
                        .ts_ns = ++s->now,
                        .value.f = 0.5};
  record(s, &m, "");
}

static void leaf(struct script *s, uint8_t kind, const char *name, uint64_t parent) {
  struct ring_open open = begin(s, kind, name, parent, 0);
  end(s, &open);
}

/* A step as loop.c does it: its data_load lies beside it first, and that of the next one in it. */
static void batches(struct script *s, struct ring_open *pass, int n) {
  struct ring_open step = {0};
  uint64_t home = pass->id, settled = 0;
  for (int i = 0; i < n; i++) {
    struct ring_open load = begin(s, SPAN_DATA_LOAD, "data_load", home, 0);
    end(s, &load);
    if (step.id) {
      move(s, step.id, load.start_ns, pass->id);
      end_at(s, &step, settled);
    }
    step = begin(s, SPAN_STEP, "step", pass->id, SPAN_DOUBTFUL);
    step.start_ns = load.start_ns;
    step.index = i;
    change(s, &step);
    move(s, pass->id, load.start_ns, step.id);
    leaf(s, SPAN_FORWARD, "forward", step.id);
    leaf(s, SPAN_BACKWARD, "backward", step.id);
    leaf(s, SPAN_OPTIMIZER, "optimizer_step", step.id);
    settled = s->now;
    step.flags = 0;
    change(s, &step);
    pass->flags = 0;
    change(s, pass);
    mark(s, step.id);
    home = step.id;
  }
  if (step.id)
    end_at(s, &step, settled);
}

/* A pass without updates: its step never was. */
static void evaluation(struct script *s, struct ring_open *pass, int n) {
  struct ring_open step = begin(s, SPAN_STEP, "step", pass->id, SPAN_DOUBTFUL);
  for (int i = 0; i < n; i++) {
    leaf(s, SPAN_DATA_LOAD, "data_load", step.id);
    leaf(s, SPAN_FORWARD, "forward", step.id);
  }
  move(s, step.id, 0, pass->id);
  gone(s, step.id);
}

static struct script training(int epochs, int steps, bool closed) {
  struct script s = {.id = SPAN_ROOT, .now = 1000};
  s.segment = maker_segment(PREFIX, &s.segment_fd);
  for (int i = 0; i < epochs; i++) {
    struct ring_open epoch = begin(&s, SPAN_EPOCH, "epoch", SPAN_ROOT, SPAN_DOUBTFUL);
    epoch.index = i;
    batches(&s, &epoch, steps);
    end(&s, &epoch);
    struct ring_open eval = begin(&s, SPAN_EVAL, "eval", SPAN_ROOT, 0);
    evaluation(&s, &eval, steps);
    end(&s, &eval);
    struct ring_open user = begin(&s, SPAN_USER, "save", SPAN_ROOT, 0);
    leaf(&s, SPAN_USER, "write", user.id);
    end(&s, &user);
  }
  struct ring_open root = {.id = SPAN_ROOT,
                           .start_ns = 900,
                           .index = SPAN_NO_INDEX,
                           .kind = SPAN_SESSION,
                           .name = maker_name(s.segment, "cirron.session")};
  if (closed)
    end(&s, &root);
  return s;
}

static void script_free(struct script *s) {
  free(s->events);
  munmap(s->segment, SEGMENT_BYTES);
  close(s->segment_fd);
}

/* ---- a collector that reads it ---- */

struct run {
  char folder[64], path[96];
  struct store *store;
  struct ingest in;
  const struct script *script;
  size_t at;        /* events taken */
  size_t committed; /* of these */
  int64_t sid;
};

static void open_store(struct run *r) {
  char why[256] = "";
  if (store_open(r->path, &r->store, why, sizeof why))
    fail_msg("%s", why);
}

static void open_ingest(struct run *r) {
  struct ingest_origin origin = {.anchor_realtime_ns = (uint64_t)WALL + 5000,
                                 .anchor_monotonic_ns = 5000,
                                 .start_monotonic_ns = 900,
                                 .rank = 3,
                                 .main_tid = 77};
  assert_int_equal(ingest_init(&r->in, r->script->segment, &origin, r->store), 0);
}

static struct run run_new(const struct script *script) {
  struct run r = {.folder = "/dev/shm/cirron-test-XXXXXX", .script = script};
  assert_non_null(mkdtemp(r.folder));
  snprintf(r.path, sizeof r.path, "%s/t.db", r.folder);
  open_store(&r);
  open_ingest(&r);
  return r;
}

static void run_free(struct run *r) {
  char command[128];
  ingest_fini(&r->in);
  store_close(r->store);
  snprintf(command, sizeof command, "rm -rf %s", r->folder);
  assert_int_equal(system(command), 0);
}

static void advance(struct run *r, size_t events) {
  for (; events && r->at < r->script->count; events--, r->at++) {
    const struct event *e = &r->script->events[r->at];
    if (e->what == RECORD)
      assert_int_equal(ingest_record(&r->in, r->store, &e->record, 77), 0);
  }
}

/* What the open tables hold after `at` events. */
static size_t open_now(const struct run *r, struct ring_open *out) {
  size_t n = 0;
  for (size_t i = 0; i < r->at; i++) {
    const struct event *e = &r->script->events[i];
    uint64_t id = e->what == OPEN ? e->open.id : e->what == CLOSE ? e->id : 0;
    size_t k = 0;
    while (k < n && out[k].id != id)
      k++;
    if (e->what == OPEN) {
      out[k] = e->open;
      n += k == n;
    } else if (e->what == CLOSE && k < n) {
      out[k] = out[--n];
    }
  }
  return n;
}

static int write_all(struct run *r, bool last) {
  struct ring_open open[64];
  size_t n = open_now(r, open);
  assert_int_equal(ingest_open_spans(&r->in, r->store, open, n), 0);
  if (last)
    assert_int_equal(ingest_end(&r->in, r->store), 0);
  assert_int_equal(ingest_prepare(&r->in), 0);
  if (!r->sid) {
    struct session_row row = {.prefix = PREFIX, .pid = 1, .rank = 3, .local_rank = -1, .world_size = -1, .start_ns = WALL};
    int err = store_session_add(r->store, &row, &r->sid);
    if (err)
      return err;
  }
  struct session_state state = {.state = "running",
                                .exit_code = -1,
                                .spans = r->in.spans,
                                .marks = r->in.marks_stored,
                                .dropped_json = "{}",
                                .last_ns = r->in.last_ns};
  int err = ingest_write(&r->in, r->store, r->sid);
  return err ? err : store_session_update(r->store, r->sid, &state);
}

static void commit(struct run *r, bool last) {
  assert_int_equal(write_all(r, last), 0);
  assert_int_equal(store_commit(r->store), 0);
  ingest_committed(&r->in);
  r->committed = r->at;
}

static void roll_back(struct run *r) {
  bool added = r->committed != 0;
  assert_int_equal(write_all(r, false), 0);
  store_rollback(r->store);
  if (!added)
    r->sid = 0;
}

/* The collector dies, perhaps in the middle of a transaction, and another one takes over. */
static void die(struct run *r, bool writing) {
  if (writing)
    assert_int_equal(write_all(r, false), 0);
  ingest_fini(&r->in);
  store_close(r->store);
  open_store(r);
  open_ingest(r);
  r->at = r->committed;
  r->sid = 0;
  if (store_session_find(r->store, PREFIX, &r->sid) == 0) {
    struct session_state state;
    assert_int_equal(store_session_read(r->store, r->sid, &state), 0);
    r->in.spans = state.spans;
    r->in.marks_stored = state.marks;
    r->in.last_ns = state.last_ns;
    assert_int_equal(ingest_take_over(&r->in, r->store, r->sid), 0);
  }
}

/* ---- the store as one text ---- */

static void dump_sql(sqlite3 *db, const char *sql, FILE *out) {
  sqlite3_stmt *st;
  if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
    fail_msg("%s: %s", sql, sqlite3_errmsg(db));
  while (sqlite3_step(st) == SQLITE_ROW) {
    for (int i = 0; i < sqlite3_column_count(st); i++)
      fprintf(out, "%s|", sqlite3_column_text(st, i) ? (const char *)sqlite3_column_text(st, i) : "NULL");
    fputc('\n', out);
  }
  sqlite3_finalize(st);
}

static int by_id(const void *a, const void *b) {
  const struct span_row *x = a, *y = b;
  return x->id < y->id ? -1 : x->id > y->id;
}

static void apply_moves(sqlite3 *db, struct span_row *rows, size_t n) {
  sqlite3_stmt *st;
  assert_int_equal(sqlite3_prepare_v2(db, "SELECT span, since_ns, parent FROM moves ORDER BY move", -1, &st, NULL), SQLITE_OK);
  while (sqlite3_step(st) == SQLITE_ROW)
    for (size_t i = 0; i < n; i++)
      if (rows[i].parent == (uint64_t)sqlite3_column_int64(st, 0) && rows[i].start_ns >= sqlite3_column_int64(st, 1) &&
          rows[i].id != (uint64_t)sqlite3_column_int64(st, 2))
        rows[i].parent = (uint64_t)sqlite3_column_int64(st, 2);
  sqlite3_finalize(st);
}

static struct span_row *all_spans(sqlite3 *db, size_t *count) {
  struct span_row *rows = NULL;
  size_t n = 0;
  for (int sealed = 0; sealed <= 1; sealed++) {
    sqlite3_stmt *st;
    assert_int_equal(
        sqlite3_prepare_v2(db, "SELECT data FROM blocks JOIN block_meta USING(block) WHERE sealed = ?1", -1, &st, NULL),
        SQLITE_OK);
    sqlite3_bind_int(st, 1, sealed);
    size_t first = n;
    while (sqlite3_step(st) == SQLITE_ROW) {
      struct block b = {0};
      assert_int_equal(block_decode(sqlite3_column_blob(st, 0), (size_t)sqlite3_column_bytes(st, 0), &b), 0);
      rows = realloc(rows, (n + b.count) * sizeof *rows);
      memcpy(rows + n, b.rows, b.count * sizeof *rows);
      n += b.count;
      block_fini(&b);
    }
    sqlite3_finalize(st);
    if (sealed)
      apply_moves(db, rows + first, n - first);
  }
  qsort(rows, n, sizeof *rows, by_id);
  *count = n;
  return rows;
}

static char *dump(const struct run *r, bool sums) {
  sqlite3 *db;
  char *text;
  size_t len, n;
  FILE *out = open_memstream(&text, &len);
  assert_int_equal(sqlite3_open_v2(r->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
  struct span_row *rows = all_spans(db, &n);
  for (size_t i = 0; i < n; i++) {
    char sql[128];
    snprintf(sql, sizeof sql, "SELECT text FROM names WHERE name = %u", rows[i].name);
    fprintf(out, "%lld < %lld %lld-%lld kind %d %lld ", (long long)rows[i].id, (long long)rows[i].parent,
            (long long)(rows[i].start_ns - WALL), (long long)(rows[i].end_ns - WALL), rows[i].kind, (long long)rows[i].index);
    dump_sql(db, sql, out);
  }
  free(rows);
  fprintf(out, "steps\n");
  dump_sql(db, "SELECT * FROM steps ORDER BY span", out);
  fprintf(out, "epochs\n");
  dump_sql(db, "SELECT * FROM epochs ORDER BY span", out);
  fprintf(out, "marks\n");
  dump_sql(db, "SELECT mark, span, text, value, ts_ns FROM marks JOIN names USING(name) ORDER BY mark", out);
  fprintf(out, "open\n");
  dump_sql(db, "SELECT span, parent, text, kind FROM open_spans JOIN names USING(name) ORDER BY span", out);
  if (sums) {
    fprintf(out, "rollups\n");
    dump_sql(db,
             "SELECT epoch, text, kind, count, errors, total_ns, self_ns, min_ns, max_ns, hex(histogram) FROM rollups"
             " JOIN names USING(name) WHERE count > 0 ORDER BY epoch, text, kind",
             out);
  }
  fprintf(out, "session\n");
  dump_sql(db, "SELECT spans, marks, last_ns FROM sessions", out);
  sqlite3_close(db);
  fclose(out);
  return text;
}

/* Says where two dumps part. */
static void assert_same(const char *want, const char *got, unsigned seed) {
  size_t i = 0, line = 0;
  for (; want[i] && want[i] == got[i]; i++)
    if (want[i] == '\n')
      line = i + 1;
  if (want[i] || got[i])
    fail_msg("seed %u, from byte %zu on: want %.200s\n--- got %.200s", seed, i, want + line, got + line);
}

static char *straight(const struct script *script, bool sums) {
  struct run r = run_new(script);
  advance(&r, SIZE_MAX);
  commit(&r, true);
  char *text = dump(&r, sums);
  run_free(&r);
  return text;
}

static void replay(const struct script *script, unsigned seed, unsigned stride, bool sums, const char *want) {
  struct run r = run_new(script);
  srandom(seed);
  for (int round = 0; r.at < script->count || round < 3; round++) {
    advance(&r, 1 + (size_t)random() % stride);
    switch (random() % 6) {
    case 0:
      roll_back(&r);
      break;
    case 1:
      die(&r, random() % 2);
      break;
    case 2:
      break;
    default:
      commit(&r, false);
    }
  }
  commit(&r, true);
  char *got = dump(&r, sums);
  assert_same(want, got, seed);
  free(got);
  run_free(&r);
}

static void replayed(void **state) {
  (void)state;
  struct script s = training(3, 8, true);
  char *want = straight(&s, true);
  for (unsigned seed = 1; seed <= 25; seed++)
    replay(&s, seed, 60, true, want);
  free(want);
  script_free(&s);
}

static void replayed_when_the_process_was_killed(void **state) {
  (void)state;
  struct script s = training(2, 6, false);
  s.count -= s.count / 3;
  char *want = straight(&s, true);
  for (unsigned seed = 1; seed <= 25; seed++)
    replay(&s, seed, 40, true, want);
  free(want);
  script_free(&s);
}

/* So many that blocks are sealed. Sums over children of long spans start anew with a new collector, so they are left out. */
static void replayed_over_many_blocks(void **state) {
  (void)state;
  struct script s = training(3, 1500, true);
  char *want = straight(&s, false);
  for (unsigned seed = 1; seed <= 3; seed++)
    replay(&s, seed, 4000, false, want);
  free(want);
  script_free(&s);
}

/* ---- what a commit writes ---- */

static int64_t number(const struct run *r, const char *sql);

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

/* ---- single facts ---- */

static int64_t number(const struct run *r, const char *sql) {
  sqlite3 *db;
  sqlite3_stmt *st;
  assert_int_equal(sqlite3_open_v2(r->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
  if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
    fail_msg("%s: %s", sql, sqlite3_errmsg(db));
  assert_int_equal(sqlite3_step(st), SQLITE_ROW);
  int64_t value = sqlite3_column_type(st, 0) == SQLITE_NULL ? -4711 : sqlite3_column_int64(st, 0);
  sqlite3_finalize(st);
  sqlite3_close(db);
  return value;
}

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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(steps_know_their_phases_and_epoch),
      cmocka_unit_test(self_time_is_without_children),
      cmocka_unit_test(open_spans_show_while_they_are),
      cmocka_unit_test(doubtful_spans_dissolve_at_the_end),
      cmocka_unit_test(children_of_a_lost_span_are_its_parents),
      cmocka_unit_test(nonsense_is_counted),
      cmocka_unit_test(noise),
      cmocka_unit_test(replayed),
      cmocka_unit_test(replayed_when_the_process_was_killed),
      cmocka_unit_test(small_commits_write_small_blocks),
      cmocka_unit_test(replayed_over_many_blocks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
