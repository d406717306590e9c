/* Opening a store (store.h): what may lie at its path, whose it is, which schema it has; and closing it.
 *
 * Nothing at the path is changed before it is known to be ours or empty. A new store is made in one transaction in SQLite's
 * rollback mode and goes to WAL afterwards, so a file of ours has our application id from its first byte on, also without its WAL.
 */
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../proto/store_abi.h"
#include "store.h"
#include "store_internal.h"
#include "store_migrate.h"

#define SMALLEST_DATABASE 512 /* SQLite takes some shorter files for empty ones, and would write over them */
#define BUSY_MS 250           /* others write seldom and shortly (clear); longer, and the rings would fill */
#define WAL_KEEP_BYTES "67108864"

struct opening {
  const char *path;
  char *why;
  size_t why_len;
};

__attribute__((format(printf, 3, 4))) static int refuse(const struct opening *o, int error, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(text, sizeof text, format, args); /* cut if it is long */
  va_end(args);
  if (o->why && o->why_len)
    (void)snprintf(o->why, o->why_len, "%s: %s", o->path, text);
  return error;
}

static int refuse_sqlite(const struct opening *o, sqlite3 *db, int rc) {
  int error = store_errno(db, rc);
  switch (error) {
  case -EBADMSG:
    if ((rc & 0xff) == SQLITE_NOTADB)
      return refuse(o, error, "is not an SQLite database; choose another path or move the file away");
    return refuse(o, error, "is damaged (%s); move it away, and a new store is made", sqlite3_errmsg(db));
  case -ENOSPC:
    return refuse(o, error, "no room on its disk; make room or choose another path");
  case -EBUSY:
    return refuse(o, error, "is locked by another program; end that, or choose another path");
  default:
    return refuse(o, error, "can't be opened for writing (%s); look at the permissions of the file and its folder",
                  error == -EIO || error == -EROFS ? sqlite3_errmsg(db) : strerror(-error));
  }
}

/* ---- before SQLite sees it ---- */

static int folder_check(const struct opening *o) {
  char *copy = strdup(o->path);
  if (!copy)
    return refuse(o, -ENOMEM, "out of memory");
  const char *folder = dirname(copy);
  struct stat st;
  int rc = 0;
  if (stat(folder, &st))
    rc = refuse(o, -errno, "its folder %s can't be used (%s); make it first", folder, strerror(errno));
  else if (!S_ISDIR(st.st_mode))
    rc = refuse(o, -ENOTDIR, "%s is not a folder; choose another path", folder);
  free(copy);
  return rc;
}

static int file_check(const struct opening *o) {
  struct stat st;
  if (stat(o->path, &st))
    return errno == ENOENT ? 0 : refuse(o, -errno, "can't be looked at (%s); choose another path", strerror(errno));
  if (S_ISDIR(st.st_mode))
    return refuse(o, -EISDIR, "is a folder; give the path of a file");
  if (!S_ISREG(st.st_mode))
    return refuse(o, -EINVAL, "is not a regular file; choose another path");
  if (st.st_size && st.st_size < SMALLEST_DATABASE)
    return refuse(o, -EBADMSG, "is not an SQLite database; choose another path or move the file away");
  if (access(o->path, R_OK | W_OK))
    return refuse(o, -errno, "can't be written (%s); change its permissions or choose another path", strerror(errno));
  return 0;
}

static int lock(const struct opening *o, struct store *store, bool *created) {
  long holder;
  int rc = store_lock_take(store->lock_path, &store->lock_fd, created, &holder);
  if (rc == -EWOULDBLOCK && holder)
    return refuse(o, rc, "another collector (pid %ld) writes to it; end that one or choose another path", holder);
  if (rc == -EWOULDBLOCK)
    return refuse(o, rc, "another collector writes to it; end that one or choose another path");
  if (rc)
    return refuse(o, rc, "its lock file %s can't be made (%s); make the folder writable or choose another path",
                  store->lock_path, strerror(-rc));
  return 0;
}

/* ---- whose is it ---- */

static int number_of(sqlite3 *db, const char *sql, int64_t *out) {
  sqlite3_stmt *s = NULL;
  int rc = sqlite3_prepare_v2(db, sql, -1, &s, NULL);
  if (rc == SQLITE_OK)
    rc = sqlite3_step(s);
  if (rc == SQLITE_ROW) {
    *out = sqlite3_column_int64(s, 0);
    rc = SQLITE_OK;
  }
  (void)sqlite3_finalize(s); /* rc is known */
  return rc;
}

static int inspect(const struct opening *o, sqlite3 *db, int *version) {
  int64_t tables = 0, application = 0, user_version = 0;
  int rc = number_of(db, "SELECT count(*) FROM sqlite_schema", &tables);
  rc = rc ? rc : number_of(db, "PRAGMA application_id", &application);
  rc = rc ? rc : number_of(db, "PRAGMA user_version", &user_version);
  if (rc)
    return refuse_sqlite(o, db, rc);
  if (application != STORE_APPLICATION_ID) {
    if (application)
      return refuse(o, -EMEDIUMTYPE, "is a database of another program (application id 0x%08x); choose another path",
                    (unsigned)application);
    if (tables || user_version)
      return refuse(o, -EMEDIUMTYPE, "is a database of another program; choose another path");
    *version = 0;
    return 0;
  }
  if (user_version > STORE_SCHEMA_VERSION)
    return refuse(o, -EPROTONOSUPPORT,
                  "was written by a newer cirron (schema %" PRId64 ", this one knows up to %d); update cirron", user_version,
                  STORE_SCHEMA_VERSION);
  if (user_version < 1 || !tables)
    return refuse(o, -EBADMSG, "is damaged (no schema); move it away, and a new store is made");
  *version = (int)user_version;
  return 0;
}

