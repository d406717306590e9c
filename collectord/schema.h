/* The tables of a store, as SQL. */
#ifndef CIRRON_SCHEMA_H
#define CIRRON_SCHEMA_H

extern const char schema_sql[]; /* version 1: never changed, see store_migrate.c */

#endif
