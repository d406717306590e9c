#include "loop_pass.h"

#include <stddef.h>
#include <string.h>

#include "hot.h"
#include "loop_step.h"
#include "names.h"
#include "session.h"

static _Atomic int64_t next_epoch, next_eval;

void (*loop_epoch_over)(const struct span *epoch);

void pass_tell_epoch(const struct span *span) {
  if (span->kind == SPAN_EPOCH && loop_epoch_over)
    loop_epoch_over(span);
}

HOT struct loop_pass *pass_of(struct loop *l, const void *iterator) {
  for (unsigned i = 0; i < l->pass_count; i++)
    if (l->passes[i].iterator == iterator)
      return &l->passes[i];
  return NULL;
}

struct loop_pass *pass_of_span(struct loop *l, const struct span *span) {
  for (unsigned i = 0; i < l->pass_count; i++)
    if (l->passes[i].span == span)
      return &l->passes[i];
  return NULL;
}

void pass_forget(struct loop *l, struct loop_pass *pass) {
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

static bool epoch_by_hand(struct scope *scope, const struct loop *l) {
  unsigned passes = 0;
  for (unsigned i = 0; i < l->pass_count; i++)
    passes += l->passes[i].span && l->passes[i].span->kind == SPAN_EPOCH;
  if (scope_in_epoch(scope))
    return true;
  if (scope_count(scope, SPAN_EPOCH) == passes) /* as always, but for those who make epochs by hand */
    return false;
  for (struct span *s = scope_top(scope); s; s = scope_below(scope, s))
    if (s->kind == SPAN_EPOCH && s->owner != l)
      return true;
  return false;
}

/* Nothing was loaded or done in it; or a batch was looked at, and all else there is a pass of its own. */
static bool pass_empty(const struct loop_pass *pass) {
  return pass->span->kind == SPAN_EVAL &&
         (pass->items == 0 || !pass->span->has_children || (pass->items == 1 && pass->has_eval));
}

/* It is closed under the name that it has now. */
static void pass_name(struct scope *scope, const struct loop_pass *pass, struct span *s) {
  if (s->kind != SPAN_EVAL)
    return;
  s->index = next_eval++;
  for (struct loop_pass *outer = scope_loop(scope)->passes; outer < pass; outer++)
    outer->has_eval = true;
}

/* The pass whose span is the next above, if it was begun before this one was asked last: iter() of both came first. */
static struct loop_pass *pass_beside(struct scope *scope, struct loop *l, const struct loop_pass *pass) {
  const struct span *above = scope_above(scope, pass->span);
  return above && above->start_ns <= pass->asked_ns ? pass_of_span(l, above) : NULL;
}

/* The span under which work goes on since it was asked last; NULL: it is in use. */
static const struct span *pass_idle_under(struct scope *scope, struct loop *l, const struct loop_pass *pass) {
  const struct loop_pass *beside = pass->span ? pass_beside(scope, l, pass) : NULL;
  const struct span *above = !pass->span ? NULL : beside ? pass_idle_under(scope, l, beside) : scope_above(scope, pass->span);
  return above && above->start_ns > pass->asked_ns && above != l->step ? above : NULL;
}

/* From now on that is beside it. */
static void pass_cut(struct scope *scope, struct loop *l, struct loop_pass *pass) {
  const struct span *above = pass->cut_ns ? NULL : pass_idle_under(scope, l, pass);
  if (!above)
    return;
  struct loop_pass *beside = pass_beside(scope, l, pass);
  if (beside)
    pass_cut(scope, l, beside);
  pass->cut_ns = above->start_ns;
  scope_move(scope, pass->span->id, pass->cut_ns, pass->span->parent);
}

static void park_outer(struct scope *scope, const struct loop_pass *inner);

/* It ended when what lies above it began. */
static void pass_park(struct scope *scope, struct loop *l, struct loop_pass *pass) {
  pass_cut(scope, l, pass);
  struct loop_pass *beside = pass_beside(scope, l, pass);
  if (beside && beside->cut_ns)
    pass_park(scope, l, beside);
  if (!pass->span) /* closed along with that */
    return;
  struct span *s = pass->span;
  uint64_t end_ns = pass->cut_ns;
  bool empty = pass_empty(pass);
  pass->span = NULL;
  pass->cut_ns = 0;
  pass->dissolved = true;
  if (empty) {
    scope_dissolve(scope, s);
    return;
  }
  pass_name(scope, pass, s);
  pass_tell_epoch(s);
  scope_close_below(scope, s, end_ns);
  if (s->kind == SPAN_EPOCH)
    park_outer(scope, pass);
}

/* An epoch is closed: passes that were set aside for it cannot be the epoch any more. */
static void park_outer(struct scope *scope, const struct loop_pass *inner) {
  struct loop *l = scope_loop(scope);
  for (struct loop_pass *outer = l->passes; outer < inner; outer++)
    if (outer->cut_ns && outer->span)
      pass_park(scope, l, outer);
}

/* Where a pass ended that was kept open for what might come: if it came, with that step. */
static uint64_t pass_kept_until(const struct loop *l, const struct loop_pass *pass) {
  return pass->over_ns && l->last_end_ns > pass->over_ns ? l->last_end_ns : pass->over_ns;
}

void pass_close(struct scope *scope, struct loop_pass *pass, uint64_t end_ns, uint8_t flags) {
  struct span *s = pass->span;
  if (pass_empty(pass)) {
    pass->span = NULL;
    loop_closed(scope_loop(scope), s, end_ns); /* scopes in it may hold the last update */
    scope_dissolve(scope, s);
    return;
  }
  pass->span = NULL;
  pass_name(scope, pass, s);
  s->flags |= flags;
  uint64_t early = pass->cut_ns ? pass->cut_ns : pass_kept_until(scope_loop(scope), pass);
  if (early && early < end_ns) { /* what came after that is not in it */
    scope_move(scope, s->id, early, s->parent);
    end_ns = early;
  }
  bool epoch = s->kind == SPAN_EPOCH;
  pass_tell_epoch(s);
  scope_pop(scope, s, end_ns, 0);
  if (epoch)
    park_outer(scope, pass);
}

/* --- set aside ----------------------------------------------------------------------------------------------------------- */

bool pass_looked_at(const struct loop *l, const struct loop_pass *pass) {
  for (const struct loop_pass *inner = pass + 1; inner < l->passes + l->pass_count; inner++)
    if (inner->loader == pass->loader && inner->loader)
      return true;
  return pass->has_eval || l->optimizer_ns > pass->asked_ns;
}

/* Is it idle, without a share in any update, while a pass above it gives items? */
static bool pass_idle(struct scope *scope, struct loop *l, const struct loop_pass *pass) {
  if (pass->cut_ns)
    return true;
  if (!pass->span || pass->has_inner || pass->span->kind == SPAN_EPOCH || !pass_idle_under(scope, l, pass))
    return false;
  const struct loop_pass *beside = pass_beside(scope, l, pass);
  if (beside)
    return pass_idle(scope, l, beside);
  for (const struct loop_pass *inner = pass + 1; inner < l->passes + l->pass_count; inner++)
    if (inner->span && inner->items)
      return true;
  return false;
}

static bool pass_aside(struct scope *scope, struct loop *l, const struct loop_pass *pass) {
  return pass_idle(scope, l, pass) && (pass->cut_ns || pass_looked_at(l, pass));
}

/* `pass` takes over the span of `inner`, which is the next above its own: what happened in there happened in this pass. */
static void pass_take_over(struct scope *scope, struct loop_pass *pass, struct loop_pass *inner) {
  if (pass->span->kind == SPAN_EPOCH)
    scope_rename(scope, inner->span, SPAN_EPOCH, name_id(NAME_EPOCH), pass->span->index);
  scope_replace(scope, pass->span, inner->span);
  if (!inner->cut_ns && scope_alone(scope, inner->span->parent, pass->cut_ns))
    scope_move(scope, inner->span->parent, pass->cut_ns, inner->span->id); /* what lay between the two */
  pass->span = inner->span;
  pass->cut_ns = inner->cut_ns;
  pass->has_inner = true;
  inner->span = NULL;
  inner->cut_ns = 0;
  inner->dissolved = true;
}

/* A pass that was set aside is asked again: the loops above lie in it, and in those that are asked along with it. */
static struct loop_pass *pass_resume(struct scope *scope, struct loop *l, const void *iterator) {
  struct loop_pass *pass = pass_of(l, iterator);
  while (pass->cut_ns) {
    struct loop_pass *inner = pass_of_span(l, scope_above(scope, pass->span));
    if (!inner) { /* a scope made by hand lies between */
      pass_park(scope, l, pass);
      return pass;
    }
    pass_take_over(scope, pass, inner);
    if (inner->over_ns)
      pass_forget(l, inner);
    pass = pass_of(l, iterator);
  }
  struct loop_pass *holder = pass;
  for (struct loop_pass *outer = pass; outer-- > l->passes;)
    if (outer->span && outer->cut_ns > holder->span->start_ns && scope_above(scope, outer->span) == holder->span) {
      pass_take_over(scope, outer, holder);
      holder = outer;
    }
  step_give(l, pass->loader); /* what it gives now is for the next step */
  return pass;
}

/* No pass is left for which it was set aside. */
static void park_rest(struct scope *scope, struct loop *l) {
  bool inner = false;
  for (unsigned i = l->pass_count; i-- > 0;) {
    if (l->passes[i].cut_ns && l->passes[i].span && !inner)
      pass_park(scope, l, &l->passes[i]);
    inner |= l->passes[i].span != NULL;
  }
}

HOT void pass_supersede(struct scope *scope, struct loop *l) {
  const struct loop_pass *last = NULL;
  for (unsigned i = l->pass_count; i-- > 0 && !last;)
    if (l->passes[i].span && l->passes[i].items && !l->passes[i].over_ns)
      last = &l->passes[i];
  for (unsigned i = 0; last && &l->passes[i] < last; i++) {
    struct loop_pass *pass = &l->passes[i];
    if (pass->loader != last->loader || !pass->span || pass->ended)
      continue;
    if (l->step && l->updated && scope_above(scope, pass->span) == l->step && step_around(scope, l, last) &&
        !step_blocked(scope, l))
      step_finish(scope, l);
    if (pass_idle_under(scope, l, pass))
      pass_park(scope, l, pass);
  }
}

/* --- ends ---------------------------------------------------------------------------------------------------------------- */

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
    if (inner->ended || inner->over_ns)
      pass_forget(l, inner);
  }
  return true;
}

