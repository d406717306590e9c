// links: collectord/store.c collectord/store_block.c collectord/store_checkpoint.c collectord/store_lock.c collectord/store_erase.c collectord/store_migrate.c collectord/store_open.c collectord/store_rows.c collectord/store_snapshots.c collectord/store_sql.c collectord/schema.c collectord/utf8.c proto/block.c proto/erase.c proto/histogram.c tools/spans.c tools/spans_each.c tools/spans_moves.c tools/spans_names.c tools/vtab_args.c tools/vtab_spans.c
/* What the store costs, as ratios within one run: blocks against a prepared row INSERT, and queries over blocks.
 *
 *   store_bench [FOLDER [MILLIONS OF SPANS]]     default: /tmp 10
 *
 * The spans are made up: 50 a step in five phases, 50 names, jittered lengths, dense ids, one thread. Real ones take more room.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "collectord/store.h"
#include "proto/histogram.h"
#include "proto/ring_abi.h"
#include "tools/spans.h"
#include "tools/vtab_spans.h"

/* -DBENCH_CLOCK=CLOCK_PROCESS_CPUTIME_ID on a machine that others use, too. */
#ifndef BENCH_CLOCK
#define BENCH_CLOCK CLOCK_MONOTONIC
#endif

enum { NAMES = 50, SPANS_A_STEP = 50, ROWS_A_TRANSACTION = 10000, SLOWEST = 20 };

static double now(void) {
  struct timespec t;
  clock_gettime(BENCH_CLOCK, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const char *what, int rc) {
  fprintf(stderr, "store_bench: %s: %s\n", what, strerror(rc < 0 ? -rc : EIO));
  exit(1);
}

static uint64_t seed = 42;

static uint64_t random64(void) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed * 0x2545f4914f6cdd1dull;
}

/* The next span of the made-up training, in the order in which spans end: children before their step. */
struct maker {
  uint64_t id, step_id;
  int64_t clock_ns, step_start_ns, step;
  int at;
};

static void make(struct maker *m, struct span_row *row) {
  if (!m->at) {
    m->step_id = m->id + 1;
    m->step_start_ns = m->clock_ns;
  }
  *row = (struct span_row){.index = SPAN_NO_INDEX, .cpu_ns = SPAN_NO_TIME, .gpu_ns = SPAN_NO_TIME, .tid = 4242};
  if (++m->at < SPANS_A_STEP) {
    int64_t length = 2000 + (int64_t)(random64() % 60000) * (1 + m->at % 7);
    row->id = ++m->id + 1;
    row->parent = m->step_id;
    row->name = 1 + (uint32_t)(m->at % NAMES);
    row->kind = (uint8_t)(SPAN_DATA_LOAD + m->at % 4);
    row->module = row->kind == SPAN_FORWARD ? 51 : 0;
    row->start_ns = m->clock_ns;
    row->end_ns = m->clock_ns + length;
    m->clock_ns += length + (int64_t)(random64() % 3000);
    return;
  }
  row->id = m->step_id;
  m->id = m->step_id + SPANS_A_STEP - 1;
  row->parent = 2;
  row->name = NAMES;
  row->kind = SPAN_STEP;
  row->index = m->step++;
  row->start_ns = m->step_start_ns;
  row->end_ns = m->clock_ns;
  row->cpu_ns = (m->clock_ns - m->step_start_ns) * 9 / 10;
  m->at = 0;
}

static struct maker maker_new(void) {
  return (struct maker){.id = 2, .clock_ns = 1700000000000000000};
}

static double megabytes(const char *path) {
  struct stat st;
  return stat(path, &st) ? 0 : (double)st.st_size / 1e6;
}

/* ---- ingest ---- */

