/* Sums over the spans of a session by (epoch, name, kind), kept as the spans come in, so that a report needs no scan.
 *
 * Names are local numbers (names.h). Sums of an epoch that is over leave memory after a while; what is still reported for it then
 * is summed under epoch 0.
 */
#ifndef CIRRON_ROLLUP_H
#define CIRRON_ROLLUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../proto/store_abi.h"
#include "idmap.h"
#include "store.h"

#define ROLLUP_MAX 32768u /* a session; spans of further names are kept, but not summed */
#define ROLLUP_MANY 4096u /* from here on those of finished epochs are let go */

struct rollup {
  uint64_t epoch;
  uint32_t name;
  uint8_t kind;
  bool dirty;
  bool stored; /* the store has a row of it */
  int64_t count, errors, total_ns, self_ns, min_ns, max_ns;
  uint32_t histogram[HISTOGRAM_BINS];
};

struct rollups {
  struct rollup **list;
  size_t count, room;
  uint32_t *table; /* hash of the key -> index + 1 */
  size_t table_size;
  struct idmap over; /* epochs whose sums were let go */
  uint64_t refused;  /* spans that were not summed: too many names */
};

void rollups_fini(struct rollups *rollups); /* accepts a zeroed one */

struct rollup_span {
  uint64_t epoch;
  uint32_t name;
  uint8_t kind;
  bool error;
  int64_t total_ns, self_ns;
};
int rollups_add(struct rollups *rollups, const struct rollup_span *span);

/* Puts a row that is in the store into memory (name already local). */
int rollups_load(struct rollups *rollups, const struct rollup_row *row);

/* The epoch never was: its sums become those of `into`. */
int rollups_merge(struct rollups *rollups, uint64_t epoch, uint64_t into);

/* Lets go of the sums of an epoch that is over, once all are committed and there are many. */
void rollups_forget(struct rollups *rollups, uint64_t epoch);

#endif