/* Scopes made by hand are open in it: it closes when they do. */
static void pass_wait(struct scope *scope, struct loop *l, struct loop_pass *pass) {
  pass->ended = true;
  pass->iterator = pass->loader = NULL;
  pass->over_ns = 0;
  if (step_inside(scope, l, pass))
    l->close_due = true;
}

/* Ends a pass that was over already, where it was over or where the update came that it was kept for. */
static void pass_end_kept(struct scope *scope, struct loop *l, struct loop_pass *pass) {
  struct span *s = pass->span;
  if (step_inside(scope, l, pass)) {
    if (l->updated && step_blocked(scope, l)) {
      pass_wait(scope, l, pass);
      return;
    }
    step_end(scope, l);
  }
  pass->over_ns = pass_kept_until(l, pass);
  const struct span *above = scope_above(scope, s);
  if (above && above->start_ns < pass->over_ns) {
    pass_wait(scope, l, pass);
    return;
  }
  if (pass_empty(pass)) {
    scope_dissolve(scope, s);
  } else {
    pass_name(scope, pass, s);
    scope_move(scope, s->id, pass->over_ns, s->parent);
    pass_tell_epoch(s);
    scope_close_below(scope, s, pass->over_ns);
    if (s->kind == SPAN_EPOCH)
      park_outer(scope, pass);
  }
  pass_forget(l, pass);
}

