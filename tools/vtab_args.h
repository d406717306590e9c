/* Inside of the table `spans` (vtab_spans.c): its columns, and how conditions of SQL get from the planner to the filter of the stream.
 *
 * The planner picks the conditions that can rule out blocks; each becomes one letter in idxStr and one argument of xFilter. SQLite
 * looks at all of them again, so what can't be passed exactly may be passed loosely, but must never rule out too much.
 */
#ifndef CIRRON_VTAB_ARGS_H
#define CIRRON_VTAB_ARGS_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "spans.h"

enum column {
  COL_SESSION_ID,
  COL_ID,
  COL_NAME,
  COL_PARENT_ID,
  COL_IDX,
  COL_START,
  COL_END,
  COL_DUR,
  COL_CPU,
  COL_GPU,
  COL_THREAD,
  COL_PID,
  COL_RANK,
  COL_KIND,
  COL_MODE,
  COL_MODULE,
  COL_EXCEPTION,
  COL_ERROR,
  COL_STATE,
  COL_ATTRS,
  COL_SID,
  COL_SPAN,
  COL_PARENT,
  COL_NAME_NO,
  COL_COUNT
};

/* Sets what is passed, and the estimates. Returns an SQLite result code. */
int vtab_args_plan(sqlite3_index_info *info);

/* The conditions of one scan. Zeroed but for filter.columns; not to be copied, as the filter may point to `name`. */
struct vtab_args_limits {
  struct spans_filter filter;
  uint32_t name;
  bool none; /* no row can meet them */
};

/* Reads the arguments. Returns 0 or a negative errno. */
int vtab_args_read(sqlite3 *db, const char *args, int argc, sqlite3_value **argv, struct vtab_args_limits *limits);

#endif
