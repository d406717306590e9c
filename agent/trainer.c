/* What is observed of the Trainer of transformers.
 *
 * A Trainer tells its callbacks of all that happens, through one CallbackHandler whose methods take (args, state, control). Those
 * methods are observed, not called back from: the list of callbacks is the script's. Its epoch ends with the evaluation and logging
 * that belong to it, which come after on_epoch_end, in _maybe_log_save_evaluate.
 *
 * A subclass may have a `train` of its own. It is found when the first of its objects is made, as the steps of optimizers are.
 */
#include "trainer.h"

#include "env.h"
#include "framework.h"
#include "loop_own.h"
#include "module_watch.h"
#include "observe.h"
#include "py.h"

static bool off(void) {
  return framework_off(ENV_TRANSFORMERS);
}

/* --- training and evaluation --------------------------------------------------------------------------------------------- */

static bool run_begin(struct observe_call *call, enum loop_run_kind kind) {
  struct scope *scope = scope_get();
  uint64_t number = scope ? own_begin(scope, kind, call->args[0]) : 0;
  call->state[0] = scope;
  call->state[1] = (void *)(uintptr_t)number;
  return number != 0;
}

static void run_leave(struct observe_call *call, PyObject *result) {
  struct scope *scope = call->state[0];
  if (framework_same_stack(call))
    framework_end(scope, (uint64_t)(uintptr_t)call->state[1], result ? 0 : framework_exception(scope));
}

static bool train_enter(struct observe_call *call) {
  bool begun = call->nargs && !off() && run_begin(call, RUN_TRAINING);
  PyObject *model = begun ? py.PyObject_GetAttrString(call->args[0], "model") : NULL;
  if (begun)
    module_watch_found(model); /* clears an error, too */
  if (model)
    py.Py_DecRef(model);
  return begun;
}

/* With several sets it calls itself for each. */
static bool several_sets(const struct observe_call *call) {
  PyObject *set = framework_arg(call, 1, "eval_dataset");
  if (set && set != py._Py_NoneStruct)
    return py_type(set) == py.PyDict_Type;
  set = py.PyObject_GetAttrString(call->args[0], "eval_dataset");
  bool several = set && py_type(set) == py.PyDict_Type;
  if (set)
    py.Py_DecRef(set);
  else
    py.PyErr_Clear();
  return several;
}

/* Called by evaluate and predict, or by those of a subclass. */
static bool eval_loop_enter(struct observe_call *call) {
  if (!call->nargs || off())
    return false;
  struct scope *scope = scope_get();
  const struct loop_run *run = scope ? own_run(scope) : NULL;
  return !(run && run->kind == RUN_EVAL) && run_begin(call, RUN_EVAL);
}

static bool evaluate_enter(struct observe_call *call) {
  return call->nargs && !off() && !several_sets(call) && eval_loop_enter(call);
}

static const struct probe train_probe = {
    .qualname = "train",
    .direct = true,
    .pace = OBSERVE_ALWAYS,
    .enter = train_enter,
    .leave = run_leave,
};

static bool made_enter(struct observe_call *call) {
  call->state[0] = call->nargs ? call->args[0] : NULL;
  return call->nargs != 0;
}

static void made_leave(struct observe_call *call, PyObject *result) {
  PyObject *train = result ? py.PyObject_GetAttrString((PyObject *)py_type(call->state[0]), "train") : NULL;
  if (train)
    (void)observe_function(train, &train_probe); /* anything but a plain function is left alone */
  else if (result)
    py.PyErr_Clear();
  if (train)
    py.Py_DecRef(train);
}

/* --- what the handler tells ---------------------------------------------------------------------------------------------- */

static PyObject *state_of(const struct observe_call *call) {
  return framework_arg(call, 2, "state");
}

/* The training that this thread is in; NULL: none. */
static struct loop_run *training(struct observe_call *call) {
  struct scope *scope = off() ? NULL : scope_get();
  call->state[0] = scope;
  return scope ? own_training(scope) : NULL;
}

/* A loop of the script's own may use the handler alone. */
static bool train_begin_enter(struct observe_call *call) {
  struct scope *scope = call->nargs && !off() ? scope_get() : NULL;
  if (scope)
    framework_loop(scope, call->args[0]);
  return false;
}

static void train_end_leave(struct observe_call *call, PyObject *result) {
  struct loop_run *run = result && framework_same_stack(call) ? own_training(call->state[0]) : NULL;
  if (run && run->object == call->state[1])
    framework_end(call->state[0], run->number, 0);
}

static bool train_end_enter(struct observe_call *call) {
  call->state[1] = call->nargs ? call->args[0] : NULL;
  return call->nargs && training(call);
}

