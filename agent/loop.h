/* From single events to steps, epochs and evaluation passes (docs/spans.md, rules of the loop). The events are in loop.c, the step
 * is in loop_step.c, passes over loaders are in loop_pass.c; loops that a framework runs by rules of its own are in loop_own.c.
 *
 * A step and a pass are opened on suspicion and settled with hindsight: a pass in which an update happened is an `epoch`, else an
 * `eval`; a step ends with its last update, and one without an update never was. What was recorded under them meanwhile is moved
 * to where it belongs (RING_MOVE). State is per thread or task and lies in its scope.
 */
#ifndef CIRRON_LOOP_H
#define CIRRON_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "hot.h"
#include "scope.h"

#define LOOP_MAX_PASSES 16 /* unfinished at a time, in one thread; more are not told apart */
#define LOOP_MAX_LOADERS 8 /* that feed one step */
#define LOOP_MAX_RUNS 8    /* loops of frameworks inside one another; of one deeper down nothing is known but what torch sees */

struct loop_pass {
  const void *loader, *iterator; /* for comparison only */
  struct span *span;             /* NULL when it was dissolved or closed */
  unsigned items;
  uint64_t first_ns, asked_ns; /* when it was asked for its first item, and last */
  uint64_t first_parent;       /* the innermost span at that first time */
  uint64_t
      cut_ns; /* set aside: the inner pass that began then is the epoch, and this one ended then if not asked again; or 0 */
  uint64_t over_ns; /* it ended then, but its span is kept until it is known what that meant; or 0 */
  bool dissolved;   /* an outer pass or a scope made by hand is the epoch */
  bool has_epoch;   /* an epoch made by hand was in it: it is none itself */
  bool has_eval;    /* another pass in it was an evaluation */
  bool has_inner;   /* loops over other loaders lie in it: it is never set aside again */
  bool ended;       /* to be closed when the scopes begun inside it are */
  bool evaluating;  /* its batches were only evaluated so far: opens no steps */
  bool used;        /* a forward happened since it began */
  bool ahead;       /* a second item was fetched before the first was used: one is still at hand when it is exhausted */
};

enum loop_run_kind { RUN_TRAINING, RUN_EVAL };

/* A loop that a framework runs: while there is one, it alone says what is an epoch, a step or batch, and an evaluation. */
struct loop_run {
  uint64_t number;    /* never used twice on a stack */
  const void *object; /* whose it is; for comparison only */
  enum loop_run_kind kind;
  bool lone;          /* no function of the framework's is around it: it may be left without a word */
  bool inner;         /* begun in an epoch of another one: has no names of its own */
  bool over;          /* its epoch is at its end, but for what the framework does at that end */
  struct span *epoch; /* the open one, or the span of the evaluation; or NULL */
  struct span *step;  /* the open step or batch, or NULL */
  uint64_t epoch_id, step_id;
  uint64_t last_step; /* the last one that ended in this epoch, or 0 */
  int64_t next_epoch; /* index after the last epoch's, or SPAN_NO_INDEX */
};

struct loop {
  struct span *step; /* the open step, or NULL */
  uint64_t step_id;
  unsigned run_count;                    /* not 0: what follows stands still */
  bool updated;                          /* an update happened in it */
  uint64_t settled_ns;                   /* end of the last update, and of the scopes around it: where the step will end */
  bool backward, forward, forward_train; /* happened in it */
  bool close_due;                        /* ends with the scope that is open above it */
  bool batch_waiting;                    /* an item was handed out that no step holds */
  bool step_by_load;                     /* the request that is open now opened it */
  bool inferred;                         /* from updates alone (loop_infer.h) */
  bool works;                            /* work for the next inferred one has begun */
  uint64_t next_start_ns;                /* where the next step will begin: the first item after settled_ns, or 0 */
  uint64_t next_parent;                  /* span under which that item lies */
  uint64_t adopt_since_ns;               /* once real, this step begins here and holds what adopt_parent got since then; or 0 */
  uint64_t adopt_parent;
  unsigned loads;
  const void *given[LOOP_MAX_LOADERS]; /* loaders that gave it an item; an inferred one: optimizers that had a turn */
  unsigned given_count;
  uint64_t optimizer_ns; /* when an optimizer was constructed last: training begins after that */
  uint64_t last_end_ns;  /* of the step before */
  uint64_t long_step_ns; /* how long the last step was: is its CPU time worth two readings? */

