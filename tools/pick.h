/* Which sessions a command speaks of (--session, --rank), and what the store says of them. */
#ifndef CIRRON_PICK_H
#define CIRRON_PICK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "cli.h"

struct pick_session {
  sqlite3 *store; /* the one of cli->stores that it lies in */
  int64_t sid;
  char id[33];
  uint64_t prefix;
  int64_t pid, ppid;                    /* ppid -1: unknown */
  int64_t rank, local_rank, world_size; /* -1: not set */
  int64_t start_ns, end_ns, last_ns;    /* end_ns, last_ns 0: NULL */
  int64_t exit_code, exit_signal;       /* -1: NULL */
  int64_t spans, marks, emitted_spans, emitted_marks, dropped_total, overhead_ns;
  char *state, *host, *exe, *cwd, *argv, *python_version, *run_id, *dropped, *attrs; /* host to run_id may be NULL */
};

/* The sessions that fit the options, oldest first, in memory of its own. Returns an exit status; not CLI_OK: a line was said. */
int pick_sessions(const struct cli *cli, struct pick_session **out, size_t *count);
/* The same for all ranks and sessions, whichever are asked for: what one does is known by the others. */
int pick_sessions_of_all(const struct cli *cli, struct pick_session **out, size_t *count);
void pick_free(struct pick_session *sessions, size_t count);

/* Adds an SQL condition that holds for the rows of these sessions that lie in cli->store: by the column with their sid. */
void pick_where(const struct cli *cli, const struct pick_session *sessions, size_t count, const char *column, struct buf *out);

/* The session that the tree, or the report, is about: the latest with training in it, else the latest; of a job of several ranks
 * the lowest. NULL: there is none. */
const struct pick_session *pick_main(const struct pick_session *sessions, size_t count);

/* Is there a training step, or a batch of a framework, in it? */
bool pick_trains(const struct pick_session *session);

/* Do these belong to the same job? By run id, else by time. */
bool pick_same_job(const struct pick_session *a, const struct pick_session *b);

/* "python train.py --lr 0.1", from argv. Not escaped. */
void pick_command(const struct pick_session *session, struct buf *out);

#endif
