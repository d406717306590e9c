/* A training as a list of events, and a collector that reads them. For the tests of collectord/ingest*.c. */
#ifndef CIRRON_TEST_INGEST_SCRIPT_H
#define CIRRON_TEST_INGEST_SCRIPT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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

static inline struct event *add(struct script *s) {
  if (s->count == s->room) {
    s->room = s->room ? 2 * s->room : 256;
    s->events = realloc(s->events, s->room * sizeof *s->events);
    assert_non_null(s->events);
  }
  return memset(&s->events[s->count++], 0, sizeof *s->events);
}

static inline struct ring_open begin(struct script *s, uint8_t kind, const char *name, uint64_t parent, uint8_t flags) {
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

static inline void change(struct script *s, const struct ring_open *open) { /* of an entry that is open */
  struct event *e = add(s);
  e->what = OPEN;
  e->open = *open;
}

static inline void gone(struct script *s, uint64_t id) {
  struct event *e = add(s);
  e->what = CLOSE;
  e->id = id;
}

static inline void record(struct script *s, const void *cell, const char *text) {
  struct event *e = add(s);
  e->what = RECORD;
  memcpy(&e->record.span, cell, RING_CELL);
  e->record.text_len = strlen(text);
  memcpy(e->record.text, text, strlen(text));
  e->record.cells = 1;
}

static inline void end_at(struct script *s, const struct ring_open *open, uint64_t end_ns) {
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

static inline void end(struct script *s, const struct ring_open *open) {
  s->now += 1 + open->id % 13;
  end_at(s, open, s->now);
}

static inline void move(struct script *s, uint64_t span, uint64_t since_ns, uint64_t parent) {
  struct ring_move m = {.type = RING_MOVE, .span = span, .parent = parent, .since_ns = since_ns};
  record(s, &m, "");
}

static inline void mark(struct script *s, uint64_t span) {
  struct ring_mark m = {.type = RING_MARK,
                        .value_type = MARK_FLOAT,
                        .id = ++s->id,
                        .span = span,
                        .name = maker_name(s->segment, "loss"),
                        .ts_ns = ++s->now,
                        .value.f = 0.5};
  record(s, &m, "");
}

static inline void leaf(struct script *s, uint8_t kind, const char *name, uint64_t parent) {
  struct ring_open open = begin(s, kind, name, parent, 0);
  end(s, &open);
}

/* A step as loop.c does it: its data_load lies beside it first, and that of the next one in it. */
static inline void batches(struct script *s, struct ring_open *pass, int n) {
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
static inline void evaluation(struct script *s, struct ring_open *pass, int n) {
  struct ring_open step = begin(s, SPAN_STEP, "step", pass->id, SPAN_DOUBTFUL);
  for (int i = 0; i < n; i++) {
    leaf(s, SPAN_DATA_LOAD, "data_load", step.id);
    leaf(s, SPAN_FORWARD, "forward", step.id);
  }
  move(s, step.id, 0, pass->id);
  gone(s, step.id);
}

static inline struct script training(int epochs, int steps, bool closed) {
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

static inline void script_free(struct script *s) {
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

static inline void open_store(struct run *r) {
  char why[256] = "";
  if (store_open(r->path, &r->store, why, sizeof why))
    fail_msg("%s", why);
}

static inline void open_ingest(struct run *r) {
  struct ingest_origin origin = {.anchor_realtime_ns = (uint64_t)WALL + 5000,
                                 .anchor_monotonic_ns = 5000,
                                 .start_monotonic_ns = 900,
                                 .rank = 3,
                                 .main_tid = 77};
  assert_int_equal(ingest_init(&r->in, r->script->segment, &origin, r->store), 0);
}

static inline struct run run_new(const struct script *script) {
  struct run r = {.folder = "/dev/shm/cirron-test-XXXXXX", .script = script};
  assert_non_null(mkdtemp(r.folder));
  snprintf(r.path, sizeof r.path, "%s/t.db", r.folder);
  open_store(&r);
  open_ingest(&r);
  return r;
}

static inline void run_free(struct run *r) {
  char command[128];
  ingest_fini(&r->in);
  store_close(r->store);
  snprintf(command, sizeof command, "rm -rf %s", r->folder);
  assert_int_equal(system(command), 0);
}

static inline void advance(struct run *r, size_t events) {
  for (; events && r->at < r->script->count; events--, r->at++) {
    const struct event *e = &r->script->events[r->at];
    if (e->what == RECORD)
      assert_int_equal(ingest_record(&r->in, r->store, &e->record, 77), 0);
  }
}

/* What the open tables hold after `at` events. */
static inline size_t open_now(const struct run *r, struct ring_open *out) {
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

static inline int write_all(struct run *r, bool last) {
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

static inline void commit(struct run *r, bool last) {
  assert_int_equal(write_all(r, last), 0);
  assert_int_equal(store_commit(r->store), 0);
  ingest_committed(&r->in);
  r->committed = r->at;
}

static inline void roll_back(struct run *r) {
  bool added = r->committed != 0;
  assert_int_equal(write_all(r, false), 0);
  store_rollback(r->store);
  if (!added)
    r->sid = 0;
}

/* The collector dies, perhaps in the middle of a transaction, and another one takes over. */
static inline void die(struct run *r, bool writing) {
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

static inline int64_t number(const struct run *r, const char *sql) {
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

#endif
