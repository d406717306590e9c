/* The stream of spans (spans.h). */
#include "spans.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/ring_abi.h"
#include "../proto/store_abi.h"
#include "spans_internal.h"

#define SESSION_COLUMNS "SELECT sid, id, prefix, state, pid, rank, start_ns FROM sessions WHERE state <> '" SESSION_ERASED "'"

/* Of the blocks, only what their description does not rule out. Its limits are written by store_block.c. */
static const char *const sql_of[SPANS_SQL_COUNT] = {
    [SPANS_SQL_SESSIONS] = SESSION_COLUMNS " ORDER BY sid",
    [SPANS_SQL_SESSION] = SESSION_COLUMNS " AND sid = ?1",
    [SPANS_SQL_BLOCKS] =
        "SELECT block, names FROM block_meta WHERE sid = ?1 AND min_id <= ?2 AND max_id >= ?3 AND min_start_ns <= ?4"
        " AND max_end_ns >= ?5 AND max_dur_ns >= ?6 ORDER BY block",
    [SPANS_SQL_DATA] = "SELECT data FROM blocks WHERE block = ?1",
    [SPANS_SQL_OPEN] = "SELECT span, parent, name, kind, idx, start_ns, tid, flags, module FROM open_spans WHERE sid = ?1"
                       " ORDER BY span",
    [SPANS_SQL_MOVES] = "SELECT span, since_ns, parent FROM moves WHERE sid = ?1 ORDER BY move",
};

int spans_errno(int rc) {
  switch (rc & 0xff) {
  case SQLITE_OK:
  case SQLITE_ROW:
  case SQLITE_DONE:
    return 0;
  case SQLITE_ERROR: /* a table or column is missing */
  case SQLITE_CORRUPT:
  case SQLITE_NOTADB:
  case SQLITE_SCHEMA:
    return -EBADMSG;
  case SQLITE_NOMEM:
    return -ENOMEM;
  case SQLITE_BUSY:
  case SQLITE_LOCKED:
    return -EBUSY;
  case SQLITE_INTERRUPT:
    return -EINTR;
  default:
    return -EIO;
  }
}

/* ---- statements ---- */

static int prepared(struct spans *spans, enum spans_sql sql, sqlite3_stmt **out) {
  int rc = SQLITE_OK;
  if (!spans->statements[sql])
    rc = sqlite3_prepare_v3(spans->db, sql_of[sql], -1, SQLITE_PREPARE_PERSISTENT, &spans->statements[sql], NULL);
  *out = spans->statements[sql];
  return spans_errno(rc);
}

static int step(sqlite3_stmt *s) {
  int rc = sqlite3_step(s);
  return rc == SQLITE_ROW ? 1 : spans_errno(rc);
}

static void finish(struct spans *spans, enum spans_sql sql) {
  (void)sqlite3_reset(spans->statements[sql]); /* tells of the last run's error again */
}

/* ---- conditions ---- */

