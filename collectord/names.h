/* Names of a session: from the ids of the traced process (its segment) to local numbers, and from these to rows of the store's
 * names table.
 *
 * Everything in memory speaks local numbers, because a name that the store made in a transaction that is rolled back is forgotten
 * there; names_refresh then asks for it again. Two ids with the same text have the same local number. 0 is "none".
 */
#ifndef CIRRON_NAMES_H
#define CIRRON_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../proto/ring_abi.h"
#include "idmap.h"

struct store;

struct name {
  char *text; /* NULL for one taken over from the store */
  uint32_t len;
  uint32_t row;   /* in the store */
  bool committed; /* row is good for ever */
};

struct names {
  const struct ring_segment *segment; /* hostile; NULL for none */
  uint32_t *of_id;                    /* local number by id of the process, 0: not asked for yet */
  uint32_t id_room;
  struct name *list; /* [local number]; [0] is not used */
  uint32_t count, room;
  uint32_t first_uncommitted;
  uint64_t of_segment_bytes; /* of all names that were taken from the segment */
  struct idmap by_row;
  unsigned generation;
};

void names_init(struct names *names, const struct ring_segment *segment, const struct store *store);
void names_fini(struct names *names); /* accepts a zeroed one */

/* The local number of an id of the process. -EBADMSG: there is no such name. Otherwise as store_name. */
int names_get(struct names *names, struct store *store, uint32_t id, uint32_t *out);
/* The local number of a text of our own. */
int names_text(struct names *names, struct store *store, const char *text, size_t len, uint32_t *out);
/* The local number of a committed row of the store. */
int names_adopt(struct names *names, uint32_t row, uint32_t *out);

/* Before writing: makes sure that every local number has a row, after a rollback too. */
int names_refresh(struct names *names, struct store *store);
static inline uint32_t names_row(const struct names *names, uint32_t local) { /* three times a span */
  return local && local < names->count ? names->list[local].row : 0;
}
void names_committed(struct names *names);

#endif
