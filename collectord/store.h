/* The store: one SQLite file behind one interface. Only the thread of the event loop calls it.
 *
 * Writes belong to a transaction: the first write after store_commit opens it. Functions return 0 or a negative errno;
 * -ENOSPC when the disk is full, -EROFS, -EIO. After an error inside a transaction the caller must call store_rollback and
 * may try everything again later.
 */
#ifndef CIRRON_STORE_H
#define CIRRON_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../proto/block.h"
#include "../proto/tensor_stats.h"

struct store;

/* Opens or makes the store at `path` (its folder must exist), takes its lock (PATH.lock, flock) and sets WAL mode. Sessions that
 * an earlier collector left in state running stay so, for the session code to find (store_sessions_running).
 * Refuses, with one line in `why` that says what to do: another collector holds the lock (-EWOULDBLOCK), not a database (-EBADMSG),
 * a database that is not ours (-EMEDIUMTYPE), written by a newer schema (-EPROTONOSUPPORT), not writable or no such folder
 * (the errno). */
int store_open(const char *path, struct store **out, char *why, size_t why_len);
void store_close(struct store *store); /* commits nothing; accepts NULL */

int store_commit(struct store *store);
void store_rollback(struct store *store);
bool store_dirty(const struct store *store); /* is a transaction open? */

/* Copies what is committed from the WAL into the database and syncs it, which can take a disk's time. store_commit has it done by a
 * thread of its own when the WAL has grown (store_checkpoint.h); an error loses nothing. */
int store_checkpoint(struct store *store);
/* The bytes of the WAL as of the last commit. */
int64_t store_wal_bytes(const struct store *store);

/* The row of `text` in names, made where it is missing. Bytes that are not UTF-8 are replaced by U+FFFD; zero bytes are kept.
 * A name made in a transaction that is rolled back is forgotten: do not keep ids over store_rollback (store_generation changes). */
int store_name(struct store *store, const char *text, size_t len, uint32_t *out);
unsigned store_generation(const struct store *store);

struct session_row {
  uint64_t prefix;
  int64_t pid, ppid, uid;
  int64_t rank, local_rank, world_size;                                                            /* -1: NULL */
  const char *host, *exe, *argv_json, *cwd, *python_version, *run_id, *agent_version, *attrs_json; /* NULL allowed, UTF-8 */
  int64_t start_ns;
};

struct session_state {
  const char *state; /* SESSION_... */
  int64_t end_ns;    /* 0: NULL */
  int64_t last_ns;   /* 0: NULL */
  int exit_code;     /* -1: NULL */
  int exit_signal;   /* 0: NULL */
  int64_t spans, marks, emitted_spans, emitted_marks;
  const char *dropped_json; /* a JSON object */
  int64_t dropped_total, overhead_ns;
};

int store_session_add(struct store *store, const struct session_row *row, int64_t *sid);
int store_session_update(struct store *store, int64_t sid, const struct session_state *state);
/* The ranks, where the process learnt them after its Hello; -1: NULL. */
int store_session_ranks(struct store *store, int64_t sid, int64_t rank, int64_t local_rank, int64_t world_size);
/* The session of this prefix, whatever its state: 0 and *sid, or -ENOENT. */
int store_session_find(struct store *store, uint64_t prefix, int64_t *sid);
/* What is stored of a session's state, for a collector that takes it over from one that died: 0, or -ENOENT. The texts in *out are
 * good until the next call. */
int store_session_read(struct store *store, int64_t sid, struct session_state *out);

/* Whose process it was: 0, or -ENOENT. */
int store_session_owner(struct store *store, int64_t sid, int64_t *uid, int64_t *pid);

/* For sessions left in state running by a collector that died. Calls back with sid and what is needed to see whether the process
 * still lives. Stops and returns the callback's value if that is not 0. */
struct running_session {
  int64_t sid;
  uint64_t prefix;
  int64_t pid, start_ns, last_ns;
};
int store_sessions_running(struct store *store, int (*each)(const struct running_session *row, void *arg), void *arg);

/* The session that ended first, of those that have; -ENOENT if there is none. */
struct store_oldest {
  int64_t sid, ended_ns, spans;
};
int store_oldest(struct store *store, struct store_oldest *out);
/* Takes a session that is not running from the readers (-ENOENT: there is none such). What it leaves goes with store_erase_some, a little
 * in each transaction, until there is no more. */
