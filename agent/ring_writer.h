/* Producer side of a ring (proto/ring_abi.h). A ring is written by one thread at a time, without locks or system calls. */
#ifndef CIRRON_RING_WRITER_H
#define CIRRON_RING_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../proto/ring_abi.h"
#include "hot.h"

/* How far a ring was sent, where it is not shared: a position between two records, how many spans and marks lie before it, and which
 * thread wrote what follows. */
struct ring_progress {
  uint64_t cells, spans, marks;
  uint32_t tid;
};

struct ring {
  struct ring_header *shm;
  struct ring_open *open;
  uint8_t *cells;
  uint64_t head;      /* as published */
  uint64_t tail_seen; /* last look at the reader's tail */
  uint32_t mask;
  uint32_t ring_no;
  uint32_t slot_hint;
  int fd;            /* kept to hand the ring to another collector; -1 where there is none */
  uint64_t dev, ino; /* of fd, to see that it is still ours */
  bool attached;     /* the collector of the present connection has it; owned by link.c */
  bool renew;        /* atomic: the descriptor was lost, the writer has to call ring_renew; set by link.c */
  bool parted;       /* the descriptor was given up (ring_part) and is to be had again by ring_renew */
  bool in_use;       /* by a living thread */
  bool spare;        /* large, and only for what finds no room in a thread's own ring (outlet.h) */
  struct ring *next; /* all rings of the process, owned by session.c */
  /* Records go as messages. Called by the writer, now and then when a good part of the ring is not sent yet; NULL: the memory is
   * shared, nobody has to send anything. Atomic. */
  void (*hurry)(void);
  struct ring_progress sent, done; /* done: as shm->tail, which nobody else moves. Owned by pump.c; sent.cells is atomic */
  uint64_t told;                   /* what was said last of counters and open spans, as a hash; pump.c's */
};

/* A sealed memfd ring, prefaulted unless it is one of very many. Returns 0, or a negative errno. Where memfd_create is refused the
 * ring is private memory with fd -1. */
int ring_open(uint64_t session, uint32_t ring_no, uint32_t cells, struct ring *out);
/* A spare one: its memory is not populated, because most of it is never used. An error where there is no memfd. */
int ring_open_spare(uint64_t session, uint32_t ring_no, uint32_t cells, struct ring *out);
/* One that is not handed over: what is in it is sent by others, who are called by `hurry`. */
int ring_open_private(uint64_t session, uint32_t ring_no, uint32_t cells, bool spare, void (*hurry)(void), struct ring *out);
void ring_unmap(struct ring *ring); /* after a fork, in the child: unmaps, and closes the descriptor if it is ours */

/* The script closed the ring's descriptor: moves the ring's content to a new memfd at the same address, so that the next
 * connection can hand it over. Only for the ring's writer (ring_put and ring_claim_slot do it when `renew` is set), or when
 * nothing is written any more. Keeps errno. */
COLD void ring_renew(struct ring *ring);
void ring_renew_now(struct ring *ring); /* however many descriptors wait to be handed over */

/* Closes the descriptor: with hundreds of threads the job would run out of them. A collector that has the ring keeps it; another one
 * gets it after ring_renew. Not while the writer is at ring_renew (`renew` is set). */
#define RING_WAITING 32 /* descriptors beyond the many that wait to be handed over */
void ring_part(struct ring *ring);

/* Appends one record and its text (a, then b; either may be NULL), publishes it. False: no room, counted by the caller's kind
 * (emitted_... and dropped_... are kept here by the record's type). `structural` records may use the reserved cells.
 *   RING_SPAN: a is the attributes.   RING_MARK: a is the text value, b the attributes.   Others have no text.
 * text_cells and value_cells are set here. A text value over the limit is cut at a character; attributes that do not fit beside
 * it are left out whole, because cut JSON is none. */
bool ring_put(struct ring *ring, const void *cell, const char *a, size_t a_len, const char *b, size_t b_len, bool structural);

/* The same without counting anything. */
bool ring_append(struct ring *ring, const void *cell, const char *a, size_t a_len, const char *b, size_t b_len,
                 bool structural);

/* Gives the memory of a spare ring's cells back to the system. Only where all of them were read. Keeps errno. */
void ring_release_cells(struct ring *ring);

