/* Removing sessions from a store, whole, in small transactions: by the collector that writes it (retention) and by cirron-query clear.
 *
 *   erase_mark   the session is gone for all readers at once: its state is SESSION_ERASED, its id free. Never a running one.
 *   erase_some   a little of what a marked session left, any of them; to be called until there is no more
 *
 * The caller opens and commits a transaction around each call (BEGIN IMMEDIATE). After a death in between the next one that calls
 * erase_some goes on. Rows of `names` stay: other sessions have them, too.
 *
 * Functions return 0 or the positive SQLite result code.
 */
#ifndef CIRRON_ERASE_H
#define CIRRON_ERASE_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

int erase_mark(sqlite3 *db, int64_t sid, bool *marked);
int erase_some(sqlite3 *db, bool *more);

/* Gives at most `pages` free pages at the end of the file back to the file system; *left: free pages that are still in it. Outside of a
 * transaction. A store from before it was made for that keeps its free pages, for what comes next. */
int erase_shrink(sqlite3 *db, int pages, int64_t *left);

/* The bytes of pages in use. */
int erase_used(sqlite3 *db, int64_t *bytes);

/* Tables with rows of sessions, the last one is NULL. For tests. */
extern const char *const erase_tables[];

#endif
