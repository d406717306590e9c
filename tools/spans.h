/* Reading raw spans out of a store: blocks and open spans as one stream, moves applied, without SQL in between.
 *
 * Works on a database opened read-only while the collector writes: all that one stream shows is one moment of the store. One
 * decoded block is held at a time. Order: session (sid), block, row; then the session's spans without an end, by id.
 *
 * Functions return 0 or a negative errno: -EBADMSG for a damaged block or a file that is no store, -EBUSY, -EIO, -ENOMEM. A
 * connection and what was made from it belong to one thread at a time.
 */
#ifndef CIRRON_SPANS_H
#define CIRRON_SPANS_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../proto/block.h"

/* end_ns of a row that has no end (open, or open when its process died). */
#define SPANS_NO_END 0

/* The session of a row. Good until the stream goes on to the next session; copy what is kept longer. */
struct spans_session {
  int64_t sid;
  uint64_t prefix;
  char id[33];       /* 32 hex digits, the session's id */
  const char *state; /* SESSION_... (proto/store_abi.h) */
  int64_t pid, rank; /* rank -1: none */
  int64_t start_ns;
};

enum spans_which { SPANS_CLOSED = 1, SPANS_UNFINISHED = 2 };

/* A zeroed filter lets everything through. All conditions must hold. */
struct spans_filter {
  int64_t sid;           /* 0: all sessions */
  uint64_t span;         /* 0: all, else the span of this number */
  const uint32_t *names; /* NULL: all; else rows with one of names_count names, in any order (0 of them: no row) */
  size_t names_count;
  int64_t min_start_ns, max_start_ns; /* inclusive, 0: no limit */
  int64_t min_end_ns, max_end_ns;     /* the same; spans without an end do not pass */
  int64_t min_dur_ns;                 /* at least this long, 0: all; spans without an end do not pass */
  uint32_t kinds;                     /* bits 1 << enum span_kind, 0: all */
  unsigned which;                     /* bits of enum spans_which, 0: both */
  unsigned columns; /* bits of enum block_column (proto/block.h) that are looked at, 0: all. The others read as 0. */
};

/* Calls back for each row. Stops and returns the callback's value if that is not 0. `row` and its attrs are good until the
 * callback returns. */
int spans_each(sqlite3 *db, const struct spans_filter *filter,
               int (*each)(const struct span_row *row, const struct spans_session *session, void *arg), void *arg);

/* The n longest spans with an end, longest first (of equal ones, the first of the stream). Looks only into blocks that can hold one. */
int spans_slowest(sqlite3 *db, const struct spans_filter *filter, size_t n,
                  int (*each)(const struct span_row *row, const struct spans_session *session, void *arg), void *arg);

/* The same stream, pulled. spans_next returns 1 and a row (good until the next call), 0 at the end, or a negative errno. The filter's
 * names are copied. spans_close accepts NULL. */
struct spans;
int spans_open(sqlite3 *db, const struct spans_filter *filter, struct spans **out);
int spans_next(struct spans *spans, const struct span_row **row, const struct spans_session **session);
void spans_close(struct spans *spans);

/* Where the row that spans_next gave lies: a number that is another for each row of the store. */
int64_t spans_rowid(const struct spans *spans);

/* Length of a closed span, as far as 64 bits hold it; never negative. */
int64_t spans_duration(const struct span_row *row);

/* Texts of names, read when they are first asked for and kept. The text is UTF-8, may hold zero bytes (*len, may be NULL) and is good
 * until spans_names_free. NULL for name 0 and for a number that is not in the store. */
struct spans_names;
struct spans_names *spans_names_new(sqlite3 *db); /* NULL: out of memory */
const char *spans_name(struct spans_names *names, uint32_t name, size_t *len);
void spans_names_free(struct spans_names *names); /* before the connection is closed; accepts NULL */

/* The number of a name: 0 and *out, or -ENOENT. */
int spans_name_find(sqlite3 *db, const char *text, size_t len, uint32_t *out);

/* 33 bytes: 32 hex digits and the end. */
void spans_id_text(uint64_t prefix, uint64_t number, char out[33]);
/* The reverse: false if text is not 32 hex digits. */
bool spans_id_parse(const char *text, size_t len, uint64_t *prefix, uint64_t *number);

#endif
