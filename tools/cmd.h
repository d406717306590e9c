/* The commands: each runs on an open store and returns the exit status. */
#ifndef CIRRON_CMD_H
#define CIRRON_CMD_H

#include "cli.h"

int cmd_report(const struct cli *cli);
int cmd_sessions(const struct cli *cli);
int cmd_tree(const struct cli *cli);
int cmd_spans(const struct cli *cli);
int cmd_marks(const struct cli *cli);
int cmd_overhead(const struct cli *cli);
int cmd_snapshots(const struct cli *cli);
int cmd_diff_tensors(const struct cli *cli);
int cmd_snapshot(const struct cli *cli);
int cmd_first_bad(const struct cli *cli);
int cmd_steps(const struct cli *cli);
int cmd_stats(const struct cli *cli);
int cmd_clear(const struct cli *cli);
int cmd_sql(const struct cli *cli);
int cmd_doctor(const struct cli *cli);
int cmd_ranks(const struct cli *cli);
int cmd_status(const struct cli *cli);

/* How many rows a table shows where nothing was said; the other formats give all. */
#define CMD_TABLE_ROWS 50

/* Calls `each` for every store, with cli->store set to it, until one call returns something else than 0. Returns that, or 0. */
int cmd_each_store(const struct cli *cli, int (*each)(const struct cli *cli, void *arg), void *arg);
/* --slowest is an order within one store: says so where there are several. */
bool cmd_one_order(const struct cli *cli);

/* The rows to show: --limit, else CMD_TABLE_ROWS in a table and all else. */
int64_t cmd_limit(const struct cli *cli);
/* For the row after the last one: says on stderr that there are more. */
void cmd_more(const struct cli *cli, int64_t shown);
/* A table without a row: says so on stderr. `what`: "marks". */
void cmd_none(const struct cli *cli, const char *what, int64_t shown);

#endif
