/* All sessions of this collector: who may come, whose process has ended, who is awaited. */
#ifndef CIRRON_ROSTER_H
#define CIRRON_ROSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "session.h"

struct event_base;

struct roster {
  struct event_base *base;
  struct store *store;
  size_t max_sessions, max_user_sessions, max_rings;
  struct quota quota;    /* of each session */
  struct reader *reader; /* of tensors; NULL: they are read on this thread */
  struct session *first;
  size_t count;
  size_t mapped; /* those with rings to look into */
  /* Called when a session came or came to its end: the drain loop has work. */
  void (*notify)(void *arg, bool urgent);
  void *notify_arg;
  /* Reads what is still on its way on the session's connection; may close it. */
  void (*flush)(struct session *session);
  /* Tells the process of a session that owes it how far its rings are committed. */
  void (*acknowledge)(struct session *session);
};

/* Finds the sessions that a collector before us left running; those whose process is gone end soon. */
int roster_take_stock(struct roster *roster);

/* A process says Hello: 0 and its session. -EBUSY: too many; -EDQUOT: too many of its user; -EALREADY: another process has this session; or as session_new. */
int roster_hello(struct roster *roster, const Cirron__Hello *hello, const struct session_peer *peer, int socket, int segment_fd,
                 struct session **out);

/* Bytes of memory of ours that hold records which were sent and are not committed. */
uint64_t roster_held(const struct roster *roster);

/* Its connection is gone. */
void roster_connection_lost(struct roster *roster, struct session *session);

/* Looks at those that wait for something: AWAY ones that may have become another program, ORPHANs whose time is up. */
void roster_check(struct roster *roster, uint64_t now_ns);

/* Before we go: sees who has ended meanwhile. */
void roster_check_ended(struct roster *roster);

void roster_remove(struct roster *roster, struct session *session); /* and frees it */
void roster_fini(struct roster *roster);

#endif