/* Something else begins: what was kept open is over. */
static void pass_end_all_kept(struct scope *scope, struct loop *l) {
  bool any = false;
  for (unsigned i = l->pass_count; i-- > 0;)
    if (l->passes[i].over_ns && !l->passes[i].ended) {
      if (l->passes[i].span)
        pass_end_kept(scope, l, &l->passes[i]);
      else
        pass_forget(l, &l->passes[i]);
      any = true;
    }
  if (any)
    park_rest(scope, l);
}

/* Its own pass has no span: an outer one or a scope made by hand is the epoch. The unfinished step ends with it, unless other
 * loaders feed that too, or an update is still to come. */
static void pass_finish_dissolved(struct scope *scope, struct loop *l, struct loop_pass *pass, bool exhausted) {
  bool due = l->backward || (pass->ahead && exhausted);
  bool only = l->given_count == 0 || (l->given_count == 1 && l->given[0] == pass->loader);
  if (l->step && !l->updated && only && !due && scope_top(scope) == l->step)
    step_dissolve(scope, l);
  pass_forget(l, pass);
}

/* A pass that goes on takes over the span of one that ended, and its place: the step that is open holds an item of it. */
static bool pass_inherited(struct scope *scope, struct loop *l, struct loop_pass *pass) {
  if (l->updated || !step_inside(scope, l, pass))
    return false;
  for (struct loop_pass *heir = pass + 1; heir < l->passes + l->pass_count; heir++)
    if (heir->dissolved && !heir->span && !heir->has_epoch && step_given(l, heir->loader)) {
      struct span *span = pass->span;
      *pass = *heir;
      pass->span = span;
      pass->dissolved = false;
      pass_forget(l, heir);
      return true;
    }
  return false;
}

