#include "loop.h"

#include <stddef.h>
#include <string.h>

#include "names.h"
#include "scope.h"
#include "session.h"

/* Two readings of the thread's CPU clock take some 4 us: only for steps that are long beside that. */
#define CPU_WORTH_NS 2000000ull

static _Atomic int64_t next_epoch, next_eval, next_step;

/* --- the step ------------------------------------------------------------------------------------------------------------ */

static bool given(const struct loop *l, const void *loader) {
  for (unsigned i = 0; i < l->given_count; i++)
    if (l->given[i] == loader)
      return true;
  return false;
}

static void give(struct loop *l, const void *loader) {
  if (l->given_count < LOOP_MAX_LOADERS && !given(l, loader))
    l->given[l->given_count++] = loader;
}

/* On suspicion: it will have been a step if an update comes. */
static void step_open(struct scope *scope, struct loop *l, uint64_t now) {
  struct span *s = scope_push(scope, SPAN_STEP, name_id(NAME_STEP), next_step, now);
  if (!l->batch_waiting) /* else it begins with what was handed out to the one before */
    l->loads = l->given_count = 0;
  l->batch_waiting = false;
  if (!s)
    return;
  if (session_env.cpu_time == ENV_CPU_AUTO && l->long_step_ns > CPU_WORTH_NS)
    s->cpu_ns = scope_cpu_clock();
  s->owner = l;
  l->step = s;
  l->step_id = s->id;
  l->updated = l->backward = l->forward = l->forward_train = l->close_due = false;
  l->adopt_since_ns = l->next_start_ns;
  l->adopt_parent = l->next_parent;
  l->next_start_ns = 0;
}

static void step_gone(struct loop *l) {
  l->step = NULL;
  l->step_id = 0;
  l->updated = l->close_due = false;
}

static void step_dissolve(struct scope *scope, struct loop *l) {
  scope_dissolve(scope, l->step);
  step_gone(l);
}

/* Ends the step where it settled. What began under it since then belongs to its parent. */
static void step_finish(struct scope *scope, struct loop *l) {
  struct span *s = l->step;
  if (s->has_children) {
    struct span *below = scope_below(scope, s);
    if (below)
      below->has_children = true;
    scope_move(scope, l->step_id, l->settled_ns, s->parent);
  }
  l->next_parent = s->parent;
  l->last_end_ns = l->settled_ns;
  l->long_step_ns = l->settled_ns - s->start_ns;
  scope_close_below(scope, s, l->settled_ns);
  step_gone(l);
}

static void step_end(struct scope *scope, struct loop *l) {
  if (l->updated)
    step_finish(scope, l);
  else
    step_dissolve(scope, l);
}

/* Is a scope open in the step that began before the step settled? Then the step ends with that scope, not yet. */
static bool step_blocked(struct scope *scope, const struct loop *l) {
  const struct span *above = NULL;
  for (struct span *s = scope_top(scope); s && s != l->step; s = scope_below(scope, s))
    above = s;
  return above && above->start_ns < l->settled_ns;
}

