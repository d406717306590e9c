/* Writes stores with known contents, through the collector's own store code: make_store PATH SCENARIO [NUMBER].
 *
 *   train     3 epochs of 20 steps with evaluation, finished; slow loader, one slow step, a mark that becomes NaN
 *   killed    SIGKILL in the forward of step 17        running   the same, still running (start in 2001, like all)
 *   ranks     two ranks of one job                     evalonly  forward passes without an update
 *   scopes    scopes of a user, one with an error      names     names of spans, marks and arguments that are hostile
 *   keras     epochs of batches                        lossy     drops counted by reason
 *   empty     no session                               big       NUMBER spans in steps of six, with a mark each
 *   loop      spans whose parents are not there, or each other
 *   tensors   as train, with room among the ids behind each epoch for what tests/e2e/query/tensors.py adds
 *   shards    as ranks, with such room
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectord/store.h"
#include "proto/histogram.h"
#include "proto/ring_abi.h"

#define START_NS 1000000000000000000 /* 2001-09-09 01:46:40 UTC */
#define MS INT64_C(1000000)
#define OK(call) ok(call, #call)

static void ok(int rc, const char *what) {
  if (rc) {
    fprintf(stderr, "make_store: %s: %s\n", what, strerror(-rc));
    exit(1);
  }
}

static struct store *store;
static uint64_t room; /* ids that are left free behind each epoch */

/* One session that is being written. */
static struct {
  int64_t sid, now, spans, marks, pid, rank;
  uint64_t next;
  uint32_t tid;
  struct span_row rows[BLOCK_MAX];
  size_t n;
  struct rollup_row rollups[64];
  uint32_t histograms[64][HISTOGRAM_BINS];
  size_t rollups_count;
  uint64_t epoch; /* the rollups' */
  struct span_row open[16];
  size_t open_count;
} s;

static uint32_t name_len(const char *text, size_t len) {
  uint32_t id = 0;
  OK(store_name(store, text, len, &id));
  return id;
}

static uint32_t name(const char *text) {
  return text ? name_len(text, strlen(text)) : 0;
}

static void begin(uint64_t prefix, const char *argv, int64_t rank, int64_t world) {
  const struct session_row row = {.prefix = prefix,
                                  .pid = 4242 + (rank > 0 ? rank : 0),
                                  .ppid = 4000,
                                  .uid = 1000,
                                  .rank = rank,
                                  .local_rank = rank,
                                  .world_size = world,
                                  .host = "node7",
                                  .exe = "/usr/bin/python3",
                                  .argv_json = argv,
                                  .cwd = "/home/me",
                                  .python_version = "3.11.7",
                                  .run_id = world > 1 ? "job-9" : NULL,
                                  .agent_version = "0.1.0",
                                  .attrs_json = "{}",
                                  .start_ns = s.now ? s.now : START_NS};
  int64_t now = row.start_ns;
  memset(&s, 0, sizeof s);
  s.now = now;
  s.next = SPAN_ROOT + 1;
  s.pid = row.pid;
  s.rank = rank;
  s.tid = (uint32_t)row.pid;
  OK(store_session_add(store, &row, &s.sid));
}

static void flush(bool sealed) {
  int64_t block = 0;
  if (s.n)
    OK(store_block_put(store, s.sid, s.rows, s.n, sealed, &block));
  s.n = 0;
}

static void roll_up(const struct span_row *row) {
  size_t i = 0;
  int64_t ns = row->end_ns - row->start_ns;
  while (i < s.rollups_count &&
         !(s.rollups[i].epoch == s.epoch && s.rollups[i].name == row->name && s.rollups[i].kind == row->kind))
    i++;
  if (i == 64)
    return;
  struct rollup_row *r = &s.rollups[i];
  if (i == s.rollups_count) {
    s.rollups_count++;
    *r = (struct rollup_row){.epoch = s.epoch, .name = row->name, .kind = row->kind, .min_ns = INT64_MAX};
  }
  r->count++;
  r->errors += (row->flags & SPAN_ERROR) != 0;
  r->total_ns += ns;
  r->self_ns += ns;
  r->min_ns = ns < r->min_ns ? ns : r->min_ns;
  r->max_ns = ns > r->max_ns ? ns : r->max_ns;
  s.histograms[i][histogram_bin((uint64_t)ns)]++;
}