int store_erase(struct store *store, int64_t sid);
int store_erase_some(struct store *store, bool *more);
/* Gives at most `pages` free pages back to the file system; *left: how many there still are. Not within a transaction (-EBUSY). */
int store_shrink(struct store *store, int pages, int64_t *left);
int store_used(struct store *store, int64_t *bytes); /* bytes of pages in use */

/* A block of a session. *block is 0 for a new one and is set; otherwise that block, which is not sealed, is replaced. One that went
 * with a rolled-back transaction is made anew and *block set. */
int store_block_put(struct store *store, int64_t sid, const struct span_row *rows, size_t n, bool sealed, int64_t *block);
/* The session's blocks that are not sealed, decoded, in the order of their numbers. Stops and returns the callback's value if that is
 * not 0. */
int store_blocks_unsealed(struct store *store, int64_t sid, int (*each)(int64_t block, const struct block *rows, void *arg),
                          void *arg);
int store_block_delete(struct store *store, int64_t block);

/* Replaces the session's rows of open_spans. end_ns of the rows is not looked at. */
int store_open_spans(struct store *store, int64_t sid, const struct span_row *rows, size_t n);
int store_move(struct store *store, int64_t sid, uint64_t span, int64_t since_ns, uint64_t parent);
int store_ring_tail(struct store *store, int64_t sid, uint32_t ring_no, uint64_t tail);
int store_ring_tail_get(struct store *store, int64_t sid, uint32_t ring_no, uint64_t *tail); /* 0 where there is none */

struct mark_row {
  uint64_t id, span;
  uint32_t name;
  int64_t ts_ns;
  bool summary;
  uint8_t type; /* enum mark_type */
  double f;
  int64_t i;
  const char *text; /* MARK_STRING, UTF-8 or not */
  size_t text_len;
  const char *attrs; /* JSON or NULL */
  size_t attrs_len;
};
int store_mark(struct store *store, int64_t sid, const struct mark_row *row); /* replaces an earlier mark of the same id */

struct step_row {
  uint64_t span, parent, epoch; /* epoch 0: none */
  int64_t index, start_ns, end_ns, cpu_ns, gpu_ns;
  int64_t phase_ns[4]; /* data_load, forward, backward, optimizer */
  int64_t phase_count[4];
  int64_t rank;
  uint32_t tid;
  bool error;
};
int store_step(struct store *store, int64_t sid, const struct step_row *row); /* replaces an earlier row of the same span */

/* kind is SPAN_EPOCH or SPAN_EVAL; end_ns 0: unfinished. Replaces an earlier row of the same span. */
int store_epoch(struct store *store, int64_t sid, const struct span_row *row, int64_t rank);
int store_epoch_delete(struct store *store, int64_t sid, uint64_t span);

struct rollup_row {
  uint64_t epoch;
  uint32_t name;
  uint8_t kind;
  int64_t count, errors, total_ns, self_ns, min_ns, max_ns;
  const uint32_t *histogram; /* HISTOGRAM_BINS counts (proto/store_abi.h) */
};
int store_rollup(struct store *store, int64_t sid, const struct rollup_row *row); /* replaces */
/* Reads back the roll-ups of a session, for a collector that takes it over from one that died. */
int store_rollups_read(struct store *store, int64_t sid, int (*each)(const struct rollup_row *row, void *arg), void *arg);

/* One tensor of a snapshot. Texts may be any bytes. Replaces an earlier row of the same id, as store_snapshot_pass does. */
struct snapshot_row {
  uint64_t id, pass, span;
  const char *tensor, *model, *dtype;
  size_t tensor_len, model_len, dtype_len;
  bool gradient, torn;
  const int64_t *shape;
  uint32_t ndim;
  const char *mode;                 /* stats, sampled, full */
  const struct tensor_stats *stats; /* NULL: not read */
  const char *blob_uri;             /* or NULL */
  int64_t ts_ns;
  const char *attrs; /* JSON */
};
int store_snapshot(struct store *store, int64_t sid, const struct snapshot_row *row);

struct snapshot_pass_row {
  uint64_t pass, span;
  int64_t epoch, step;       /* or SPAN_NO_INDEX */
  const char *reason, *mode; /* mode: as set */
  int64_t ts_ns, records, list_ns, read_ns, wait_ns, torn, blobs;
  bool own;
  int blob_error; /* 0: NULL */
};
int store_snapshot_pass(struct store *store, int64_t sid, const struct snapshot_pass_row *row);

#endif
