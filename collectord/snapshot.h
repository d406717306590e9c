/* The snapshots of one session: what it lists in its area or sends, read, and kept in the store.
 *
 * Records of a pass are written when it was read and the process has said what came of it (settled), some thousands in each
 * transaction, and its own row last. Only then the process is told that they are stored. A process that says so late has them stored
 * 2 s after they were read, and what turns out to be torn once more.
 */
#ifndef CIRRON_SNAPSHOT_H
#define CIRRON_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct area;
struct pass;
struct reader;
struct session;
struct store;
typedef struct Cirron__SnapshotSent Cirron__SnapshotSent;

struct snapshots {
  struct reader *reader; /* NULL: all is read where it is asked for */
  struct area *area;     /* the latest; or NULL */
  struct pass *first;    /* oldest first */
  size_t count;
  struct pass *sent; /* of which not all messages have come */
  uint64_t sent_stored,
      sent_told; /* of what came in messages: number of the last one that is in the store, and that the process knows of */
  bool refused;  /* its memory cannot be read: it computes itself */
  bool awaits;   /* of one of them, a word of the process */
  bool ready;    /* there is something to write */
};

/* Messages. Descriptors stay the caller's, but the folder is the session's from the call on. -EPROTO, -EPERM, -EMSGSIZE: cannot be
 * right; -ENOMEM. */
int snapshots_area(struct session *session, int fd, uint64_t bytes);
int snapshots_request(struct session *session, uint64_t number, int folder);
int snapshots_sent(struct session *session, const Cirron__SnapshotSent *sent);

/* What has become of them? */
void snapshots_look(struct session *session, uint64_t now_ns);

/* As those of the session. */
bool snapshots_dirty(const struct session *session);
int snapshots_write(struct session *session, struct store *store);
void snapshots_committed(struct session *session);
void snapshots_undone(struct session *session);

/* Is there something to tell the process of what it sent: up to which number all is in the store? */
bool snapshots_next_told(struct session *session, uint64_t *number);

/* Its process is gone: is all of it in the store? */
bool snapshots_over(const struct session *session);
void snapshots_free(struct session *session);

#endif
