#include "loop_infer.h"

#include <stddef.h>

#include "loop_step.h"

#define IDLE_MAX 256u

HOT_DATA bool infer_off;

static void work_begins(struct scope *scope, struct loop *l) {
  l->work_ns = scope_clock(scope);
  l->work_parent = scope_innermost(scope);
  l->works = true;
}

void infer_work(struct scope *scope, struct loop *l) {
  if (!scope_find(scope, SPAN_OPTIMIZER)) /* else in a closure */
    work_begins(scope, l);
}

/* False: it ends with a scope that is open in it. */
static bool finish(struct scope *scope, struct loop *l) {
  if (step_blocked(scope, l)) {
    l->close_due = true;
    return false;
  }
  step_finish(scope, l);
  return true;
}

void infer_update(struct scope *scope, struct loop *l, const void *optimizer) {
  if (l->step && (!l->inferred || (l->updated && step_given(l, optimizer) && !finish(scope, l))))
    return;
  if (!l->step) {
    if (!l->works)
      work_begins(scope, l);
    l->loads = l->given_count = 0;
    step_open_at(scope, l, l->work_ns, l->work_parent);
    l->inferred = l->step != NULL;
  }
  if (l->step)
    step_give(l, optimizer);
  l->works = false;
  l->idle = 0;
}

void infer_idle(struct scope *scope, struct loop *l) {
  if (l->step && l->updated && !l->works && scope_top(scope) == l->step && ++l->idle > IDLE_MAX)
    step_finish(scope, l);
}

void infer_end(struct scope *scope, struct loop *l) {
  infer_off = true;
  l->works = false;
  if (!l->step || !l->inferred)
    return;
  if (l->last_end_ns)
    step_end(scope, l);
  else
    step_withdraw(scope, l);
}
