/* The ranks of one job: of the sessions that belong together, the one of each rank that trains. */
#ifndef CIRRON_JOB_H
#define CIRRON_JOB_H

#include <stddef.h>

#include "pick.h"

#define JOB_MAX_RANKS 65536 /* what a session says of its job's size is believed up to this */

struct job {
  const struct pick_session **ranks; /* by rank, ascending; each once */
  size_t count;
  int64_t world_size; /* at least 1 */
};

/* The job of `anchor`. Where a rank has several sessions (restarts, processes that it started) it is the one next to the anchor's: by
 * launcher, then by time. */
void job_find(const struct pick_session *sessions, size_t count, const struct pick_session *anchor, struct job *out);
void job_fini(struct job *job);

/* NULL: this rank has no session here. */
const struct pick_session *job_rank(const struct job *job, int64_t rank);

#endif
