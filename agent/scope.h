/* Open spans of a thread, and their way into its ring.
 *
 * Each thread has a stack of at most SCOPE_MAX_DEPTH open spans. So has each asyncio task that runs on it: their stacks take turns,
 * and share the thread's ring and its table of open spans. Automatic spans (epoch, step, forward, ...) and those made by
 * hand are in the same stack, so each lies where a reader expects it. No lock, no allocation, no system call once the thread
 * has its ring. All functions belong to the calling thread.
 */
#ifndef CIRRON_SCOPE_H
#define CIRRON_SCOPE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../proto/ring_abi.h"

#define SCOPE_MAX_DEPTH 64 /* the root counts: 63 spans below it */

struct span {
  uint64_t id, parent, start_ns;
  int64_t index;
  int64_t cpu_ns;     /* thread CPU time at its begin, or SPAN_NO_TIME */
  int64_t cpu_end_ns; /* at its end, or SPAN_NO_TIME: read when it is closed */
  uint32_t name, module;
  uint8_t kind, flags;
  bool has_children; /* something was opened with this span as parent (loop.c resets it) */
  uint8_t place;     /* in its scope's pool */
  int16_t slot;      /* in the ring's open table, or -1 */
  const char *attrs; /* JSON text written with the end record, or NULL; owned by whoever set it */
  uint32_t attrs_len;
  const void *owner; /* of the setter: what this span stands for */
};

struct scope; /* a thread's or task's stack */
struct loop;  /* loop.h: what loop.c remembers of the thread or task */
struct name_cache;

/* The stack whose turn it is on the calling thread, made with its ring (and the session) at the first call. NULL: tracing is off
 * here. Good until other code of the script runs. */
struct scope *scope_get(void);
/* Not NULL: told of each thread's first scope, by that thread. Set before the first. */
extern void (*scope_begun)(struct scope *scope);
/* The same, but NULL where there is none yet. */
struct scope *scope_peek(void);
struct loop *scope_loop(struct scope *scope);
struct name_cache *scope_names(struct scope *scope);
uint64_t scope_clock(struct scope *scope); /* the time, for all that is recorded of this thread */
uint64_t scope_now(void);                  /* the same where it may have no stack */

/* Opens a span under the innermost open one. NULL: too deep, counted. The pointer is good until the span is closed or
 * dissolved. */
struct span *scope_push(struct scope *scope, enum span_kind kind, uint32_t name, int64_t index, uint64_t start_ns);

/* The same of an object of this class (a name's id), with these flags. */
struct span *scope_push_of(struct scope *scope, enum span_kind kind, uint32_t name, int64_t index, uint64_t start_ns,
                           uint32_t class, uint8_t flags);

/* Opens a span at a time that is past, when the span of id `under` was the innermost; what was begun since, open or closed, becomes
 * its child. NULL: `under` is not open any more, or too deep. */
struct span *scope_insert(struct scope *scope, enum span_kind kind, uint32_t name, int64_t index, uint64_t start_ns,
                          uint64_t under);

/* Closes a span, and before it everything that is open above it (with the same end). */
void scope_pop(struct scope *scope, struct span *span, uint64_t end_ns, uint32_t exception);

/* Closes a span at a time that may be past, and leaves what is open above it open. */
void scope_close_below(struct scope *scope, struct span *span, uint64_t end_ns);

/* Takes an open span back as if it had never been: what is open above it, and its children, become its parent's. */
void scope_dissolve(struct scope *scope, struct span *span);

/* `inner`, which is the next above `outer` on the stack, takes its place: its begin, its parent, its children. */
void scope_replace(struct scope *scope, struct span *outer, struct span *inner);

/* The direct children of span `from` that began at or after since_ns, `parent` itself excepted, become children of `parent`. */
void scope_move(struct scope *scope, uint64_t from, uint64_t since_ns, uint64_t parent);

/* Did no span begin under `parent` since then that is in another stack of the thread? A move would take it along. */
bool scope_alone(const struct scope *scope, uint64_t parent, uint64_t since_ns);

