/* One traced process: its segment and rings, its rows, how it ends.
 *
 *                 Hello
 *                   |
 *                   v     connection lost, process lives and has our memory
 *    .----------> LIVE ------------------------------------------------> AWAY
 *    |              |                                                     | |
 *    |              | process ended, or became another program            | | Hello again
 *    |              v                                                     | '----> LIVE
 *    |            ENDED <-------------------------------------------------'
 *    |              | last records read, committed
 *    |              v
 *    | Hello      freed
 *    |
 *  ORPHAN (left by a collector that died) --- no Hello in time, or process ended ---> ENDED
 *
 * Goodbye changes no phase: how the process really ended is known only when it has.
 */
#ifndef CIRRON_SESSION_H
#define CIRRON_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ingest.h"
#include "mapping.h"
#include "process.h"
#include "quota.h"
#include "ring_reader.h"
#include "snapshot.h"
#include "store.h"

struct event;
typedef struct Cirron__Hello Cirron__Hello;

enum session_phase { SESSION_LIVE, SESSION_AWAY, SESSION_ENDED, SESSION_ORPHAN };

struct session_peer {
  pid_t pid; /* as we see it; 0: not in our view */
  uid_t uid;
};

struct session {
  struct session *next; /* roster */
  uint64_t prefix;
  enum session_phase phase;
  pid_t pid;            /* as we see it */
  int pidfd;            /* -1: its end can't be watched */
  struct event *watch;  /* on pidfd; roster's */
  void *connection;     /* the connection it speaks on; conn.c's */
  uint64_t deadline_ns; /* ORPHAN: waits until then. AWAY: next look at the process */

  struct session_row row; /* texts are ours */
  int64_t sid;            /* 0: not in the store */
  bool added;             /* sid is committed */

  struct mapping segment;
  struct ring_reader **rings;
  size_t ring_count, ring_room;
  uint64_t ring_bytes; /* mapped */
  /* It shares no memory, but sends what would be in it: segment and rings are ours, batch.c fills them. */
  bool by_messages;
  bool bursts;              /* some of its spans end in another ring than that which shows them open */
  bool owes;                /* it has not been told yet how far its rings are committed */
  uint64_t segment_address; /* where it has its own, as it says; 0: not to be seen there */
  struct ingest ingest;
  struct snapshots snapshots;
  uint64_t commands, commands_told; /* by messages: how often a snapshot was asked for, and up to which it was told so */
  const struct quota *quota;        /* or NULL */
  struct quota_use used;

  bool goodbye, became_other;
  bool seems_other; /* at the last look; roster's */
  struct process_exit exit;
  int64_t end_ns;
  bool end_done;                /* all that belongs to the end is in ingest */
  struct session_state written; /* numbers as last written: to see changes */
  bool state_dirty, ranks_dirty;
  bool in_write;  /* drain.c: takes part in the present transaction */
  bool abandoned; /* drain.c: its data cannot be stored */
};

/* A session from its first Hello, or one taken over from a collector that died. segment_fd stays the caller's; -1: there is none, and the
 * session goes by messages.
 * -EPROTO, -EPERM, -EMSGSIZE: what the process sent is not fit; otherwise an error of the store or no memory. */
int session_new(const Cirron__Hello *hello, const struct session_peer *peer, int segment_fd, struct store *store,
                struct session **out);
/* One that is in the store and in state running, without its process. */
int session_new_orphan(const struct running_session *left, struct session **out);
void session_free(struct session *session); /* accepts NULL */

/* Is this Hello of the same process, with the same segment? */
bool session_same(const struct session *session, const Cirron__Hello *hello, const struct session_peer *peer);

/* It says Hello again: takes the segment it has now, which is a copy of the one before if its script closed the descriptor. -EPROTO: it
 * has changed its mind about sharing memory, which it may before its first ring only. */
int session_resume(struct session *session, int segment_fd);

/* Takes a ring; fd stays the caller's. A ring that is there already may have moved to other memory, with the same content. -EMFILE: too many. */
int session_attach(struct session *session, int fd, uint32_t ring_no, uint32_t cells, size_t max_rings, struct store *store);

/* Is the process still the program that said Hello? By memory that it must have; `any`: in whatever place it has moved it to. */
enum process_mapping session_mapped(const struct session *session, bool any);

/* Its ring of this number, or NULL. */
struct ring_reader *session_ring(const struct session *session, uint32_t ring_no);
/* Takes `reader` over as one more. -EMFILE: too many, or too much memory; the caller closes it then,
 * as after any error. */
int session_add_ring(struct session *session, struct ring_reader *reader, size_t max_rings);

/* The process ended as pidfd says, or (became_other) is another program now. */
void session_end(struct session *session, bool became_other);

/* The fullest ring: at most a 64th of it is unread, more, more than a quarter; more than a half is not committed. */
enum session_fill { SESSION_CALM, SESSION_QUIET, SESSION_FILLING, SESSION_URGENT };

/* Takes at most `cap` records of each ring. */
int session_drain(struct session *session, struct store *store, unsigned cap, enum session_fill *fill);
/* Before a commit: takes all there is now, and makes it ready to be written. */
int session_collect(struct session *session, struct store *store);
bool session_dirty(const struct session *session);
int session_write(struct session *session, struct store *store);
/* After the transaction: committed, or rolled back. */
void session_committed(struct session *session);
void session_undone(struct session *session);

/* May it be freed? Its end is committed. */
bool session_over(const struct session *session);

#endif
