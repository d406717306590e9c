#include "spans_moves.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int spans_moves_add(struct spans_moves *moves, const struct spans_move *move) {
  if (moves->count == UINT32_MAX / 2)
    return -EOVERFLOW;
  if (moves->count == moves->room) {
    uint32_t room = moves->room ? 2 * moves->room : 64;
    struct spans_move *list = reallocarray(moves->list, room, sizeof *list);
    if (!list)
      return -ENOMEM;
    moves->list = list;
    moves->room = room;
  }
  moves->list[moves->count++] = *move;
  return 0;
}

/* The slot of `span`, or the free one where it belongs; at least half of them are free. */
static size_t slot_of(const struct spans_moves *moves, uint64_t span) {
  size_t at = (span * 0x9e3779b97f4a7c15ull >> 32) & moves->mask;
  while (moves->slots[at] && moves->list[moves->slots[at] - 1].span != span)
    at = (at + 1) & moves->mask;
  return at;
}

int spans_moves_index(struct spans_moves *moves) {
  if (!moves->count)
    return 0;
  size_t want = 128;
  while (want < 2 * (size_t)moves->count)
    want *= 2;
  uint32_t *slots = calloc(want, sizeof *slots);
  if (!slots)
    return -ENOMEM;
  free(moves->slots);
  moves->slots = slots;
  moves->mask = want - 1;
  for (uint32_t i = moves->count; i > 0; i--) { /* backwards, so that each list begins with its first */
    size_t at = slot_of(moves, moves->list[i - 1].span);
    moves->list[i - 1].next = slots[at];
    slots[at] = i;
  }
  return 0;
}

void spans_moves_clear(struct spans_moves *moves) {
  moves->count = 0;
}

void spans_moves_fini(struct spans_moves *moves) {
  free(moves->list);
  free(moves->slots);
  *moves = (struct spans_moves){0};
}

uint64_t spans_moves_apply(const struct spans_moves *moves, uint64_t id, uint64_t parent, int64_t start_ns) {
  if (!moves->count)
    return parent;
  uint32_t done = 0;
  for (;;) {
    uint32_t at = moves->slots[slot_of(moves, parent)];
    while (at && (at <= done || moves->list[at - 1].since_ns > start_ns || moves->list[at - 1].parent == id))
      at = moves->list[at - 1].next;
    if (!at)
      return parent;
    parent = moves->list[at - 1].parent;
    done = at;
  }
}
