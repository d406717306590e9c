/* The store, found and opened for reading only. */
#ifndef CIRRON_DB_H
#define CIRRON_DB_H

#include <sqlite3.h>
#include <stddef.h>

#include "../proto/link_abi.h"

#define DB_USER_STORE "./" LINK_PRIVATE_STORE
#define DB_SYSTEM_STORE "/var/lib/cirron/traces.db"

/* Which file is the store: `option` (--db), else $CIRRON_DB, else the first of the two above that is there. Returns 0 and the path
 * (borrowed from the argument, the environment or this file), or -ENOENT and one line in `why`. */
int db_find(const char *option, const char **path, char *why, size_t why_len);

/* Opens it: never writes to it, works while a collector writes and on a read-only file system, and has the table `spans`. All
 * that is read through it is one moment of the store. Returns 0, or a negative errno and one line in `why` that names the file
 * and says what is wrong; `note` gets a line where the store can be read, but not all of it, else it is "". */
int db_open(const char *path, sqlite3 **out, char *why, size_t why_len, char *note, size_t note_len);

/* Does a collector write to the store at `path` now? */
enum db_writer { DB_WRITER_NONE, DB_WRITER_THERE, DB_WRITER_UNKNOWN };
enum db_writer db_writer(const char *path);

/* From here on only statements that read are accepted: for SQL that a user wrote. */
int db_restrict(sqlite3 *db);

/* sqlite3_prepare_v2 and the numbers bound in order. Ends the program with a message when the store cannot be read: there is
 * nothing left to say then. */
sqlite3_stmt *db_prepare(sqlite3 *db, const char *sql, size_t count, const sqlite3_int64 *values);
#define db_query(db, sql, ...)                                                                                                 \
  db_prepare(db, sql, sizeof((const sqlite3_int64[]){0, ##__VA_ARGS__}) / sizeof(sqlite3_int64) - 1,                           \
             (const sqlite3_int64[]){0, ##__VA_ARGS__} + 1)
/* A row: 1, or 0 at the end, when the statement is finalised. Ends the program like db_prepare. */
int db_step(sqlite3_stmt *stmt);

/* The first column of the first row of such a query, or `none`. */
sqlite3_int64 db_number(sqlite3 *db, sqlite3_int64 none, const char *sql, size_t count, const sqlite3_int64 *values);
#define db_value(db, none, sql, ...)                                                                                           \
  db_number(db, none, sql, sizeof((const sqlite3_int64[]){0, ##__VA_ARGS__}) / sizeof(sqlite3_int64) - 1,                      \
            (const sqlite3_int64[]){0, ##__VA_ARGS__} + 1)

/* Says what reading failed with, and ends the program with status 1. */
_Noreturn void db_die(sqlite3 *db, const char *what, int error);

#endif
