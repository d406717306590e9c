/* See keep.h.
 *
 * The memory is one private mapping, touched page by page as it fills, and wiped by the system in the child of a fork, which so costs
 * neither process a copy. A record does not wrap: what is left at the end of a log becomes a gap.
 */
#include "keep.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "hot.h"

#define SPINS 100
#define LOOKS 8 /* at what is overwritten faster than it can be copied */
#define HEAD_BYTES offsetof(struct keep_record, as)

struct log {
  uint8_t *at;
  size_t size;
  _Atomic uint64_t head, tail;
  _Atomic uint64_t spans, evicted; /* evicted: of what the log is for */
};

static struct log logs[KEEP_LOGS] = {
    [KEEP_SPANS] = {.size = KEEP_SPANS_BYTES},
    [KEEP_POINTS] = {.size = KEEP_POINTS_BYTES},
    [KEEP_SUMMARIES] = {.size = KEEP_SUMMARIES_BYTES},
};
HOT_DATA _Atomic bool keep_on;
static _Atomic uint64_t limit = KEEP_MAX_SPANS;
static atomic_flag lock = ATOMIC_FLAG_INIT;     /* protects writing to the logs; a leaf */
static atomic_flag starting = ATOMIC_FLAG_INIT; /* one of several who ask first */

static void lock_take(void) {
  for (unsigned spins = 0; atomic_flag_test_and_set_explicit(&lock, memory_order_acquire);)
    if (++spins % SPINS == 0)
      sched_yield();
}

static void lock_drop(void) {
  atomic_flag_clear_explicit(&lock, memory_order_release);
}

