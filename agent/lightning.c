/* What is observed of Lightning (packages lightning and pytorch_lightning, which hold the same code).
 *
 * A Trainer runs loops of its own classes: the fit loop goes from epoch to epoch, an epoch's loop from batch to batch, and the loops of
 * evaluation and prediction are called by it or alone. Whatever happens goes past the logger connector, too: it is told of each batch
 * after that was fetched, and at the end of it to hand its numbers to the loggers. Those methods are observed; callbacks and hooks,
 * which are called a dozen times a batch, are not.
 *
 * What is a step is read from global_step: a step goes on until it has grown, so the batches that are accumulated share one.
 *
 * Logged values are tensors. Lightning makes numbers of them for its loggers, and those become marks. Where there is no logger, a tensor
 * in the computer's own memory is read; one on a device is not waited for, and counts as refused.
 */
#include "lightning.h"

#include "env.h"
#include "framework.h"
#include "hot.h"
#include "loop_own.h"
#include "module_watch.h"
#include "observe.h"
#include "py.h"

/* Where the numbers go that this thread is about to make; span 0: nowhere. */
static __thread struct expected {
  uint64_t span;
  bool summary;
} expected;

static bool off(void) {
  return framework_off(ENV_LIGHTNING);
}

static uint64_t word(void *state) {
  return (uint64_t)(uintptr_t)state;
}

/* --- what its objects say ------------------------------------------------------------------------------------------------ */

/* object.first.second...; NULL, and no error, if one of them is missing. These are attributes of Lightning's own objects. */
static PyObject *follow(PyObject *object, const char *const *names) {
  py.Py_IncRef(object);
  for (; object && *names; names++) {
    PyObject *next = py.PyObject_GetAttrString(object, *names);
    py.Py_DecRef(object);
    object = next;
  }
  if (!object)
    py.PyErr_Clear();
  return object;
}

static bool number(PyObject *object, const char *const *names, int64_t *out) {
  PyObject *value = follow(object, names);
  bool got = framework_whole(value, out);
  if (value)
    py.Py_DecRef(value);
  return got;
}

static bool truth(PyObject *object, const char *const *names) {
  PyObject *value = follow(object, names);
  bool is = value == py._Py_TrueStruct;
  if (value)
    py.Py_DecRef(value);
  return is;
}

static bool global_step(PyObject *connector, int64_t *out) {
  static const char *const path[] = {"trainer", "global_step", NULL};
  return number(connector, path, out);
}

/* Was the batch before this evaluation the last of its epoch? */
static bool epoch_is_over(PyObject *loop) {
  static const char *const done[] = {"trainer", "fit_loop", "epoch_loop", "_is_training_done", NULL};
  static const char *const stop[] = {"trainer", "should_stop", NULL};
  static const char *const may_stop[] = {"trainer", "fit_loop", "_can_stop_early", NULL};
  return truth(loop, done) || (truth(loop, stop) && truth(loop, may_stop));
}

/* --- training and evaluation --------------------------------------------------------------------------------------------- */

static bool run_begin(struct observe_call *call, struct scope *scope, enum loop_run_kind kind) {
  uint64_t run = own_begin(scope, kind, call->args[0]);
  call->state[0] = scope;
  call->state[1] = (void *)(uintptr_t)run;
  return run != 0;
}

static void run_leave(struct observe_call *call, PyObject *result) {
  struct scope *scope = call->state[0];
  if (framework_same_stack(call))
    framework_end(scope, word(call->state[1]), result ? 0 : framework_exception(scope));
}

static bool fit_enter(struct observe_call *call) {
  struct scope *scope = call->nargs && !off() ? scope_get() : NULL;
  static const char *const path[] = {"trainer", "lightning_module", NULL};
  bool begun = scope && run_begin(call, scope, RUN_TRAINING);
  PyObject *model = begun ? follow(call->args[0], path) : NULL;
  if (begun)
    module_watch_found(model);
  if (model)
    py.Py_DecRef(model);
  return begun;
}

static bool eval_enter(struct observe_call *call) {
  struct scope *scope = call->nargs && !off() ? scope_get() : NULL;
  const struct loop_run *run = scope ? own_run(scope) : NULL;
  if (!scope || (run && run->kind == RUN_EVAL))
    return false;
  bool over = run && run->epoch && !run->step && epoch_is_over(call->args[0]);
  if (scope_peek() != scope) /* properties have run */
    return false;
  struct loop_run *training = over ? own_run(scope) : NULL;
  if (training)
    training->over = true;
  return run_begin(call, scope, RUN_EVAL);
}

