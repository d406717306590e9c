/* Where a mark or a snapshot lies among the steps and epochs of its session. */
#ifndef CIRRON_MOMENT_H
#define CIRRON_MOMENT_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "buf.h"

#define MOMENT_NO_INDEX INT64_MIN

struct moment {
  int64_t step, epoch; /* the step and epoch in which, or after which, it came; or MOMENT_NO_INDEX */
  bool in_step;
};

/* Of the record with this number, whose numbers count together with those of steps, at this time. */
void moment_find(sqlite3 *db, int64_t sid, uint64_t number, int64_t ts_ns, struct moment *out);

/* " at step 50 of epoch 2", " after step 3", " in epoch 1"; nothing where nothing is known. */
void moment_say(const struct moment *moment, struct buf *out);

#endif