static int by_value(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

static unsigned columns_for(const struct spans_filter *f) {
  if (!f->columns)
    return BLOCK_ALL;
  unsigned columns = f->columns;
  columns |= f->span ? BLOCK_ID : 0;
  columns |= f->names ? BLOCK_NAME : 0;
  columns |= f->kinds ? BLOCK_KIND : 0;
  columns |= f->min_start_ns || f->max_start_ns || columns & BLOCK_PARENT ? BLOCK_START : 0; /* moves look at both */
  columns |= f->min_end_ns || f->max_end_ns || f->min_dur_ns ? BLOCK_END : 0;
  return columns;
}

static bool ends_matter(const struct spans_filter *f) {
  return f->min_end_ns || f->max_end_ns || f->min_dur_ns > 0;
}

static int filter_set(struct spans *spans, const struct spans_filter *filter) {
  uint32_t *names = NULL;
  if (filter->names) {
    names = calloc(filter->names_count + 1, sizeof *names);
    if (!names)
      return -ENOMEM;
    memcpy(names, filter->names, filter->names_count * sizeof *names);
    qsort(names, filter->names_count, sizeof *names, by_value);
  }
  free(spans->names);
  spans->names = names;
  spans->filter = *filter;
  spans->filter.names = names;
  if (!filter->which)
    spans->filter.which = SPANS_CLOSED | SPANS_UNFINISHED;
  if (ends_matter(filter))
    spans->filter.which &= ~(unsigned)SPANS_UNFINISHED;
  unsigned columns = columns_for(filter);
  if (columns & ~spans->columns) /* what is decoded lacks some */
    spans->block_no = 0;
  spans->columns |= columns;
  spans->all_rows =
      !filter->span && !names && !filter->kinds && !filter->min_start_ns && !filter->max_start_ns && !ends_matter(filter);
  return 0;
}

static bool name_wanted(const struct spans *spans, uint32_t name) {
  const struct spans_filter *f = &spans->filter;
  if (f->names_count == 1)
    return name == spans->names[0];
  return bsearch(&name, spans->names, f->names_count, sizeof name, by_value) != NULL;
}

static bool end_passes(const struct spans_filter *f, const struct span_row *row) {
  return row->end_ns != SPANS_NO_END && (!f->min_end_ns || row->end_ns >= f->min_end_ns) &&
         (!f->max_end_ns || row->end_ns <= f->max_end_ns) && spans_duration(row) >= f->min_dur_ns;
}

bool spans_passes(const struct spans *spans, const struct span_row *row) {
  const struct spans_filter *f = &spans->filter;
  if (spans->all_rows)
    return true;
  return (!f->span || row->id == f->span) && (!f->kinds || (row->kind < 32 && f->kinds >> row->kind & 1)) &&
         (!f->min_start_ns || row->start_ns >= f->min_start_ns) && (!f->max_start_ns || row->start_ns <= f->max_start_ns) &&
         (!spans->names || name_wanted(spans, row->name)) && (!ends_matter(f) || end_passes(f, row));
}

/* Any of the wanted names in the block's list? What is no list rules nothing out. */
bool spans_block_wanted(const struct spans *spans, const char *names_json) {
  if (!spans->names || !names_json || *names_json != '[')
    return true;
  for (const char *p = names_json + 1; *p >= '0' && *p <= '9';) {
    char *end;
    unsigned long name = strtoul(p, &end, 10);
    if (name <= UINT32_MAX && name_wanted(spans, (uint32_t)name))
      return true;
    if (*end != ',')
      return *end != ']';
    p = end + 1;
  }
  return names_json[1] != ']';
}

int64_t spans_duration(const struct span_row *row) {
  int64_t duration;
  if (row->end_ns == SPANS_NO_END || row->end_ns <= row->start_ns)
    return 0;
  return __builtin_sub_overflow(row->end_ns, row->start_ns, &duration) ? INT64_MAX : duration;
}

/* ---- sessions and their moves ---- */

static void session_read(struct spans *spans, sqlite3_stmt *s) {
  struct spans_session *session = &spans->session;
  const char *id = (const char *)sqlite3_column_text(s, 1), *prefix = (const char *)sqlite3_column_text(s, 2);
  const char *state = (const char *)sqlite3_column_text(s, 3);
  session->sid = sqlite3_column_int64(s, 0);
  session->prefix = prefix ? strtoull(prefix, NULL, 16) : 0;
  (void)snprintf(session->id, sizeof session->id, "%s", id ? id : ""); /* a longer one is not ours */
  session->state = state ? state : "";
  session->pid = sqlite3_column_int64(s, 4);
  session->rank = sqlite3_column_type(s, 5) == SQLITE_NULL ? -1 : sqlite3_column_int64(s, 5);
  session->start_ns = sqlite3_column_int64(s, 6);
}

static int moves_load(struct spans *spans, int64_t sid) {
  if (spans->moves_of == sid)
    return 0;
  sqlite3_stmt *s;
  int rc = prepared(spans, SPANS_SQL_MOVES, &s);
  if (rc)
    return rc;
  spans_moves_clear(&spans->moves);
  spans->moves_of = 0;
  (void)sqlite3_bind_int64(s, 1, sid); /* the place is there */
  while ((rc = step(s)) == 1) {
    struct spans_move move = {.span = (uint64_t)sqlite3_column_int64(s, 0),
                              .since_ns = sqlite3_column_int64(s, 1),
                              .parent = (uint64_t)sqlite3_column_int64(s, 2)};
    if ((rc = spans_moves_add(&spans->moves, &move)))
      break;
  }
  finish(spans, SPANS_SQL_MOVES);
  rc = rc ? rc : spans_moves_index(&spans->moves);
  if (rc)
    spans_moves_clear(&spans->moves);
  else
    spans->moves_of = sid;
  return rc;
}

int spans_session_load(struct spans *spans, int64_t sid) {
  sqlite3_stmt *s;
  int rc = prepared(spans, SPANS_SQL_SESSION, &s);
  if (rc)
    return rc;
  finish(spans, SPANS_SQL_SESSION);
  (void)sqlite3_bind_int64(s, 1, sid); /* the place is there */
  rc = step(s);
  if (rc != 1)
    return rc;
  session_read(spans, s);
  rc = moves_load(spans, sid);
  return rc ? rc : 1;
}

static int next_session(struct spans *spans) {
  sqlite3_stmt *s;
  enum spans_sql sql = spans->filter.sid ? SPANS_SQL_SESSION : SPANS_SQL_SESSIONS;
  int rc = prepared(spans, sql, &s);
  if (rc)
    return rc;
  if (spans->filter.sid && !sqlite3_stmt_busy(s))
    (void)sqlite3_bind_int64(s, 1, spans->filter.sid); /* the place is there */
  rc = step(s);
  if (rc != 1)
    return rc;
  session_read(spans, s);
  rc = moves_load(spans, spans->session.sid);
  return rc ? rc : 1;
}

/* ---- blocks ---- */

int spans_blocks_bind(struct spans *spans, sqlite3_stmt *s, int64_t sid) {
  const struct spans_filter *f = &spans->filter;
  int64_t after = INT64_MIN, before = INT64_MAX;
  if (f->min_start_ns)
    after = f->min_start_ns;
  if (f->min_end_ns && f->min_end_ns > after)
    after = f->min_end_ns;
  if (f->max_start_ns)
    before = f->max_start_ns;
  if (f->max_end_ns && f->max_end_ns < before)
    before = f->max_end_ns;
  const int64_t values[] = {
      sid, f->span ? (int64_t)f->span : INT64_MAX, f->span ? (int64_t)f->span : INT64_MIN, before, after, f->min_dur_ns};
  int rc = SQLITE_OK;
  for (int i = 0; rc == SQLITE_OK && i < 6; i++)
    rc = sqlite3_bind_int64(s, 1 + i, values[i]);
  return spans_errno(rc);
}

static void moves_apply(struct spans *spans, int64_t sid) {
  if (spans->moved_in == sid)
    return;
  spans->moved_in = sid;
  if (!spans->moves.count || !(spans->columns & BLOCK_PARENT))
    return;
  for (size_t i = 0; i < spans->block.count; i++) {
    struct span_row *row = &spans->block.rows[i];
    row->parent = spans_moves_apply(&spans->moves, row->id, row->parent, row->start_ns);
  }
}

int spans_block_load(struct spans *spans, int64_t block, int64_t sid) {
  if (spans->block_no != block || spans->moved_in != sid) {
    sqlite3_stmt *s;
    int rc = prepared(spans, SPANS_SQL_DATA, &s);
    if (rc)
      return rc;
    spans->block_no = spans->moved_in = 0;
    (void)sqlite3_bind_int64(s, 1, block); /* the place is there */
    rc = step(s);
    if (rc == 1) {
      const uint8_t *data = sqlite3_column_blob(s, 0);
      rc = block_decode_columns(data, (size_t)sqlite3_column_bytes(s, 0), spans->columns, &spans->block);
    } else if (!rc) {
      rc = -EBADMSG; /* a description without its block */
    }
    finish(spans, SPANS_SQL_DATA);
    if (rc)
      return rc;
    spans->block_no = block;
  }
  moves_apply(spans, sid);
  spans->chunk = spans->block.rows;
  spans->chunk_rows = spans->block.count;
  spans->at = 0;
  return 0;
}

static int blocks_start(struct spans *spans) {
  sqlite3_stmt *s;
  int rc = prepared(spans, SPANS_SQL_BLOCKS, &s);
  if (rc)
    return rc;
  finish(spans, SPANS_SQL_BLOCKS);
  return spans_blocks_bind(spans, s, spans->session.sid);
}

static int next_block(struct spans *spans) {
  sqlite3_stmt *s = spans->statements[SPANS_SQL_BLOCKS];
  int rc;
  while ((rc = step(s)) == 1) {
    if (!spans_block_wanted(spans, (const char *)sqlite3_column_text(s, 1)))
      continue;
    rc = spans_block_load(spans, sqlite3_column_int64(s, 0), spans->session.sid);
    return rc ? rc : 1;
  }
  finish(spans, SPANS_SQL_BLOCKS);
  return rc;
}

/* ---- spans without an end ---- */

static int open_start(struct spans *spans) {
  sqlite3_stmt *s;
  int rc = prepared(spans, SPANS_SQL_OPEN, &s);
  if (rc)
    return rc;
  finish(spans, SPANS_SQL_OPEN);
  return spans_errno(sqlite3_bind_int64(s, 1, spans->session.sid));
}

static int next_open(struct spans *spans) {
  sqlite3_stmt *s = spans->statements[SPANS_SQL_OPEN];
  int rc = step(s);
  if (rc != 1) {
    finish(spans, SPANS_SQL_OPEN);
    return rc;
  }
  struct span_row *row = &spans->open_row;
  *row = (struct span_row){
      .id = (uint64_t)sqlite3_column_int64(s, 0),
      .name = (uint32_t)sqlite3_column_int64(s, 2),
      .kind = (uint8_t)sqlite3_column_int(s, 3),
      .index = sqlite3_column_type(s, 4) == SQLITE_NULL ? SPAN_NO_INDEX : sqlite3_column_int64(s, 4),
      .start_ns = sqlite3_column_int64(s, 5),
      .end_ns = SPANS_NO_END,
      .cpu_ns = SPAN_NO_TIME,
      .gpu_ns = SPAN_NO_TIME,
      .tid = (uint32_t)sqlite3_column_int64(s, 6),
      .flags = (uint8_t)sqlite3_column_int(s, 7),
      .module = (uint32_t)sqlite3_column_int64(s, 8),
  };
  row->parent = spans_moves_apply(&spans->moves, row->id, (uint64_t)sqlite3_column_int64(s, 1), row->start_ns);
  spans->open_rows++;
  spans->chunk = row;
  spans->chunk_rows = 1;
  spans->at = 0;
  return 1;
}

/* ---- the stream ---- */

static int begin_session(struct spans *spans) {
  int rc = next_session(spans);
  if (rc != 1)
    return rc;
  spans->stage = spans->filter.which & SPANS_CLOSED ? SPANS_IN_BLOCKS : SPANS_IN_OPEN;
  rc = spans->stage == SPANS_IN_BLOCKS ? blocks_start(spans) : open_start(spans);
  return rc ? rc : 1;
}

static int end_blocks(struct spans *spans) {
  bool open = spans->filter.which & SPANS_UNFINISHED;
  spans->stage = open ? SPANS_IN_OPEN : SPANS_BEFORE_SESSION;
  return open ? open_start(spans) : 0;
}

int spans_chunk(struct spans *spans) {
  for (;;) {
    int rc = 0;
    switch (spans->stage) {
    case SPANS_BEFORE_SESSION:
      rc = begin_session(spans);
      if (!rc)
        spans->stage = SPANS_AT_END;
      break;
    case SPANS_IN_BLOCKS:
      rc = next_block(spans);
      if (rc)
        return rc;
      rc = end_blocks(spans);
      break;
    case SPANS_IN_OPEN:
      rc = next_open(spans);
      if (rc)
        return rc;
      spans->stage = SPANS_BEFORE_SESSION;
      break;
    case SPANS_AT_END:
      finish(spans, SPANS_SQL_SESSIONS);
      finish(spans, SPANS_SQL_SESSION);
      return 0;
    }
    if (rc < 0)
      return rc;
  }
}

int spans_next(struct spans *spans, const struct span_row **row, const struct spans_session **session) {
  for (;;) {
    while (spans->at < spans->chunk_rows) {
      const struct span_row *r = &spans->chunk[spans->at++];
      if (!spans_passes(spans, r))
        continue;
      *row = r;
      *session = &spans->session;
      return 1;
    }
    spans->chunk_rows = spans->at = 0;
    int rc = spans_chunk(spans);
    if (rc != 1)
      return rc;
  }
}

int64_t spans_rowid(const struct spans *spans) {
  if (spans->chunk == &spans->open_row)
    return -spans->open_rows;
  return spans->block_no * BLOCK_MAX + (int64_t)spans->at - 1;
}

int spans_restart(struct spans *spans, const struct spans_filter *filter) {
  for (int i = 0; i < SPANS_SQL_COUNT; i++)
    finish(spans, (enum spans_sql)i);
  spans->stage = SPANS_BEFORE_SESSION;
  spans->chunk_rows = spans->at = 0;
  spans->open_rows = 0;
  int rc = filter_set(spans, filter);
  if (!rc && spans->names && !spans->filter.names_count)
    spans->stage = SPANS_AT_END;
  return rc;
}

int spans_open(sqlite3 *db, const struct spans_filter *filter, struct spans **out) {
  struct spans *spans = calloc(1, sizeof *spans);
  if (!spans)
    return -ENOMEM;
  spans->db = db;
  int rc = spans_restart(spans, filter);
  if (rc)
    spans_close(spans);
  else
    *out = spans;
  return rc;
}

void spans_close(struct spans *spans) {
  if (!spans)
    return;
  for (int i = 0; i < SPANS_SQL_COUNT; i++)
    (void)sqlite3_finalize(spans->statements[i]); /* tells of the last run's error again */
  spans_moves_fini(&spans->moves);
  block_fini(&spans->block);
  free(spans->names);
  free(spans);
}
