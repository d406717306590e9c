/* The session of this process: made when Python starts to run the program, or at the first span where no collector is there yet;
 * closed at the end, made anew in the child of a fork at its first span.
 *
 * A program without Python has no session, and one without a collector has none before its first span: no memory, file, socket
 * or descriptor.
 */
#ifndef CIRRON_SESSION_H
#define CIRRON_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "env.h"
#include "ring_writer.h"

struct session {
  uint64_t prefix;
  uint64_t start_ns; /* when the agent was loaded: begin of the root span */
  uint64_t anchor_monotonic_ns, anchor_realtime_ns;
  uint32_t root_name; /* cirron.session */
  bool by_messages;   /* no memory is shared: records are sent (pump.h) */
};

extern struct env session_env; /* the settings; read once an interpreter is attached */

/* Once, when an interpreter is attached: the session's root will begin here. */
void session_init(void);

/* The program begins: if a collector is there, it hears of this process even if that never has a span. */
void session_announce(void);

/* Makes the session if there is none. False: off (disabled, after close, or it could not be made). */
bool session_ensure(void);
const struct session *session_get(void); /* NULL where there is none */
/* The same, and after its end, too: for reading what was recorded in it. NULL: there was none in this process. */
const struct session *session_seen(void);

/* A ring for the calling thread: a free one of a thread that ended, else a new one. NULL: none can be made (counted). */
struct ring *session_ring_take(void);
/* A spare one, for a thread whose own is full. NULL: there are enough of them, or no collector was ever there. */
struct ring *session_ring_spare(void);
void session_ring_give(struct ring *ring); /* its thread ends; what is in it stays */

/* All rings, for link.c: first ring, then ring->next. Only ever grows; safe to walk at any time. */
struct ring *session_rings(void);

/* Is the span of this id open in any living thread? A look at all of them. */
bool session_span_open(uint64_t id);

/* The memory cannot be handed over: from now on records are sent. Called by link.c before anything was handed over. */
void session_go_by_messages(void);

uint64_t session_take_ids(unsigned n); /* the first of n ids for spans and marks */

/* Called by session_close when all is closed and nothing was said to the collector yet. */
extern void (*_Atomic session_closing)(void);

/* Closes what the calling thread has open and the root span, says goodbye. Everything after it is ignored. */
void session_close(void);

/* Is there none? Before the first, and after session_close. */
bool session_ended(void);

/* In the child of a fork, and before a new one of the same process: nothing of the last session is left, none is made yet. */
void session_forget(void);

/* The script told its framework these; they hold where the environment says nothing. Needs the GIL. */
void session_told_ranks(int rank, int world_size);

/* The ranks as they were when the last ring was made. */
struct env_ranks session_ranks(void);

/* The automatic probes off for the rest of this process (a DataLoader's worker); spans made by hand go on. */
void session_set_worker(void);
bool session_is_worker(void);

#endif