/* --- epochs and steps ---------------------------------------------------------------------------------------------------- */

/* The training that this thread is in, and no evaluation inside it; NULL: none. */
HOT static struct loop_run *training(struct observe_call *call) {
  struct scope *scope = call->nargs && !off() ? scope_get() : NULL;
  struct loop_run *run = scope ? own_run(scope) : NULL;
  call->state[0] = scope;
  return run && run->kind == RUN_TRAINING ? run : NULL;
}

static bool epoch_enter(struct observe_call *call) {
  static const char *const path[] = {"trainer", "current_epoch", NULL};
  int64_t index = SPAN_NO_INDEX;
  if (!training(call))
    return false;
  (void)number(call->args[0], path, &index);
  struct loop_run *run = training(call);
  if (run)
    own_epoch_begin(call->state[0], run, index);
  return false;
}

/* From here on its numbers are those of the epoch as a whole. */
static bool epoch_end_enter(struct observe_call *call) {
  struct loop_run *run = training(call);
  if (run)
    run->over = true;
  return run != NULL;
}

static void epoch_end_leave(struct observe_call *call, PyObject *result) {
  struct loop_run *run = result && framework_same_stack(call) ? own_run(call->state[0]) : NULL;
  if (run && run->kind == RUN_TRAINING)
    framework_epoch_end(call->state[0], run, 0);
}

/* A batch was fetched. */
HOT static bool batch_enter(struct observe_call *call) {
  int64_t index = SPAN_NO_INDEX;
  if (!training(call))
    return false;
  (void)global_step(call->args[0], &index);
  struct loop_run *run = training(call);
  if (run)
    own_step_begin(call->state[0], run, SPAN_STEP, index);
  return false;
}

/* A batch is done with, and so are the hooks at its end. */
HOT static bool batch_end_enter(struct observe_call *call) {
  call->state[1] = call->nargs ? call->args[0] : NULL;
  return training(call) != NULL;
}

HOT static void batch_end_leave(struct observe_call *call, PyObject *result) {
  struct scope *scope = call->state[0];
  const struct loop_run *before = result && framework_same_stack(call) ? own_run(scope) : NULL;
  const struct span *step = before ? before->step : NULL;
  int64_t now;
  if (!step || (global_step(call->state[1], &now) && now == step->index))
    return; /* there was no update: the next batch is of the same step */
  struct loop_run *run = framework_same_stack(call) ? own_run(scope) : NULL; /* properties have run */
  if (!run)
    return;
  uint64_t updated_ns = scope_loop(scope)->run_updated_ns;
  if (run->step == step)
    own_step_end(scope, run, updated_ns > step->start_ns ? updated_ns : scope_clock(scope));
}

/* An optimizer is handed the batch's forward and backward as a closure, and calls it before it does anything else. They are none of its
 * work: its span begins after them. What it calls again (LBFGS) is inside. */
HOT static bool closure_enter(struct observe_call *call) {
  struct span *top = training(call) ? scope_top(call->state[0]) : NULL;
  if (!top || top->kind != SPAN_OPTIMIZER || top->has_children)
    return false;
  call->state[1] = top;
  call->state[2] = (void *)(uintptr_t)top->id;
  return true;
}

HOT static void closure_leave(struct observe_call *call, PyObject *result) {
  struct scope *scope = call->state[0];
  struct span *update = call->state[1];
  if (!result || !framework_same_stack(call) || scope_top(scope) != update || update->id != word(call->state[2]))
    return;
  struct span *below = scope_below(scope, update);
  scope_move(scope, update->id, update->start_ns, update->parent);
  if (below && update->has_children) /* which stays: so it is seen that this was the first call */
    below->has_children = true;
  update->start_ns = scope_clock(scope);
  scope_refresh(scope, update);
}

/* --- numbers ------------------------------------------------------------------------------------------------------------- */

/* The span that the connector's numbers of now belong to, or 0. */
static uint64_t place(const struct observe_call *call, struct scope *scope, bool *summary) {
  const struct loop_run *run = own_run(scope), *fit = own_training(scope);
  *summary = false;
  if (!run)
    return 0;
  if (run->kind == RUN_EVAL) {
    PyObject *batch = framework_arg(call, 2, "step");
    bool of_batch = batch && batch != py._Py_NoneStruct;
    *summary = !of_batch;
    if (of_batch || !fit)
      return run->epoch ? run->epoch_id : 0;
  } else if (!run->step && !run->over) {
    return 0; /* of a step that was not observed: see check.c */
  }
  return own_place(scope, summary);
}

