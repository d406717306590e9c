#include "loop.h"

#include <stddef.h>

#include "hot.h"
#include "loop_infer.h"
#include "loop_own.h"
#include "loop_pass.h"
#include "loop_step.h"
#include "names.h"
#include "session.h"

void loop_pass_begin(struct scope *scope, const void *loader, const void *iterator) {
  if (scope_loop(scope)->run_count || scope_find(scope, SPAN_DATA_LOAD))
    return; /* a framework's or a data set's own business */
  infer_end(scope, scope_loop(scope));
  pass_begin(scope, scope_loop(scope), loader, iterator, scope_clock(scope));
}

void loop_pass_end(const void *iterator, bool exhausted) {
  struct scope *scope = scope_peek();
  struct loop_pass *pass = scope ? pass_of(scope_loop(scope), iterator) : NULL;
  if (!pass && (scope = scope_of_pass(iterator, scope)))
    pass = pass_of(scope_loop(scope), iterator);
  if (pass)
    pass_finish(scope, scope_loop(scope), pass, scope_clock(scope), exhausted);
}

/* A pass that began inside the step is evaluation, until it shows that it is not. */
HOT static bool apart(struct scope *scope, const struct loop *l, const struct loop_pass *pass) {
  return pass && step_around(scope, l, pass);
}

HOT struct span *loop_load_begin(struct scope *scope, const void *iterator) {
  struct loop *l = scope_loop(scope);
  if (unlikely(scope_find(scope, SPAN_DATA_LOAD) != NULL))
    return NULL;
  if (unlikely(l->run_count))
    return own_load_begin(scope);
  uint64_t now = scope_clock(scope);
  struct loop_pass *pass = pass_ask(scope, l, iterator, now);
  const void *loader = pass ? pass->loader : iterator;
  bool had_step = l->step != NULL;
  if (!apart(scope, l, pass) || (l->updated && step_given(l, loader)))
    step_before_load(scope, l, pass, loader, now);
  l->step_by_load = l->step && !had_step;
  return scope_push(scope, SPAN_DATA_LOAD, name_id(NAME_DATA_LOAD), pass ? (int64_t)pass->items : SPAN_NO_INDEX, now);
}

/* Nothing was handed out: neither the request nor the step that it opened ever were. But a loop that fetches ahead has one batch
 * left to train with. */
COLD static void load_withdraw(struct scope *scope, struct loop *l, const struct loop_pass *pass, struct span *load) {
  scope_dissolve(scope, load);
  if (l->step_by_load && scope_top(scope) == l->step && !l->updated && l->loads == 0 && !l->adopt_since_ns &&
      !(pass && pass->ahead))
    step_dissolve(scope, l);
}

HOT void loop_load_end(struct scope *scope, const void *iterator, struct span *load, bool handed_out) {
  struct loop *l = scope_loop(scope);
  if (unlikely(l->run_count)) {
    own_load_end(scope, load, handed_out);
    return;
  }
  struct loop_pass *pass = pass_of(l, iterator);
  if (unlikely(!handed_out)) {
    load_withdraw(scope, l, pass, load);
    return;
  }
  const void *loader = pass ? pass->loader : iterator;
  uint64_t start_ns = load->start_ns;
  bool in_step = load->parent == l->step_id;
  scope_pop(scope, load, scope_clock(scope), 0);
  if (pass) {
    pass->ahead |= pass->items == 1 && !pass->used;
    pass->items++;
  }
  if (unlikely(!l->step) || apart(scope, l, pass))
    return;
  l->loads++;
  if (unlikely(l->close_due))
    l->batch_waiting = true;
  else if (unlikely(l->updated) && in_step && !step_given(l, loader) && !l->next_start_ns)
    l->next_start_ns = start_ns; /* of this step if it has another update, else of the next */
  else
    step_give(l, loader);
}

HOT void loop_forward(struct scope *scope, bool training) {
  struct loop *l = scope_loop(scope);
  if (unlikely(l->run_count))
    return;
  l->forward = true;
  l->forward_train |= training;
  if (training && infer_wants_work(l))
    infer_work(scope, l);
  if (!training && unlikely(l->inferred))
    infer_idle(scope, l);
  for (unsigned i = 0; i < l->pass_count; i++)
    l->passes[i].used = true;
}

HOT void loop_backward(struct scope *scope) {
  struct loop *l = scope_loop(scope);
  if (unlikely(l->run_count))
    return;
  if (unlikely(l->pass_count > 1) && !scope_find(scope, SPAN_DATA_LOAD)) {
    step_enter_pass(scope, l);
    pass_supersede(scope, l);
  }
  l->backward = true;
  if (infer_wants_work(l))
    infer_work(scope, l);
  for (unsigned i = 0; i < l->pass_count; i++) {
    l->passes[i].evaluating = false;
    l->passes[i].used = true; /* there need not be a module */
  }
  if (l->step && unlikely(l->step->flags & SPAN_DOUBTFUL)) {
    l->step->flags &= (uint8_t)~SPAN_DOUBTFUL;
    scope_refresh(scope, l->step);
  }
}

void loop_optimizer(struct scope *scope) {
  scope_loop(scope)->optimizer_ns = scope_clock(scope);
}

void loop_loader(struct scope *scope) {
  infer_off = true;
  if (scope)
    infer_end(scope, scope_loop(scope));
}

