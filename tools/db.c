#include "db.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../proto/store_abi.h"
#include "buf.h"
#include "say.h"
#include "vtab_spans.h"

#define BUSY_MS 5000 /* the writer never holds readers up but for moments: recovery, the end of a checkpoint */

int db_find(const char *option, const char **path, char *why, size_t why_len) {
  static const char *const places[] = {DB_USER_STORE, DB_SYSTEM_STORE};
  const char *from_env = getenv("CIRRON_DB");
  if (option || (from_env && *from_env)) {
    *path = option ? option : from_env;
    return 0;
  }
  for (size_t i = 0; i < 2; i++)
    if (access(places[i], F_OK) == 0) {
      *path = places[i];
      return 0;
    }
  snprintf(why, why_len, "no store here: neither %s nor %s is there; name one with --db PATH or CIRRON_DB", places[0],
           places[1]);
  return -ENOENT;
}

/* What can be told from the file alone, in better words than SQLite's. */
static int check_file(const char *path, char *why, size_t why_len) {
  static const char magic[16] = "SQLite format 3";
  char head[sizeof magic];
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 || fstat(fd, &st) != 0) {
    int error = errno;
    snprintf(why, why_len, "%s: %s", path, error == ENOENT ? "no such store" : strerror(error));
    if (fd >= 0)
      close(fd);
    return -error;
  }
  ssize_t got = S_ISREG(st.st_mode) ? read(fd, head, sizeof head) : 0;
  int error = got < 0 ? errno : 0;
  close(fd);
  if (!S_ISREG(st.st_mode))
    snprintf(why, why_len, "%s: not a store but %s", path, S_ISDIR(st.st_mode) ? "a folder" : "something that is no file");
  else if (error)
    snprintf(why, why_len, "%s: %s", path, strerror(error));
  else if (got == 0)
    snprintf(why, why_len, "%s: empty, no collector has written to it yet", path);
  else if (got < (ssize_t)sizeof head || memcmp(head, magic, sizeof magic) != 0)
    snprintf(why, why_len, "%s: not a store (not an SQLite database)", path);
  else
    return 0;
  return error ? -error : -EBADMSG;
}

static int64_t pragma(sqlite3 *db, const char *sql, int *rc) {
  sqlite3_stmt *stmt = NULL;
  int64_t value = 0;
  *rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
  if (*rc == SQLITE_OK)
    *rc = sqlite3_step(stmt);
  if (*rc == SQLITE_ROW)
    value = sqlite3_column_int64(stmt, 0);
  *rc = *rc == SQLITE_ROW || *rc == SQLITE_DONE ? SQLITE_OK : *rc;
  sqlite3_finalize(stmt);
  return value;
}

/* Opens and reads a first page, so that trouble with the write-ahead log shows here. */
static int open_with(const char *name, int flags, sqlite3 **out) {
  sqlite3 *db = NULL;
  int rc = sqlite3_open_v2(name, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | flags, NULL);
  if (rc == SQLITE_OK) {
    sqlite3_extended_result_codes(db, 1);
    sqlite3_busy_timeout(db, BUSY_MS);
    (void)pragma(db, "SELECT count(*) FROM sqlite_schema", &rc);
  }
  if (rc != SQLITE_OK) {
    sqlite3_close(db);
    return rc;
  }
  *out = db;
  return SQLITE_OK;
}

/* For a folder in which the files beside a WAL database are missing and cannot be made. */
static int open_immutable(const char *path, sqlite3 **out, char *note, size_t note_len) {
  struct buf uri = {0}, wal = {0};
  struct stat st;
  char *real = realpath(path, NULL); /* a URI's path has to be absolute or it could begin with // */
  buf_puts(&uri, "file:");
  for (const char *s = real ? real : path; *s; s++)
    buf_printf(&uri, strchr("?#%", *s) ? "%%%02x" : "%c", (unsigned char)*s);
  buf_puts(&uri, "?immutable=1");
  int rc = open_with(uri.data, SQLITE_OPEN_URI, out);
  buf_printf(&wal, "%s-wal", path);
  if (rc == SQLITE_OK && stat(wal.data, &st) == 0 && st.st_size > 0)
    snprintf(note, note_len, "%s: the folder cannot be written, so what is only in %s is not shown; copy both to read all",
             path, wal.data);
  buf_fini(&uri);
  buf_fini(&wal);
  free(real);
  return rc;
}

