/* The store's statements: their text, binding and running, and what SQLite's result codes mean as errno. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store_internal.h"
#include "utf8.h"

/* Keys that a traced process chooses (ids of spans and marks, ring numbers) replace an earlier row: a process that uses one twice
 * must not make everybody's transaction fail. */
static const char *const text_of[SQL_COUNT] = {
    [SQL_BEGIN] = "BEGIN IMMEDIATE",
    [SQL_COMMIT] = "COMMIT",
    [SQL_ROLLBACK] = "ROLLBACK",
    [SQL_NAME_FIND] = "SELECT name FROM names WHERE text = ?1",
    [SQL_NAME_ADD] = "INSERT INTO names(text) VALUES(?1)",
    [SQL_SESSION_ADD] =
        "INSERT INTO sessions(id, prefix, state, pid, ppid, uid, rank, local_rank, world_size, host, exe, argv, cwd,"
        " python_version, run_id, agent_version, attrs, start_ns)"
        " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, coalesce(?17, '{}'), ?18)",
    [SQL_SESSION_UPDATE] =
        "UPDATE sessions SET state = ?2, end_ns = ?3, last_ns = ?4, exit_code = ?5, exit_signal = ?6, spans = ?7,"
        " marks = ?8, emitted_spans = ?9, emitted_marks = ?10, dropped = coalesce(?11, '{}'),"
        " dropped_total = ?12, overhead_ns = ?13 WHERE sid = ?1",
    [SQL_SESSION_RANKS] = "UPDATE sessions SET rank = ?2, local_rank = ?3, world_size = ?4 WHERE sid = ?1",
    [SQL_SESSION_FIND] = "SELECT sid FROM sessions WHERE id = ?1",
    [SQL_SESSIONS_RUNNING] =
        "SELECT sid, prefix, pid, start_ns, coalesce(last_ns, 0) FROM sessions WHERE state = 'running' ORDER BY sid",
    [SQL_BLOCK_ADD] = "INSERT INTO blocks(data) VALUES(?1)",
    [SQL_BLOCK_UPDATE] = "UPDATE blocks SET data = ?1 WHERE block = ?2",
    [SQL_BLOCK_META_ADD] =
        "INSERT INTO block_meta(block, sid, sealed, count, min_id, max_id, min_start_ns, max_end_ns, max_dur_ns,"
        " names) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    [SQL_BLOCK_META_UPDATE] = "UPDATE block_meta SET sealed = ?3, count = ?4, min_id = ?5, max_id = ?6, min_start_ns = ?7,"
                              " max_end_ns = ?8, max_dur_ns = ?9, names = ?10 WHERE block = ?1 AND sid = ?2 AND sealed = 0",
    [SQL_BLOCK_UNSEALED] = "SELECT m.block, b.data FROM block_meta m JOIN blocks b ON b.block = m.block"
                           " WHERE m.sid = ?1 AND m.sealed = 0 ORDER BY m.block",
    [SQL_BLOCK_DELETE] = "DELETE FROM blocks WHERE block = ?1",
    [SQL_BLOCK_META_DELETE] = "DELETE FROM block_meta WHERE block = ?1",
    [SQL_OPEN_CLEAR] = "DELETE FROM open_spans WHERE sid = ?1",
    [SQL_OPEN_ADD] = "INSERT OR REPLACE INTO open_spans(sid, span, parent, name, kind, idx, start_ns, tid, flags, module)"
                     " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    [SQL_MOVE_ADD] = "INSERT INTO moves(sid, span, since_ns, parent) VALUES(?1, ?2, ?3, ?4)",
    [SQL_RING_SET] = "INSERT OR REPLACE INTO rings(sid, ring_no, tail) VALUES(?1, ?2, ?3)",
    [SQL_RING_GET] = "SELECT tail FROM rings WHERE sid = ?1 AND ring_no = ?2",
    [SQL_MARK_ADD] = "INSERT OR REPLACE INTO marks(sid, mark, span, name, ts_ns, kind, value_type, value, attrs)"
                     " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    [SQL_STEP_ADD] =
        "INSERT OR REPLACE INTO steps(sid, span, parent, epoch, idx, start_ns, end_ns, data_load_ns, forward_ns,"
        " backward_ns, optimizer_ns, data_loads, forwards, backwards, optimizers, cpu_ns, gpu_ns, rank, tid, error)"
        " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
    [SQL_EPOCH_SET] = "INSERT OR REPLACE INTO epochs(sid, span, parent, kind, idx, start_ns, end_ns, cpu_ns, rank, tid)"
                      " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    [SQL_EPOCH_DELETE] = "DELETE FROM epochs WHERE sid = ?1 AND span = ?2",
    [SQL_ROLLUP_SET] =
        "INSERT OR REPLACE INTO rollups(sid, epoch, name, kind, count, errors, total_ns, self_ns, min_ns, max_ns,"
        " histogram) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    [SQL_ROLLUPS_READ] = "SELECT epoch, name, kind, count, errors, total_ns, self_ns, min_ns, max_ns, histogram FROM rollups"
                         " WHERE sid = ?1",
    [SQL_SNAPSHOT_SET] =
        "INSERT OR REPLACE INTO snapshots(sid, snapshot, pass, span, tensor_name, model, kind, shape, dtype, mode,"
        " count, nans, infs, neg_infs, zeros, mean, std, min, max, norm, histogram, magnitude, blob_uri, ts_ns,"
        " torn, attrs) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,"
        " ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26)",
    [SQL_PASS_SET] =
        "INSERT OR REPLACE INTO snapshot_passes(sid, pass, span, epoch, step, reason, mode, ts_ns, records, list_ns,"
        " read_ns, wait_ns, torn, own, blobs, blob_error)"
        " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
};

