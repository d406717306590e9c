/* What the ranks of a job did, out of their stores, as ranks.h compares it. */
#ifndef CIRRON_RANKS_READ_H
#define CIRRON_RANKS_READ_H

#include "job.h"
#include "ranks.h"

/* One a rank of the job. Ends the program where a store cannot be read. */
struct ranks_input *ranks_read(const struct job *job, bool *several_hosts);
void ranks_read_fini(struct ranks_input *in, size_t count);

#endif
