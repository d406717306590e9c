/* Open spans of a thread, and their way into its ring.
 *
 * Each thread has a stack of at most SCOPE_MAX_DEPTH open spans. Automatic spans (epoch, step, forward, ...) and those made by
 * hand are in the same stack, so each lies where a reader expects it. No lock, no allocation, no system call once the thread
 * has its ring. All functions belong to the calling thread.
 */
#ifndef CIRRON_SCOPE_H
#define CIRRON_SCOPE_H

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

struct scope; /* a thread's stack */
struct loop;  /* loop.h: what loop.c remembers of the thread */
struct name_cache;

/* The calling thread's stack, made with its ring (and the session) at the first call. NULL: tracing is off here. */
struct scope *scope_get(void);
/* The same, but NULL where there is none yet. */
struct scope *scope_peek(void);
struct loop *scope_loop(struct scope *scope);
struct name_cache *scope_names(struct scope *scope);
uint64_t scope_clock(struct scope *scope); /* the time, for all that is recorded of this thread */
uint64_t scope_now(void);                  /* the same where it may have no stack */

/* Opens a span under the innermost open one. NULL: too deep, counted. The pointer is good until the span is closed or
 * dissolved. */
struct span *scope_push(struct scope *scope, enum span_kind kind, uint32_t name, int64_t index, uint64_t start_ns);

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

void scope_refused_mark(void); /* a value that cannot be kept: counted */

/* CPU time of the calling thread, a system call; see CIRRON_CPU_TIME. */
int64_t scope_cpu_clock(void);

/* Ends the calling thread's stack: closes all with SPAN_CUT. */
void scope_end_thread(void);
/* In the child of a fork: the stacks of the parent are gone. */
void scope_forget(void);

#endif
