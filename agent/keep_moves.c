/* See keep_moves.h.
 *
 * A move concerns the spans before it in the log whose parent is `from` and that began at or after `since_ns`; it may be moved on by a
 * later one. So for each span the first such move after it is looked for, then the next from there. The moves are sorted by the span they
 * take children from, and then by place; of all that follow in the same group the earliest `since_ns` is known, so that a span
 * older than all of them is done at once.
 */
#include "keep_moves.h"

#include <stdlib.h>

#include "keep.h"

struct move {
  uint64_t from, parent, since_ns;
  uint64_t earliest_ns; /* of this and those that follow from the same span */
  size_t place;
};

static int by_span_and_place(const void *a, const void *b) {
  const struct move *x = a, *y = b;
  if (x->from != y->from)
    return x->from < y->from ? -1 : 1;
  return x->place < y->place ? -1 : x->place > y->place;
}

/* The first of those from this span that come after this place; n: none. */
static size_t first_after(const struct move *moves, size_t n, uint64_t from, size_t place) {
  size_t low = 0, high = n;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    const struct move *m = &moves[middle];
    if (m->from < from || (m->from == from && m->place <= place))
      low = middle + 1;
    else
      high = middle;
  }
  return low < n && moves[low].from == from ? low : n;
}

static void settle(struct ring_span *span, size_t place, const struct move *moves, size_t n, size_t from) {
  size_t i = first_after(moves, n, span->parent, place);
  while (i < n && moves[i].from == span->parent && moves[i].earliest_ns <= span->start_ns) {
    const struct move *m = &moves[i];
    if (m->since_ns > span->start_ns || m->parent == span->id) {
      i++;
      continue;
    }
    span->parent = m->parent;
    if (m->place > from)
      span->flags |= KEEP_MOVED;
    i = first_after(moves, n, span->parent, m->place);
  }
}

static size_t count_moves(const void *buf, size_t bytes) {
  const struct keep_record *r;
  size_t n = 0;
  for (size_t at = 0; (r = keep_next(buf, bytes, &at));)
    n += r->as.type == RING_MOVE;
  return n;
}

static void collect(struct move *moves, size_t n, const void *buf, size_t bytes) {
  const struct keep_record *r;
  struct move *out = moves;
  for (size_t at = 0; (r = keep_next(buf, bytes, &at));)
    if (r->as.type == RING_MOVE)
      *out++ = (struct move){r->as.move.span, r->as.move.parent, r->as.move.since_ns, r->as.move.since_ns, at};
  qsort(moves, n, sizeof *moves, by_span_and_place);
  for (size_t i = n - 1; i-- > 0;)
    if (moves[i].from == moves[i + 1].from && moves[i + 1].earliest_ns < moves[i].earliest_ns)
      moves[i].earliest_ns = moves[i + 1].earliest_ns;
}

void keep_moves_apply(void *buf, size_t bytes, size_t from) {
  size_t n = count_moves(buf, bytes), at = 0;
  struct move *moves = n ? malloc(n * sizeof *moves) : NULL;
  if (!moves)
    return;
  collect(moves, n, buf, bytes);
  struct keep_record *r;
  while ((r = (struct keep_record *)keep_next(buf, bytes, &at)))
    if (r->as.type == RING_SPAN)
      settle(&r->as.span, at, moves, n, from);
  free(moves);
}