/* A loader is asked: does the step end, does one begin? */
static void step_before_load(struct scope *scope, struct loop *l, struct loop_pass *pass, const void *loader, uint64_t now) {
  if (l->step && l->updated && given(l, loader)) {
    if (step_blocked(scope, l)) {
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
  if (!l->step && !(pass && pass->evaluating))
    step_open(scope, l, now);
}

/* The first update makes the step real: it has its index, and the items that were handed out for it before it was opened. */
static void step_settle(struct scope *scope, struct loop *l) {
  struct span *s = l->step;
  s->index = next_step++;
  s->flags &= (uint8_t)~SPAN_DOUBTFUL;
  if (l->adopt_since_ns && l->adopt_since_ns >= l->last_end_ns && l->adopt_parent == s->parent) {
    scope_move(scope, s->parent, l->adopt_since_ns, s->id);
    s->start_ns = l->adopt_since_ns;
  }
  l->updated = true;
  scope_refresh(scope, s);
}

/* --- passes -------------------------------------------------------------------------------------------------------------- */

static struct loop_pass *pass_of(struct loop *l, const void *iterator) {
  for (unsigned i = 0; i < l->pass_count; i++)
    if (l->passes[i].iterator == iterator)
      return &l->passes[i];
  return NULL;
}

static struct loop_pass *pass_of_span(struct loop *l, const struct span *span) {
  for (unsigned i = 0; i < l->pass_count; i++)
    if (l->passes[i].span == span)
      return &l->passes[i];
  return NULL;
}

static void pass_forget(struct loop *l, struct loop_pass *pass) {
  size_t after = (size_t)(&l->passes[l->pass_count] - (pass + 1));
  memmove(pass, pass + 1, after * sizeof *pass);
  l->pass_count--;
}

static void pass_open(struct scope *scope, struct loop *l, struct loop_pass *pass, uint64_t now) {
  pass->span = scope_push(scope, SPAN_EVAL, name_id(NAME_EVAL), SPAN_NO_INDEX, now);
  if (!pass->span)
    return;
  pass->span->owner = l;
  if (session_env.cpu_time == ENV_CPU_AUTO)
    pass->span->cpu_ns = scope_cpu_clock();
}

/* The scope in which iter() was called is over, and only now the first item is asked for. */
static struct loop_pass *pass_reopen(struct scope *scope, struct loop *l, struct loop_pass *pass, uint64_t now) {
  struct loop_pass again = *pass;
  pass_forget(l, pass);
  pass = &l->passes[l->pass_count++];
  *pass = again;
  pass_open(scope, l, pass, now);
  return pass;
}

/* The pass's span is the innermost open one: close it under its name, or take it back if nothing happened in it. */
static void pass_close(struct scope *scope, struct loop_pass *pass, uint64_t end_ns, uint8_t flags) {
  struct span *s = pass->span;
  pass->span = NULL;
  if (s->kind == SPAN_EVAL && !s->has_children) {
    scope_dissolve(scope, s);
    return;
  }
  if (s->kind == SPAN_EVAL)
    s->index = next_eval++;
  s->flags |= flags;
  scope_pop(scope, s, end_ns, 0);
}

/* Ends what was begun inside a pass, as far as no scope made by hand is open there. Innermost first. */
static bool pass_clear(struct scope *scope, struct loop *l, const struct loop_pass *pass, uint64_t end_ns) {
  for (struct span *top; (top = scope_top(scope)) != pass->span;) {
    if (top->owner != l)
      return false;
    if (top == l->step) {
      step_end(scope, l);
      continue;
    }
    struct loop_pass *inner = pass_of_span(l, top);
    pass_close(scope, inner, end_ns, 0);
    if (inner->ended)
      pass_forget(l, inner);
  }
  return true;
}

static void pass_finish(struct scope *scope, struct loop *l, struct loop_pass *pass, uint64_t end_ns) {
  if (!pass->span) {
    /* dissolved: its unfinished step ends with it, unless other loaders feed that too */
    if (l->step && !l->updated && (l->given_count == 0 || (l->given_count == 1 && l->given[0] == pass->loader)) &&
        scope_top(scope) == l->step)
      step_dissolve(scope, l);
    pass_forget(l, pass);
    return;
  }
  if (!pass_clear(scope, l, pass, end_ns)) {
    pass->ended = true;
    pass->iterator = pass->loader = NULL;
    if (l->step && l->step_id > pass->span->id)
      l->close_due = true;
    return;
  }
  pass_close(scope, pass, end_ns, 0);
  pass_forget(l, pass);
}

static bool epoch_by_hand(struct scope *scope, const struct loop *l) {
  for (struct span *s = scope_top(scope); s; s = scope_below(scope, s))
    if (s->kind == SPAN_EPOCH && s->owner != l)
      return true;
  return false;
}

/* An update happened: the outermost unfinished pass is an epoch, unless one was opened by hand or by a framework; the passes
 * inside it are none of their own. */
static void passes_updated(struct scope *scope, struct loop *l) {
  if (l->pass_count == 0)
    return;
  bool have_epoch = epoch_by_hand(scope, l);
  for (unsigned i = 0; i < l->pass_count; i++) {
    struct loop_pass *pass = &l->passes[i];
    pass->evaluating = false;
    if (!pass->span)
      continue;
    if (have_epoch || pass->has_epoch) {
      if (l->step && pass->items && pass->span->id > l->step_id)
        give(l, pass->loader);
      if (pass->ended)
        continue; /* it waits for a scope inside it, which an update shares: leave it as it is */
      if (l->adopt_parent == pass->span->id)
        l->adopt_parent = pass->span->parent;
      scope_dissolve(scope, pass->span);
      pass->span = NULL;
      pass->dissolved = true;
    } else if (pass->span->kind == SPAN_EVAL) {
      pass->span->kind = SPAN_EPOCH;
      pass->span->name = name_id(NAME_EPOCH);
      pass->span->index = next_epoch++;
      scope_refresh(scope, pass->span);
    }
    have_epoch |= pass->span != NULL;
  }
}

/* --- events -------------------------------------------------------------------------------------------------------------- */

void loop_pass_begin(struct scope *scope, const void *loader, const void *iterator) {
  struct loop *l = scope_loop(scope);
  if (scope_find(scope, SPAN_DATA_LOAD))
    return; /* a data set's own business */
  uint64_t now = session_clock();
  for (unsigned i = l->pass_count; i-- > 0;) /* a loader that is begun anew has ended its earlier pass */
    if (i < l->pass_count && (l->passes[i].iterator == iterator || l->passes[i].loader == loader))
      pass_finish(scope, l, &l->passes[i], now);
  if (l->pass_count == LOOP_MAX_PASSES)
    return;
  struct loop_pass *pass = &l->passes[l->pass_count++];
  *pass = (struct loop_pass){.loader = loader, .iterator = iterator};
  pass_open(scope, l, pass, now);
}

void loop_pass_end(const void *iterator) {
  struct scope *scope = scope_peek();
  struct loop_pass *pass = scope ? pass_of(scope_loop(scope), iterator) : NULL;
  if (pass)
    pass_finish(scope, scope_loop(scope), pass, session_clock());
}

struct span *loop_load_begin(struct scope *scope, const void *iterator) {
  struct loop *l = scope_loop(scope);
  if (scope_find(scope, SPAN_DATA_LOAD))
    return NULL;
  uint64_t now = session_clock();
  struct loop_pass *pass = pass_of(l, iterator);
  const void *loader = pass ? pass->loader : iterator;
  if (pass && !pass->span && !pass->items && !pass->dissolved)
    pass = pass_reopen(scope, l, pass, now);
  /* a pass that began inside the step is evaluation, until it shows that it is not */
  bool inner = l->step && pass && pass->span && pass->span->id > l->step_id;
  bool had_step = l->step != NULL;
  if (!inner || (l->updated && given(l, loader)))
    step_before_load(scope, l, pass, loader, now);
  l->step_by_load = l->step && !had_step;
  return scope_push(scope, SPAN_DATA_LOAD, name_id(NAME_DATA_LOAD), pass ? (int64_t)pass->items : SPAN_NO_INDEX, now);
}

/* Nothing was handed out: neither the request nor the step that it opened ever were. */
static void load_withdraw(struct scope *scope, struct loop *l, struct span *load) {
  scope_dissolve(scope, load);
  if (l->step_by_load && scope_top(scope) == l->step && !l->updated && l->loads == 0 && !l->adopt_since_ns)
    step_dissolve(scope, l);
}

void loop_load_end(struct scope *scope, const void *iterator, struct span *load, bool handed_out) {
  struct loop *l = scope_loop(scope);
  if (!handed_out) {
    load_withdraw(scope, l, load);
    return;
  }
  struct loop_pass *pass = pass_of(l, iterator);
  const void *loader = pass ? pass->loader : iterator;
  bool inner = l->step && pass && pass->span && pass->span->id > l->step_id;
  uint64_t start_ns = load->start_ns;
  bool in_step = load->parent == l->step_id;
  scope_pop(scope, load, session_clock(), 0);
  if (pass)
    pass->items++;
  if (!l->step || inner)
    return;
  l->loads++;
  if (l->close_due)
    l->batch_waiting = true;
  else if (l->updated && in_step && !given(l, loader) && !l->next_start_ns)
    l->next_start_ns = start_ns; /* of this step if it has another update, else of the next */
  else
    give(l, loader);
}

void loop_forward(struct scope *scope, bool training) {
  struct loop *l = scope_loop(scope);
  l->forward = true;
  l->forward_train |= training;
}

void loop_backward(struct scope *scope) {
  struct loop *l = scope_loop(scope);
  l->backward = true;
  for (unsigned i = 0; i < l->pass_count; i++)
    l->passes[i].evaluating = false;
  if (l->step && l->step->flags & SPAN_DOUBTFUL) {
    l->step->flags &= (uint8_t)~SPAN_DOUBTFUL;
    scope_refresh(scope, l->step);
  }
}

void loop_update_begin(struct scope *scope) {
  struct loop *l = scope_loop(scope);
  l->next_start_ns = 0; /* what was loaded since the last update is of this step */
}

void loop_update_end(struct scope *scope, uint64_t end_ns) {
  struct loop *l = scope_loop(scope);
  passes_updated(scope, l);
  if (!l->step)
    return;
  if (!l->updated)
    step_settle(scope, l);
  l->settled_ns = end_ns;
  l->step->has_children = false; /* from here on: what may have to be moved */
  if (l->step->cpu_ns != SPAN_NO_TIME)
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
  for (unsigned i = l->pass_count; i-- > 0;)
    if (l->passes[i].ended && l->passes[i].span && l->passes[i].span == scope_top(scope)) {
      pass_close(scope, &l->passes[i], end_ns, 0);
      pass_forget(l, &l->passes[i]);
    }
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
}

void loop_end_thread(struct scope *scope, uint64_t end_ns) {
  struct loop *l = scope_loop(scope);
  for (struct span *top; (top = scope_top(scope));) {
    if (top == l->step) {
      step_end(scope, l);
      continue;
    }
    struct loop_pass *pass = pass_of_span(l, top);
    if (pass) {
      pass_close(scope, pass, end_ns, SPAN_CUT);
      continue;
    }
    top->flags |= SPAN_CUT;
    top->attrs = NULL, top->attrs_len = 0; /* its owner may be gone */
    scope_pop(scope, top, end_ns, 0);
  }
}

void loop_forget(void) {
  next_epoch = next_eval = next_step = 0;
}
