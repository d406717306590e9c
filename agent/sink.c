/* See sink.h.
 *
 * A batch is what came since the one before, in pieces of a bounded size; and again those spans of earlier ones whose parents a move
 * has changed since: readers let the later file win. How far back is looked for them is bounded, too.
 */
#include "sink.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "glibc.h"
#include "keep.h"
#include "keep_moves.h"
#include "link.h"
#include "root.h"
#include "segment.h"
#include "session.h"
#include "sink_open.h"
#include "spool.h"
#include "spool_snapshot.h"

#define SPANS_PART (1u << 20) /* of the log of spans, in one file: some 13,000 */
#define LOOK_BACK (2u << 20)
#define POINTS_PART (1u << 20)
#define SUMMARIES_PART (1u << 19)
#define MEMORY (SPANS_PART + LOOK_BACK + POINTS_PART + SUMMARIES_PART)
#define BOUNDS 64u     /* remembered ends of earlier batches */
#define SMALLER_MAX 4u /* pieces are halved so often where there is no room for a file */
#define SOON_PART 8u   /* of the interval: when one batch did not hold all */
#define PAUSE_MAX_NS 60000000000ull
#define WAIT_NS 1000000000ull
#define SNAPSHOTS_BYTES (64u << 20) /* of those that wait to be written */

_Atomic bool sink_lines_due;

static atomic_flag busy = ATOMIC_FLAG_INIT; /* protects everything below; held while a file is written */

static struct {
  struct spool spool;
  bool spool_on, lines_on;
  uint64_t interval_ns, pause_ns; /* pause: after a failure, growing; 0: none */
  uint64_t at[KEEP_LOGS];         /* what was written up to here */
  uint64_t bounds[BOUNDS];        /* positions between spans that were, ascending */
  unsigned bound_count;
  unsigned smaller;                                 /* so often they are, until all is written */
  struct spool_snapshot *snapshots, *last_snapshot; /* to be written */
  uint64_t snapshots_bytes, snapshots_lost;
  uint64_t lost;
  uint64_t latency_ns; /* of the last writing, one file or several */
} sink;

static bool take(void) {
  return !atomic_flag_test_and_set_explicit(&busy, memory_order_acquire);
}

static void give(void) {
  atomic_flag_clear_explicit(&busy, memory_order_release);
}

static bool take_waiting(void) {
  uint64_t until = clock_system() + WAIT_NS;
  while (!take()) {
    if (clock_system() > until)
      return false;
    sched_yield();
  }
  return true;
}

/* --- a batch --- */

