/* What each rank of a job has open, read from the store (status_job.c), judged (status.c), and told in words (status_say.c). Of a job that
 * has ended it is what was open when its first rank did. */
#ifndef CIRRON_STATUS_JOB_H
#define CIRRON_STATUS_JOB_H

#include "buf.h"
#include "job.h"
#include "status.h"

#define STATUS_CHAIN_MAX 64 /* open spans in each other, at most (agent/scope.h) */
#define STATUS_RANKS_SAID 8 /* in one line */

struct status_open {
  uint64_t span, parent;
  int64_t kind, index, start_ns, tid;
  char *name, *module;
  size_t name_len, module_len;
};

struct status_place {                 /* what is shown of a rank */
  const struct pick_session *session; /* NULL: missing */
  struct status_open *open;
  size_t open_count;
  const struct status_open *chain[STATUS_CHAIN_MAX]; /* of the thread that trains, innermost first */
  size_t depth;
  int64_t quiet_ns;    /* since it last began or ended something */
  int64_t step, epoch; /* or SPAN_NO_INDEX */
};

struct status_job {
  bool runs; /* one of its sessions does */
  int64_t now_ns;
  struct status_place *places;
  struct status_rank *ranks; /* beside them */
  size_t count;
  struct status_wait wait;
};

/* now_ns: of the clock on the wall. The sessions have to live as long as the result. */
void status_job_read(const struct job *job, int64_t now_ns, struct status_job *out);
void status_job_fini(struct status_job *job);

/* "epoch 0 > step 12 > all_reduce 25" */
void status_say_chain(const struct status_place *place, bool utf8, struct buf *out);

/* Lines about who waits for whom, or nothing. */
void status_say(const struct status_job *job, bool utf8, struct buf *out);

#endif