/* Gave an item to the step around it and nothing was done in it: next(iter(loader)). */
static bool pass_was_drawn_from(struct scope *scope, const struct loop *l, const struct loop_pass *pass) {
  return pass->items && !pass->used && !l->updated && step_around(scope, l, pass) && pass->span->kind == SPAN_EVAL;
}

void pass_finish(struct scope *scope, struct loop *l, struct loop_pass *pass, uint64_t end_ns, bool exhausted) {
  if (!pass->span) {
    pass_finish_dissolved(scope, l, pass, exhausted);
    return;
  }
  if (pass_aside(scope, l, pass)) {
    pass_park(scope, l, pass);
    pass_forget(l, pass);
    return;
  }
  if (pass_inherited(scope, l, pass))
    return;
  if (!exhausted && scope_top(scope) == pass->span && pass_was_drawn_from(scope, l, pass)) {
    step_give(l, pass->loader);
    scope_dissolve(scope, pass->span);
    pass_forget(l, pass);
    return;
  }
  bool due = l->step && !l->updated && (l->backward || (pass->ahead && exhausted)) && scope_top(scope) == l->step &&
             scope_below(scope, l->step) == pass->span;
  if (!due && !pass_clear(scope, l, pass, end_ns)) {
    pass_wait(scope, l, pass);
    return;
  }
  bool decides = false; /* was another set aside for it? */
  for (const struct loop_pass *outer = l->passes; outer < pass; outer++)
    decides |= outer->cut_ns != 0;
  if (due || decides) {
    pass->over_ns = end_ns;
    pass->iterator = NULL;
    return;
  }
  pass_close(scope, pass, end_ns, 0);
  pass_forget(l, pass);
}

/* --- begins, requests, updates ------------------------------------------------------------------------------------------- */

/* Makes room: of passes that are never asked again there may be many. */
static bool pass_room(struct scope *scope, struct loop *l) {
  for (unsigned i = 0; l->pass_count == LOOP_MAX_PASSES && i < l->pass_count; i++) {
    struct loop_pass *pass = &l->passes[i];
    if (pass->span && (pass->ended || !pass_idle(scope, l, pass)))
      continue;
    if (pass->span)
      pass_park(scope, l, pass);
    pass_forget(l, pass);
  }
  return l->pass_count < LOOP_MAX_PASSES;
}

static struct loop_pass *pass_add(struct scope *scope, struct loop *l, const struct loop_pass *pass, uint64_t now) {
  struct loop_pass *added = &l->passes[l->pass_count++];
  *added = *pass;
  pass_open(scope, l, added, now);
  return added;
}

/* The loader of an epoch is begun anew, and the last update was made without it: it had given a batch to look at, and its iterator
 * was kept. */
static void pass_end_forsaken(struct scope *scope, struct loop *l, const void *loader, uint64_t now) {
  for (unsigned i = 0; i < l->pass_count; i++) {
    struct loop_pass *pass = &l->passes[i];
    if (pass->loader != loader || !pass->span || pass->ended || pass->span->kind != SPAN_EPOCH || step_given(l, loader))
      continue;
    pass_finish(scope, l, pass, now, false);
    return;
  }
}

void pass_begin(struct scope *scope, struct loop *l, const void *loader, const void *iterator, uint64_t now) {
  struct loop_pass *before = pass_of(l, iterator);
  if (before) /* persistent workers: the same one is reset */
    pass_finish(scope, l, before, now, false);
  if (l->pass_count)
    pass_end_all_kept(scope, l);
  pass_end_forsaken(scope, l, loader, now);
  if (pass_room(scope, l))
    pass_add(scope, l, &(struct loop_pass){.loader = loader, .iterator = iterator}, now);
}

/* Goes on as a pass of its own: the one it was part of is over, or the scope in which it was begun. */
static struct loop_pass *pass_reopen(struct scope *scope, struct loop *l, struct loop_pass *pass, uint64_t now) {
  struct loop_pass again = *pass;
  again.dissolved = again.has_inner = again.evaluating = false;
  again.cut_ns = again.first_ns = 0;
  pass_forget(l, pass);
  return pass_add(scope, l, &again, now);
}

static bool any_span(const struct loop *l) {
  for (unsigned i = 0; i < l->pass_count; i++)
    if (l->passes[i].span)
      return true;
  return false;
}

