/* One file of the spool: spans and marks as JSON, format version 1 of the Python package of the same name.
 *
 *   {"schema_version":1,"sdk_version":..,"batch_id":..,"created_ns":..,"spans":[..],"marks":[..],"snapshots":[..]}
 *
 * Always valid JSON in ASCII: NaN and the infinities are the strings "NaN", "Infinity", "-Infinity"; bytes that are no UTF-8 become
 * U+FFFD. `mark_ids` of a span has those of its marks that are in the same file. A span that was open has "end_ns":null; once it is
 * closed it is in a later file again, which counts for readers.
 */
#ifndef CIRRON_SPOOL_JSON_H
#define CIRRON_SPOOL_JSON_H

#include <stddef.h>
#include <stdint.h>

struct open_span;
struct spool_snapshot;

struct spool_batch {
  char id[33];         /* 32 hex digits */
  uint64_t created_ns; /* as the times of spans: never less than that of an earlier one of the session */
  uint64_t prefix;     /* of the session */
  uint64_t wall_minus_monotonic_ns;
  int pid, rank;
  const void *spans; /* as keep_read copies them; */
  size_t spans_bytes;
  size_t spans_from;            /* of those before this offset only what has KEEP_MOVED is written */
  const struct open_span *open; /* these are open, and told of but for those that are `quiet` */
  size_t open_count;
  const char *root_attrs; /* of the root among them */
  size_t root_attrs_len;
  const void *marks[2];
  size_t marks_bytes[2];
  const struct spool_snapshot *snapshots;        /* a list, or NULL */
  const char *(*name)(uint32_t id, size_t *len); /* segment_text */
};

/* How many records it would write; snapshots together count as one. */
size_t spool_batch_count(const struct spool_batch *batch);

/* Writes it to an open file. 0 and the bytes, or a negative errno. Needs memory for the marks' ids; without it there are none. */
int spool_batch_write(int fd, const struct spool_batch *batch, uint64_t *bytes);

#endif
