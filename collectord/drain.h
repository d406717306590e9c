/* The beat of collectord: empties the rings, commits, and moves the shared tails after the commit only.
 *
 * The rings are looked into every 10 ms, every 5 or 1 ms while one fills fast; all in turn, with a cap on what one visit takes. Committed is
 * every 250 ms if there is anything new, and at once when a ring is half full of what is not committed, or a session came to its
 * end. Without sessions there is no timer.
 *
 * When the store cannot be written (disk full), the transaction is rolled back, all that was read is kept, and the same is tried
 * again every second. Meanwhile nothing more is read: rings fill up, and the agents drop and count.
 */
#ifndef CIRRON_DRAIN_H
#define CIRRON_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "roster.h"

struct event;

struct drain {
  struct event_base *base;
  struct roster *roster;
  struct store *store;
  struct event *timer, *idle_timer;
  uint64_t idle_exit_ns; /* 0: never */
  uint64_t last_commit_ns, retry_ns;
  bool failing, urgent, awaited; /* awaited: a snapshot is on its way to the store */
  unsigned idle_beats;           /* looks in a row at which nothing had come */
  void (*idle)(void *arg);       /* no session was alive for that long */
  void *idle_arg;
  void (*forget)(void *arg, struct session *session); /* the session is freed while it has a connection: close that */
  void *forget_arg;
};

int drain_init(struct drain *drain);
void drain_fini(struct drain *drain);

/* There is something to do; `urgent`: now. As roster's notify. */
void drain_wake(void *drain, bool urgent);

/* Takes and commits all there is. 0, or the store's error. */
int drain_all(struct drain *drain);

#endif
