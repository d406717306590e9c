#include "erase.h"

#include <stdio.h>

#include "store_abi.h"

/* What one call takes away: some milliseconds, mostly for the pages of the blocks, which are read to be freed. */
#define BLOCKS 24
#define ROWS 1000

/* Each with its key beside sid, by which some of its rows are named. Blocks go first, and sessions, apart. */
static const struct {
  const char *name, *key;
} tables[] = {
    {"steps", "span"},           {"marks", "mark"},      {"snapshots", "snapshot"},
    {"snapshot_passes", "pass"}, {"epochs", "span"},     {"rollups", "(epoch, name, kind)"},
    {"kernels", "(span, name)"}, {"open_spans", "span"}, {"moves", "move"},
    {"rings", "ring_no"},
};
enum { TABLES = sizeof tables / sizeof *tables };

const char *const erase_tables[] = {"steps",      "marks", "snapshots", "snapshot_passes", "epochs",   "rollups", "kernels",
                                    "open_spans", "moves", "rings",     "block_meta",      "sessions", NULL};

/* Runs a statement with up to two numbers. *changed: rows that it changed; *out: the first column of its row. */
static int run(sqlite3 *db, const char *sql, int64_t a, int64_t b, int *changed, int64_t *out) {
  sqlite3_stmt *s = NULL;
  int rc = sqlite3_prepare_v2(db, sql, -1, &s, NULL);
  if (rc != SQLITE_OK)
    return rc;
  if (sqlite3_bind_parameter_count(s) > 0)
    (void)sqlite3_bind_int64(s, 1, a); /* the place is there */
  if (sqlite3_bind_parameter_count(s) > 1)
    (void)sqlite3_bind_int64(s, 2, b); /* the place is there */
  rc = sqlite3_step(s);
  if (rc == SQLITE_ROW && out)
    *out = sqlite3_column_int64(s, 0);
  while (rc == SQLITE_ROW)
    rc = sqlite3_step(s);
  if (changed)
    *changed = sqlite3_changes(db);
  (void)sqlite3_finalize(s); /* rc is known */
  return rc == SQLITE_DONE ? 0 : rc;
}

int erase_mark(sqlite3 *db, int64_t sid, bool *marked) {
  int changed = 0;
  int rc = run(db,
               "UPDATE sessions SET state = '" SESSION_ERASED "', id = 'erased ' || sid"
               " WHERE sid = ?1 AND state NOT IN ('" SESSION_RUNNING "', '" SESSION_ERASED "')",
               sid, 0, &changed, NULL);
  *marked = changed == 1;
  return rc;
}

static int erase_blocks(sqlite3 *db, int64_t sid, int *changed) {
  int rc = run(db, "DELETE FROM blocks WHERE block IN (SELECT block FROM block_meta WHERE sid = ?1 LIMIT ?2)", sid, BLOCKS,
               NULL, NULL);
  return rc ? rc
            : run(db, "DELETE FROM block_meta WHERE block IN (SELECT block FROM block_meta WHERE sid = ?1 LIMIT ?2)", sid,
                  BLOCKS, changed, NULL);
}

/* A store that no collector has opened since has not got those of later schemas. */
static int is_there(sqlite3 *db, const char *table, bool *there) {
  char sql[128];
  int64_t found = 0;
  (void)snprintf(sql, sizeof sql, "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '%s'", table); /* fits */
  int rc = run(db, sql, 0, 0, NULL, &found);
  *there = found == 1;
  return rc;
}

static int erase_rows(sqlite3 *db, int64_t sid, int *changed) {
  int rc = 0;
  char sql[256], key[64];
  for (int i = 0; !rc && i < TABLES; i++) {
    const char *columns = tables[i].key;
    bool there = false;
    rc = is_there(db, tables[i].name, &there);
    if (rc || !there)
      continue;
    (void)snprintf(key, sizeof key, "%.*s", *columns == '(' ? (int)__builtin_strlen(columns) - 2 : 63,
                   columns + (*columns == '(')); /* fits */
    (void)snprintf(sql, sizeof sql, "DELETE FROM %s WHERE sid = ?1 AND %s IN (SELECT %s FROM %s WHERE sid = ?1 LIMIT ?2)",
                   tables[i].name, columns, key, tables[i].name); /* fits */
    rc = run(db, sql, sid, ROWS, changed, NULL);
    if (*changed)
      return rc;
  }
  return rc;
}

int erase_some(sqlite3 *db, bool *more) {
  int64_t sid = 0;
  int changed = 0;
  int rc = run(db, "SELECT sid FROM sessions WHERE state = '" SESSION_ERASED "' LIMIT 1", 0, 0, NULL, &sid);
  *more = sid != 0;
  if (rc || !sid)
    return rc;
  rc = erase_blocks(db, sid, &changed);
  if (!rc && !changed)
    rc = erase_rows(db, sid, &changed);
  if (!rc && !changed)
    rc = run(db, "DELETE FROM sessions WHERE sid = ?1", sid, 0, NULL, NULL);
  return rc;
}

int erase_shrink(sqlite3 *db, int pages, int64_t *left) {
  char sql[64];
  (void)snprintf(sql, sizeof sql, "PRAGMA incremental_vacuum(%d)", pages); /* fits */
  int64_t mode = 0;
  *left = 0;
  int rc = run(db, "PRAGMA auto_vacuum", 0, 0, NULL, &mode);
  if (rc || mode != 2) /* not incremental */
    return rc;
  rc = run(db, sql, 0, 0, NULL, NULL);
  return rc ? rc : run(db, "PRAGMA freelist_count", 0, 0, NULL, left);
}

int erase_used(sqlite3 *db, int64_t *bytes) {
  int64_t pages = 0, unused = 0, page = 0;
  int rc = run(db, "PRAGMA page_count", 0, 0, NULL, &pages);
  rc = rc ? rc : run(db, "PRAGMA freelist_count", 0, 0, NULL, &unused);
  rc = rc ? rc : run(db, "PRAGMA page_size", 0, 0, NULL, &page);
  *bytes = (pages - unused) * page;
  return rc;
}
