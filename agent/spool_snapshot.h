/* Snapshots on their way into the spool: a copy of what the area held when one was settled, and its records as JSON.
 *
 *   {"id":..,"span_id":..,"tensor_name":..,"shape":[..],"dtype":..,"mode":..,"stats":{..},"blob_uri":..,"ts_ns":..,"attrs":{..}}
 *
 * stats: mean, std, min, max, norm and histogram {bins, counts}, null each where there is no finite number; count, nan, inf, neg_inf, zero;
 * magnitude {exponents, counts}. Null where the tensor was not read.
 */
#ifndef CIRRON_SPOOL_SNAPSHOT_H
#define CIRRON_SPOOL_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>

#include "../proto/snapshot_abi.h"

struct out;

struct spool_snapshot {
  struct spool_snapshot *next;
  struct snapshot_area area; /* as it was; entries, results and text follow, with only the entries that are used */
  char blobs[];
};

/* A copy of what is in an area now. `blobs`: the URI of the directory of its raw tensors, or "". NULL: no memory. */
struct spool_snapshot *spool_snapshot_copy(const struct snapshot_area *area, const char *blobs);
void spool_snapshot_free(struct spool_snapshot *list); /* with all that follow */

/* Its records, with a comma between them, and before them unless they are the `first` of the list. */
void spool_snapshot_put(struct out *out, const struct spool_snapshot *snapshot, uint64_t wall_minus_monotonic_ns, bool first);

#endif