static int explain(const char *path, int rc, char *why, size_t why_len) {
  switch (rc & 0xff) {
  case SQLITE_NOTADB:
    snprintf(why, why_len, "%s: not a store (not an SQLite database)", path);
    return -EBADMSG;
  case SQLITE_CORRUPT:
    snprintf(why, why_len, "%s: damaged (%s); `sqlite3 FILE .recover` may save what is left", path, sqlite3_errstr(rc));
    return -EBADMSG;
  case SQLITE_BUSY:
    snprintf(why, why_len, "%s: locked by another program for more than %d s; try again", path, BUSY_MS / 1000);
    return -EBUSY;
  case SQLITE_NOMEM:
    snprintf(why, why_len, "%s: out of memory", path);
    return -ENOMEM;
  default:
    snprintf(why, why_len, "%s: cannot be read (%s)", path, sqlite3_errstr(rc));
    return -EIO;
  }
}

/* Is it a store, and one of a kind that this program reads? */
static int check_store(sqlite3 *db, const char *path, char *why, size_t why_len) {
  int rc, rc2, rc3;
  int64_t id = pragma(db, "PRAGMA application_id", &rc), version = pragma(db, "PRAGMA user_version", &rc2);
  int64_t tables = pragma(db, "SELECT count(*) FROM sqlite_schema", &rc3);
  if (rc || rc2 || rc3)
    return explain(path, rc ? rc : rc2 ? rc2 : rc3, why, why_len);
  if (tables == 0)
    snprintf(why, why_len, "%s: empty, no collector has written to it yet", path);
  else if (id != STORE_APPLICATION_ID)
    snprintf(why, why_len, "%s: an SQLite database, but not a cirron store", path);
  else if (version > STORE_SCHEMA_VERSION)
    snprintf(why, why_len, "%s: written by a newer cirron (schema %lld, this program reads up to %d); update cirron-query",
             path, (long long)version, STORE_SCHEMA_VERSION);
  else if (version < 1)
    snprintf(why, why_len, "%s: a store of no known schema (%lld)", path, (long long)version);
  else
    return 0;
  return tables == 0 || id != STORE_APPLICATION_ID ? -EMEDIUMTYPE : -EPROTONOSUPPORT;
}

int db_open(const char *path, sqlite3 **out, char *why, size_t why_len, char *note, size_t note_len) {
  sqlite3 *db = NULL;
  note[0] = 0;
  int err = check_file(path, why, why_len);
  if (err)
    return err;
  int rc = open_with(path, 0, &db);
  if ((rc & 0xff) == SQLITE_CANTOPEN || (rc & 0xff) == SQLITE_READONLY || (rc & 0xff) == SQLITE_IOERR)
    rc = open_immutable(path, &db, note, note_len);
  if (rc != SQLITE_OK)
    return explain(path, rc, why, why_len);
  err = check_store(db, path, why, why_len);
  if (err)
    goto fail;
  /* A store may come from anybody: nothing in its schema is trusted to call functions. */
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
  rc = vtab_spans_register(db);
  if (rc == SQLITE_OK)
    rc = sqlite3_exec(
        db, "PRAGMA query_only=1; PRAGMA cell_size_check=1; PRAGMA cache_size=-65536; BEGIN; SELECT 1 FROM sqlite_schema", NULL,
        NULL, NULL);
  if (rc != SQLITE_OK) {
    err = explain(path, rc, why, why_len);
    goto fail;
  }
  *out = db;
  return 0;
fail:
  sqlite3_close(db);
  return err;
}

