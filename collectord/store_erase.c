/* Which sessions are too old or too many for the store, and their removal (store.h). Rare, so statements are not kept prepared. */
#include <errno.h>

#include "../proto/erase.h"
#include "../proto/store_abi.h"
#include "store_internal.h"

/* The one that ended first. A session whose end is not known counts from the last that was heard of it. */
static const char sql_oldest[] =
    "SELECT sid, coalesce(end_ns, last_ns, start_ns) AS ended, spans FROM sessions"
    " WHERE state NOT IN ('" SESSION_RUNNING "', '" SESSION_ERASED "') ORDER BY ended, sid LIMIT 1";

int store_oldest(struct store *store, struct store_oldest *out) {
  sqlite3_stmt *s = NULL;
  int rc = sqlite3_prepare_v2(store->db, sql_oldest, -1, &s, NULL);
  if (rc == SQLITE_OK)
    rc = sqlite3_step(s);
  if (rc == SQLITE_ROW)
    *out = (struct store_oldest){sqlite3_column_int64(s, 0), sqlite3_column_int64(s, 1), sqlite3_column_int64(s, 2)};
  int err = rc == SQLITE_ROW ? 0 : rc == SQLITE_DONE ? -ENOENT : store_errno(store->db, rc);
  (void)sqlite3_finalize(s); /* rc is known */
  return err;
}

int store_erase(struct store *store, int64_t sid) {
  bool marked = false;
  int err = store_begin(store);
  if (!err)
    err = store_errno(store->db, erase_mark(store->db, sid, &marked));
  return err ? err : marked ? 0 : -ENOENT;
}

int store_erase_some(struct store *store, bool *more) {
  int err = store_begin(store);
  return err ? err : store_errno(store->db, erase_some(store->db, more));
}

int store_shrink(struct store *store, int pages, int64_t *left) {
  if (store->in_transaction)
    return -EBUSY;
  return store_errno(store->db, erase_shrink(store->db, pages, left));
}

int store_used(struct store *store, int64_t *bytes) {
  return store_errno(store->db, erase_used(store->db, bytes));
}
