#include "store_migrate.h"

#include <stdio.h>

#include "../proto/store_abi.h"
#include "schema.h"

/* A change of the tables appends a step here and raises STORE_SCHEMA_VERSION; the steps before it stay what they were. */
static const char *const steps[STORE_SCHEMA_VERSION] = {schema_sql, schema_2_sql};

const struct store_schema store_schema = {steps, STORE_SCHEMA_VERSION};

/* Each version that a store went through has a row. */
static int note(sqlite3 *db, int version) {
  char sql[256];
  (void)snprintf(sql, sizeof sql,
                 "INSERT INTO schema_version VALUES(%d, 'collectord " CIRRON_VERSION "');"
                 "PRAGMA application_id = %d; PRAGMA user_version = %d",
                 version, STORE_APPLICATION_ID, version); /* fits */
  return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

static int run_steps(sqlite3 *db, int from, const struct store_schema *schema) {
  int rc = SQLITE_OK;
  for (int v = from; !rc && v < schema->version; v++) {
    rc = sqlite3_exec(db, schema->steps[v], NULL, NULL, NULL);
    rc = rc ? rc : note(db, v + 1);
  }
  return rc;
}

int store_migrate(sqlite3 *db, int from, const struct store_schema *schema) {
  int rc = SQLITE_OK;
  if (from == schema->version)
    return rc;
  if (from == 0) /* only before the first page is written; lets retention give pages back */
    rc = sqlite3_exec(db, "PRAGMA auto_vacuum = INCREMENTAL", NULL, NULL, NULL);
  rc = rc ? rc : sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
  rc = rc ? rc : run_steps(db, from, schema);
  rc = rc ? rc : sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
  return rc; /* the caller asks for the error's text before it rolls back */
}
