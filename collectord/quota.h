/* How much of one session is taken: records a second, and bytes in all.
 *
 * What exceeds it is not read. It stays in the process's rings, which become full, so that the agent drops what follows and counts it as
 * it does whenever a ring is full: steps and epochs last, and nobody else notices. What is in the rings when the process ends is
 * taken whatever the quota says; there is only so much of it.
 */
#ifndef CIRRON_QUOTA_H
#define CIRRON_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

struct quota {
  uint64_t rate;  /* records a second; 0: no limit */
  uint64_t bytes; /* of records as they come, from the session's first to its last; 0: no limit */
};

/* Of one session; zeroed at its begin. */
struct quota_use {
  uint64_t now_ns;    /* of this visit */
  uint64_t left;      /* records that may be taken now: at most those of a second */
  uint64_t filled_ns; /* up to then they are reckoned; 0: not yet */
  uint64_t bytes;     /* taken so far */
  uint64_t over_ns;   /* there was more than was allowed, last; 0: never */
};

static inline bool quota_is_set(const struct quota *quota) {
  return quota && (quota->rate || quota->bytes);
}

/* A visit of the session's rings begins. The others belong to it, and only to a quota that is set. */
void quota_visit(const struct quota *quota, struct quota_use *use, uint64_t now_ns);

/* How many records may be taken, at most `cap`. */
unsigned quota_allows(const struct quota *quota, const struct quota_use *use, unsigned cap);

/* So many were taken, of as many as were allowed; `more`: there are others. True: for the first time it is over its quota. */
bool quota_taken(const struct quota *quota, struct quota_use *use, unsigned records, uint64_t bytes, bool more);

/* Has it been over its quota within the last second? Then there is no hurry, however full its rings are. */
bool quota_over(const struct quota_use *use);

#endif