/* What is seldom to be settled before an iterator is asked. */
COLD static struct loop_pass *pass_ask_settled(struct scope *scope, struct loop *l, const void *iterator, uint64_t now) {
  struct loop_pass *pass = pass_of(l, iterator);
  if (pass && pass->cut_ns && pass->span)
    pass = pass_resume(scope, l, iterator);
  else if (l->pass_count > (pass ? 1 : 0)) {
    pass_end_all_kept(scope, l);
    pass = pass_of(l, iterator);
  }
  if (!pass && !any_span(l) && !epoch_by_hand(scope, l) && pass_room(scope, l)) /* begun on another thread */
    pass = pass_add(scope, l, &(struct loop_pass){.loader = iterator, .iterator = iterator}, now);
  if (pass && !pass->span && !pass->has_epoch && !pass->ended) {
    bool fresh = !pass->items && !pass->dissolved;
    if (fresh || (!any_span(l) && !epoch_by_hand(scope, l)))
      pass = pass_reopen(scope, l, pass, now);
  }
  return pass;
}

HOT struct loop_pass *pass_ask(struct scope *scope, struct loop *l, const void *iterator, uint64_t now) {
  struct loop_pass *pass = l->passes;
  bool plain = l->pass_count == 1 && pass->iterator == iterator && pass->span && !pass->cut_ns; /* nothing to be settled */
  if (unlikely(!plain))
    pass = pass_ask_settled(scope, l, iterator, now);
  if (likely(pass != NULL)) {
    pass->asked_ns = now;
    if (unlikely(!pass->first_ns)) {
      pass->first_ns = now;
      pass->first_parent = scope_innermost(scope);
    }
  }
  return pass;
}

/* An epoch made by hand, or a pass outside, is the epoch: this one is none of its own. */
static void pass_dissolve(struct scope *scope, struct loop *l, struct loop_pass *pass) {
  if (pass->items && step_around(scope, l, pass))
    step_give(l, pass->loader);
  if (pass->ended)
    return; /* it waits for a scope inside it, which an update shares: leave it as it is */
  if (l->adopt_parent == pass->span->id)
    l->adopt_parent = pass->span->parent;
  scope_dissolve(scope, pass->span);
  pass->span = NULL;
  pass->cut_ns = 0;
  pass->dissolved = true;
}

static void pass_is_epoch(struct scope *scope, struct loop *l, struct loop_pass *pass) {
  for (struct loop_pass *outer = pass; outer-- > l->passes;)
    if (outer->span && !outer->ended)
      pass_cut(scope, l, outer);
  if (pass->span->kind != SPAN_EPOCH)
    scope_rename(scope, pass->span, SPAN_EPOCH, name_id(NAME_EPOCH), next_epoch++);
}

/* The only pass is the epoch already: as at each update but the first of a plain loop. */
HOT static bool pass_settled(struct scope *scope, const struct loop *l) {
  const struct loop_pass *pass = l->passes;
  return l->pass_count == 1 && pass->span && pass->span->kind == SPAN_EPOCH && !pass->over_ns && !pass->has_epoch &&
         !pass->cut_ns && !pass->ended && scope_count(scope, SPAN_EPOCH) == 1 && !scope_in_epoch(scope);
}

COLD static void pass_choose(struct scope *scope, struct loop *l) {
  bool have_epoch = epoch_by_hand(scope, l);
  for (unsigned i = 0; i < l->pass_count; i++) {
    struct loop_pass *pass = &l->passes[i];
    pass->evaluating = false;
    if (!pass->span || (pass->over_ns && !step_inside(scope, l, pass)))
      continue;
    if (have_epoch || pass->has_epoch) {
      pass_dissolve(scope, l, pass);
      have_epoch |= pass->span != NULL;
    } else if (pass->ended || !pass_aside(scope, l, pass)) {
      pass_is_epoch(scope, l, pass);
      have_epoch = true;
    }
  }
}

HOT void pass_updated(struct scope *scope, struct loop *l) {
  if (likely(pass_settled(scope, l)))
    l->passes[0].evaluating = false;
  else if (l->pass_count)
    pass_choose(scope, l);
}

void pass_settle_waiting(struct scope *scope, struct loop *l, uint64_t end_ns) {
  for (unsigned i = l->pass_count; i-- > 0;)
    if (l->passes[i].ended && l->passes[i].span && l->passes[i].span == scope_top(scope)) {
      pass_close(scope, &l->passes[i], end_ns, 0);
      pass_forget(l, &l->passes[i]);
    }
  park_rest(scope, l);
}

int64_t pass_eval_index(void) {
  return next_eval++;
}

void pass_forget_all(void) {
  next_epoch = next_eval = 0;
}
