/* Reads the tensors of traced processes, on a thread of its own: one for all sessions, which have turns; a second one brings files to
 * the disk, so that nobody's training waits for somebody else's disk.
 *
 * A process is read only if its user is ours and it still is the one that connected: its pidfd is looked at after each tensor, before
 * what was read is used, so the pid cannot have become another's meanwhile. The kernel asks for the rights of ptrace on top of that;
 * where it refuses, the process is told to compute itself (snapshot_area.refused).
 */
#ifndef CIRRON_READER_H
#define CIRRON_READER_H

#include "pass.h"

struct reader;

int reader_new(struct reader **out); /* the threads begin with the first pass */

/* The pass is QUEUED until it is READ. `reader` NULL: all of it at once, on this thread. */
void reader_take(struct reader *reader, struct pass *pass);

/* Frees the pass, now or when the reader is done with it. */
void reader_let_go(struct reader *reader, struct pass *pass);

/* Ends the threads. What was not read to its end is given back as far as it is; false: a thread hangs (a disk), and has what it needs. */
bool reader_stop(struct reader *reader);
void reader_free(struct reader *reader); /* after reader_stop that was true; accepts NULL */

#endif
