#include "loop_step.h"

#include <stddef.h>

#include "hot.h"
#include "loop_pass.h"
#include "names.h"
#include "session.h"

void (*loop_stepped)(const struct span *step);
HOT_DATA int64_t loop_last_step;
HOT_DATA static int64_t next_step; /* whoever holds the GIL; an atomic addition would wait for all that was stored before it */

HOT bool step_given(const struct loop *l, const void *loader) {
  for (unsigned i = 0; i < l->given_count; i++)
    if (l->given[i] == loader)
      return true;
  return false;
}

HOT void step_give(struct loop *l, const void *loader) {
  if (l->given_count < LOOP_MAX_LOADERS && !step_given(l, loader))
    l->given[l->given_count++] = loader;
}

bool step_inside(struct scope *scope, const struct loop *l, const struct loop_pass *pass) {
  return l->step && pass->span && scope_is_above(scope, l->step, pass->span);
}

HOT bool step_around(struct scope *scope, const struct loop *l, const struct loop_pass *pass) {
  return l->step && pass->span && scope_is_above(scope, pass->span, l->step);
}

HOT static void step_is(struct loop *l, struct span *s) {
  s->owner = l;
  l->step = s;
  l->step_id = s->id;
  l->updated = l->backward = l->forward = l->forward_train = l->close_due = false;
  l->adopt_since_ns = l->next_start_ns;
  l->adopt_parent = l->next_parent;
  l->next_start_ns = 0;
}

HOT void step_open(struct scope *scope, struct loop *l, uint64_t now) {
  struct span *s = scope_push(scope, SPAN_STEP, name_id(NAME_STEP), next_step, now);
  if (likely(!l->batch_waiting)) /* else it begins with what was handed out to the one before */
    l->loads = l->given_count = 0;
  l->batch_waiting = false;
  if (unlikely(!s))
    return;
  if (session_env.cpu_time == ENV_CPU_AUTO && unlikely(l->long_step_ns > STEP_CPU_WORTH_NS))
    s->cpu_ns = scope_cpu_clock();
  step_is(l, s);
}

void step_open_at(struct scope *scope, struct loop *l, uint64_t start_ns, uint64_t under) {
  struct span *s = scope_insert(scope, SPAN_STEP, name_id(NAME_STEP), next_step, start_ns, under);
  if (!s)
    s = scope_push(scope, SPAN_STEP, name_id(NAME_STEP), next_step, scope_clock(scope));
  if (s)
    step_is(l, s);
}

static void step_gone(struct loop *l) {
  l->step = NULL;
  l->step_id = 0;
  l->updated = l->close_due = l->inferred = false;
}

void step_dissolve(struct scope *scope, struct loop *l) {
  scope_dissolve(scope, l->step);
  step_gone(l);
}

void step_withdraw(struct scope *scope, struct loop *l) {
  next_step -= l->updated && l->step->index == next_step - 1;
  l->step->has_children = true; /* the update, at least */
  step_dissolve(scope, l);
}

HOT void step_finish(struct scope *scope, struct loop *l) {
  struct span *s = l->step;
  if (unlikely(s->has_children)) {
    struct span *below = scope_below(scope, s);
    if (below)
      below->has_children = true;
    scope_move(scope, l->step_id, l->settled_ns, s->parent);
  }
  if (unlikely(l->works) && l->work_parent == l->step_id) /* it came after */
    l->work_parent = s->parent;
  l->next_parent = s->parent;
  l->last_end_ns = l->settled_ns;
  l->long_step_ns = l->settled_ns - s->start_ns;
  scope_close_below(scope, s, l->settled_ns);
  step_gone(l);
}

HOT void step_end(struct scope *scope, struct loop *l) {
  if (l->updated)
    step_finish(scope, l);
  else
    step_dissolve(scope, l);
}

HOT bool step_blocked(struct scope *scope, const struct loop *l) {
  const struct span *above = l->step ? scope_above(scope, l->step) : NULL;
  return above && above->start_ns < l->settled_ns;
}

HOT void step_before_load(struct scope *scope, struct loop *l, struct loop_pass *pass, const void *loader, uint64_t now) {
  if (likely(l->step && l->updated && step_given(l, loader))) {
    if (unlikely(step_blocked(scope, l))) {
      l->close_due = true;
      return;
    }
    step_finish(scope, l);
  } else if (l->step && !l->updated && l->forward && !l->forward_train && !l->backward) {
    if (pass)
      pass->evaluating = true;
    step_dissolve(scope, l);
  } else if (l->step && !l->updated && l->loads && !l->backward && !(l->step->flags & SPAN_DOUBTFUL)) {
    l->step->flags |= SPAN_DOUBTFUL;
    scope_refresh(scope, l->step);
  }
  if (likely(!l->step && !(pass && pass->evaluating)))
    step_open(scope, l, now);
}

HOT void step_settle(struct scope *scope, struct loop *l) {
  struct span *s = l->step;
  s->index = loop_last_step = next_step++;
  s->flags &= (uint8_t)~SPAN_DOUBTFUL;
  if (unlikely(l->adopt_since_ns) && l->adopt_since_ns >= l->last_end_ns && l->adopt_parent == s->parent &&
      scope_alone(scope, s->parent, l->adopt_since_ns)) {
    scope_move(scope, s->parent, l->adopt_since_ns, s->id);
    s->start_ns = l->adopt_since_ns;
  }
  l->updated = true;
  scope_refresh(scope, s);
  if (likely(loop_stepped != NULL))
    loop_stepped(s);
}

/* The innermost pass that gave something since the step was opened, if there is one. */
static const struct loop_pass *pass_inside(struct scope *scope, const struct loop *l) {
  for (unsigned i = l->pass_count; i-- > 0;) {
    const struct loop_pass *pass = &l->passes[i];
    if (pass->items && !pass->over_ns && !pass->ended && step_around(scope, l, pass))
      return pass;
  }
  return NULL;
}

/* Was the step opened for a batch that was only looked at? Otherwise its loop is the one around the passes inside it. */
static bool step_of_one_looked_at(struct scope *scope, const struct loop *l) {
  for (const struct span *s = scope_below(scope, l->step); s; s = scope_below(scope, s))
    for (unsigned i = 0; i < l->pass_count; i++)
      if (l->passes[i].span == s)
        return pass_looked_at(l, &l->passes[i]);
  return true;
}

void step_enter_pass(struct scope *scope, struct loop *l) {
  const struct loop_pass *pass = l->step && !l->updated && l->pass_count ? pass_inside(scope, l) : NULL;
  if (!pass || !step_of_one_looked_at(scope, l))
    return;
  l->next_start_ns = l->adopt_since_ns ? l->adopt_since_ns : l->step->start_ns; /* with the outer items, if they are its own */
  l->next_parent = l->adopt_since_ns ? l->adopt_parent : l->step->parent;
  bool forward = l->forward, train = l->forward_train;
  step_dissolve(scope, l);
  step_open_at(scope, l, pass->first_ns, pass->first_parent);
  if (!l->step)
    return;
  l->forward = forward;
  l->forward_train = train;
  l->loads = pass->items;
  step_give(l, pass->loader);
}

void step_forget(void) {
  next_step = 0;
  loop_last_step = SPAN_NO_INDEX;
}