/* A span that is open from now on; end it with `done`. */
static struct span_row span(enum span_kind kind, const char *text, uint64_t parent, int64_t index) {
  return (struct span_row){.id = s.next++,
                           .parent = parent,
                           .start_ns = s.now,
                           .index = index,
                           .cpu_ns = SPAN_NO_TIME,
                           .gpu_ns = SPAN_NO_TIME,
                           .name = name(text),
                           .tid = s.tid,
                           .kind = (uint8_t)kind};
}

static void done(struct span_row *row) {
  row->end_ns = s.now;
  s.rows[s.n++] = *row;
  s.spans++;
  roll_up(row);
  if (s.n == BLOCK_MAX)
    flush(true);
}

static void leave_open(const struct span_row *row) {
  s.open[s.open_count++] = *row;
}

static int64_t leaf(enum span_kind kind, const char *text, const char *module, uint64_t parent, int64_t ns) {
  struct span_row row = span(kind, text, parent, SPAN_NO_INDEX);
  row.module = name(module);
  row.flags = kind == SPAN_FORWARD ? SPAN_MODE_TRAIN : 0;
  s.now += ns;
  done(&row);
  return ns;
}

static void mark_row(uint64_t on, const char *text, struct mark_row row) {
  row.id = s.next++;
  row.span = on;
  row.name = row.name ? row.name : name(text);
  row.ts_ns = s.now;
  OK(store_mark(store, s.sid, &row));
  s.marks++;
}

static void mark(uint64_t on, const char *text, double value) {
  mark_row(on, text, (struct mark_row){.type = MARK_FLOAT, .f = value});
}

/* A training step; data_ns and so on are the lengths of its phases, one more for what is between them. */
static uint64_t step(uint64_t parent, uint64_t epoch, int64_t index, const int64_t phase_ns[5], double loss) {
  struct span_row row = span(SPAN_STEP, "step", parent, index);
  leaf(SPAN_DATA_LOAD, "data_load", NULL, row.id, phase_ns[0]);
  leaf(SPAN_FORWARD, "forward", "ResNet", row.id, phase_ns[1]);
  mark(row.id, "loss", loss);
  leaf(SPAN_BACKWARD, "backward", NULL, row.id, phase_ns[2]);
  leaf(SPAN_OPTIMIZER, "optimizer_step", "SGD", row.id, phase_ns[3]);
  s.now += phase_ns[4];
  done(&row);
  struct step_row r = {.span = row.id,
                       .parent = parent,
                       .epoch = epoch,
                       .index = index,
                       .start_ns = row.start_ns,
                       .end_ns = row.end_ns,
                       .cpu_ns = SPAN_NO_TIME,
                       .gpu_ns = SPAN_NO_TIME,
                       .rank = s.rank,
                       .tid = s.tid};
  for (int i = 0; i < 4; i++) {
    r.phase_ns[i] = phase_ns[i];
    r.phase_count[i] = 1;
  }
  OK(store_step(store, s.sid, &r));
  return row.id;
}

static void finish(const char *state, int exit_code, int exit_signal, const char *dropped, int64_t dropped_total) {
  struct span_row root = {.id = SPAN_ROOT,
                          .start_ns = START_NS,
                          .index = SPAN_NO_INDEX,
                          .cpu_ns = SPAN_NO_TIME,
                          .gpu_ns = SPAN_NO_TIME,
                          .name = name("cirron.session"),
                          .tid = s.tid,
                          .kind = SPAN_SESSION};
  bool running = strcmp(state, "running") == 0;
  if (exit_signal || running)
    leave_open(&root);
  else
    done(&root);
  flush(false);
  if (s.open_count)
    OK(store_open_spans(store, s.sid, s.open, s.open_count));
  for (size_t i = 0; i < s.rollups_count; i++) {
    s.rollups[i].histogram = s.histograms[i];
    OK(store_rollup(store, s.sid, &s.rollups[i]));
  }
  const struct session_state end = {.state = state,
                                    .end_ns = running ? 0 : s.now,
                                    .last_ns = s.now,
                                    .exit_code = exit_code,
                                    .exit_signal = exit_signal,
                                    .spans = s.spans,
                                    .marks = s.marks,
                                    .emitted_spans = s.spans + dropped_total,
                                    .emitted_marks = s.marks,
                                    .dropped_json = dropped,
                                    .dropped_total = dropped_total,
                                    .overhead_ns = 1234567};
  OK(store_session_update(store, s.sid, &end));
}

static const int64_t usual[5] = {30 * MS, 20 * MS, 40 * MS, 8 * MS, 2 * MS};

