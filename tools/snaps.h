/* Snapshots of tensors as they lie in a store (docs/schema.md): passes, records, and which records are of the same tensor.
 *
 * A store of schema 1 has none. What is in a record may be anything: a text where a number is expected is 0, a number out of range is
 * taken as it is, JSON is checked when it is parsed.
 */
#ifndef CIRRON_SNAPS_H
#define CIRRON_SNAPS_H

#include <math.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../proto/tensor_stats.h"
#include "buf.h"

#define SNAPS_NO_INDEX INT64_MIN

bool snaps_kept(sqlite3 *db); /* has the store tables for them? */

/* --- passes -------------------------------------------------------------------------------------------------------------- */

enum snaps_reason { SNAPS_EPOCH, SNAPS_STEPS, SNAPS_COMMAND, SNAPS_OTHER };

struct snaps_pass {
  int64_t number, span, epoch, step; /* indices, or SNAPS_NO_INDEX */
  enum snaps_reason reason;
  int64_t ts_ns, records, list_ns, read_ns, wait_ns, torn;
  bool own;
  int64_t blobs, blob_error; /* blob_error 0: none */
};

struct snaps_passes {
  struct snaps_pass *items; /* by number, ascending */
  size_t count;
};

void snaps_passes_read(sqlite3 *db, int64_t sid, struct snaps_passes *out); /* none where the store keeps none */
void snaps_passes_fini(struct snaps_passes *passes);
/* NULL: there is no such pass. */
const struct snaps_pass *snaps_pass_find(const struct snaps_passes *passes, int64_t number);
/* Is it of this epoch? */
bool snaps_pass_in(const struct snaps_pass *pass, int64_t epoch);
/* "after epoch 2", "at step 120 of epoch 2", "asked for at step 7" */
void snaps_pass_say(const struct snaps_pass *pass, struct buf *out);
/* Over all passes; `tensors` is how many the largest lists, `blobs` the passes that wrote any, blob_error the last. */
struct snaps_sums {
  int64_t records, tensors, list_ns, read_ns, wait_ns, torn, own, blobs, blob_errors, blob_error;
};
void snaps_passes_sum(const struct snaps_passes *passes, struct snaps_sums *out);
const char *snaps_reason_name(enum snaps_reason reason); /* "epoch" */

/* --- records ------------------------------------------------------------------------------------------------------------- */

enum snaps_kind { SNAPS_WEIGHT = 1, SNAPS_GRADIENT = 2 };

struct snaps_text { /* borrowed until the next row; text may be NULL */
  const char *text;
  size_t len;
};

struct snaps_record {
  int64_t id, pass, span, ts_ns;
  struct snaps_text name, model, kind, shape, dtype, mode, blob, attrs, histogram, magnitude;
  enum snaps_kind what;                       /* of `kind`; anything else counts as a weight */
  int64_t count, nans, infs, neg_infs, zeros; /* count -1: it was not read */
  double mean, std, min, max, norm;           /* NaN: NULL */
  bool torn;
};

/* What snaps_record_read wants selected, as its first columns, of the table `p`. */
#define SNAPS_COLUMNS                                                                                                          \
  "p.snapshot, p.pass, p.span, p.tensor_name, p.model, p.kind, p.shape, p.dtype, p.mode, p.count, p.nans, p.infs, p.neg_infs," \
  " p.zeros, p.mean, p.std, p.min, p.max, p.norm, p.ts_ns, p.torn, p.histogram, p.magnitude, p.blob_uri, p.attrs"
#define SNAPS_COLUMNS_COUNT 25

/* SNAPS_NORM: only id, pass, name, model, kind, whether it was read and torn, how much is not finite, and the norm. */
enum snaps_detail { SNAPS_NORM, SNAPS_ALL };
void snaps_record_read(sqlite3_stmt *stmt, enum snaps_detail detail, struct snaps_record *out);

/* For what is kept longer than its row. */
void snaps_record_drop_texts(struct snaps_record *record);

/* The records of a pass, in order. */
sqlite3_stmt *snaps_records(sqlite3 *db, int64_t sid, int64_t pass);
/* A condition that says nothing new of records `p` of session ?1 whose pass `passes` holds for ("= ?2"): those of a pass lie together, so
 * they are read without what lies before and behind, which SQLite does not see. */
void snaps_within(struct buf *sql, const char *passes);
/* The first pass in which a number was not finite; false: there is none. */
bool snaps_first_bad(sqlite3 *db, int64_t sid, int64_t *pass);

static inline bool snaps_is_read(const struct snaps_record *r) {
  return r->count >= 0;
}
static inline int64_t snaps_bad(const struct snaps_record *r) { /* numbers that are not finite */
  return r->nans + r->infs + r->neg_infs;
}

/* A JSON array of `want` counts. False: it is none. */
bool snaps_counts(struct snaps_text json, uint64_t *out, size_t want);

/* Adds what is known of a record as JSON: null where it was not read. */
void snaps_stats_json(const struct snaps_record *record, struct buf *out);

/* Part of the numbers that would have to move to another bin to make one histogram of magnitudes the other, 0 to 1, with those that
 * are 0 or not finite in bins of their own; NaN: one of them is not known or empty. */
double snaps_distance(const struct snaps_record *a, const uint64_t *magnitude_a, const struct snaps_record *b,
                      const uint64_t *magnitude_b);

/* --- tensors ------------------------------------------------------------------------------------------------------------- */

struct snaps_tensor {
  char *name, *model;
  size_t name_len, model_len;
  enum snaps_kind what;
};

/* Each tensor once, in order of its first record. */
struct snaps_tensors {
  struct snaps_tensor *items;
  size_t count, cap;
  size_t *places, size; /* open addressing; SIZE_MAX: empty */
  size_t next;          /* a guess: passes list the same tensors in the same order */
};

/* The place of the record's tensor. `add` false: SIZE_MAX where it is not there. */
size_t snaps_tensor_at(struct snaps_tensors *tensors, const struct snaps_record *record, bool add);
void snaps_tensors_fini(struct snaps_tensors *tensors);

#endif