static double blocks_write(const char *path, size_t n, double *bytes) {
  static struct span_row rows[BLOCK_MAX];
  struct store *store;
  struct maker maker = maker_new();
  char why[300], text[16];
  int64_t sid;
  double spent = 0;
  int rc = store_open(path, &store, why, sizeof why);
  if (rc)
    die(why, rc);
  uint32_t name;
  for (int i = 1; i <= NAMES + 1; i++)
    if ((rc = store_name(store, text, (size_t)snprintf(text, sizeof text, "name %d", i), &name)))
      die("name", rc);
  if ((rc = store_session_add(store, &(struct session_row){.prefix = 1, .rank = -1}, &sid)))
    die("session", rc);
  for (size_t done = 0; done < n;) {
    size_t count = n - done < BLOCK_MAX ? n - done : BLOCK_MAX;
    for (size_t i = 0; i < count; i++)
      make(&maker, &rows[i]);
    double start = now();
    int64_t block = 0;
    rc = store_block_put(store, sid, rows, count, true, &block);
    done += count;
    if (!rc && (done / BLOCK_MAX % 30 == 0 || done == n)) /* about 120,000 spans a transaction: 250 ms at 500,000 a second */
      rc = store_ring_tail(store, sid, 1, done) ? -EIO : store_commit(store);
    if (rc)
      die("block", rc);
    spent += now() - start;
  }
  double start = now();
  store_close(store); /* what is in the WAL counts, too */
  spent += now() - start;
  *bytes = megabytes(path) * 1e6 / (double)n;
  return (double)n / spent;
}

static void sql(sqlite3 *db, const char *text) {
  if (sqlite3_exec(db, text, NULL, NULL, NULL)) {
    fprintf(stderr, "store_bench: %s: %s\n", text, sqlite3_errmsg(db));
    exit(1);
  }
}

static double rows_write(const char *path, size_t n, double *bytes) {
  static struct span_row rows[ROWS_A_TRANSACTION];
  sqlite3 *db;
  sqlite3_stmt *s;
  struct maker maker = maker_new();
  double spent = 0;
  if (sqlite3_open(path, &db))
    die(path, -EIO);
  sql(db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
          "CREATE TABLE r(id INTEGER PRIMARY KEY, parent INTEGER, name INTEGER, kind INTEGER, flags INTEGER, start_ns INTEGER,"
          " dur_ns INTEGER, idx INTEGER, cpu_ns INTEGER, tid INTEGER, module INTEGER)");
  sqlite3_prepare_v3(db, "INSERT INTO r VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)", -1, SQLITE_PREPARE_PERSISTENT,
                     &s, NULL);
  for (size_t done = 0; done < n;) {
    size_t count = n - done < ROWS_A_TRANSACTION ? n - done : ROWS_A_TRANSACTION;
    for (size_t i = 0; i < count; i++)
      make(&maker, &rows[i]);
    double start = now();
    sql(db, "BEGIN");
    for (size_t i = 0; i < count; i++) {
      const struct span_row *r = &rows[i];
      sqlite3_bind_int64(s, 1, (int64_t)r->id);
      sqlite3_bind_int64(s, 2, (int64_t)r->parent);
      sqlite3_bind_int64(s, 3, r->name);
      sqlite3_bind_int64(s, 4, r->kind);
      sqlite3_bind_int64(s, 5, r->flags);
      sqlite3_bind_int64(s, 6, r->start_ns);
      sqlite3_bind_int64(s, 7, r->end_ns - r->start_ns);
      if (r->index == SPAN_NO_INDEX)
        sqlite3_bind_null(s, 8);
      else
        sqlite3_bind_int64(s, 8, r->index);
      if (r->cpu_ns == SPAN_NO_TIME)
        sqlite3_bind_null(s, 9);
      else
        sqlite3_bind_int64(s, 9, r->cpu_ns);
      sqlite3_bind_int64(s, 10, r->tid);
      sqlite3_bind_int64(s, 11, r->module);
      if (sqlite3_step(s) != SQLITE_DONE)
        die("insert", -EIO);
      sqlite3_reset(s);
    }
    sql(db, "COMMIT");
    spent += now() - start;
    done += count;
  }
  sqlite3_finalize(s);
  double start = now();
  sqlite3_close(db);
  spent += now() - start;
  *bytes = megabytes(path) * 1e6 / (double)n;
  return (double)n / spent;
}