/* Innermost open span, or NULL at the root. scope_below: the one under it, or NULL; scope_above: the one over it, or NULL. */
struct span *scope_top(struct scope *scope);
struct span *scope_below(struct scope *scope, const struct span *span);
struct span *scope_above(struct scope *scope, const struct span *span);
/* Are both open, `inner` anywhere above `outer`? */
bool scope_is_above(struct scope *scope, const struct span *inner, const struct span *outer);
/* Innermost open span of this kind, or NULL. */
struct span *scope_find(struct scope *scope, enum span_kind kind);
unsigned scope_count(const struct scope *scope, enum span_kind kind); /* open spans of this kind */
/* Is the span of this id still open, at this place? */
bool scope_holds(struct scope *scope, const struct span *span, uint64_t id);
unsigned scope_depth(const struct scope *scope);
/* The stack whose place for a span this is; the thread that it was opened on has to live. */
struct scope *scope_of(const struct span *span);
/* The id under which a span would be opened now. */
uint64_t scope_innermost(struct scope *scope);
/* Was the stack begun in something that lies in an epoch of another one? */
bool scope_in_epoch(const struct scope *scope);

/* After changes of an open span: shows them in the open table. */
void scope_refresh(struct scope *scope, const struct span *span);
/* It is shown to be something else than it began as. */
void scope_rename(struct scope *scope, struct span *span, enum span_kind kind, uint32_t name, int64_t index);

struct scope_value {
  enum mark_type type;
  double f;
  int64_t i;
  const char *text;
  size_t text_len;
};
/* A mark on the innermost open span, or the root. attrs: JSON or NULL. */
void scope_mark(struct scope *scope, uint32_t name, const struct scope_value *value, bool summary, const char *attrs,
                size_t len);

/* The same on a span of this id, which may be closed. */
void scope_mark_of(struct scope *scope, uint64_t span, uint32_t name, const struct scope_value *value, bool summary,
                   const char *attrs, size_t len);

void scope_refused_mark(void); /* a value that cannot be kept: counted */

/* CPU time of the calling thread, a system call; see CIRRON_CPU_TIME. */
int64_t scope_cpu_clock(void);

/* --- stacks that take turns (scope_turn.c) --- */

/* Numbers of threads and stacks, never used twice in a process. scope_thread: 0 where there is none yet. */
uint64_t scope_thread(void);
uint64_t scope_serial(const struct scope *scope);
uint64_t scope_new_serial(void);

#define SCOPE_MAX_TURNS 4096 /* stacks of a thread with something open at a time; of more, spans are left out and counted */

/* Whose turn is it? Asked at each scope_get and scope_peek, once it is set. */
struct scope_chooser {
  struct scope *(*choose)(struct scope *own);    /* `own`: the thread's own stack. NULL: nothing can be kept */
  void (*moved)(uint64_t from, uint64_t parent); /* span `from` never was: what is to begin in it begins in `parent` */
};
extern _Atomic(const struct scope_chooser *) scope_chooser;

/* Something that takes turns. All but the first three are scope_turn.c's own. */
struct scope_turn {
  uint64_t serial;
  uint64_t parent; /* where it begins */
  bool in_epoch;
  uint64_t thread;     /* where it had its last turn */
  struct scope *scope; /* and its stack there, as long as that has its serial */
};
/* It has its turn on the calling thread, whose own stack is `own`. NULL: there are too many, counted. */
struct scope *scope_turn(struct scope *own, struct scope_turn *turn);
/* It will have none any more. What it has open is closed, with SPAN_CUT; if it is another thread's, when that one changes turns. */
void scope_turn_end(struct scope_turn *turn);

/* Where something begins that will take turns: the innermost span's id, which is told to the collector, and whether it lies in an
 * epoch. */
uint64_t scope_lend(struct scope *scope, bool *in_epoch);

struct scope *scope_own(void); /* of the calling thread, whoever has its turn; NULL: none yet */

/* Which other stack of the calling thread has a pass of this iterator under way, or NULL. */
struct scope *scope_of_pass(const void *iterator, struct scope *except);

/* The session ends: closes what the calling thread has open, with SPAN_CUT. No thread has a stack any more; calls that began in one
 * find that by scope_peek. */
void scope_end_session(void);
/* Between these no thread is at its end, where it closes what it has open, with or without the GIL. */
void scope_hold_ends(void);
void scope_release_ends(void);
/* Meanwhile, and before the memory of the session goes: what is written to stacks of it from now on goes nowhere. False: no memory. */
bool scope_detach(void);
/* In the child of a fork: the stacks of the parent are gone. */
void scope_forget(void);

#endif
