/* What a collector needs to read when it takes a session over (store.h). Rare, so its statement is not kept prepared. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "../proto/store_abi.h"
#include "store_internal.h"

static const char sql[] =
    "SELECT state, coalesce(end_ns, 0), coalesce(last_ns, 0), coalesce(exit_code, -1), coalesce(exit_signal, 0),"
    " spans, marks, emitted_spans, emitted_marks, dropped, dropped_total, overhead_ns"
    " FROM sessions WHERE sid = ?1";

/* The state is one of four words; the text of the row ends with the statement. */
static const char *state_word(const char *text) {
  static const char *const words[] = {SESSION_RUNNING, SESSION_FINISHED, SESSION_KILLED};
  for (size_t i = 0; text && i < sizeof words / sizeof *words; i++)
    if (strcmp(text, words[i]) == 0)
      return words[i];
  return SESSION_LOST;
}

static void read_row(sqlite3_stmt *row, struct session_state *out) {
  static char dropped[4096];
  const char *text = (const char *)sqlite3_column_text(row, 9);
  snprintf(dropped, sizeof dropped, "%s", text && strlen(text) < sizeof dropped ? text : "{}");
  *out = (struct session_state){
      .state = state_word((const char *)sqlite3_column_text(row, 0)),
      .end_ns = sqlite3_column_int64(row, 1),
      .last_ns = sqlite3_column_int64(row, 2),
      .exit_code = sqlite3_column_int(row, 3),
      .exit_signal = sqlite3_column_int(row, 4),
      .spans = sqlite3_column_int64(row, 5),
      .marks = sqlite3_column_int64(row, 6),
      .emitted_spans = sqlite3_column_int64(row, 7),
      .emitted_marks = sqlite3_column_int64(row, 8),
      .dropped_json = dropped,
      .dropped_total = sqlite3_column_int64(row, 10),
      .overhead_ns = sqlite3_column_int64(row, 11),
  };
}

int store_session_read(struct store *store, int64_t sid, struct session_state *out) {
  sqlite3_stmt *row = NULL;
  int rc = sqlite3_prepare_v2(store->db, sql, -1, &row, NULL);
  if (rc != SQLITE_OK)
    return store_errno(store->db, rc);
  sqlite3_bind_int64(row, 1, sid);
  rc = sqlite3_step(row);
  int err = rc == SQLITE_ROW ? 0 : rc == SQLITE_DONE ? -ENOENT : store_errno(store->db, rc);
  if (!err)
    read_row(row, out);
  sqlite3_finalize(row);
  return err;
}

int store_session_owner(struct store *store, int64_t sid, int64_t *uid, int64_t *pid) {
  sqlite3_stmt *row = NULL;
  int rc = sqlite3_prepare_v2(store->db, "SELECT uid, pid FROM sessions WHERE sid = ?1", -1, &row, NULL);
  if (rc != SQLITE_OK)
    return store_errno(store->db, rc);
  sqlite3_bind_int64(row, 1, sid);
  rc = sqlite3_step(row);
  int err = rc == SQLITE_ROW ? 0 : rc == SQLITE_DONE ? -ENOENT : store_errno(store->db, rc);
  if (!err) {
    *uid = sqlite3_column_int64(row, 0);
    *pid = sqlite3_column_int64(row, 1);
  }
  sqlite3_finalize(row);
  return err;
}
