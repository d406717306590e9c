/* The tables of a store, as SQL. */
#ifndef CIRRON_SCHEMA_H
#define CIRRON_SCHEMA_H

/* What leads from each version to the next, never changed: see store_migrate.c. */
extern const char schema_sql[];   /* 1 */
extern const char schema_2_sql[]; /* 2 */

#endif