static bool map(void) {
  uint8_t *memory = mmap(NULL, KEEP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return false;
  (void)madvise(memory, KEEP_BYTES, MADV_NOHUGEPAGE); /* what is not used is not to be there */
  (void)madvise(memory, KEEP_BYTES, MADV_WIPEONFORK); /* an old kernel: forks copy what is written afterwards */
  for (unsigned i = 0; i < KEEP_LOGS; i++) {
    logs[i].at = memory;
    memory += logs[i].size;
  }
  return true;
}

bool keep_start(void) {
  if (atomic_load_explicit(&keep_on, memory_order_acquire))
    return true;
  int saved = errno;
  while (atomic_flag_test_and_set_explicit(&starting, memory_order_acquire))
    sched_yield();
  bool first = !atomic_load(&keep_on);
  if (first)
    atomic_store_explicit(&keep_on, map(), memory_order_release);
  bool on = atomic_load(&keep_on);
  if (first && on)
    keep_recall();
  atomic_flag_clear_explicit(&starting, memory_order_release);
  errno = saved;
  return on;
}

void keep_forget(void) {
  atomic_flag_clear(&lock); /* a thread that is not here may have held it */
  if (atomic_flag_test_and_set(&starting) && !atomic_load(&keep_on))
    for (unsigned i = 0; i < KEEP_LOGS; i++)
      logs[i].at = NULL; /* half made */
  atomic_flag_clear(&starting);
  for (unsigned i = 0; i < KEEP_LOGS; i++) {
    atomic_store(&logs[i].head, 0);
    atomic_store(&logs[i].tail, 0);
    atomic_store(&logs[i].spans, 0);
    atomic_store(&logs[i].evicted, 0);
  }
}

/* --- writing --- */

static struct keep_record *record_at(const struct log *log, uint64_t pos) {
  return (struct keep_record *)(void *)(log->at + pos % log->size);
}

static uint64_t load(const _Atomic uint64_t *value) {
  return atomic_load_explicit(value, memory_order_relaxed);
}

static void store(_Atomic uint64_t *to, uint64_t value) {
  atomic_store_explicit(to, value, memory_order_relaxed);
}

static void evict(struct log *log) {
  uint64_t tail = load(&log->tail), head = load(&log->head);
  const struct keep_record *oldest = record_at(log, tail);
  bool gap = oldest->tid == KEEP_GAP;
  if (oldest->bytes == 0 || oldest->bytes > head - tail) { /* the memory was wiped: somebody forked without a word */
    store(&log->tail, head);
    store(&log->spans, 0);
    return;
  }
  store(&log->tail, tail + oldest->bytes);
  if (gap || oldest->as.type == RING_MOVE)
    return;
  store(&log->evicted, load(&log->evicted) + 1);
  if (oldest->as.type == RING_SPAN)
    store(&log->spans, load(&log->spans) - 1);
}

/* Room for so many bytes in a row, at head. */
static void make_room(struct log *log, size_t bytes) {
  while (log->size - (load(&log->head) - load(&log->tail)) < bytes)
    evict(log);
  atomic_thread_fence(memory_order_release); /* a reader that sees what is written next sees the tail moved */
}

static void skip_end(struct log *log, size_t bytes) {
  uint64_t head = load(&log->head);
  size_t rest = log->size - head % log->size;
  if (bytes <= rest)
    return;
  make_room(log, rest);
  struct keep_record *gap = record_at(log, head);
  gap->bytes = (uint32_t)rest;
  gap->tid = KEEP_GAP;
  atomic_store_explicit(&log->head, head + rest, memory_order_release);
}

static void append(struct log *log, const struct keep_record *start, size_t cell_bytes, const void *cell, const char *a,
                   const char *b) {
  skip_end(log, start->bytes);
  make_room(log, start->bytes);
  struct keep_record *r = record_at(log, load(&log->head));
  memcpy(r, start, HEAD_BYTES);
  memcpy((char *)r + HEAD_BYTES, cell, cell_bytes);
  if (start->a_len)
    memcpy(r + 1, a, start->a_len);
  if (start->b_len)
    memcpy((char *)(r + 1) + start->a_len, b, start->b_len);
  atomic_store_explicit(&log->head, load(&log->head) + start->bytes, memory_order_release);
}

static struct log *log_for(const uint8_t *cell) {
  if (*cell != RING_MARK)
    return &logs[KEEP_SPANS];
  return &logs[((const struct ring_mark *)(const void *)cell)->flags & MARK_SUMMARY ? KEEP_SUMMARIES : KEEP_POINTS];
}

/* Spans that are kept at most. */
static uint64_t most(void) {
  return load(&limit) > KEEP_MAX_SPANS ? load(&limit) : KEEP_MAX_SPANS;
}

__attribute__((noinline)) void keep_put(const void *cell, uint32_t tid, const char *a, size_t a_len, const char *b,
                                        size_t b_len) {
  uint8_t type = *(const uint8_t *)cell;
  struct log *log = log_for(cell);
  size_t cell_bytes = type == RING_MOVE ? offsetof(struct ring_move, pad2) : RING_CELL;
  size_t bytes = (HEAD_BYTES + cell_bytes + a_len + b_len + 7) & ~(size_t)7;
  struct keep_record start = {.bytes = (uint32_t)bytes, .tid = tid, .a_len = (uint32_t)a_len, .b_len = (uint32_t)b_len};
  lock_take();
  if (type == RING_SPAN) {
    while (load(&log->spans) >= most())
      evict(log);
    store(&log->spans, load(&log->spans) + 1);
  }
  append(log, &start, cell_bytes, cell, a, b);
  lock_drop();
}

/* --- reading --- */

static void copy_out(const struct log *log, uint64_t pos, uint8_t *to, size_t n) {
  size_t at = pos % log->size, first = log->size - at < n ? log->size - at : n;
  memcpy(to, log->at + at, first);
  memcpy(to + first, log->at, n - first);
}

/* How many of the bytes are whole records. */
static size_t whole(const uint8_t *buf, size_t bytes) {
  size_t at = 0;
  while (bytes - at >= offsetof(struct keep_record, a_len)) {
    const struct keep_record *r = (const struct keep_record *)(const void *)(buf + at);
    if (r->bytes < offsetof(struct keep_record, a_len) || r->bytes > bytes - at)
      break;
    at += r->bytes;
  }
  return at;
}

static void pass_over(uint64_t *pos, uint64_t to, uint64_t *lost) {
  if (*pos >= to)
    return;
  if (lost)
    *lost += to - *pos;
  *pos = to;
}

/* One look. False: all of it was overwritten meanwhile. */
static bool look(const struct log *log, uint64_t *pos, uint8_t *buf, size_t size, uint64_t *lost, size_t *got) {
  uint64_t head = atomic_load_explicit(&log->head, memory_order_acquire);
  pass_over(pos, atomic_load_explicit(&log->tail, memory_order_acquire), lost);
  size_t n = head <= *pos ? 0 : head - *pos < size ? (size_t)(head - *pos) : size;
  copy_out(log, *pos, buf, n);
  atomic_thread_fence(memory_order_acquire);
  uint64_t begin = *pos;
  pass_over(pos, load(&log->tail), lost);
  size_t gone = *pos - begin < n ? (size_t)(*pos - begin) : n;
  memmove(buf, buf + gone, n - gone);
  *got = whole(buf, n - gone);
  *pos += *got;
  return gone < n || n == 0;
}

size_t keep_read(enum keep_log log, uint64_t *pos, void *buf, size_t size, uint64_t *lost) {
  size_t n = 0;
  if (atomic_load_explicit(&keep_on, memory_order_acquire))
    for (unsigned tries = 0; !look(&logs[log], pos, buf, size, lost, &n) && tries < LOOKS; tries++)
      ;
  return n;
}

const struct keep_record *keep_next(const void *buf, size_t bytes, size_t *at) {
  while (*at < bytes) {
    const struct keep_record *r = (const struct keep_record *)(const void *)((const uint8_t *)buf + *at);
    *at += r->bytes;
    if (r->tid != KEEP_GAP)
      return r;
  }
  return NULL;
}

void keep_limit_set(uint64_t spans) {
  store(&limit, spans);
}

uint64_t keep_limit(void) {
  return load(&limit);
}

size_t keep_shown(const void *buf, size_t bytes) {
  const struct keep_record *r;
  uint64_t spans = 0, shown = keep_limit();
  for (size_t at = 0; (r = keep_next(buf, bytes, &at));)
    spans += r->as.type == RING_SPAN;
  size_t begin = 0;
  for (size_t at = 0; spans > shown && (r = keep_next(buf, bytes, &at)); begin = at)
    spans -= r->as.type == RING_SPAN;
  return begin;
}

uint64_t keep_lost(enum keep_log log, uint64_t pos) {
  uint64_t tail = load(&logs[log].tail);
  return tail > pos ? tail - pos : 0;
}

uint64_t keep_head(enum keep_log log) {
  return atomic_load_explicit(&logs[log].head, memory_order_acquire);
}

struct keep_counts keep_counts(void) {
  struct keep_counts c = {.spans = load(&logs[KEEP_SPANS].spans), .evicted_spans = load(&logs[KEEP_SPANS].evicted)};
  if (c.spans > keep_limit()) {
    c.evicted_spans += c.spans - keep_limit();
    c.spans = keep_limit();
  }
  c.evicted_marks = load(&logs[KEEP_POINTS].evicted) + load(&logs[KEEP_SUMMARIES].evicted);
  for (unsigned i = 0; i < KEEP_LOGS; i++)
    c.bytes += load(&logs[i].head) - load(&logs[i].tail);
  return c;
}