static bool epoch_begin_enter(struct observe_call *call) {
  struct loop_run *run = training(call);
  int64_t index = SPAN_NO_INDEX;
  if (!run)
    return false;
  if (run->next_epoch == SPAN_NO_INDEX)
    (void)framework_attr(state_of(call), "epoch", &index); /* if it is a number */
  own_epoch_begin(call->state[0], run, index);
  return false;
}

static bool ends_enter(struct observe_call *call) {
  if (!training(call))
    return false;
  call->state[1] = (void *)(uintptr_t)scope_clock(call->state[0]);
  return true;
}

static struct loop_run *ends_run(const struct observe_call *call, const PyObject *result) {
  return result && framework_same_stack(call) ? own_training(call->state[0]) : NULL;
}

static void epoch_end_leave(struct observe_call *call, PyObject *result) {
  struct loop_run *run = ends_run(call, result);
  if (run)
    run->over = true;
}

static void epoch_over_leave(struct observe_call *call, PyObject *result) {
  struct loop_run *run = ends_run(call, result);
  if (run && run->over)
    framework_epoch_end(call->state[0], run, 0);
}

static bool step_begin_enter(struct observe_call *call) {
  struct loop_run *run = training(call);
  int64_t index = SPAN_NO_INDEX;
  if (!run)
    return false;
  (void)framework_attr(state_of(call), "global_step", &index);
  own_step_begin(call->state[0], run, SPAN_STEP, index);
  return false;
}

static void step_end_leave(struct observe_call *call, PyObject *result) {
  struct loop_run *run = ends_run(call, result);
  if (run)
    own_step_end(call->state[0], run, (uint64_t)(uintptr_t)call->state[1]);
}

static bool log_enter(struct observe_call *call) {
  struct scope *scope = off() ? NULL : scope_get();
  bool summary;
  uint64_t span = scope ? own_place(scope, &summary) : 0;
  if (span)
    framework_marks(scope, framework_arg(call, 4, "logs"), span, summary);
  return false;
}

#define HANDLER "transformers.trainer_callback"
#define TRAINER "transformers.trainer"
#define TELLS(method, more, how, before, after)                                                                                \
  {                                                                                                                            \
    .module = HANDLER, .qualname = "CallbackHandler." method, .args = "self args state control" more, .direct = true,          \
    .pace = (how), .enter = (before), .leave = (after)                                                                         \
  }
#define PROBE(in, function, how, before, after)                                                                                \
  { .module = (in), .qualname = (function), .direct = true, .pace = (how), .enter = (before), .leave = (after) }

static const struct probe probes[] = {
    TELLS("on_train_begin", "", OBSERVE_ALWAYS, train_begin_enter, NULL),
    TELLS("on_train_end", "", OBSERVE_ALWAYS, train_end_enter, train_end_leave),
    TELLS("on_epoch_begin", "", OBSERVE_ALWAYS, epoch_begin_enter, NULL),
    TELLS("on_epoch_end", "", OBSERVE_ALWAYS, ends_enter, epoch_end_leave),
    TELLS("on_step_begin", "", OBSERVE_NO_PACE, step_begin_enter, NULL),
    TELLS("on_step_end", "", OBSERVE_NO_PACE, ends_enter, step_end_leave),
    TELLS("on_log", " logs", OBSERVE_NO_PACE, log_enter, NULL),
    PROBE(TRAINER, "Trainer.__init__", OBSERVE_ALWAYS, made_enter, made_leave),
    PROBE(TRAINER, "Trainer.train", OBSERVE_ALWAYS, train_enter, run_leave),
    PROBE(TRAINER, "Trainer._inner_training_loop", OBSERVE_ALWAYS, train_enter, run_leave),
    PROBE(TRAINER, "Trainer._maybe_log_save_evaluate", OBSERVE_ALWAYS, ends_enter, epoch_over_leave),
    PROBE(TRAINER, "Trainer.evaluate", OBSERVE_ALWAYS, evaluate_enter, run_leave),
    PROBE(TRAINER, "Trainer.predict", OBSERVE_ALWAYS, eval_loop_enter, run_leave),
    PROBE(TRAINER, "Trainer.evaluation_loop", OBSERVE_ALWAYS, eval_loop_enter, run_leave),
    {.module = TRAINER,
     .qualname = "Trainer.prediction_loop", /* up to 4.x */
     .optional = true,
     .direct = true,
     .pace = OBSERVE_ALWAYS,
     .enter = eval_loop_enter,
     .leave = run_leave},
};

void trainer_add_probes(void) {
  observe_add(probes, sizeof probes / sizeof probes[0]);
}