/* Never Python's generator: a job's random numbers are its own. */
static void name_batch(struct spool_batch *b) {
  static uint64_t count;
  uint64_t random[2] = {b->prefix ^ ++count, b->created_ns ^ (uint64_t)b->pid << 40};
  (void)syscall(SYS_getrandom, random, sizeof random, 1 /* GRND_NONBLOCK */); /* refused: they differ all the same */
  snprintf(b->id, sizeof b->id, "%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
}

static void describe(struct spool_batch *b, const struct session *session) {
  struct env_ranks ranks = session_ranks();
  b->prefix = session->prefix;
  b->wall_minus_monotonic_ns = session->anchor_realtime_ns - session->anchor_monotonic_ns;
  b->created_ns = clock_system() + b->wall_minus_monotonic_ns; /* files stay in order, whatever the wall clock is set to */
  b->pid = getpid();
  b->rank = env_rank(&ranks);
  b->name = segment_text;
  name_batch(b);
}

static bool has_move(const void *buf, size_t bytes) {
  const struct keep_record *r;
  for (size_t at = 0; (r = keep_next(buf, bytes, &at));)
    if (r->as.type == RING_MOVE)
      return true;
  return false;
}

/* The earliest begin of a batch that is not too far back. */
static uint64_t look_back_to(uint64_t pos) {
  if (pos <= LOOK_BACK)
    return 0;
  for (unsigned i = 0; i < sink.bound_count; i++)
    if (pos - sink.bounds[i] <= LOOK_BACK)
      return sink.bounds[i];
  return pos;
}

/* New spans, and before them in the same memory those that were written already if a move may have changed them. */
static void read_spans(struct spool_batch *b, uint8_t *memory, uint64_t *pos, uint64_t *lost) {
  b->spans = memory;
  b->spans_bytes = keep_read(KEEP_SPANS, pos, memory, SPANS_PART >> sink.smaller, lost);
  if (!has_move(memory, b->spans_bytes))
    return;
  uint64_t end = *pos, from = look_back_to(sink.at[KEEP_SPANS]), again = from;
  size_t n =
      keep_read(KEEP_SPANS, &again, memory, end - from < SPANS_PART + LOOK_BACK ? end - from : SPANS_PART + LOOK_BACK, NULL);
  uint64_t first = again - n;
  b->spans_bytes = n;
  b->spans_from = first < sink.at[KEEP_SPANS] ? (size_t)(sink.at[KEEP_SPANS] - first) : 0;
  *pos = again;
  keep_moves_apply(memory, n, b->spans_from);
}

static void remember_bound(uint64_t pos) {
  if (sink.bound_count == BOUNDS) { /* every other one is enough for what is longer ago */
    for (unsigned i = 0; i < BOUNDS / 2; i++)
      sink.bounds[i] = sink.bounds[2 * i + 1];
    sink.bound_count = BOUNDS / 2;
  }
  sink.bounds[sink.bound_count++] = pos;
}

static void let_go_snapshots(void) {
  spool_snapshot_free(sink.snapshots);
  sink.snapshots = sink.last_snapshot = NULL;
  sink.snapshots_bytes = 0;
}

/* Says once that the spool cannot be written: what is not written is not in the files, but the job goes on. */
static void tell(int error) {
  if (env_told_of_output())
    return;
  env_complain("the spool %s cannot be written (%s): its files will be incomplete", sink.spool.folder, strerror(error));
}

/* One file at most. 0: that was all; -EAGAIN: there is more; else it could not be written. */
static int write_batch(const struct session *session, uint8_t *memory) {
  uint64_t at[KEEP_LOGS], lost = 0;
  char root[ROOT_ATTRS_BYTES];
  struct spool_batch b = {0};
  memcpy(at, sink.at, sizeof at);
  describe(&b, session);
  struct sink_open open = sink_open_read();
  read_spans(&b, memory, &at[KEEP_SPANS], &lost);
  sink_open_settle(&open, b.spans, b.spans_bytes);
  b.open = open.spans;
  b.open_count = open.count;
  b.root_attrs = root;
  b.root_attrs_len = sink_open_root_is_news(&open) ? root_attributes(root) : 0;
  b.snapshots = sink.snapshots;
  uint8_t *points = memory + SPANS_PART + LOOK_BACK, *summaries = points + POINTS_PART;
  b.marks[0] = points;
  b.marks_bytes[0] = keep_read(KEEP_POINTS, &at[KEEP_POINTS], points, POINTS_PART >> sink.smaller, &lost);
  b.marks[1] = summaries;
  b.marks_bytes[1] = keep_read(KEEP_SUMMARIES, &at[KEEP_SUMMARIES], summaries, SUMMARIES_PART >> sink.smaller, &lost);
  int r = spool_batch_count(&b) ? spool_write(&sink.spool, &b) : 0;
  if (r == 0)
    sink_open_told(&open);
  free(open.spans);
  if (r < 0)
    return r;
  let_go_snapshots();
  sink.lost += lost;
  memcpy(sink.at, at, sizeof at);
  remember_bound(at[KEEP_SPANS]);
  for (unsigned i = 0; i < KEEP_LOGS; i++)
    if (at[i] < keep_head((enum keep_log)i))
      return -EAGAIN;
  return 0;
}

/* A smaller file may have room where a large one has none. */
static bool try_smaller(int r) {
  if (r != -ENOSPC && r != -EDQUOT && r != -EFBIG)
    return false;
  return sink.smaller < SMALLER_MAX && ++sink.smaller;
}

/* Up to so many tries. As write_batch. */
static int write_batches(unsigned most) {
  const struct session *session = session_seen();
  if (!sink.spool_on || !session)
    return 0;
  uint8_t *memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return -ENOMEM;
  uint64_t began = clock_system();
  int r = -EAGAIN;
  for (unsigned i = 0; i < most && r == -EAGAIN; i++)
    r = write_batch(session, memory), r = try_smaller(r) ? -EAGAIN : r;
  if (r == 0)
    sink.smaller = 0;
  munmap(memory, MEMORY);
  sink.latency_ns = clock_system() - began;
  if (r < 0 && r != -EAGAIN)
    tell(-r);
  return r;
}

/* --- when --- */

static uint64_t next_after(int r, uint64_t now_ns) {
  if (r == -EAGAIN)
    return now_ns + sink.interval_ns / SOON_PART;
  if (r == 0) {
    sink.pause_ns = 0;
    return now_ns + sink.interval_ns;
  }
  sink.pause_ns = sink.pause_ns ? 2 * sink.pause_ns : 2 * sink.interval_ns;
  if (sink.pause_ns > PAUSE_MAX_NS)
    sink.pause_ns = PAUSE_MAX_NS;
  return now_ns + sink.pause_ns;
}

static void tick(uint64_t now_ns) {
  if (!take())
    return;
  uint64_t next = next_after(write_batches(1), now_ns);
  atomic_store(&link_also_ns, sink.spool_on || sink.lines_on ? next : UINT64_MAX);
  if (sink.lines_on)
    atomic_store_explicit(&sink_lines_due, true, memory_order_relaxed);
  give();
}

void sink_flush(void) {
  int saved = errno;
  if (take_waiting()) {
    (void)write_batches((KEEP_BYTES / SUMMARIES_PART) << SMALLER_MAX); /* what cannot be written is tried again, and counted */
    give();
  }
  errno = saved;
}

void sink_set(const struct sink_settings *settings) {
  int saved = errno;
  if (!take_waiting())
    return;
  sink.lines_on = settings->lines;
  sink.interval_ns = settings->interval_ns;
  env_tell_of_output_again();
  int r = settings->spool ? spool_init(&sink.spool, settings->folder, settings->max_bytes) : 0;
  sink.spool_on = settings->spool && r == 0;
  if (r < 0)
    env_complain("no spool in %s: %s", settings->folder, strerror(-r));
  atomic_store(&session_closing, sink_flush);
  atomic_store(&link_also, tick);
  atomic_store(&link_also_ns, sink.spool_on || sink.lines_on ? clock_system() + sink.interval_ns : UINT64_MAX);
  atomic_store(&link_due_ns, 0);
  give();
  errno = saved;
}

bool sink_wants_snapshots(void) {
  return sink.spool_on;
}

bool sink_snapshot(struct spool_snapshot *snapshot) {
  size_t bytes =
      snapshot->area.count * (sizeof(struct snapshot_entry) + sizeof(struct snapshot_result)) + snapshot->area.text_bytes;
  bool taken = take_waiting();
  if (taken && (!sink.spool_on || bytes > SNAPSHOTS_BYTES - sink.snapshots_bytes)) {
    sink.snapshots_lost += sink.spool_on;
    give();
    taken = false;
  }
  if (!taken) {
    spool_snapshot_free(snapshot);
    return false;
  }
  *(sink.last_snapshot ? &sink.last_snapshot->next : &sink.snapshots) = snapshot;
  sink.last_snapshot = snapshot;
  sink.snapshots_bytes += bytes;
  give();
  return true;
}

struct sink_counts sink_counts(void) {
  uint64_t lost = sink.lost;
  for (unsigned i = 0; i < KEEP_LOGS && sink.spool_on; i++)
    lost += keep_lost((enum keep_log)i, sink.at[i]);
  return (struct sink_counts){sink.spool_on ? sink.spool.folder : NULL,
                              sink.spool.bytes,
                              sink.spool.removed,
                              sink.spool.failures,
                              lost,
                              sink.snapshots_lost,
                              sink.latency_ns};
}

void sink_forget(void) {
  atomic_flag_clear(&busy); /* a thread that is not here may have held it */
  memset(sink.at, 0, sizeof sink.at);
  sink_open_forget();
  sink.bound_count = 0;
  sink.lost = sink.pause_ns = sink.snapshots_lost = sink.snapshots_bytes = 0;
  sink.snapshots = sink.last_snapshot = NULL; /* what there is belongs to the parent: its memory is not given back */
  sink.smaller = 0;
  sink.spool.is_known = sink.spool.known = sink.spool.at = 0;
  atomic_store(&sink_lines_due, false);
  if (sink.spool_on || sink.lines_on)
    atomic_store(&link_also_ns, clock_system() + sink.interval_ns);
}