  unsigned pass_count;
  struct loop_pass passes[LOOP_MAX_PASSES]; /* outermost first; most are never used */

  uint64_t run_number;                 /* of the last one */
  int64_t lone_batches;                /* that were trained on one by one, by no loop of the framework's */
  uint64_t fetched_ns;                 /* when the first item was asked for that no step or batch of a run holds yet; or 0 */
  uint64_t fetched_parent;             /* span under which that is */
  uint64_t run_updated_ns;             /* when the last update in a run ended */
  struct loop_run runs[LOOP_MAX_RUNS]; /* outermost first */

  unsigned idle;        /* where it is inferred: what came since the last update and is no work for the next */
  uint64_t work_ns;     /* where that began, with a scope around it that is closed */
  uint64_t work_parent; /* span under which that is */
};

/* Not NULL: told of each epoch that ends, before its span is closed, and of each step once an update made it one. They only take note:
 * the loop is in the middle of something. Set before the first. */
extern void (*loop_epoch_over)(const struct span *epoch);
extern void (*loop_stepped)(const struct span *step);
extern int64_t loop_last_step; /* index of the last step in the process that had an update, or SPAN_NO_INDEX */

/* A pass over a loader begins: iter(loader) gave `iterator`. */
void loop_pass_begin(struct scope *scope, const void *loader, const void *iterator);
/* The iterator was exhausted, or else dropped: its pass ends, in whichever task of the calling thread it is. */
void loop_pass_end(const void *iterator, bool exhausted);

/* The iterator is asked for an item. Returns the data_load span, or NULL when it lies in another or is too deep. */
struct span *loop_load_begin(struct scope *scope, const void *iterator);
/* It gave one (or, `handed_out` false, it did not: exhausted or failed; then nothing was loaded). */
void loop_load_end(struct scope *scope, const void *iterator, struct span *load, bool handed_out);

void loop_forward(struct scope *scope, bool training);              /* a forward begins */
void loop_backward(struct scope *scope);                            /* a backward begins */
void loop_update_begin(struct scope *scope, const void *optimizer); /* an optimizer's step begins */
void loop_update_end(struct scope *scope, uint64_t end_ns);         /* and has been done; its span is closed */

/* Between two steps of the pass of `iterator`, or of a loop without a loader (NULL): ends the step that is over now rather than with
 * the next request. True: nothing of a step is open, and none is waiting for its end. For check.c. */
bool loop_quiet(struct scope *scope, const void *iterator);

void loop_optimizer(struct scope *scope); /* an optimizer was constructed, */
void loop_loader(struct scope *scope);    /* a loader; NULL: there is no stack */

/* Closes a span made by hand, and with it the steps and passes begun inside and the step that waited for it. */
void loop_pop(struct scope *scope, struct span *span, uint64_t end_ns, uint32_t exception);

/* A span was closed; for scope.c. One that holds the last update belongs to the step as a whole. So does one in which the work for an
 * inferred step began, unless it holds the step before. */
static inline void loop_closed(struct loop *loop, const struct span *span, uint64_t end_ns) {
  if (unlikely(loop->updated && span->parent == loop->step_id) && span->start_ns < loop->settled_ns &&
      end_ns > loop->settled_ns) {
    loop->settled_ns = end_ns;
    loop->step->has_children = false;
    loop->works = false;
  }
  if (unlikely(loop->works) && span->id == loop->work_parent) {
    loop->works = span->start_ns > loop->last_end_ns;
    loop->work_ns = span->start_ns;
    loop->work_parent = span->parent;
  }
}

/* Is there anything to remember? */
bool loop_under_way(const struct loop *loop);
bool loop_passes_over(const struct loop *loop, const void *iterator);

/* All that is open ends. `owners`: those of the spans' attributes are alive. */
void loop_end_thread(struct scope *scope, uint64_t end_ns, bool owners);
void loop_forget(void); /* in the child of a fork: indices start anew */

#endif
