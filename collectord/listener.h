/* The socket on which agents come: made here, or inherited from a service manager (LISTEN_FDS). */
#ifndef CIRRON_LISTENER_H
#define CIRRON_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "conn.h"

struct event;

struct listener {
  int fd; /* -1: closed */
  bool inherited;
  char path[108]; /* empty when inherited */
  dev_t dev;
  ino_t ino;
  struct event *acceptable, *pause;
  struct conns *conns;
};

/* Binds and listens at `path`, with these rights; makes its last folder where that is missing (0700, or 0755 if others may connect). A socket file on which nobody
 * answers, and which is ours, is replaced. On failure `why` is one line with the path and what to do; -EADDRINUSE: another collector
 * answers there. */
int listener_open(const char *path, mode_t mode, struct listener *out, char *why, size_t why_len);

/* Begins to accept. */
int listener_start(struct listener *listener, struct conns *conns);

/* Stops, and removes the socket file if it is still ours. */
void listener_close(struct listener *listener);

/* Tells the service manager, if there is one: "READY=1", "STOPPING=1". */
void listener_notify(const char *state);

#endif
