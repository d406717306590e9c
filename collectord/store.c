/* The store's transactions, names and sessions (store.h). Blocks are in store_block.c, the other tables in store_rows.c. */
#include "store.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/ring_abi.h"
#include "../proto/store_abi.h"
#include "store_internal.h"
#include "utf8.h"

/* ---- transactions ---- */

#define LARGE_PAGES 16384 /* what is kept of a WAL's file (store_open.c): above it, its start anew is worth a sync */

int store_begin(struct store *store) {
  if (store->in_transaction) /* an error may have made SQLite give it up; then nothing is written until the caller rolls back */
    return sqlite3_get_autocommit(store->db) ? -EIO : 0;
  /* A rollback for which there was no memory is made up for. Or the BEGIN failed when it had begun. */
  int rc = sqlite3_get_autocommit(store->db) ? 0 : store_run(store, SQL_ROLLBACK);
  rc = rc ? rc : store_run(store, SQL_BEGIN);
  store->in_transaction = rc == 0;
  return rc;
}

static void checkpoint_due(struct store *store) {
  store->checkpoint_at = store->wal_pages + CHECKPOINT_PAGES;
  if (store_checkpoint_ask(store->checkpoint))
    (void)store_checkpoint(store); /* no thread. What is committed stays in the WAL; the next one is tried later */
}

int store_commit(struct store *store) {
  if (!store->in_transaction)
    return 0;
  if (sqlite3_get_autocommit(store->db))
    return -EIO;
  int rc = store_run(store, SQL_COMMIT);
  if (rc)
    return rc;
  store->in_transaction = false;
  if (store->wal_pages < store->checkpoint_at - CHECKPOINT_PAGES)
    store->checkpoint_at = CHECKPOINT_PAGES; /* the WAL began anew */
  if (store->wal_pages >= store->checkpoint_at)
    checkpoint_due(store);
  else if (store->wal_pages >= LARGE_PAGES && store_checkpoint_almost(store->checkpoint))
    (void)store_checkpoint(store); /* the next one is tried later */
  return 0;
}

int store_checkpoint(struct store *store) {
  return store_errno(store->db, sqlite3_wal_checkpoint_v2(store->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL));
}

int64_t store_wal_bytes(const struct store *store) {
  return (int64_t)store->wal_pages * store->page_bytes;
}

void store_rollback(struct store *store) {
  if (!store->in_transaction)
    return;
  if (!sqlite3_get_autocommit(store->db))
    (void)store_run(store, SQL_ROLLBACK); /* an error here has rolled back as well, or store_begin does it */
  store->in_transaction = false;
  store->generation++;
}

bool store_dirty(const struct store *store) {
  return store->in_transaction;
}

unsigned store_generation(const struct store *store) {
  return store->generation;
}

/* ---- names ---- */

static int name_find(struct store *store, const char *text, size_t len, int64_t *out) {
  int rc = store_bind_text(store, SQL_NAME_FIND, 1, text, len);
  if (!rc)
    rc = store_row(store, SQL_NAME_FIND);
  if (rc == 1)
    *out = sqlite3_column_int64(store->statements[SQL_NAME_FIND], 0);
  store_done(store, SQL_NAME_FIND);
  return rc;
}

static int name_add(struct store *store, const char *text, size_t len, int64_t *out) {
  int rc = store_begin(store);
  if (rc)
    return rc;
  rc = store_bind_text(store, SQL_NAME_ADD, 1, text, len);
  if (!rc)
    rc = store_run(store, SQL_NAME_ADD);
  if (!rc)
    *out = sqlite3_last_insert_rowid(store->db);
  return rc;
}

int store_name(struct store *store, const char *text, size_t len, uint32_t *out) {
  int64_t name = 0;
  if (!text)
    text = "", len = 0;
  len = utf8_cut(text, len, NAME_MAX_BYTES);
  int rc = name_find(store, text, len, &name);
  if (!rc)
    rc = name_add(store, text, len, &name);
  if (rc < 0)
    return rc;
  if (name <= 0 || name > UINT32_MAX)
    return -EOVERFLOW;
  *out = (uint32_t)name;
  return 0;
}

/* ---- sessions ---- */

struct session_id {
  char text[33]; /* of the session: 16 digits of the prefix, 16 zeroes */
};

static struct session_id session_id(uint64_t prefix) {
  struct session_id id;
  (void)snprintf(id.text, sizeof id.text, "%016" PRIx64 "%016d", prefix, 0); /* fits */
  return id;
}

static int session_texts(struct store *store, const struct session_row *row) {
  const char *const texts[] = {row->host,           row->exe,    row->argv_json,     row->cwd,
                               row->python_version, row->run_id, row->agent_version, row->attrs_json};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    int rc = store_bind_string(store, SQL_SESSION_ADD, 10 + (int)i, texts[i]);
    if (rc)
      return rc;
  }
  return 0;
}

