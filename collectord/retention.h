/* Retention: sessions that ended too long ago, or for which there is no room any more, leave the store, the oldest first and whole.
 *
 * A session is removed in small transactions between those of the drain, so that nothing waits for it; free pages are used again, and
 * given back to the file system. Running sessions stay whatever the limits say. One line in the log tells what a round removed.
 */
#ifndef CIRRON_RETENTION_H
#define CIRRON_RETENTION_H

#include <stdbool.h>
#include <stdint.h>

struct event;
struct event_base;
struct store;

struct retention {
  struct event_base *base;
  struct store *store;
  uint64_t keep_days, max_bytes; /* 0: no limit */

  struct event *timer;
  bool erasing, told;      /* told: that even the running sessions alone are too much */
  int64_t sessions, spans; /* removed in this round */
};

/* Begins at once, also without limits: an earlier collector, or cirron-query clear, may have died over a session. */
int retention_init(struct retention *retention);
void retention_fini(struct retention *retention); /* accepts a zeroed one */

#endif
