/* The tables of a store, as SQL. The version of this text is STORE_SCHEMA_VERSION (proto/store_abi.h). */
#ifndef CIRRON_SCHEMA_H
#define CIRRON_SCHEMA_H

extern const char *const schema_sql;

#endif
