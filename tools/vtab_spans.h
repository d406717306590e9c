/* The table `spans`: raw spans of a store as rows of SQL.
 *
 *   session_id TEXT, id TEXT, name TEXT, parent_id TEXT (NULL: none), idx INTEGER,
 *   start_ns, end_ns (NULL: no end), dur_ns (NULL: no end), cpu_ns, gpu_ns (NULL: not measured), thread_id, pid, rank INTEGER,
 *   kind TEXT (user, session, epoch, eval, step, data_load, forward, backward, optimizer_step, batch, fetch),
 *   mode TEXT (train, eval or NULL), module TEXT, exception TEXT, error INTEGER (0, 1), state TEXT (closed, unfinished),
 *   attrs TEXT (a JSON object: the span's own, with mode, module and exception where they are set),
 *   and hidden, the numbers as they are stored: sid, span, parent, name_id INTEGER.
 *
 * It is there in every connection that registered it, without CREATE VIRTUAL TABLE, and is read-only. Conditions on session_id,
 * sid, id, span, name, name_id (=, IN), start_ns, end_ns and dur_ns (ranges) keep blocks from being read that cannot match. Rows come in
 * order of session, block and row (spans.h).
 */
#ifndef CIRRON_VTAB_SPANS_H
#define CIRRON_VTAB_SPANS_H

#include <sqlite3.h>

/* Returns an SQLite result code. */
int vtab_spans_register(sqlite3 *db);

#endif
