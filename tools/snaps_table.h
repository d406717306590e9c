/* Tables of snapshots. */
#ifndef CIRRON_SNAPS_TABLE_H
#define CIRRON_SNAPS_TABLE_H

#include "cli.h"
#include "job.h"
#include "pick.h"
#include "snaps.h"

/* What the command line asks for of the records `p` and their passes `q`: adds conditions, each with AND before it, whose values
 * snaps_bind binds. */
void snaps_where(const struct cli *cli, struct buf *sql);
void snaps_bind(const struct cli *cli, sqlite3_stmt *stmt);

/* `snapshots`, `snapshots TENSOR`. Returns an exit status. */
int snaps_table(const struct cli *cli, const struct pick_session *sessions, size_t count);

/* snaps_rows.c: the table of what was asked for, a row a snapshot, of these ranks. */
int snaps_rows(const struct cli *cli, const struct job *job);

/* The session that a table is about: the latest that has snapshots, or NULL. */
const struct pick_session *snaps_session(const struct pick_session *sessions, size_t count);

/* What a column takes at most, as far as can be said, with its gap; and in which order columns go, from 1 on, where the terminal is too
 * narrow for all of them and the name. 0: it stays. */
struct snaps_fit {
  uint8_t width, goes;
};
/* Hides columns so that `name_columns` remain, or what names need at most. fits[i] is of columns[i]; names have width 0. */
void snaps_fit(const struct cli *cli, struct out_column *columns, const struct snaps_fit *fits, size_t count,
               size_t name_columns);

/* A number with four digits, or "-". The text is in `out`. */
struct out_cell snaps_number(double value, char out[32]);

#endif
