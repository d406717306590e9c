/* The agent's side of the control connection: find a collector, say Hello, hand over the rings, notice when it is gone.
 *
 * Nothing here waits: connect to a Unix socket is immediate, sends are non-blocking, and what did not work is tried again by a
 * later tick. The descriptor is checked to be still ours (device and inode) before each use, because scripts close descriptors
 * that are not theirs; it is then forgotten, not closed.
 */
#ifndef CIRRON_LINK_H
#define CIRRON_LINK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC time from which link_tick has work to do; compared on the hot path. */
extern _Atomic uint64_t link_due_ns;

/* Something else of ours that has to be done now and then on a thread of the job: at link_also_ns (UINT64_MAX: never), which it moves on.
 * Called by link_tick, before its own work and outside of its lock; several threads may come together. */
extern _Atomic uint64_t link_also_ns;
extern void (*_Atomic link_also)(uint64_t now_ns);

/* Connects if there is no connection, attaches rings that are not attached or sends what is in them, looks whether the collector hung
 * up. At once for a new session or ring (link_due_ns = 0), else every 100 ms, or every 25 where records are sent. Where the collector
 * has all rings and commits what they get, that makes no system call but for one look in 5 s, and its end is seen within 400 ms. After
 * a failure with growing pauses, 5 s at most; after the end of a collector that had committed records these begin 5 s later. One thread
 * at a time does it, others return. Keeps errno. */
void link_tick(uint64_t now_ns);

/* link_tick, and where records are sent, all that was recorded until now: what the collector takes slowly is waited for, `patience_ns` at
 * most. One that takes nothing is waited for once, for 300 ms, and then no more until it does. Holds up the calling thread, which sleeps by
 * `nap` (NULL: plainly), while anything may happen to the session. Keeps errno. */
void link_flush(uint64_t patience_ns, void (*nap)(const struct timespec *time));

/* A request for a snapshot is in the area (snapshot_area.h): it is handed over now, or by the next tick. Keeps errno. GIL held, as for all
 * that touches the area. */
void link_snapshot(void);

/* Records wait to be sent: the next tick is due now, if it could send them. As ring.hurry; any thread. */
void link_hurry(void);

/* Is there a socket where a collector would listen? A look at the file system, no connection; a private one does not count. */
bool link_reachable(void);

/* Goodbye, after the last record. If no collector was reached yet, or a private one is just starting, tries for at most
 * `patience_ns` (the only wait there is: at the end of the program). */
void link_goodbye(uint64_t patience_ns);

/* In the child of a fork: forgets the parent's connection and closes our copy of the descriptor. */
void link_forget(void);

/* Is a collector connected at this moment? Was one ever? Any thread may ask; the answer may be old. */
int link_connected(void);
bool link_starting(void); /* a private collector was started, and is expected to listen soon */
bool link_reached(void);

#endif
