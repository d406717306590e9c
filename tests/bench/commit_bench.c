// links: collectord/ingest.c collectord/ingest_open.c collectord/ingest_write.c collectord/names.c collectord/tree.c collectord/rollup.c collectord/idmap.c collectord/text.c collectord/store.c collectord/store_block.c collectord/store_checkpoint.c collectord/store_lock.c collectord/store_erase.c collectord/store_migrate.c collectord/store_open.c collectord/store_rows.c collectord/store_snapshots.c collectord/store_sql.c collectord/store_takeover.c collectord/schema.c collectord/utf8.c proto/block.c proto/erase.c proto/histogram.c
/* What commits cost when many sessions write a little each: bytes written for each byte that stays, and how long a commit takes.
 *
 *   commit_bench [FOLDER]                                every mix of 1, 64, 256 sessions and 10, 100, 10,000 spans a second each
 *   commit_bench FOLDER SESSIONS RATE SECONDS [paced]    one of them; paced: a commit every 250 ms, as collectord does
 *
 * The way through the store is collectord's own (ingest, 250 ms a transaction, state of the session and ring tail included). Written is
 * what this process gave to write(), the checkpoints included.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "collectord/ingest.h"
#include "collectord/ring_reader.h"
#include "proto/store_abi.h"
#include "tests/support/ring_maker.h"

enum { COMMITS_A_SECOND = 4, SPANS_A_STEP = 5 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check(int rc, const char *what) {
  if (!rc)
    return;
  fprintf(stderr, "commit_bench: %s: %s\n", what, strerror(-rc));
  exit(1);
}

static double written(void) {
  char line[128];
  unsigned long long bytes = 0;
  FILE *f = fopen("/proc/self/io", "re");
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "wchar: %llu", &bytes) == 1)
      break;
  if (f)
    fclose(f);
  return (double)bytes;
}

struct source {
  struct ingest ingest;
  int64_t sid;
  uint64_t id, now_ns, step;
  int segment_fd;
  uint32_t names[SPANS_A_STEP];
};

static void source_init(struct source *s, struct store *store, uint64_t prefix) {
  static const char *const names[SPANS_A_STEP] = {"data_load", "forward", "backward", "optimizer_step", "step"};
  struct ring_segment *segment = maker_segment(prefix, &s->segment_fd);
  for (int i = 0; i < SPANS_A_STEP; i++)
    s->names[i] = maker_name(segment, names[i]);
  const struct ingest_origin origin = {.anchor_monotonic_ns = 1, .anchor_realtime_ns = 1700000000000000000, .rank = -1};
  check(ingest_init(&s->ingest, segment, &origin, store), "ingest");
  check(store_session_add(store, &(struct session_row){.prefix = prefix, .rank = -1, .start_ns = 1}, &s->sid), "session");
  s->id = SPAN_ROOT + 1;
  s->now_ns = 1000;
}

/* The next span: four phases, then the step around them. */
static void source_span(struct source *s, struct store *store) {
  static const uint8_t kinds[SPANS_A_STEP] = {SPAN_DATA_LOAD, SPAN_FORWARD, SPAN_BACKWARD, SPAN_OPTIMIZER, SPAN_STEP};
  static struct ring_record record;
  unsigned at = (unsigned)(s->id % SPANS_A_STEP);
  uint64_t length = 20000 + s->id * 2654435761u % 40000;
  record.span = (struct ring_span){.type = RING_SPAN,
                                   .kind = kinds[at],
                                   .name = s->names[at],
                                   .id = s->id,
                                   .parent = at == SPANS_A_STEP - 1 ? SPAN_ROOT : s->id - at + SPANS_A_STEP - 1,
                                   .start_ns = at == SPANS_A_STEP - 1 ? s->now_ns - 200000 : s->now_ns,
                                   .end_ns = s->now_ns + length,
                                   .index = at == SPANS_A_STEP - 1 ? (int64_t)s->step++ : SPAN_NO_INDEX,
                                   .cpu_ns = SPAN_NO_TIME};
  s->now_ns += length + 1000000;
  s->id++;
  check(ingest_record(&s->ingest, store, &record, 77), "record");
}

