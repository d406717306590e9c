/* One control connection: frames in, descriptors with them, messages to the roster.
 *
 * A message that cannot be right closes this connection and nothing else; the agent may come again.
 */
#ifndef CIRRON_CONN_H
#define CIRRON_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct roster;
struct session;
struct event_base;

struct conns { /* all connections of a listener */
  struct event_base *base;
  struct roster *roster;
  bool any_user;
  gid_t group;                 /* whose members may come too; (gid_t)-1: no group */
  size_t count, max, max_user; /* max_user: of one user */
  struct conn *first;
};

/* Takes the descriptor of a new connection; closes it if its peer may not come or there are too many. */
void conn_accept(struct conns *conns, int fd);

/* As roster.flush, roster.acknowledge and drain.forget. */
void conn_flush(struct session *session);
void conn_acknowledge(struct session *session);
void conn_forget(void *unused, struct session *session);

void conns_fini(struct conns *conns);

#endif