int store_session_add(struct store *store, const struct session_row *row, int64_t *sid) {
  int rc = store_begin(store);
  if (rc)
    return rc;
  struct session_id id = session_id(row->prefix), prefix = id;
  prefix.text[16] = 0;
  const int64_t numbers[] = {row->pid, row->ppid, row->uid};
  const int64_t ranks[] = {row->rank, row->local_rank, row->world_size};
  rc = store_bind_string(store, SQL_SESSION_ADD, 1, id.text);
  rc = rc ? rc : store_bind_string(store, SQL_SESSION_ADD, 2, prefix.text);
  rc = rc ? rc : store_bind_string(store, SQL_SESSION_ADD, 3, SESSION_RUNNING);
  for (int i = 0; i < 3; i++) {
    store_bind_int(store, SQL_SESSION_ADD, 4 + i, numbers[i]);
    store_bind_int_unless(store, SQL_SESSION_ADD, 7 + i, ranks[i], -1);
  }
  rc = rc ? rc : session_texts(store, row);
  store_bind_int(store, SQL_SESSION_ADD, 18, row->start_ns);
  if (rc)
    store_done(store, SQL_SESSION_ADD);
  else
    rc = store_run(store, SQL_SESSION_ADD);
  if (!rc)
    *sid = sqlite3_last_insert_rowid(store->db);
  return rc;
}

int store_session_ranks(struct store *store, int64_t sid, int64_t rank, int64_t local_rank, int64_t world_size) {
  int rc = store_begin(store);
  if (rc)
    return rc;
  store_bind_int(store, SQL_SESSION_RANKS, 1, sid);
  store_bind_int_unless(store, SQL_SESSION_RANKS, 2, rank, -1);
  store_bind_int_unless(store, SQL_SESSION_RANKS, 3, local_rank, -1);
  store_bind_int_unless(store, SQL_SESSION_RANKS, 4, world_size, -1);
  return store_run(store, SQL_SESSION_RANKS);
}

int store_session_update(struct store *store, int64_t sid, const struct session_state *state) {
  int rc = store_begin(store);
  if (rc)
    return rc;
  const int64_t counts[] = {state->spans, state->marks, state->emitted_spans, state->emitted_marks};
  store_bind_int(store, SQL_SESSION_UPDATE, 1, sid);
  rc = store_bind_string(store, SQL_SESSION_UPDATE, 2, state->state);
  store_bind_int_unless(store, SQL_SESSION_UPDATE, 3, state->end_ns, 0);
  store_bind_int_unless(store, SQL_SESSION_UPDATE, 4, state->last_ns, 0);
  store_bind_int_unless(store, SQL_SESSION_UPDATE, 5, state->exit_code, -1);
  store_bind_int_unless(store, SQL_SESSION_UPDATE, 6, state->exit_signal, 0);
  for (int i = 0; i < 4; i++)
    store_bind_int(store, SQL_SESSION_UPDATE, 7 + i, counts[i]);
  rc = rc ? rc : store_bind_string(store, SQL_SESSION_UPDATE, 11, state->dropped_json);
  store_bind_int(store, SQL_SESSION_UPDATE, 12, state->dropped_total);
  store_bind_int(store, SQL_SESSION_UPDATE, 13, state->overhead_ns);
  if (rc)
    store_done(store, SQL_SESSION_UPDATE);
  else
    rc = store_run(store, SQL_SESSION_UPDATE);
  if (!rc && !sqlite3_changes(store->db))
    rc = -ENOENT;
  return rc;
}

int store_session_find(struct store *store, uint64_t prefix, int64_t *sid) {
  struct session_id id = session_id(prefix);
  int rc = store_bind_string(store, SQL_SESSION_FIND, 1, id.text);
  if (!rc)
    rc = store_row(store, SQL_SESSION_FIND);
  if (rc == 1)
    *sid = sqlite3_column_int64(store->statements[SQL_SESSION_FIND], 0);
  store_done(store, SQL_SESSION_FIND);
  return rc == 1 ? 0 : rc ? rc : -ENOENT;
}

/* The rows are gathered first, so that the callback may write. */
static int running_gather(struct store *store, struct running_session **rows, size_t *n) {
  int rc;
  size_t room = 0;
  sqlite3_stmt *s = store->statements[SQL_SESSIONS_RUNNING];
  while ((rc = store_row(store, SQL_SESSIONS_RUNNING)) == 1) {
    if (*n == room) {
      room = room ? 2 * room : 16;
      struct running_session *more = reallocarray(*rows, room, sizeof **rows);
      if (!more) {
        rc = -ENOMEM;
        break;
      }
      *rows = more;
    }
    const char *prefix = (const char *)sqlite3_column_text(s, 1);
    (*rows)[(*n)++] = (struct running_session){
        .sid = sqlite3_column_int64(s, 0),
        .prefix = prefix ? strtoull(prefix, NULL, 16) : 0,
        .pid = sqlite3_column_int64(s, 2),
        .start_ns = sqlite3_column_int64(s, 3),
        .last_ns = sqlite3_column_int64(s, 4),
    };
  }
  store_done(store, SQL_SESSIONS_RUNNING);
  return rc;
}

int store_sessions_running(struct store *store, int (*each)(const struct running_session *row, void *arg), void *arg) {
  struct running_session *rows = NULL;
  size_t n = 0;
  int rc = running_gather(store, &rows, &n);
  for (size_t i = 0; !rc && i < n; i++)
    rc = each(&rows[i], arg);
  free(rows);
  return rc;
}
