/* Moves of one session (table `moves`): which spans belong to another parent than the one they were stored with. */
#ifndef CIRRON_SPANS_MOVES_H
#define CIRRON_SPANS_MOVES_H

#include <stddef.h>
#include <stdint.h>

struct spans_move {
  uint64_t span, parent;
  int64_t since_ns;
  uint32_t next; /* the next move of the same span, from 1 on; 0: none */
};

/* Zeroed: none. */
struct spans_moves {
  struct spans_move *list; /* in the order in which they were made */
  uint32_t count, room;
  uint32_t *slots; /* by hash of span: its first move, from 1 on */
  size_t mask;
};

int spans_moves_add(struct spans_moves *moves, const struct spans_move *move); /* 0, -ENOMEM or -EOVERFLOW */
int spans_moves_index(struct spans_moves *moves);                              /* after the last one. 0 or -ENOMEM */
void spans_moves_clear(struct spans_moves *moves);                             /* keeps the memory */
void spans_moves_fini(struct spans_moves *moves);

/* The parent of a span that was stored with `parent` and began at start_ns. Each move counts once and only after those before it. */
uint64_t spans_moves_apply(const struct spans_moves *moves, uint64_t id, uint64_t parent, int64_t start_ns);

#endif