int store_errno(sqlite3 *db, int rc) {
  int system = db ? sqlite3_system_errno(db) : 0;
  switch (rc & 0xff) {
  case SQLITE_OK:
  case SQLITE_ROW:
  case SQLITE_DONE:
    return 0;
  case SQLITE_FULL:
    return -ENOSPC;
  case SQLITE_IOERR:
    return system == ENOSPC || system == EDQUOT ? -ENOSPC : -EIO;
  case SQLITE_CANTOPEN:
    return system ? -system : -EIO;
  case SQLITE_READONLY:
    return -EROFS;
  case SQLITE_BUSY:
  case SQLITE_LOCKED:
    return -EBUSY;
  case SQLITE_NOMEM:
    return -ENOMEM;
  case SQLITE_CORRUPT:
  case SQLITE_NOTADB:
    return -EBADMSG;
  case SQLITE_PERM:
  case SQLITE_AUTH:
    return -EACCES;
  case SQLITE_CONSTRAINT:
    return -EEXIST;
  case SQLITE_TOOBIG:
    return -EMSGSIZE;
  default:
    return -EIO;
  }
}

int store_sql_prepare(struct store *store) {
  for (int i = 0; i < SQL_COUNT; i++) {
    int rc = sqlite3_prepare_v3(store->db, text_of[i], -1, SQLITE_PREPARE_PERSISTENT, &store->statements[i], NULL);
    if (rc == SQLITE_ERROR) /* a table or column is missing */
      return -EBADMSG;
    if (rc != SQLITE_OK)
      return store_errno(store->db, rc);
  }
  return 0;
}

void store_sql_finalize(struct store *store) {
  for (int i = 0; i < SQL_COUNT; i++) {
    (void)sqlite3_finalize(store->statements[i]); /* tells of the last run's error again */
    store->statements[i] = NULL;
  }
}

void store_done(struct store *store, enum store_sql sql) {
  (void)sqlite3_reset(store->statements[sql]);          /* tells of the last run's error again */
  (void)sqlite3_clear_bindings(store->statements[sql]); /* always OK */
}

int store_row(struct store *store, enum store_sql sql) {
  int rc = sqlite3_step(store->statements[sql]);
  return rc == SQLITE_ROW ? 1 : store_errno(store->db, rc);
}

int store_run(struct store *store, enum store_sql sql) {
  int rc = store_row(store, sql);
  assert(rc <= 0);
  store_done(store, sql);
  return rc;
}

/* Binding static memory allocates nothing and the places are ours: it can't fail. */
void store_bind_int(struct store *store, enum store_sql sql, int at, int64_t value) {
  int rc = sqlite3_bind_int64(store->statements[sql], at, value);
  assert(rc == SQLITE_OK);
  (void)rc; /* with NDEBUG */
}

void store_bind_int_unless(struct store *store, enum store_sql sql, int at, int64_t value, int64_t null) {
  if (value != null)
    store_bind_int(store, sql, at, value);
}

int store_bind_text(struct store *store, enum store_sql sql, int at, const char *text, size_t len) {
  if (!text)
    return 0; /* bindings are cleared: NULL */
  void (*drop)(void *) = SQLITE_STATIC;
  if (utf8_valid(text, len) != len) {
    text = utf8_clean(text, len, &len);
    drop = free;
    if (!text)
      return -ENOMEM;
  }
  return store_errno(store->db, sqlite3_bind_text64(store->statements[sql], at, text, len, drop, SQLITE_UTF8));
}

int store_bind_string(struct store *store, enum store_sql sql, int at, const char *text) {
  return store_bind_text(store, sql, at, text, text ? strlen(text) : 0);
}

void store_bind_blob(struct store *store, enum store_sql sql, int at, const void *data, size_t len) {
  int rc = sqlite3_bind_blob64(store->statements[sql], at, len ? data : "", len, SQLITE_STATIC);
  assert(rc == SQLITE_OK); /* lengths are bounded far below SQLite's limit */
  (void)rc;                /* with NDEBUG */
}