static void codec(void) {
  static struct span_row rows[BLOCK_MAX];
  struct maker maker = maker_new();
  struct block block = {0};
  double encode = 0, decode = 0, some = 0, start;
  size_t bytes = 0, rounds = 200;
  for (size_t round = 0; round < rounds; round++) {
    uint8_t *data;
    size_t len;
    for (size_t i = 0; i < BLOCK_MAX; i++)
      make(&maker, &rows[i]);
    start = now();
    if (block_encode(rows, BLOCK_MAX, &data, &len))
      die("encode", -ENOMEM);
    encode += now() - start;
    start = now();
    if (block_decode(data, len, &block))
      die("decode", -EBADMSG);
    decode += now() - start;
    bytes += len;
    block_fini(&block);
    if (block_decode_columns(data, len, BLOCK_NAME | BLOCK_END, &block)) /* its memory is fresh: not timed */
      die("decode", -EBADMSG);
    start = now();
    if (block_decode_columns(data, len, BLOCK_NAME | BLOCK_END, &block))
      die("decode", -EBADMSG);
    some += now() - start;
    free(data);
  }
  double n = (double)rounds * BLOCK_MAX;
  printf("codec          encode %.1f ns/span, decode %.1f ns/span (with fresh memory), names and times only %.1f ns/span, %.2f "
         "bytes/span\n",
         encode / n * 1e9, decode / n * 1e9, some / n * 1e9, (double)bytes / n);
  block_fini(&block);
}

/* ---- queries ---- */

struct by_name {
  uint64_t count, total_ns;
  uint64_t *durations;
  size_t room;
  uint64_t histogram[HISTOGRAM_BINS];
};

static struct by_name names[NAMES + 2];

static int add_exact(const struct span_row *row, const struct spans_session *session, void *arg) {
  (void)session, (void)arg;
  struct by_name *n = &names[row->name];
  uint64_t duration = (uint64_t)spans_duration(row);
  if (n->count == n->room) {
    n->room = n->room ? 2 * n->room : 4096;
    n->durations = realloc(n->durations, n->room * sizeof *n->durations);
    if (!n->durations)
      return -ENOMEM;
  }
  n->durations[n->count++] = duration;
  n->total_ns += duration;
  return 0;
}

static int add_histogram(const struct span_row *row, const struct spans_session *session, void *arg) {
  (void)session, (void)arg;
  struct by_name *n = &names[row->name];
  uint64_t duration = (uint64_t)spans_duration(row);
  n->count++;
  n->total_ns += duration;
  n->histogram[histogram_bin(duration)]++;
  return 0;
}

static uint64_t nth(uint64_t *v, size_t n, size_t k) { /* the k-th smallest, by Hoare */
  size_t low = 0, high = n - 1;
  while (low < high) {
    uint64_t pivot = v[low + (high - low) / 2];
    size_t i = low, j = high;
    for (;;) {
      while (v[i] < pivot)
        i++;
      while (v[j] > pivot)
        j--;
      if (i >= j)
        break;
      uint64_t t = v[i];
      v[i++] = v[j];
      v[j--] = t;
    }
    if (k <= j)
      high = j;
    else
      low = j + 1;
  }
  return v[k];
}

static double by_name_exact(sqlite3 *db) {
  struct spans_filter filter = {.which = SPANS_CLOSED, .columns = BLOCK_NAME | BLOCK_END};
  double start = now();
  int rc = spans_each(db, &filter, add_exact, NULL);
  if (rc)
    die("query", rc);
  uint64_t check = 0;
  for (int i = 1; i <= NAMES; i++)
    if (names[i].count)
      check ^= nth(names[i].durations, names[i].count, names[i].count / 2) ^
               nth(names[i].durations, names[i].count, names[i].count * 99 / 100);
  double spent = now() - start;
  for (int i = 0; i < NAMES + 2; i++)
    free(names[i].durations);
  memset(names, 0, sizeof names);
  return check ? spent : -spent;
}

static double by_name_histogram(sqlite3 *db) {
  struct spans_filter filter = {.which = SPANS_CLOSED, .columns = BLOCK_NAME | BLOCK_END};
  double start = now();
  int rc = spans_each(db, &filter, add_histogram, NULL);
  if (rc)
    die("query", rc);
  double spent = now() - start;
  memset(names, 0, sizeof names);
  return spent;
}