static bool log_enter(struct observe_call *call) {
  struct scope *scope = call->nargs && !off() ? scope_get() : NULL;
  bool summary;
  uint64_t span = scope ? place(call, scope, &summary) : 0;
  if (!span)
    return false;
  expected = (struct expected){.span = span, .summary = summary};
  call->state[0] = scope;
  call->state[1] = framework_arg(call, 1, "metrics");
  return true;
}

/* A number for each tensor that can be read without waiting; the others stay, and are refused. New, or NULL without an error. */
static PyObject *numbers_of(PyObject *metrics) {
  Py_ssize_t at = 0;
  PyObject *key, *value, *out = py_type(metrics) == py.PyDict_Type ? py.PyDict_New() : NULL;
  static PyObject *is_cpu;
  if (!is_cpu)
    is_cpu = py.PyUnicode_InternFromString("is_cpu");
  while (out && is_cpu && py.PyDict_Next(metrics, &at, &key, &value)) {
    PyObject *number = py_attr_true(value, is_cpu) > 0 ? py.PyObject_CallMethod(value, "item", NULL) : NULL;
    if (!number)
      py.PyErr_Clear();
    if (py.PyDict_SetItem(out, key, number ? number : value) < 0)
      py.PyErr_Clear();
    if (number)
      py.Py_DecRef(number);
  }
  if (!out)
    py.PyErr_Clear();
  return out;
}

/* There was no logger, and so nobody who made numbers of them. */
static void log_leave(struct observe_call *call, PyObject *result) {
  struct expected to = expected;
  expected.span = 0;
  PyObject *metrics = to.span && result && framework_same_stack(call) ? call->state[1] : NULL;
  PyObject *numbers = metrics ? numbers_of(metrics) : NULL;
  if (!numbers)
    return;
  if (framework_same_stack(call))
    framework_marks(call->state[0], numbers, to.span, to.summary);
  py.Py_DecRef(numbers);
}

static bool numbers_enter(struct observe_call *call) {
  (void)call;
  return expected.span != 0;
}

static void numbers_leave(struct observe_call *call, PyObject *result) {
  (void)call;
  struct expected to = expected;
  expected.span = 0;
  struct scope *scope = result && to.span ? scope_get() : NULL;
  if (scope)
    framework_marks(scope, result, to.span, to.summary);
}

#define CONNECTOR ".trainer.connectors.logger_connector.logger_connector"
#define PROBE(in, function, how, before, after)                                                                                \
  { .module = (in), .qualname = (function), .direct = true, .pace = (how), .enter = (before), .leave = (after) }
/* Numbers are observed in all blocks of a check: an epoch may end in any, as Lightning does not ask a loader whether it is exhausted. */
#define PACKAGE(of, fabric)                                                                                                    \
  PROBE(of ".loops.fit_loop", "_FitLoop.run", OBSERVE_ALWAYS, fit_enter, run_leave),                                           \
      PROBE(of ".loops.fit_loop", "_FitLoop.on_advance_start", OBSERVE_ALWAYS, epoch_enter, NULL),                             \
      PROBE(of ".loops.fit_loop", "_FitLoop.on_advance_end", OBSERVE_ALWAYS, epoch_end_enter, epoch_end_leave),                \
      PROBE(of ".loops.evaluation_loop", "_EvaluationLoop.run", OBSERVE_ALWAYS, eval_enter, run_leave),                        \
      PROBE(of ".loops.prediction_loop", "_PredictionLoop.run", OBSERVE_ALWAYS, eval_enter, run_leave),                        \
      PROBE(of ".loops.optimization.automatic", "Closure.__call__", OBSERVE_NO_PACE, closure_enter, closure_leave),            \
      PROBE(of CONNECTOR, "_LoggerConnector.on_batch_start", OBSERVE_NO_PACE, batch_enter, NULL),                              \
      PROBE(of CONNECTOR, "_LoggerConnector.update_train_step_metrics", OBSERVE_NO_PACE, batch_end_enter, batch_end_leave),    \
      PROBE(of CONNECTOR, "_LoggerConnector.log_metrics", OBSERVE_ALWAYS, log_enter, log_leave),                               \
      PROBE(fabric ".utilities.apply_func", "convert_tensors_to_scalars", OBSERVE_ALWAYS, numbers_enter, numbers_leave)

static const struct probe probes[] = {
    PACKAGE("lightning.pytorch", "lightning.fabric"),
    PACKAGE("pytorch_lightning", "lightning_fabric"),
};

void lightning_add_probes(void) {
  observe_add(probes, sizeof probes / sizeof probes[0]);
}

void lightning_forget(void) {
  expected.span = 0;
}
