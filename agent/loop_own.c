#include "loop_own.h"

#include <stddef.h>

#include "hot.h"
#include "loop_infer.h"
#include "loop_pass.h"
#include "loop_step.h"
#include "names.h"
#include "session.h"

static struct span *epoch_of(struct scope *scope, const struct loop_run *run) {
  return run->epoch && scope_holds(scope, run->epoch, run->epoch_id) ? run->epoch : NULL;
}

HOT static struct span *step_of(struct scope *scope, const struct loop_run *run) {
  return run->step && scope_holds(scope, run->step, run->step_id) ? run->step : NULL;
}

struct loop_run *own_run(struct scope *scope) {
  struct loop *l = scope_loop(scope);
  return l->run_count ? &l->runs[l->run_count - 1] : NULL;
}

HOT struct loop_run *own_training(struct scope *scope) {
  struct loop *l = scope_loop(scope);
  for (unsigned i = l->run_count; i-- > 0;)
    if (l->runs[i].kind == RUN_TRAINING)
      return &l->runs[i];
  return NULL;
}

/* --- runs ---------------------------------------------------------------------------------------------------------------- */

/* What torch saw up to now ends: it was no part of what begins. */
static void torch_ends(struct scope *scope, struct loop *l, uint64_t now) {
  for (struct span *top; (top = scope_top(scope)) && top->owner == l;) {
    struct loop_pass *pass = pass_of_span(l, top);
    if (top == l->step) {
      step_end(scope, l);
    } else if (pass) {
      pass_close(scope, pass, now, 0);
      if (pass->items || pass->ended) /* one that was not used yet may be opened again */
        pass_forget(l, pass);
    } else {
      break;
    }
  }
  if (!l->step)
    l->close_due = l->batch_waiting = false;
  l->next_start_ns = 0;
}

static void epoch_open(struct scope *scope, struct loop_run *run, enum span_kind kind, enum name name, int64_t index,
                       uint64_t now) {
  run->epoch = scope_push(scope, kind, name_id(name), index, now);
  if (!run->epoch)
    return;
  run->epoch_id = run->epoch->id;
  if (session_env.cpu_time == ENV_CPU_AUTO)
    run->epoch->cpu_ns = scope_cpu_clock();
}

uint64_t own_begin(struct scope *scope, enum loop_run_kind kind, const void *object) {
  struct loop *l = scope_loop(scope);
  if (l->run_count == LOOP_MAX_RUNS)
    return 0;
  uint64_t now = scope_clock(scope);
  const struct loop_run *outer = own_training(scope);
  bool inner = outer && (outer->inner || epoch_of(scope, outer) || step_of(scope, outer));
  l->works = false;
  if (kind == RUN_TRAINING) {
    infer_end(scope, l);
    torch_ends(scope, l, now);
  }
  struct loop_run *run = &l->runs[l->run_count++];
  *run =
      (struct loop_run){.number = ++l->run_number, .object = object, .kind = kind, .inner = inner, .next_epoch = SPAN_NO_INDEX};
  if (kind == RUN_EVAL)
    epoch_open(scope, run, SPAN_EVAL, NAME_EVAL, pass_eval_index(), now);
  return run->number;
}

static void run_close(struct scope *scope, struct loop_run *run, uint32_t exception) {
  struct span *step = step_of(scope, run);
  if (step && exception)
    loop_pop(scope, step, scope_clock(scope), exception);
  else if (step)
    scope_dissolve(scope, step);
  run->step = NULL;
  own_epoch_end(scope, run, exception);
}

void own_end(struct scope *scope, uint64_t number, uint32_t exception) {
  struct loop *l = scope_loop(scope);
  while (l->run_count && l->runs[l->run_count - 1].number >= number) {
    run_close(scope, &l->runs[l->run_count - 1], exception);
    l->run_count--;
  }
  l->fetched_ns = 0;
}

bool own_has(struct scope *scope, uint64_t number) {
  const struct loop *l = scope_loop(scope);
  for (unsigned i = 0; i < l->run_count; i++)
    if (l->runs[i].number == number)
      return true;
  return false;
}

/* --- epochs -------------------------------------------------------------------------------------------------------------- */

void own_epoch_begin(struct scope *scope, struct loop_run *run, int64_t index) {
  own_epoch_end(scope, run, 0);
  if (index == SPAN_NO_INDEX)
    index = run->next_epoch == SPAN_NO_INDEX ? 0 : run->next_epoch;
  run->next_epoch = index + 1;
  if (!run->inner && !scope_count(scope, SPAN_EPOCH) && !scope_in_epoch(scope))
    epoch_open(scope, run, SPAN_EPOCH, NAME_EPOCH, index, scope_clock(scope));
}

