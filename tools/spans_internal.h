/* Inside of the span reader, for spans*.c and vtab_spans.c only. */
#ifndef CIRRON_SPANS_INTERNAL_H
#define CIRRON_SPANS_INTERNAL_H

#include "spans.h"
#include "spans_moves.h"

enum spans_sql {
  SPANS_SQL_SESSIONS,
  SPANS_SQL_SESSION,
  SPANS_SQL_BLOCKS,
  SPANS_SQL_DATA,
  SPANS_SQL_OPEN,
  SPANS_SQL_MOVES,
  SPANS_SQL_COUNT
};

enum spans_stage { SPANS_BEFORE_SESSION, SPANS_IN_BLOCKS, SPANS_IN_OPEN, SPANS_AT_END };

/* The stream. It goes from chunk to chunk: the rows of a block, or one open span. The statement over the sessions stays under way
 * until the end: as long as it does, SQLite shows this connection the same moment of the store. */
struct spans {
  sqlite3 *db;
  struct spans_filter filter;
  uint32_t *names; /* the filter's, ascending */
  unsigned columns;
  bool all_rows; /* no condition is left to look at in a row */
  sqlite3_stmt *statements[SPANS_SQL_COUNT];
  enum spans_stage stage;
  struct spans_session session;
  int64_t moves_of; /* the session whose moves are loaded; 0: none */
  struct spans_moves moves;
  struct block block;
  int64_t block_no; /* of what is decoded in `block`, 0: nothing */
  int64_t moved_in; /* the session whose moves were applied to it; 0: none */
  struct span_row open_row;
  struct span_row *chunk;
  size_t chunk_rows, at;
  int64_t open_rows; /* that were given, of all sessions */
};

int spans_errno(int rc); /* the negative errno for an SQLite result code */

/* Starts anew with another filter, keeps statements and the decoded block. Only while another statement of the connection holds
 * on to the moment of the store that was seen before. */
int spans_restart(struct spans *spans, const struct spans_filter *filter);

/* The next rows, of which spans_passes has to be asked: 1, 0 at the end, or a negative errno. */
int spans_chunk(struct spans *spans);
bool spans_passes(const struct spans *spans, const struct span_row *row);

/* For those who go through the blocks in another order. */
int spans_session_load(struct spans *spans, int64_t sid); /* 1, 0: no such session, or a negative errno */
int spans_block_load(struct spans *spans, int64_t block,
                     int64_t sid); /* session and moves are not touched: they are those of sid */
int spans_blocks_bind(struct spans *spans, sqlite3_stmt *s, int64_t sid);
bool spans_block_wanted(const struct spans *spans, const char *names_json);

#endif