static void evaluation(uint64_t parent, int64_t index) {
  struct span_row eval = span(SPAN_EVAL, "eval", parent, index);
  s.epoch = eval.id;
  for (int i = 0; i < 5; i++) {
    leaf(SPAN_DATA_LOAD, "data_load", NULL, eval.id, 10 * MS);
    leaf(SPAN_FORWARD, "forward", "ResNet", eval.id, 20 * MS);
  }
  done(&eval);
  OK(store_epoch(store, s.sid, &eval, s.rank));
}

/* `stop`: the number of the step, counted through, in whose forward the process is left; -1: none. */
static void train(int64_t data_ns, int64_t stop) {
  s.now += 3000 * MS;
  int64_t number = 0;
  for (int64_t e = 0; e < 3; e++) {
    struct span_row epoch = span(SPAN_EPOCH, "epoch", SPAN_ROOT, e);
    s.epoch = epoch.id;
    for (int64_t i = 0; i < 20; i++, number++) {
      int64_t phases[5];
      memcpy(phases, usual, sizeof phases);
      phases[0] = number == 33 ? 900 * MS : data_ns;
      phases[1] += number == 0 ? 1500 * MS : i * MS / 10; /* warm-up; and each step of another length */
      if (number == stop) {
        struct span_row row = span(SPAN_STEP, "step", epoch.id, number);
        leaf(SPAN_DATA_LOAD, "data_load", NULL, row.id, data_ns);
        struct span_row forward = span(SPAN_FORWARD, "forward", row.id, SPAN_NO_INDEX);
        forward.module = name("ResNet");
        s.now += 5 * MS;
        epoch.end_ns = 0;
        OK(store_epoch(store, s.sid, &epoch, s.rank));
        leave_open(&epoch);
        leave_open(&row);
        leave_open(&forward);
        return;
      }
      step(epoch.id, epoch.id, number, phases, number >= 50 ? NAN : 2.5 - (double)number / 32);
    }
    evaluation(epoch.id, e);
    mark(epoch.id, "val_acc", 0.5 + (double)e / 10);
    s.epoch = SPAN_ROOT;
    done(&epoch);
    OK(store_epoch(store, s.sid, &epoch, s.rank));
    s.next += room;
    s.now += 50 * MS;
  }
  s.now += 200 * MS;
}

static void scopes(void) {
  struct span_row outer = span(SPAN_USER, "outer", SPAN_ROOT, SPAN_NO_INDEX);
  for (int i = 0; i < 100; i++) {
    struct span_row row = span(SPAN_USER, "work", outer.id, i);
    s.now += (i == 42 ? 500 : 10 + i % 7) * MS;
    if (i == 70) {
      row.flags = SPAN_ERROR;
      row.exception = name("ValueError");
    }
    row.attrs = i == 3 ? "{\"tag\":\"a b\",\"n\":[1,2]}" : i == 4 ? "{broken" : NULL;
    row.attrs_len = row.attrs ? (uint32_t)strlen(row.attrs) : 0;
    done(&row);
  }
  mark_row(outer.id, "flag", (struct mark_row){.type = MARK_BOOL, .i = 1});
  mark_row(outer.id, "note", (struct mark_row){.type = MARK_STRING, .text = "two words", .text_len = 9});
  mark_row(outer.id, "count",
           (struct mark_row){.type = MARK_INT, .i = INT64_MIN, .summary = true, .attrs = "{\"k\":1}", .attrs_len = 7});
  mark(outer.id, "inf", -INFINITY);
  done(&outer);
}

static void hostile_names(void) {
  static const struct {
    const char *text;
    size_t len;
  } names[] = {{"", 0},
               {"two\nlines", 9},
               {"\033[31mred\033[0m", 12},
               {"zero\0byte", 9},
               {"tab\tquote\"comma,back\\slash", 26},
               {"\xe2\x80\xaeright to left", 16},
               {"\xc3\xbc\xe6\xbc\xa2\xf0\x9f\x98\x80", 9},
               {"bad \xff\xfe", 6},
               {"\xc2\x9b"
                "31mC1",
                7}};
  char longest[3000];
  memset(longest, 'x', sizeof longest);
  for (size_t i = 0; i < 10; i++) {
    struct span_row row = span(SPAN_USER, NULL, SPAN_ROOT, SPAN_NO_INDEX);
    row.name = i < 9 ? name_len(names[i].text, names[i].len) : name_len(longest, sizeof longest);
    mark_row(row.id, NULL,
             (struct mark_row){.name = row.name,
                               .type = MARK_STRING,
                               .text = i < 9 ? names[i].text : longest,
                               .text_len = i < 9 ? names[i].len : sizeof longest});
    s.now += MS;
    done(&row);
  }
}

