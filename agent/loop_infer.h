/* Steps of a loop whose data comes from nowhere that we observe: from updates alone. For loop.c.
 *
 * In a process that has made no DataLoader and runs no framework's loop. A step lasts from the first training-mode forward or backward
 * after the step before, or from the update where there is none, to the last update before an optimizer has its turn again: two
 * optimizers that take turns share one. As always it is known with hindsight, here as late as the first update begins.
 */
#ifndef CIRRON_LOOP_INFER_H
#define CIRRON_LOOP_INFER_H

#include "hot.h"
#include "loop.h"

extern bool infer_off; /* there are loaders */

/* A training-mode forward or a backward begins. */
static inline bool infer_wants_work(const struct loop *l) {
  return unlikely(!infer_off) && !l->works;
}
COLD void infer_work(struct scope *scope, struct loop *l);

/* An optimizer's step begins; `optimizer` for comparison only. */
COLD void infer_update(struct scope *scope, struct loop *l, const void *optimizer);

/* Something else is done. After much of it the loop is over, and so is its last step. */
COLD void infer_idle(struct scope *scope, struct loop *l);

/* There are loaders after all. A single update before that was there to warm up, and is no step. */
COLD void infer_end(struct scope *scope, struct loop *l);

#endif