/* The lock of the collector that writes (collectord/store_lock.c). Ours is shared and gone at once. */
enum db_writer db_writer(const char *path) {
  struct buf lock = {0};
  buf_printf(&lock, "%s.lock", path);
  int fd = open(buf_text(&lock), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  int error = fd < 0 ? errno : flock(fd, LOCK_SH | LOCK_NB) == 0 ? 0 : errno;
  buf_fini(&lock);
  if (fd >= 0)
    close(fd);
  return error == 0 || error == ENOENT ? DB_WRITER_NONE : error == EWOULDBLOCK ? DB_WRITER_THERE : DB_WRITER_UNKNOWN;
}

static int authorize(void *arg, int action, const char *a, const char *b, const char *c, const char *d) {
  static const char *const pragmas[] = {"table_info", "table_xinfo", "table_list",   "index_list",
                                        "index_info", "index_xinfo", "user_version", "application_id"};
  (void)arg, (void)c, (void)d;
  switch (action) {
  case SQLITE_SELECT:
  case SQLITE_READ:
  case SQLITE_RECURSIVE:
    return SQLITE_OK;
  case SQLITE_FUNCTION:
    return b && strcmp(b, "load_extension") == 0 ? SQLITE_DENY : SQLITE_OK;
  case SQLITE_PRAGMA:
    for (size_t i = 0; a && i < sizeof pragmas / sizeof *pragmas; i++)
      if (sqlite3_stricmp(a, pragmas[i]) == 0 && (!b || i < 6))
        return SQLITE_OK;
    return SQLITE_DENY;
  default:
    return SQLITE_DENY;
  }
}

int db_restrict(sqlite3 *db) {
  /* The table is declared at its first use, which is no reading. */
  if (sqlite3_exec(db, "SELECT 1 FROM spans LIMIT 0", NULL, NULL, NULL) != SQLITE_OK)
    return -EIO;
  return sqlite3_set_authorizer(db, authorize, NULL) == SQLITE_OK ? 0 : -EIO;
}

_Noreturn void db_die(sqlite3 *db, const char *what, int error) {
  const char *file = sqlite3_db_filename(db, "main");
  fflush(stdout);
  if (error == -EBADMSG || (error > 0 && (error & 0xff) == SQLITE_CORRUPT))
    say("%s: damaged: %s cannot be read; `sqlite3 FILE .recover` may save what is left", file, what);
  else
    say("%s: reading %s failed: %s", file, what, error > 0 ? sqlite3_errmsg(db) : strerror(-error));
  exit(1);
}

sqlite3_stmt *db_prepare(sqlite3 *db, const char *sql, size_t count, const sqlite3_int64 *values) {
  sqlite3_stmt *stmt = NULL;
  int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
  for (size_t i = 0; rc == SQLITE_OK && i < count; i++)
    rc = sqlite3_bind_int64(stmt, (int)i + 1, values[i]);
  if (rc != SQLITE_OK)
    db_die(db, "the store", rc);
  return stmt;
}

int db_step(sqlite3_stmt *stmt) {
  int rc = sqlite3_step(stmt);
  if (rc == SQLITE_ROW)
    return 1;
  if (rc != SQLITE_DONE)
    db_die(sqlite3_db_handle(stmt), "the store", rc);
  sqlite3_finalize(stmt);
  return 0;
}

sqlite3_int64 db_number(sqlite3 *db, sqlite3_int64 none, const char *sql, size_t count, const sqlite3_int64 *values) {
  sqlite3_stmt *stmt = db_prepare(db, sql, count, values);
  sqlite3_int64 value = none;
  int rc = sqlite3_step(stmt);
  if (rc != SQLITE_ROW && rc != SQLITE_DONE)
    db_die(db, "the store", rc);
  if (rc == SQLITE_ROW && sqlite3_column_type(stmt, 0) != SQLITE_NULL)
    value = sqlite3_column_int64(stmt, 0);
  sqlite3_finalize(stmt);
  return value;
}
