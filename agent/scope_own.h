/* What scope.c and scope_turn.c share: a stack of open spans, and the thread that it is one of. */
#ifndef CIRRON_SCOPE_OWN_H
#define CIRRON_SCOPE_OWN_H

#include "clock.h"
#include "hot.h"
#include "loop.h"
#include "names.h"
#include "outlet.h"
#include "scope.h"

#define SCOPE_OPEN (SCOPE_MAX_DEPTH - 1u) /* the root is the deepest level and not kept here */

struct thread;

struct scope {
  struct thread *thread;
  unsigned depth;
  bool in_epoch;              /* what it was begun in lies in an epoch */
  uint64_t root;              /* parent of its outermost spans */
  uint64_t serial;            /* 0: given back */
  uint64_t pushed_ns;         /* begin of the last span */
  uint64_t free;              /* bit i: pool[i] is not in use */
  uint8_t open[SPAN_KINDS];   /* how many of a kind are */
  struct scope *next, **link; /* in the thread's list, and what points at it there */
  struct loop loop;
  struct span *stack[SCOPE_OPEN]; /* outermost first */
  struct span pool[SCOPE_OPEN];   /* spans do not move, so that their owners can point at them */
};

struct thread {
  unsigned generation; /* of the session that it is of */
  struct clock clock;
  struct ring *ring;    /* its table shows the open spans */
  struct outlet outlet; /* where records go: that ring, but for bursts */
  uint32_t tid;
  uint64_t next_id, end_id; /* ids taken for this thread and not used yet */

  struct scope *turns; /* stacks beside its own, in use */
  struct scope *spare; /* and empty ones */
  struct scope *now;   /* the one that had the last turn, or NULL */
  unsigned turn_count; /* of both lists */
  unsigned left_seen;  /* see scope_turn_end */
  uint64_t gone_ns;    /* begin of the last span in one that was given back */

  struct thread *next_living, **living_link; /* all that are mapped; scope.c's */
  struct thread *former; /* the same thread's, of sessions that have ended: calls that began in them may still be under way */

  struct scope own;
  struct name_cache names;
};

extern __thread struct thread *scope_mine; /* the last one; NULL: there was none yet */
extern unsigned scope_generation;          /* of the session; atomic */

/* The calling thread's; NULL: it has none yet, or one of a session that has ended. */
static inline struct thread *scope_thread_here(void) {
  struct thread *t = scope_mine;
  return likely(t && t->generation == __atomic_load_n(&scope_generation, __ATOMIC_RELAXED)) ? t : NULL;
}

/* Sets what the memory of a new or empty stack does not say already. */
void scope_init(struct scope *scope, struct thread *thread, uint64_t serial, uint64_t root);

/* Ends all stacks beside the thread's own. */
void scope_turns_end(struct thread *thread);
void scope_turns_free(struct thread *thread); /* their memory */

#endif