/* The same for a record without text, in place: the cell to fill (all 64 bytes), then ring_commit publishes it. NULL: no room. */
static inline void *ring_claim(struct ring *ring, uint8_t type, bool structural);
/* Without counting a drop: NULL, and the caller tries elsewhere or counts. */
static inline void *ring_try(struct ring *ring, uint8_t type, bool structural);
static inline void ring_commit(struct ring *ring) {
  ring->head++;
  __atomic_store_n(&ring->shm->head, ring->head, __ATOMIC_RELEASE);
}

/* Cells that text of this length takes, at most RING_TEXT_MAX_CELLS. */
unsigned ring_text_cells(size_t len);

/* A free slot of the open table, to be filled by relaxed atomic stores; ring_show_slot publishes it. NULL and slot -1 when all are
 * taken: the span is then seen only when it closes. */
static inline struct ring_open *ring_claim_slot(struct ring *ring, int16_t *slot);
static inline void ring_show_slot(struct ring_open *entry, uint64_t id);
static inline void ring_close_slot(struct ring *ring, int slot); /* accepts -1 */

/* What follows is inline because a span takes all of it, and a span is to cost little more than its two readings of the clock. */

bool ring_make_room(struct ring *ring, unsigned cells, bool structural); /* it seems full: looks at the reader's tail */
COLD int ring_find_slot(const struct ring *ring);                        /* the one that was freed last is taken again */

static inline void ring_count(uint64_t *counter) { /* the writer is the only one that adds */
  __atomic_store_n(counter, *counter + 1, __ATOMIC_RELAXED);
}

static inline void ring_count_emitted(struct ring_header *shm, uint8_t type) {
  if (type == RING_SPAN)
    ring_count(&shm->emitted_spans);
  else if (type == RING_MARK)
    ring_count(&shm->emitted_marks);
}

static inline void ring_count_dropped(struct ring_header *shm, uint8_t type) {
  if (type == RING_SPAN)
    ring_count(&shm->dropped_spans);
  else if (type == RING_MARK)
    ring_count(&shm->dropped_marks);
  else if (type == RING_MOVE)
    ring_count(&shm->dropped_moves);
}

static inline void ring_check_renew(struct ring *ring) {
  if (unlikely(__atomic_load_n(&ring->renew, __ATOMIC_RELAXED)))
    ring_renew(ring);
}

/* The room is reckoned with an old look at the reader's tail, which costs no cache miss, and looked up only when it seems full. */
static inline bool ring_has_room(struct ring *ring, unsigned cells, bool structural) {
  uint64_t need = cells + (structural ? 0 : RING_RESERVED);
  return !unlikely(ring->head - ring->tail_seen + need > (uint64_t)ring->mask + 1) || ring_make_room(ring, cells, structural);
}

static inline void *ring_try(struct ring *ring, uint8_t type, bool structural) {
  ring_check_renew(ring);
  ring_count_emitted(ring->shm, type);
  return ring_has_room(ring, 1, structural) ? ring->cells + (ring->head & ring->mask) * RING_CELL : NULL;
}

static inline void *ring_claim(struct ring *ring, uint8_t type, bool structural) {
  void *cell = ring_try(ring, type, structural);
  if (!cell)
    ring_count_dropped(ring->shm, type);
  return cell;
}

/* An open slot is read without a lock while it changes. It is filled between two stores of id, with a fence after the one that
 * frees it: a reader that sees the same id before and after its copy has seen one entry. */
static inline struct ring_open *ring_claim_slot(struct ring *ring, int16_t *slot) {
  ring_check_renew(ring);
  int found = (int)ring->slot_hint;
  if (unlikely(__atomic_load_n(&ring->open[found].id, __ATOMIC_RELAXED) != 0))
    found = ring_find_slot(ring);
  *slot = (int16_t)found;
  if (found < 0)
    return NULL;
  ring->slot_hint = ((uint32_t)found + 1) % RING_OPEN_SLOTS;
  return &ring->open[found];
}

static inline void ring_show_slot(struct ring_open *entry, uint64_t id) {
  __atomic_store_n(&entry->id, id, __ATOMIC_RELEASE);
}

static inline void ring_close_slot(struct ring *ring, int slot) {
  if (slot < 0 || slot >= (int)RING_OPEN_SLOTS)
    return;
  __atomic_store_n(&ring->open[slot].id, 0, __ATOMIC_RELEASE);
  __atomic_thread_fence(__ATOMIC_RELEASE); /* before what a next entry stores here */
  ring->slot_hint = (uint32_t)slot;
}

#endif