void own_epoch_end(struct scope *scope, struct loop_run *run, uint32_t exception) {
  struct span *step = step_of(scope, run), *epoch = epoch_of(scope, run);
  if (step)
    scope_dissolve(scope, step);
  if (epoch)
    loop_pop(scope, epoch, scope_clock(scope), exception);
  run->step = run->epoch = NULL;
  run->last_step = 0;
  run->over = false;
  scope_loop(scope)->fetched_ns = 0;
}

/* --- steps --------------------------------------------------------------------------------------------------------------- */

/* It holds what was loaded for it. */
HOT static void step_adopt(struct scope *scope, struct loop *l, struct span *s) {
  if (!l->fetched_ns || l->fetched_parent != s->parent || !scope_alone(scope, s->parent, l->fetched_ns))
    return;
  scope_move(scope, s->parent, l->fetched_ns, s->id);
  s->start_ns = l->fetched_ns;
  s->has_children = true;
  scope_refresh(scope, s);
}

HOT void own_step_begin(struct scope *scope, struct loop_run *run, enum span_kind kind, int64_t index) {
  struct loop *l = scope_loop(scope);
  struct span *open = step_of(scope, run);
  uint64_t now = scope_clock(scope);
  if (open && open->index == index)
    return; /* goes on: nothing came of it yet */
  if (open)
    own_step_end(scope, run, now);
  if (run->inner || scope_count(scope, SPAN_STEP) || scope_count(scope, SPAN_BATCH))
    return;
  struct span *s = scope_push(scope, kind, name_id(kind == SPAN_STEP ? NAME_STEP : NAME_BATCH), index, now);
  run->step = s;
  if (!s)
    return;
  run->step_id = s->id;
  if (session_env.cpu_time == ENV_CPU_AUTO && unlikely(l->long_step_ns > STEP_CPU_WORTH_NS))
    s->cpu_ns = scope_cpu_clock();
  step_adopt(scope, l, s);
  l->fetched_ns = 0;
}

HOT void own_step_end(struct scope *scope, struct loop_run *run, uint64_t since_ns) {
  struct span *s = step_of(scope, run);
  run->step = NULL;
  if (!s)
    return;
  uint64_t now = scope_clock(scope);
  const struct span *above = scope_above(scope, s);
  run->last_step = s->id;
  loop_last_step = s->index;
  if (loop_stepped)
    loop_stepped(s);
  scope_loop(scope)->long_step_ns = now - s->start_ns;
  if (unlikely(above && above->start_ns >= since_ns)) {
    uint64_t end_ns = above->start_ns;
    scope_move(scope, s->id, end_ns, s->parent);
    scope_close_below(scope, s, end_ns);
  } else {
    loop_pop(scope, s, now, 0);
  }
}

/* --- numbers ------------------------------------------------------------------------------------------------------------- */

uint64_t own_place(struct scope *scope, bool *summary) {
  const struct loop_run *run = own_training(scope), *last = own_run(scope);
  const struct span *epoch = run ? epoch_of(scope, run) : NULL, *step = run ? step_of(scope, run) : NULL;
  *summary = false;
  if (run && run->inner)
    return 0;
  if (step)
    return step->id;
  if (run && run->over) {
    *summary = true;
    return own_epoch_place(scope, run);
  }
  if (run && run->last_step)
    return run->last_step;
  if (last && last->kind == RUN_EVAL)
    return scope_innermost(scope);
  *summary = run && !epoch; /* of the training as a whole */
  return epoch ? epoch->id : scope_innermost(scope);
}

uint64_t own_epoch_place(struct scope *scope, const struct loop_run *run) {
  const struct span *epoch = epoch_of(scope, run);
  return run->inner ? 0 : epoch ? epoch->id : scope_innermost(scope);
}

/* --- loading ------------------------------------------------------------------------------------------------------------- */

HOT struct span *own_load_begin(struct scope *scope) {
  struct loop *l = scope_loop(scope);
  const struct loop_run *run = own_run(scope);
  uint64_t now = scope_clock(scope);
  if (!l->fetched_ns && run->kind == RUN_TRAINING && !step_of(scope, run)) {
    l->fetched_ns = now;
    l->fetched_parent = scope_innermost(scope);
  }
  return scope_push(scope, SPAN_DATA_LOAD, name_id(NAME_DATA_LOAD), SPAN_NO_INDEX, now);
}

HOT void own_load_end(struct scope *scope, struct span *load, bool handed_out) {
  struct loop *l = scope_loop(scope);
  if (likely(handed_out)) {
    scope_pop(scope, load, scope_clock(scope), 0);
    return;
  }
  if (l->fetched_ns == load->start_ns)
    l->fetched_ns = 0;
  scope_dissolve(scope, load);
}

bool own_quiet(struct scope *scope) {
  const struct loop_run *run = own_training(scope);
  return run && own_run(scope) == run && epoch_of(scope, run) && !step_of(scope, run);
}
