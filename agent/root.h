/* What is known of a session as a whole: the attributes of its root span. They go with its record when the session is closed, and into
 * the spool while it is open.
 *
 *   pid, rank, local_rank and world_size where set, cirron.run_id, cirron.pipeline_id, cirron.deployment_id and cirron.workspace_id
 *   where set, framework (what is observed, commas between), device ("cuda" or "cpu"), cuda_count, mixed_precision
 */
#ifndef CIRRON_ROOT_H
#define CIRRON_ROOT_H

#include <stddef.h>

#define ROOT_ATTRS_BYTES 8192u

/* As they are known now, as a JSON object. Returns its length, without a zero byte. Any thread. */
size_t root_attributes(char out[ROOT_ATTRS_BYTES]);

void root_frameworks(unsigned bits); /* these are observed (env.h) */
void root_mixed_precision(void);     /* something ran under autocast */

/* A new session, or the child of a fork: its own precision is not known. */
void root_forget(void);

#endif
