/* Inside of the store, for store*.c only: the connection, its prepared statements, and how they are bound and run. */
#ifndef CIRRON_STORE_INTERNAL_H
#define CIRRON_STORE_INTERNAL_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store.h"
#include "store_checkpoint.h"

/* Statements that are kept; their text is in store_sql.c. */
enum store_sql {
  SQL_BEGIN,
  SQL_COMMIT,
  SQL_ROLLBACK,
  SQL_NAME_FIND,
  SQL_NAME_ADD,
  SQL_SESSION_ADD,
  SQL_SESSION_UPDATE,
  SQL_SESSION_RANKS,
  SQL_SESSION_FIND,
  SQL_SESSIONS_RUNNING,
  SQL_BLOCK_ADD,
  SQL_BLOCK_UPDATE,
  SQL_BLOCK_META_ADD,
  SQL_BLOCK_META_UPDATE,
  SQL_BLOCK_UNSEALED,
  SQL_BLOCK_DELETE,
  SQL_BLOCK_META_DELETE,
  SQL_OPEN_CLEAR,
  SQL_OPEN_ADD,
  SQL_MOVE_ADD,
  SQL_RING_SET,
  SQL_RING_GET,
  SQL_MARK_ADD,
  SQL_STEP_ADD,
  SQL_EPOCH_SET,
  SQL_EPOCH_DELETE,
  SQL_ROLLUP_SET,
  SQL_ROLLUPS_READ,
  SQL_SNAPSHOT_SET,
  SQL_PASS_SET,
  SQL_COUNT
};

/* SQLite's own limit of 1,000 pages would sync the disk every second under load. A reader that keeps a checkpoint from being
 * complete must not make each commit ask again, hence the distance to the next. */
#define CHECKPOINT_PAGES 4096

struct store {
  sqlite3 *db;
  sqlite3_stmt *statements[SQL_COUNT];
  char *lock_path;
  int lock_fd;
  bool in_transaction; /* as the caller sees it: until commit or rollback, even if SQLite has given up the transaction */
  unsigned generation;
  int64_t page_bytes;
  int wal_pages;     /* after the last commit */
  int checkpoint_at; /* the next checkpoint is due when the WAL has this many */
  struct store_checkpoint *checkpoint;
};

/* The negative errno for the result code of the last call on `db` (NULL: for the code alone). */
int store_errno(sqlite3 *db, int rc);

/* Prepares all statements. Returns 0 or a negative errno. */
int store_sql_prepare(struct store *store);
void store_sql_finalize(struct store *store);

/* Opens the transaction if there is none. To be called before each write. */
int store_begin(struct store *store);

/* Runs a bound statement that gives no rows, and makes it ready for the next use. */
int store_run(struct store *store, enum store_sql sql);
/* One row of a bound statement: 1, 0 at the end, or a negative errno. store_done makes it ready for the next use. */
int store_row(struct store *store, enum store_sql sql);
void store_done(struct store *store, enum store_sql sql);

/* Binding. The memory must stay until the statement was run. The texts may be any bytes, or NULL. */
void store_bind_int(struct store *store, enum store_sql sql, int at, int64_t value);
void store_bind_int_unless(struct store *store, enum store_sql sql, int at, int64_t value, int64_t null);
int store_bind_text(struct store *store, enum store_sql sql, int at, const char *text, size_t len);
int store_bind_string(struct store *store, enum store_sql sql, int at, const char *text);
void store_bind_blob(struct store *store, enum store_sql sql, int at, const void *data, size_t len);

/* The lock file of a store (store_lock.c). Returns 0, -EWOULDBLOCK (*holder: the pid written in it, 0 if none) or another negative
 * errno. `created`: there was none before. */
int store_lock_take(const char *lock_path, int *fd, bool *created, long *holder);
/* remove: takes the file away as well. */
void store_lock_give(const char *lock_path, int fd, bool remove);

#endif
