/* What was closed, kept in this process: for trace() and for the local sinks.
 *
 * Nothing is kept until somebody asks (keep_start). From then on each closed span, each mark and each move is copied into one of three
 * logs of fixed size, in the order in which they come; where there is no room the oldest make way. So the memory is bounded whatever
 * the job does, and each record costs the same.
 *
 *   tail ──► oldest record ... newest record ──► head       positions only grow; the byte lies at position % size
 *
 * Moves lie among the spans: a move that made way only concerned spans that did so before it.
 * Any thread may write; a spinlock is held for one copy. Reading takes no lock: what was overwritten meanwhile is left out.
 */
#ifndef CIRRON_KEEP_H
#define CIRRON_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../proto/ring_abi.h"

enum keep_log { KEEP_SPANS, KEEP_POINTS, KEEP_SUMMARIES, KEEP_LOGS };

#define KEEP_MAX_SPANS 100000u
#define KEEP_SPANS_BYTES (10u << 20)
#define KEEP_POINTS_BYTES (4u << 20)
#define KEEP_SUMMARIES_BYTES (3u << 19)
#define KEEP_BYTES (KEEP_SPANS_BYTES + KEEP_POINTS_BYTES + KEEP_SUMMARIES_BYTES) /* and no more than that, ever */

/* As in the logs, followed by the texts a and b and padding up to a multiple of 8. A move has neither. */
struct keep_record {
  uint32_t bytes; /* of all of it */
  uint32_t tid;   /* native thread; KEEP_GAP: nothing is in here */
  uint32_t a_len, b_len;
  union {
    uint8_t type; /* RING_SPAN (a: attributes), RING_MARK (a: text value, b: attributes), RING_MOVE */
    struct ring_span span;
    struct ring_mark mark;
    struct ring_move move;
  } as;
};
#define KEEP_GAP UINT32_MAX

static inline const char *keep_a(const struct keep_record *r) {
  return (const char *)(r + 1);
}
static inline const char *keep_b(const struct keep_record *r) {
  return (const char *)(r + 1) + r->a_len;
}

extern _Atomic bool keep_on;

/* Is anything to be kept? All that a process pays which has not asked. */
static inline bool keep_wanted(void) {
  return __builtin_expect(__atomic_load_n((const bool *)&keep_on, __ATOMIC_RELAXED), 0);
}

/* From now on records are kept; the first time also what the rings still hold of before (keep_recall.c). False: no memory. Any thread;
 * keeps errno. */
bool keep_start(void);

/* Copies a record and its texts (NULL where the length is 0). Any thread, also one that is ending; no system call. `cell` is a
 * ring_span, ring_mark or ring_move, by its type. */
void keep_put(const void *cell, uint32_t tid, const char *a, size_t a_len, const char *b, size_t b_len);

/* Copies whole records from position *pos on, as many as `size` holds, and moves *pos behind them. What was given up before it could be
 * read is passed over, and *lost (or NULL) grows by the bytes. Returns the bytes copied; 0: there are no more for now, or the next one is
 * larger than `size`. A reader's own memory; any thread. */
size_t keep_read(enum keep_log log, uint64_t *pos, void *buf, size_t size, uint64_t *lost);

/* The next record of what keep_read has copied, NULL at the end. *at begins with 0. Gaps are passed over. */
const struct keep_record *keep_next(const void *buf, size_t bytes, size_t *at);

/* How many closed spans trace() shows at most: the newest. Whoever else reads the logs has them all, so they are not emptied by it. More
 * than KEEP_MAX_SPANS make room for so many, as far as KEEP_SPANS_BYTES goes: some 130,000 without attributes. Any thread. */
void keep_limit_set(uint64_t spans);
uint64_t keep_limit(void);
/* Where in a copy of the whole log of spans those begin that are shown: a position for keep_next. */
size_t keep_shown(const void *buf, size_t bytes);

uint64_t keep_head(enum keep_log log); /* the position of what comes next */
/* How many bytes from position `pos` on were given up before they were read. */
uint64_t keep_lost(enum keep_log log, uint64_t pos);
struct keep_counts {
  uint64_t spans, bytes;                 /* kept at this moment; spans: that are shown */
  uint64_t evicted_spans, evicted_marks; /* gave way to newer ones; spans: or are not shown any more */
};
struct keep_counts keep_counts(void);

/* In the child of a fork: nothing of the parent's is left. Only async-signal-safe work. */
void keep_forget(void);

/* What the rings of this process hold is kept, too. Called by keep_start. */
void keep_recall(void);

#endif