/* ---- schema ---- */

static int migrate(const struct opening *o, sqlite3 *db, int version) {
  int rc = store_migrate(db, version, &store_schema);
  if (!rc)
    return 0;
  int error = refuse_sqlite(o, db, rc);
  if (!sqlite3_get_autocommit(db))
    (void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL); /* closing it would do the same */
  return error;
}

/* ---- ready for use ---- */

static int note_wal_pages(void *arg, sqlite3 *db, const char *name, int pages) {
  (void)db, (void)name;
  ((struct store *)arg)->wal_pages = pages;
  return SQLITE_OK;
}

static int is_wal(void *arg, int columns, char **values, char **names) {
  (void)names;
  *(bool *)arg = columns == 1 && values[0] && !strcmp(values[0], "wal");
  return 0;
}

static int go_wal(const struct opening *o, struct store *store) {
  bool wal = false;
  int rc = sqlite3_exec(store->db, "PRAGMA journal_mode = WAL", is_wal, &wal, NULL);
  if (!rc && !wal)
    return refuse(o, -EOPNOTSUPP, "its file system can't do SQLite's WAL; choose a path on a local disk");
  rc = rc ? rc
          : sqlite3_exec(store->db, "PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = " WAL_KEEP_BYTES, NULL, NULL,
                         NULL);
  if (rc)
    return refuse_sqlite(o, store->db, rc);
  /* SQLite's own checkpoints, on the thread that commits, are off: its hook is ours. */
  (void)sqlite3_wal_hook(store->db, note_wal_pages, store); /* there was none before */
  return 0;
}

/* A look at every table's schema, and at the sessions, finds most damage; all pages would take minutes in a large store. */
static int prepare(const struct opening *o, struct store *store) {
  int rc = store_sql_prepare(store);
  if (rc == -EBADMSG)
    return refuse(o, rc, "is damaged (%s); move it away, and a new store is made", sqlite3_errmsg(store->db));
  if (rc)
    return refuse(o, rc, "can't be used (%s)", sqlite3_errmsg(store->db));
  int64_t sessions;
  rc = number_of(store->db, "PRAGMA page_size", &store->page_bytes);
  rc = rc ? rc : number_of(store->db, "SELECT count(prefix) FROM sessions NOT INDEXED", &sessions);
  return rc ? refuse_sqlite(o, store->db, rc) : 0;
}

static int connect_db(const struct opening *o, struct store *store) {
  int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  int rc = sqlite3_open_v2(o->path, &store->db, flags, NULL);
  if (!store->db)
    return refuse(o, -ENOMEM, "out of memory");
  (void)sqlite3_extended_result_codes(store->db, 1); /* always OK */
  if (rc)
    return refuse_sqlite(o, store->db, rc);
  (void)sqlite3_busy_timeout(store->db, BUSY_MS); /* always OK */
  if (sqlite3_db_readonly(store->db, "main") == 1)
    return refuse(o, -EROFS, "can't be written; change its permissions or choose another path");
  return 0;
}

static int open_locked(const struct opening *o, struct store *store) {
  int version = 0;
  int rc = connect_db(o, store);
  rc = rc ? rc : inspect(o, store->db, &version);
  rc = rc ? rc : migrate(o, store->db, version);
  rc = rc ? rc : go_wal(o, store);
  return rc ? rc : prepare(o, store);
}

/* The thread first: the last connection that is closed takes the WAL with it. */
static void disconnect(struct store *store) {
  store_checkpoint_free(store->checkpoint);
  store->checkpoint = NULL;
  store_sql_finalize(store);
  (void)sqlite3_close(store->db); /* rolls back what is open; all statements are finalized */
  store->db = NULL;
}

static struct store *store_new(const char *path) {
  struct store *store = calloc(1, sizeof *store);
  if (!store)
    return NULL;
  store->lock_fd = -1;
  store->generation = 1;
  store->checkpoint_at = CHECKPOINT_PAGES;
  if (store_checkpoint_new(path, &store->checkpoint)) {
    free(store);
    return NULL;
  }
  if (asprintf(&store->lock_path, "%s.lock", path) < 0) {
    store_checkpoint_free(store->checkpoint);
    free(store);
    return NULL;
  }
  return store;
}

static void store_free(struct store *store) {
  store_checkpoint_free(store->checkpoint);
  free(store->lock_path);
  free(store);
}

static int open_at(const struct opening *o, struct store **out) {
  struct store *store = store_new(o->path);
  if (!store)
    return refuse(o, -ENOMEM, "out of memory");
  bool created = false;
  int rc = lock(o, store, &created);
  if (rc)
    goto free_store;
  rc = open_locked(o, store);
  if (rc)
    goto unlock;
  *out = store;
  return 0;

unlock:
  disconnect(store);
  store_lock_give(store->lock_path, store->lock_fd, created);
free_store:
  store_free(store);
  return rc;
}

int store_open(const char *path, struct store **out, char *why, size_t why_len) {
  struct opening o = {path, why, why_len};
  int rc = folder_check(&o);
  rc = rc ? rc : file_check(&o);
  if (rc)
    return rc;
  char *real = realpath(path, NULL); /* one store, one lock, whatever links lead to it */
  if (real)
    o.path = real;
  rc = open_at(&o, out);
  free(real);
  return rc;
}

void store_close(struct store *store) {
  if (!store)
    return;
  disconnect(store);
  store_lock_give(store->lock_path, store->lock_fd, false);
  store_free(store);
}
