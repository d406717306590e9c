/* libcirron_sqlite.so: the table `spans` for any program that uses SQLite. In the sqlite3 shell: .load /path/to/libcirron_sqlite
 *
 * SQLite derives the name of the entry point from that of the file; the second one is for a file that was renamed to cirron.so. */
#include <sqlite3ext.h>

#include "vtab_spans.h"

SQLITE_EXTENSION_INIT1

#define LEAST_VERSION 3026000 /* of 2018; all that we call is in it */

#define ENTRY __attribute__((visibility("default")))

ENTRY int sqlite3_cirronsqlite_init(sqlite3 *db, char **error, const sqlite3_api_routines *api);
ENTRY int sqlite3_cirron_init(sqlite3 *db, char **error, const sqlite3_api_routines *api);

int sqlite3_cirronsqlite_init(sqlite3 *db, char **error, const sqlite3_api_routines *api) {
  SQLITE_EXTENSION_INIT2(api)
  if (sqlite3_libversion_number() >= LEAST_VERSION)
    return vtab_spans_register(db);
  if (error)
    *error = sqlite3_mprintf("cirron: needs SQLite 3.26 or later, this is %s", sqlite3_libversion());
  return SQLITE_ERROR;
}

int sqlite3_cirron_init(sqlite3 *db, char **error, const sqlite3_api_routines *api) {
  return sqlite3_cirronsqlite_init(db, error, api);
}
