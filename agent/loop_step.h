/* The step of a loop: opened on suspicion, real with its first update. For loop.c and loop_pass.c. */
#ifndef CIRRON_LOOP_STEP_H
#define CIRRON_LOOP_STEP_H

#include "loop.h"

/* Two readings of the thread's CPU clock take some 4 us: only for steps that are long beside that. */
#define STEP_CPU_WORTH_NS 2000000ull

/* Did this loader give the open step an item? step_give: it did. */
bool step_given(const struct loop *l, const void *loader);
void step_give(struct loop *l, const void *loader);

/* Is the open step inside this pass, or this pass inside the open step? */
bool step_inside(struct scope *scope, const struct loop *l, const struct loop_pass *pass);
bool step_around(struct scope *scope, const struct loop *l, const struct loop_pass *pass);

/* On suspicion: it will have been a step if an update comes. */
void step_open(struct scope *scope, struct loop *l, uint64_t now);
/* The same at a time that is past, when the span `under` was the innermost; where that is closed, now. */
void step_open_at(struct scope *scope, struct loop *l, uint64_t start_ns, uint64_t under);
/* A loader is asked: does the step end, does one begin? */
void step_before_load(struct scope *scope, struct loop *l, struct loop_pass *pass, const void *loader, uint64_t now);
/* The first update makes the step real: it has its index, and the items that were handed out for it before it was opened. */
void step_settle(struct scope *scope, struct loop *l);
/* Training happens in a pass that began inside the open step: then the step began with that pass's first item. */
void step_enter_pass(struct scope *scope, struct loop *l);

/* Is a scope open in the step that began before the step settled? Then the step ends with that scope, not yet. */
bool step_blocked(struct scope *scope, const struct loop *l);
/* Ends the step where it settled. What began under it since then belongs to its parent. */
void step_finish(struct scope *scope, struct loop *l);
/* Takes it back as if it had never been. */
void step_dissolve(struct scope *scope, struct loop *l);
/* The same of one that is real already, if it is the newest. */
void step_withdraw(struct scope *scope, struct loop *l);
/* One or the other. */
void step_end(struct scope *scope, struct loop *l);

void step_forget(void); /* in the child of a fork: indices start anew */

#endif
