/* Between the files of ingest: taking records, the store's side, taking over. */
#ifndef CIRRON_INGEST_INTERNAL_H
#define CIRRON_INGEST_INTERNAL_H

#include "ingest.h"

/* Times and ids above are nonsense; below, sums of two of them do not overflow. */
#define INGEST_LIMIT (1ull << 61)

/* Local number of a name of the process. One that is not there is none (0); the record that names it is kept. */
int ingest_name(struct ingest *in, struct store *store, uint32_t id, uint32_t *out);

/* Room for one more in a list: ROOM(in->marks, in->mark_room, in->mark_count). 0 or -ENOMEM. */
#define INGEST_ROOM(list, room, count) ingest_room((void **)&(list), &(room), (count), sizeof *(list))
int ingest_room(void **list, size_t *room, size_t count, size_t size);

/* Puts row `at` into the list and the sums of its parent. Nothing where the tree is full. */
void ingest_link(struct ingest *in, size_t at);

/* The direct children of `span` that began at or after since_ns (wall clock), `parent` excepted, become children of `parent`. */
int ingest_apply_move(struct ingest *in, uint64_t span, int64_t since_ns, uint64_t parent);

/* Is it settled whose child this row is? */
bool ingest_settled(struct ingest *in, const struct ingest_row *row);

#endif