static void keras(void) {
  for (int64_t e = 0; e < 2; e++) {
    struct span_row epoch = span(SPAN_EPOCH, "epoch", SPAN_ROOT, e);
    s.epoch = epoch.id;
    for (int64_t i = 0; i < 4; i++) {
      struct span_row row = span(SPAN_BATCH, "batch", epoch.id, i);
      s.now += 100 * MS;
      done(&row);
    }
    s.epoch = 0;
    done(&epoch);
    OK(store_epoch(store, s.sid, &epoch, -1));
  }
}

static void big(int64_t spans) {
  int64_t phases[5];
  struct span_row epoch = span(SPAN_EPOCH, "epoch", SPAN_ROOT, 0);
  s.epoch = epoch.id;
  for (int64_t i = 0; s.spans + 5 < spans; i++) {
    memcpy(phases, usual, sizeof phases);
    phases[0] += i * 7919 % 1000 * 1000;
    step(epoch.id, epoch.id, i, phases, 1.0 / (double)(i + 1));
    if (i % 10000 == 0)
      OK(store_commit(store));
  }
  done(&epoch);
  OK(store_epoch(store, s.sid, &epoch, -1));
}

/* Parents that are not there, and two spans that are each other's. */
static void loop(void) {
  struct span_row lost = span(SPAN_USER, "lost", 999, SPAN_NO_INDEX);
  s.now += MS;
  done(&lost);
  struct span_row a = span(SPAN_USER, "a", s.next + 1, SPAN_NO_INDEX);
  struct span_row b = span(SPAN_USER, "b", a.id, SPAN_NO_INDEX);
  s.now += MS;
  done(&a);
  done(&b);
}

int main(int argc, char **argv) {
  static const char python[] = "[\"python\",\"train.py\",\"--epochs\",\"3\"]";
  static const char hostile[] = "[\"python\",\"\\u001b[2J\\n\",\"two words\",\"\"]";
  char why[512];
  if (argc < 3) {
    fputs("usage: make_store PATH SCENARIO [NUMBER]\n", stderr);
    return 2;
  }
  const char *what = argv[2];
  int rc = store_open(argv[1], &store, why, sizeof why);
  if (rc) {
    fprintf(stderr, "make_store: %s\n", why);
    return 1;
  }
  if (strcmp(what, "tensors") == 0 || strcmp(what, "shards") == 0) {
    what = strcmp(what, "tensors") == 0 ? "train" : "ranks";
    room = 4096;
  }
  if (strcmp(what, "ranks") == 0) {
    begin(0x1000000000000001, python, 1, 2);
    train(60 * MS, -1);
    finish("finished", 0, 0, "{}", 0);
    s.now = START_NS + 100 * MS;
    begin(0x1000000000000002, python, 0, 2);
    train(5 * MS, -1);
    finish("finished", 0, 0, "{}", 0);
  } else if (strcmp(what, "empty") != 0) {
    begin(0xabcdef0123456789, strcmp(what, "names") == 0 ? hostile : python, -1, -1);
    if (strcmp(what, "train") == 0)
      train(60 * MS, -1);
    else if (strcmp(what, "killed") == 0 || strcmp(what, "running") == 0)
      train(5 * MS, 17);
    else if (strcmp(what, "lossy") == 0)
      train(1 * MS, -1);
    else if (strcmp(what, "evalonly") == 0)
      evaluation(SPAN_ROOT, 0);
    else if (strcmp(what, "scopes") == 0)
      scopes();
    else if (strcmp(what, "names") == 0)
      hostile_names();
    else if (strcmp(what, "keras") == 0)
      keras();
    else if (strcmp(what, "loop") == 0)
      loop();
    else if (strcmp(what, "big") == 0)
      big(argc > 3 ? atoll(argv[3]) : 1000000);
    else
      return fprintf(stderr, "make_store: no scenario %s\n", what), 2;
    if (strcmp(what, "killed") == 0)
      finish("killed", -1, 9, "{}", 0);
    else if (strcmp(what, "running") == 0)
      finish("running", -1, 0, "{}", 0);
    else if (strcmp(what, "lossy") == 0)
      finish("finished", 7, 0, "{\"spans_ring_full\":12,\"marks_refused\":3}", 15);
    else
      finish("finished", 0, 0, "{}", 0);
  }
  OK(store_commit(store));
  store_close(store);
  return 0;
}