HOT void loop_update_begin(struct scope *scope, const void *optimizer) {
  struct loop *l = scope_loop(scope);
  if (unlikely(l->run_count))
    return;
  if (unlikely(l->pass_count > 1) && !scope_find(scope, SPAN_DATA_LOAD)) {
    step_enter_pass(scope, l);
    pass_supersede(scope, l);
  }
  if (unlikely(!infer_off) && !l->pass_count)
    infer_update(scope, l, optimizer);
  else if (unlikely(l->inferred)) /* a loader was made on another thread */
    infer_end(scope, l);
  l->next_start_ns = 0; /* what was loaded since the last update is of this step */
}

HOT void loop_update_end(struct scope *scope, uint64_t end_ns) {
  struct loop *l = scope_loop(scope);
  if (unlikely(scope_find(scope, SPAN_DATA_LOAD) != NULL))
    return; /* a data set that learns */
  if (unlikely(l->run_count)) {
    l->run_updated_ns = end_ns; /* for the framework, which says when a step ends */
    return;
  }
  pass_updated(scope, l);
  if (unlikely(!l->step))
    return;
  if (likely(!l->updated))
    step_settle(scope, l);
  l->settled_ns = end_ns;
  l->step->has_children = false; /* from here on: what may have to be moved */
  if (unlikely(l->step->cpu_ns != SPAN_NO_TIME))
    l->step->cpu_end_ns = scope_cpu_clock();
}

/* A scope that holds an unfinished step is left. Its batch may be one that was fetched ahead: the next step begins with it. */
static void step_left(struct scope *scope, struct loop *l, const struct span *scope_left) {
  bool ahead = !l->updated && l->loads && l->pass_count && !l->passes[l->pass_count - 1].evaluating;
  step_end(scope, l);
  if (ahead) {
    l->batch_waiting = true;
    l->next_start_ns = scope_left->start_ns;
    l->next_parent = scope_left->parent;
  }
}

static void pop_by_hand(struct scope *scope, struct loop *l, struct span *span, uint64_t end_ns, uint32_t exception) {
  if (span->kind == SPAN_EPOCH)
    for (unsigned i = 0; i < l->pass_count; i++)
      l->passes[i].has_epoch = true;
  pass_tell_epoch(span);
  scope_pop(scope, span, end_ns, exception);
}

/* Ends what was begun inside `span`, innermost first. */
static void clear_above(struct scope *scope, struct loop *l, struct span *span, uint64_t end_ns) {
  for (struct span *top; (top = scope_top(scope)) != span;) {
    if (top == l->step) {
      step_left(scope, l, span);
      continue;
    }
    struct loop_pass *pass = pass_of_span(l, top);
    if (!pass) {
      pop_by_hand(scope, l, top, end_ns, 0);
      continue;
    }
    pass_close(scope, pass, end_ns, 0);
    if (pass->items || pass->ended) /* one that was not used yet may be opened again */
      pass_forget(l, pass);
  }
}

/* What waited for a scope to close. */
static void settle_waiting(struct scope *scope, struct loop *l, uint64_t end_ns) {
  if (l->close_due && scope_top(scope) == l->step)
    step_end(scope, l);
  pass_settle_waiting(scope, l, end_ns);
  if (l->batch_waiting && !l->step)
    step_open(scope, l, end_ns);
}

void loop_pop(struct scope *scope, struct span *span, uint64_t end_ns, uint32_t exception) {
  struct loop *l = scope_loop(scope);
  if (scope_top(scope) != span)
    clear_above(scope, l, span, end_ns);
  pop_by_hand(scope, l, span, end_ns, exception);
  if (l->close_due || l->batch_waiting || l->pass_count)
    settle_waiting(scope, l, end_ns);
  if (unlikely(l->inferred))
    infer_idle(scope, l);
}

bool loop_quiet(struct scope *scope, const void *iterator) {
  struct loop *l = scope_loop(scope);
  if (l->run_count)
    return own_quiet(scope);
  struct loop_pass *pass = pass_of(l, iterator);
  for (const struct span *s = scope_top(scope); s; s = scope_below(scope, s))
    if (s->kind >= SPAN_DATA_LOAD && s->kind <= SPAN_OPTIMIZER)
      return false;
  if (l->close_due || l->batch_waiting || l->next_start_ns)
    return false;
  if (!l->step)
    return true;
  if (!l->updated || !(l->inferred || step_given(l, pass ? pass->loader : iterator)) || step_blocked(scope, l))
    return false;
  step_finish(scope, l);
  return true;
}

bool loop_under_way(const struct loop *l) {
  return l->pass_count || l->step || l->close_due || l->batch_waiting || l->next_start_ns || l->last_end_ns ||
         l->optimizer_ns || l->forward || l->backward || l->run_count;
}

bool loop_passes_over(const struct loop *l, const void *iterator) {
  for (unsigned i = 0; i < l->pass_count; i++)
    if (l->passes[i].iterator == iterator)
      return true;
  return false;
}

void loop_end_thread(struct scope *scope, uint64_t end_ns, bool owners) {
  struct loop *l = scope_loop(scope);
  for (struct span *top; (top = scope_top(scope));) {
    if (top == l->step) {
      step_end(scope, l);
      continue;
    }
    struct loop_pass *pass = pass_of_span(l, top);
    if (pass) {
      pass_close(scope, pass, end_ns, pass->cut_ns || pass->over_ns ? 0 : SPAN_CUT);
      continue;
    }
    top->flags |= SPAN_CUT;
    if (!owners)
      top->attrs = NULL, top->attrs_len = 0;
    scope_pop(scope, top, end_ns, 0);
  }
  l->run_count = 0;
}

void loop_forget(void) {
  step_forget();
  pass_forget_all();
}