static int count_row(const struct span_row *row, const struct spans_session *session, void *arg) {
  (void)row, (void)session;
  ++*(size_t *)arg;
  return 0;
}

static double slowest(sqlite3 *db) {
  struct spans_filter filter = {0};
  size_t count = 0;
  double start = now();
  int rc = spans_slowest(db, &filter, SLOWEST, count_row, &count);
  if (rc || count != SLOWEST)
    die("slowest", rc);
  return now() - start;
}

static double timed_sql(sqlite3 *db, const char *text) {
  double start = now();
  sql(db, text);
  return now() - start;
}

static double best_of(double (*query)(sqlite3 *), sqlite3 *db) {
  double best = 1e9;
  for (int i = 0; i < 3; i++) {
    double t = query(db);
    best = t < best ? t : best;
  }
  return best;
}

static void queries(const char *blocks, const char *rows, size_t n, size_t n_rows) {
  sqlite3 *db, *row_db;
  if (sqlite3_open_v2(blocks, &db, SQLITE_OPEN_READONLY, NULL) || vtab_spans_register(db) ||
      sqlite3_open_v2(rows, &row_db, SQLITE_OPEN_READONLY, NULL))
    die("open", -EIO);
  double scale = (double)n / 1e7;
  printf("query          by name, exact p50 and p99: %.3f s; by histogram: %.3f s; %d slowest: %.1f ms (%.1f M spans)\n",
         best_of(by_name_exact, db), best_of(by_name_histogram, db), SLOWEST, best_of(slowest, db) * 1e3, scale * 10);
  printf("table spans    count(*) %.3f s; name, count, sum(dur_ns) by name_id %.3f s; one span by its number %.2f ms;"
         " dur_ns above the 20 slowest's %.1f ms\n",
         timed_sql(db, "SELECT count(*) FROM spans"),
         timed_sql(db, "SELECT name_id, count(*), sum(dur_ns) FROM spans GROUP BY 1"),
         timed_sql(db, "SELECT * FROM spans WHERE span = 500000") * 1e3,
         timed_sql(db, "SELECT * FROM spans WHERE dur_ns > (SELECT max(max_dur_ns) - 100000 FROM block_meta)") * 1e3);
  double r = timed_sql(row_db, "SELECT name, count(*), sum(dur_ns) FROM r GROUP BY 1");
  printf("rows, plain    count, sum by name %.3f s (%.1f M rows; scaled to the same number %.3f s)\n", r, (double)n_rows / 1e6,
         r * (double)n / (double)n_rows);
  sqlite3_close(db);
  sqlite3_close(row_db);
}

int main(int argc, char **argv) {
  const char *folder = argc > 1 ? argv[1] : "/tmp";
  double millions = argc > 2 ? atof(argv[2]) : 10;
  size_t n = (size_t)(millions * 1e6), n_rows = n < 2000000 ? n : 2000000;
  char blocks[512], rows[512], lock[520];
  if (n < SLOWEST || strlen(folder) > 400) {
    fprintf(stderr, "usage: store_bench [FOLDER [MILLIONS OF SPANS]]\n");
    return 2;
  }
  snprintf(blocks, sizeof blocks, "%s/store_bench.%ld.blocks.db", folder, (long)getpid());
  snprintf(rows, sizeof rows, "%s/store_bench.%ld.rows.db", folder, (long)getpid());
  snprintf(lock, sizeof lock, "%s.lock", blocks);
  codec();
  double block_bytes, row_bytes;
  double row_rate = rows_write(rows, n_rows, &row_bytes);
  double block_rate = blocks_write(blocks, n, &block_bytes);
  printf("ingest, blocks %.2f M spans/s, %.2f bytes/span\n", block_rate / 1e6, block_bytes);
  printf("ingest, rows   %.2f M spans/s, %.2f bytes/span (prepared INSERT, %d a transaction, no secondary index)\n",
         row_rate / 1e6, row_bytes, ROWS_A_TRANSACTION);
  printf("ratio          %.1f times the spans a second, 1/%.1f of the bytes\n", block_rate / row_rate, row_bytes / block_bytes);
  queries(blocks, rows, n, n_rows);
  unlink(blocks);
  unlink(rows);
  unlink(lock);
  return 0;
}
