/* From one schema to the next, in one transaction. */
#ifndef CIRRON_STORE_MIGRATE_H
#define CIRRON_STORE_MIGRATE_H

#include <sqlite3.h>

/* steps[v] is the SQL that makes version v + 1 of version v; version 0 is the empty file. */
struct store_schema {
  const char *const *steps;
  int version; /* the one they lead to */
};

extern const struct store_schema store_schema; /* ours */

/* Brings a store of version `from` to schema->version: all of it, or, on an error, nothing. Returns an SQLite result code. */
int store_migrate(sqlite3 *db, int from, const struct store_schema *schema);

#endif
