/* What recording cost in a run under an overhead check: from the pairs of blocks that the agent left as marks (agent/check.h). */
#ifndef CIRRON_OVERHEAD_H
#define CIRRON_OVERHEAD_H

#include <jansson.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "pick.h"

/* The median of paired differences, and the interval that holds the true one with at least 95 %: from the order of the values alone
 * (the sign test turned around), so that a few blocks which something else disturbed do not matter. */
struct overhead_estimate {
  double median, low, high;            /* ns a step; negative: the observed blocks were faster */
  double share, share_low, share_high; /* the same by the unobserved step of its pair */
  bool known;                          /* there are enough pairs for an interval */
};

struct overhead {
  bool checked; /* the session was an overhead check */
  size_t pairs;
  int64_t steps;  /* in the median block */
  double step_ns; /* of the median unobserved block */
  struct overhead_estimate time, cpu;
};

void overhead_gather(sqlite3 *store, const struct pick_session *session, struct overhead *out);

/* The estimate of `count` pairs: differences and their shares, which get sorted. */
void overhead_estimate(double *differences, double *shares, size_t count, struct overhead_estimate *out);

/* Line 0, 1, ... of what is to be said, into `out`, which is emptied first. False: there is no such line. */
bool overhead_say(const struct overhead *overhead, unsigned line, struct buf *out);
json_t *overhead_json(const struct overhead *overhead);

#endif
