/* What was recorded before anybody asked for it to be kept: the rings still hold the last of it, read or not.
 *
 * Each ring is copied once, as a collector would: other threads go on writing to theirs. A record of which a part was overwritten is
 * left out. What a thread closes while this happens may be kept twice; readers know records by their id.
 */
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "keep.h"
#include "session.h"

#define CELLS_MAX (1u << 18)                /* of one ring: as much as the logs can take */
#define UNDERWAY (RING_TEXT_MAX_CELLS + 2u) /* cells that its writer may be writing beyond what is published */
#define TEXT_BYTES (RING_TEXT_MAX_CELLS * RING_TEXT_BYTES)

union cell {
  uint8_t type;
  struct ring_span span;
  struct ring_mark mark;
  struct ring_text text;
  struct ring_thread thread;
  uint8_t bytes[RING_CELL];
};

/* Joins the text of n cells. Returns its length; 0 where one of them is something else. */
static size_t join(const union cell *cells, unsigned n, char *out) {
  size_t len = 0;
  for (unsigned i = 0; i < n; i++) {
    if (cells[i].type != RING_TEXT || cells[i].text.used > RING_TEXT_BYTES)
      return 0;
    memcpy(out + len, cells[i].text.text, cells[i].text.used);
    len += cells[i].text.used;
  }
  return len;
}

/* The record in cells[0], of `left` that are there. Returns how many it has. */
static size_t take(const union cell *cells, size_t left, uint32_t *tid, char *text) {
  const union cell *c = cells;
  if (c->type == RING_THREAD)
    *tid = c->thread.tid;
  if (c->type == RING_MOVE)
    keep_put(c, *tid, NULL, 0, NULL, 0);
  if (c->type != RING_SPAN && c->type != RING_MARK)
    return 1;
  unsigned n = c->span.text_cells, a = c->type == RING_MARK ? c->mark.value_cells : n;
  if (n >= left || a > n)
    return 1;
  size_t a_len = join(c + 1, a, text), b_len = join(c + 1 + a, n - a, text + a_len);
  keep_put(c, *tid, text, a_len, text + a_len, b_len);
  return 1 + n;
}

/* The last cells of a ring, at most `max`. Returns how many of the copy are whole, and in *first which is the first of them. */
static size_t copy(const struct ring *ring, union cell *out, size_t max, size_t *first) {
  uint64_t size = (uint64_t)ring->mask + 1, head = __atomic_load_n(&ring->shm->head, __ATOMIC_ACQUIRE);
  uint64_t n = head < size ? head : size, begin;
  n = n < max ? n : max;
  begin = head - n;
  for (uint64_t i = 0; i < n; i++)
    memcpy(&out[i], ring->cells + ((begin + i) & ring->mask) * RING_CELL, RING_CELL);
  atomic_thread_fence(memory_order_acquire);
  uint64_t now = __atomic_load_n(&ring->shm->head, __ATOMIC_RELAXED) + UNDERWAY;
  uint64_t oldest = now > size ? now - size : 0;
  *first = oldest > begin ? (size_t)(oldest - begin) : 0;
  return *first < n ? (size_t)n - *first : 0;
}

static void recall(const struct ring *ring, char *text) {
  size_t max = (size_t)ring->mask + 1 < CELLS_MAX ? (size_t)ring->mask + 1 : CELLS_MAX, first;
  union cell *cells = mmap(NULL, max * RING_CELL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (cells == MAP_FAILED)
    return;
  size_t n = copy(ring, cells, max, &first);
  uint32_t tid = 0; /* until it is said again */
  for (size_t i = 0; i < n;)
    i += take(cells + first + i, n - i, &tid, text);
  munmap(cells, max * RING_CELL);
}

void keep_recall(void) {
  static char text[TEXT_BYTES]; /* one at a time: keep_start */
  for (const struct ring *ring = session_rings(); ring; ring = ring->next)
    if (ring->shm)
      recall(ring, text);
}