static void source_write(struct source *s, struct store *store) {
  if (!ingest_dirty(&s->ingest))
    return;
  check(ingest_write(&s->ingest, store, s->sid), "write");
  check(store_ring_tail(store, s->sid, 1, s->id), "tail");
  const struct session_state state = {.state = SESSION_RUNNING,
                                      .last_ns = s->ingest.last_ns,
                                      .exit_code = -1,
                                      .spans = s->ingest.spans,
                                      .emitted_spans = s->ingest.spans,
                                      .dropped_json = "{}"};
  check(store_session_update(store, s->sid, &state), "state");
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int64_t one_number(const char *path, const char *sql) {
  char line[600];
  snprintf(line, sizeof line, "sqlite3 '%s' \"%s\"", path, sql);
  FILE *f = popen(line, "r");
  long long n = -1;
  if (!f || fscanf(f, "%lld", &n) != 1)
    n = -1;
  if (f)
    pclose(f);
  return n;
}

static void run(const char *folder, int sessions, double rate, double seconds, bool paced) {
  char path[512], why[300], doomed[600];
  struct store *store;
  struct source *sources = calloc((size_t)sessions, sizeof *sources);
  int commits = (int)(seconds * COMMITS_A_SECOND);
  double *took = calloc((size_t)commits, sizeof *took), debt = 0;
  snprintf(path, sizeof path, "%s/commit_bench.%ld.db", folder, (long)getpid());
  if (!sources || !took || store_open(path, &store, why, sizeof why)) {
    fprintf(stderr, "commit_bench: %s\n", why);
    exit(1);
  }
  for (int i = 0; i < sessions; i++)
    source_init(&sources[i], store, (uint64_t)i + 1);
  check(store_commit(store), "commit");
  double before = written(), start = now(), spent = 0;
  for (int c = 0; c < commits; c++) {
    debt += rate / COMMITS_A_SECOND;
    int n = (int)debt;
    debt -= n;
    double begin = now();
    for (int i = 0; i < sessions; i++)
      for (int k = 0; k < n; k++)
        source_span(&sources[i], store);
    for (int i = 0; i < sessions; i++) {
      check(ingest_open_spans(&sources[i].ingest, store, NULL, 0), "open");
      check(ingest_prepare(&sources[i].ingest), "prepare");
    }
    double commit = now();
    for (int i = 0; i < sessions; i++)
      source_write(&sources[i], store);
    check(store_commit(store), "commit");
    took[c] = now() - commit;
    for (int i = 0; i < sessions; i++)
      ingest_committed(&sources[i].ingest);
    spent += now() - begin;
    double rest = start + (c + 1) / (double)COMMITS_A_SECOND - now();
    if (paced && rest > 0)
      nanosleep(&(struct timespec){(time_t)rest, (long)((rest - (double)(time_t)rest) * 1e9)}, NULL);
  }
  double bytes = written() - before, spans = 0;
  for (int i = 0; i < sessions; i++) {
    spans += (double)sources[i].ingest.spans;
    ingest_fini(&sources[i].ingest);
    close(sources[i].segment_fd);
  }
  struct stat wal;
  snprintf(doomed, sizeof doomed, "%s-wal", path);
  double wal_bytes = stat(doomed, &wal) ? 0 : (double)wal.st_size;
  store_close(store);
  double kept = (double)one_number(path, "SELECT sum(length(data)) FROM blocks");
  qsort(took, (size_t)commits, sizeof *took, ascending);
  printf("%4d x %6.0f/s  %9.0f spans  %6.1f bytes/span in blocks (%lld)  written %8.1f bytes/span (%.0f times)  commit median "
         "%.2f "
         "p99 %.2f worst %.2f ms  %.0f ns/span  WAL %.1f MB\n",
         sessions, rate, spans, kept / spans, (long long)one_number(path, "SELECT count(*) FROM blocks"), bytes / spans,
         bytes / kept, took[commits / 2] * 1e3, took[commits * 99 / 100] * 1e3, took[commits - 1] * 1e3, spent / spans * 1e9,
         wal_bytes / 1e6);
  fflush(stdout);
  static const char *const ends[] = {"", "-wal", "-shm", ".lock"};
  for (int i = 0; i < 4; i++) {
    snprintf(doomed, sizeof doomed, "%s%s", path, ends[i]);
    (void)unlink(doomed); /* some are not there */
  }
  free(sources);
  free(took);
}

int main(int argc, char **argv) {
  const char *folder = argc > 1 ? argv[1] : "/tmp";
  if (argc > 4) {
    run(folder, atoi(argv[2]), atof(argv[3]), atof(argv[4]), argc > 5);
    return 0;
  }
  static const int sessions[] = {1, 64, 256};
  static const double rates[] = {10, 100, 10000}, seconds[] = {200, 30, 3};
  for (int s = 0; s < 3; s++)
    for (int r = 0; r < 3; r++)
      run(folder, sessions[s], rates[r], seconds[r] / (sessions[s] == 256 ? 2 : 1), false);
  return 0;
}
