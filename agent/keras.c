/* What is observed of Keras.
 *
 * The loops of all backends tell one CallbackList of all that happens. Its methods are observed; the list that the script passed is
 * not touched. A loop that the script writes itself may use a CallbackList as well.
 *
 * What a backend hands out as logs may be tensors that are not computed yet. Since 3.6 Keras makes numbers of them for the callbacks, by
 * pythonify_logs, where that suits it: in a thread of its own, if no callback is in the way. What that returns is what becomes marks, so
 * we wait for no device.
 */
#include "keras.h"

#include <string.h>

#include "env.h"
#include "framework.h"
#include "loop_own.h"
#include "module_watch.h"
#include "names.h"
#include "observe.h"
#include "py.h"

#define PENDING 256u

/* Batches whose numbers are still to come, by whichever thread. Used with the GIL held. */
static struct pending {
  const void *list; /* the CallbackList; for comparison only */
  int64_t batch;
  uint64_t span;
} pending[PENDING];
static unsigned pending_at;

/* Where the numbers go that this thread is about to make. */
static __thread struct expected {
  uint64_t span; /* 0: nowhere */
  unsigned depth;
  bool summary;
  bool several;   /* the last ones count, */
  PyObject *last; /* which are these */
} expected;

static __thread unsigned came; /* how often there were some */

static bool off(void) {
  return framework_off(ENV_KERAS | ENV_TENSORFLOW);
}

static uint64_t word(void *state) {
  return (uint64_t)(uintptr_t)state;
}

/* --- numbers ------------------------------------------------------------------------------------------------------------- */

static void pending_put(const void *list, int64_t batch, uint64_t span) {
  struct pending *p = &pending[pending_at++ % PENDING];
  if (p->span)
    scope_refused_mark(); /* the thread that makes its numbers is too far behind */
  *p = (struct pending){.list = list, .batch = batch, .span = span};
}

static uint64_t pending_take(const void *list, int64_t batch) {
  for (unsigned i = 1; i <= PENDING; i++) {
    struct pending *p = &pending[(pending_at - i) % PENDING];
    if (p->span && p->list == list && p->batch == batch) {
      uint64_t span = p->span;
      p->span = 0;
      return span;
    }
  }
  return 0;
}

static bool numbers_enter(struct observe_call *call) {
  (void)call;
  if (!expected.span)
    return false;
  expected.depth++; /* it calls itself for what lies in one another */
  return true;
}

static void numbers_leave(struct observe_call *call, PyObject *result) {
  (void)call;
  if (--expected.depth)
    return;
  uint64_t span = expected.span;
  if (expected.several && result) {
    PyObject *before = expected.last;
    py.Py_IncRef(result);
    expected.last = result;
    if (before)
      py.Py_DecRef(before);
    return;
  }
  struct scope *scope = result && span ? scope_get() : NULL;
  expected.span = 0;
  came++;
  if (scope)
    framework_marks(scope, result, span, expected.summary);
}

static void expect_nothing(void) {
  PyObject *last = expected.last;
  expected = (struct expected){0};
  if (last)
    py.Py_DecRef(last); /* numbers */
}

static void expect(uint64_t span, bool summary) {
  expect_nothing();
  expected = (struct expected){.span = span, .summary = summary};
}

/* One of numpy's, or a tensor of TensorFlow's whose value lies in the memory of the host and is there, as operations on the CPU are done
 * when their call returns. For one on another device we would have to wait: there is a mark where Keras does, for its progress bar or a
 * callback. */
static enum framework_value value_of_tensor(PyObject *value, double *out) {
  static PyObject *device_name;
  const char *class = py_class_name(value);
  bool here = strcmp(class, "ndarray") == 0 || strcmp(class, "float32") == 0;
  if (!here && strcmp(class, "EagerTensor") != 0)
    return FRAMEWORK_NO_NUMBER;
  if (!device_name)
    device_name = py.PyUnicode_InternFromString("backing_device");
  PyObject *device = !here && device_name ? py.PyObject_GetAttr(value, device_name) : NULL;
  const char *text = device ? py.PyUnicode_AsUTF8AndSize(device, NULL) : NULL;
  here = here || (text && strstr(text, "/device:CPU:"));
  if (device)
    py.Py_DecRef(device);
  if (!here)
    return FRAMEWORK_PASSED_OVER;
  *out = py.PyFloat_AsDouble(value);
  return py.PyErr_Occurred() ? FRAMEWORK_NO_NUMBER : FRAMEWORK_NUMBER;
}

/* --- fit, evaluate, predict ---------------------------------------------------------------------------------------------- */

static bool run_begin(struct observe_call *call, enum loop_run_kind kind) {
  struct scope *scope = call->nargs && !off() ? scope_get() : NULL;
  const struct loop_run *run = scope ? own_run(scope) : NULL;
  if (!scope || (kind == RUN_EVAL && run && run->kind == RUN_EVAL))
    return false;
  expect_nothing(); /* the next ones are its own */
  call->state[0] = scope;
  call->state[1] = (void *)(uintptr_t)own_begin(scope, kind, call->args[0]);
  return call->state[1] != NULL;
}

static bool fit_enter(struct observe_call *call) {
  bool begun = run_begin(call, RUN_TRAINING);
  if (begun)
    module_watch_found(call->args[0]);
  return begun;
}

static bool evaluate_enter(struct observe_call *call) {
  return run_begin(call, RUN_EVAL);
}

static void run_leave(struct observe_call *call, PyObject *result) {
  struct scope *scope = call->state[0];
  if (framework_same_stack(call))
    framework_end(scope, word(call->state[1]), result ? 0 : framework_exception(scope));
}

/* One batch, by a loop of the script's. Where that is a loop over a loader of torch's, it has steps already. */
static bool lone_enter(struct observe_call *call) {
  struct scope *scope = call->nargs && !off() ? scope_get() : NULL;
  const struct loop_run *run = scope ? own_training(scope) : NULL;
  if (!scope || (run && run->inner) || scope_count(scope, SPAN_STEP) || scope_count(scope, SPAN_BATCH))
    return false;
  struct span *span = scope_push(scope, SPAN_BATCH, name_id(NAME_BATCH), scope_loop(scope)->lone_batches++, scope_clock(scope));
  call->state[0] = scope;
  call->state[1] = span;
  call->state[2] = span ? (void *)(uintptr_t)span->id : NULL;
  if (!span)
    return false;
  expect(span->id, false);
  expected.several = true;
  return true;
}

static void lone_leave(struct observe_call *call, PyObject *result) {
  struct scope *scope = call->state[0];
  bool same = framework_same_stack(call);
  if (same && result)
    framework_marks_of(scope, (void *)py_type(result) != py.PyDict_Type && expected.last ? expected.last : result,
                       word(call->state[2]), value_of_tensor); /* a dict holds the very numbers, a list has no names */
  expect_nothing();
  if (framework_same_stack(call) && scope_holds(scope, call->state[1], word(call->state[2])))
    loop_pop(scope, call->state[1], scope_clock(scope), result ? 0 : framework_exception(scope));
}

/* --- what the list of callbacks tells ------------------------------------------------------------------------------------ */

/* The training that this thread is in; NULL: none. */
static struct loop_run *training(struct observe_call *call) {
  struct scope *scope = call->nargs && !off() ? scope_get() : NULL;
  call->state[0] = scope;
  return scope ? own_training(scope) : NULL;
}

static struct loop_run *still_training(const struct observe_call *call, const PyObject *result) {
  return result && framework_same_stack(call) ? own_training(call->state[0]) : NULL;
}

static bool train_begin_enter(struct observe_call *call) {
  struct scope *scope = call->nargs && !off() ? scope_get() : NULL;
  if (scope)
    framework_loop(scope, call->args[0]);
  return false;
}

static bool list_enter(struct observe_call *call) {
  call->state[1] = call->nargs ? call->args[0] : NULL;
  return training(call) != NULL;
}

static void train_end_leave(struct observe_call *call, PyObject *result) {
  struct loop_run *run = still_training(call, result);
  if (run && run->object == call->state[1])
    framework_end(call->state[0], run->number, 0);
}

static bool test_begin_enter(struct observe_call *call) {
  struct scope *scope = call->nargs && !off() ? scope_get() : NULL;
  const struct loop_run *run = scope ? own_run(scope) : NULL;
  if (scope && !(run && run->kind == RUN_EVAL))
    (void)own_begin(scope, RUN_EVAL, call->args[0]);
  return false;
}

/* An evaluation that is none of a training's: its numbers are its own. */
static bool test_end_enter(struct observe_call *call) {
  struct scope *scope = call->nargs && !off() ? scope_get() : NULL;
  const struct loop_run *run = scope ? own_run(scope) : NULL;
  if (!run || run->kind != RUN_EVAL)
    return false;
  call->state[0] = scope;
  call->state[1] = call->args[0];
  if (!own_training(scope))
    framework_marks(scope, framework_arg(call, 1, "logs"), run->epoch ? run->epoch_id : 0, true);
  return true;
}

static void test_end_leave(struct observe_call *call, PyObject *result) {
  struct scope *scope = call->state[0];
  const struct loop_run *run = result && framework_same_stack(call) ? own_run(scope) : NULL;
  if (run && run->kind == RUN_EVAL && run->object == call->state[1])
    framework_end(scope, run->number, 0);
}

static bool epoch_begin_enter(struct observe_call *call) {
  struct loop_run *run = training(call);
  int64_t index = SPAN_NO_INDEX;
  if (run) {
    (void)framework_whole(framework_arg(call, 1, "epoch"), &index);
    own_epoch_begin(call->state[0], run, index);
  }
  return false;
}

static bool epoch_end_enter(struct observe_call *call) {
  const struct loop_run *run = training(call);
  if (!run)
    return false;
  uint64_t span = own_epoch_place(call->state[0], run);
  PyObject *logs = framework_arg(call, 2, "logs");
  if (!framework_plain(logs))
    expect(span, true);
  else if (span)
    framework_marks(call->state[0], logs, span, true);
  return true;
}

static void epoch_end_leave(struct observe_call *call, PyObject *result) {
  expect_nothing();
  struct loop_run *run = still_training(call, result);
  if (run)
    framework_epoch_end(call->state[0], run, 0);
}

static bool batch_begin_enter(struct observe_call *call) {
  struct loop_run *run = training(call);
  int64_t index = SPAN_NO_INDEX;
  if (run) {
    (void)framework_whole(framework_arg(call, 1, "batch"), &index);
    own_step_begin(call->state[0], run, SPAN_BATCH, index);
  }
  return false;
}

static bool batch_end_enter(struct observe_call *call) {
  const struct loop_run *run = training(call);
  int64_t batch;
  if (!run)
    return false;
  call->state[1] = (void *)(uintptr_t)scope_clock(call->state[0]);
  if (!run->step)
    return true;
  PyObject *logs = framework_arg(call, 2, "logs");
  if (framework_plain(logs)) {
    framework_marks(call->state[0], logs, run->step_id, false);
  } else if (framework_whole(framework_arg(call, 1, "batch"), &batch)) {
    pending_put(call->args[0], batch, run->step_id);
  }
  return true;
}

static void batch_end_leave(struct observe_call *call, PyObject *result) {
  struct loop_run *run = still_training(call, result);
  if (run)
    own_step_end(call->state[0], run, word(call->state[1]));
}

/* --- Keras 2 -------------------------------------------------------------------------------------------------------------- */

/* Its callbacks get tensors where they can use them. Where they cannot, or show numbers, it makes them by one function. */
static bool batch_end_2_enter(struct observe_call *call) {
  const struct loop_run *run = training(call);
  if (!run)
    return false;
  call->state[1] = (void *)(uintptr_t)scope_clock(call->state[0]);
  call->state[2] = framework_arg(call, 2, "logs");
  call->state[3] = (void *)(uintptr_t)came;
  if (run->step)
    expect(run->step_id, false);
  return true;
}

static void batch_end_2_leave(struct observe_call *call, PyObject *result) {
  struct loop_run *run = still_training(call, result);
  expect_nothing();
  if (run && run->step && word(call->state[3]) == came)
    framework_marks_of(call->state[0], call->state[2], run->step_id, value_of_tensor);
  run = still_training(call, result);
  if (run)
    own_step_end(call->state[0], run, word(call->state[1]));
}

/* --- the numbers of Keras 3 ----------------------------------------------------------------------------------------------- */

/* On whichever thread. */
static bool batch_numbers_enter(struct observe_call *call) {
  int64_t batch;
  if (!call->nargs || off() || !framework_whole(framework_arg(call, 1, "batch"), &batch))
    return false;
  uint64_t span = pending_take(call->args[0], batch);
  expect(span, false);
  return span != 0;
}

static void batch_numbers_leave(struct observe_call *call, PyObject *result) {
  (void)call;
  (void)result;
  expect_nothing();
}

#define LIST "keras.src.callbacks.callback_list"
#define PROBE(in, function, how, before, after)                                                                                \
  { .module = (in), .qualname = (function), .direct = true, .pace = (how), .enter = (before), .leave = (after) }
#define TELLS(list, method, names, how, before, after)                                                                         \
  {                                                                                                                            \
    .module = (list), .qualname = "CallbackList." method, .args = "self " names, .direct = true, .pace = (how),                \
    .enter = (before), .leave = (after)                                                                                        \
  }
#define MAYBE(in, function, before, after)                                                                                     \
  { .module = (in), .qualname = (function), .optional = true, .direct = true, .enter = (before), .leave = (after) }
#define TRAINER(in, class)                                                                                                     \
  PROBE(in, class ".fit", OBSERVE_ALWAYS, fit_enter, run_leave),                                                               \
      PROBE(in, class ".evaluate", OBSERVE_ALWAYS, evaluate_enter, run_leave),                                                 \
      PROBE(in, class ".predict", OBSERVE_ALWAYS, evaluate_enter, run_leave),                                                  \
      PROBE(in, class ".train_on_batch", OBSERVE_NO_PACE, lone_enter, lone_leave)
#define CALLBACKS(list, end_enter, end_leave)                                                                                  \
  TELLS(list, "on_train_begin", "logs", OBSERVE_ALWAYS, train_begin_enter, NULL),                                              \
      TELLS(list, "on_train_end", "logs", OBSERVE_ALWAYS, list_enter, train_end_leave),                                        \
      TELLS(list, "on_test_begin", "logs", OBSERVE_ALWAYS, test_begin_enter, NULL),                                            \
      TELLS(list, "on_test_end", "logs", OBSERVE_ALWAYS, test_end_enter, test_end_leave),                                      \
      TELLS(list, "on_predict_begin", "logs", OBSERVE_ALWAYS, test_begin_enter, NULL),                                         \
      TELLS(list, "on_predict_end", "logs", OBSERVE_ALWAYS, test_end_enter, test_end_leave),                                   \
      TELLS(list, "on_epoch_begin", "epoch logs", OBSERVE_ALWAYS, epoch_begin_enter, NULL),                                    \
      TELLS(list, "on_epoch_end", "epoch logs", OBSERVE_ALWAYS, epoch_end_enter, epoch_end_leave),                             \
      TELLS(list, "on_train_batch_begin", "batch logs", OBSERVE_NO_PACE, batch_begin_enter, NULL),                             \
      TELLS(list, "on_train_batch_end", "batch logs", OBSERVE_NO_PACE, end_enter, end_leave)
#define KERAS_2(list, trainer, utils)                                                                                          \
  CALLBACKS(list, batch_end_2_enter, batch_end_2_leave), TRAINER(trainer, "Model"),                                            \
      MAYBE(utils, "sync_to_numpy_or_python_type", numbers_enter, numbers_leave)

static const struct probe probes[] = {
    CALLBACKS(LIST, batch_end_enter, batch_end_leave),
    MAYBE(LIST, "CallbackList._on_train_batch_end", batch_numbers_enter, batch_numbers_leave), /* 3.6 */
    MAYBE(LIST, "CallbackList._pythonify_logs", numbers_enter, numbers_leave),                 /* 3.6 only */
    MAYBE("keras.src.utils.python_utils", "pythonify_logs", numbers_enter, numbers_leave),
    TRAINER("keras.src.backend.torch.trainer", "TorchTrainer"),
    TRAINER("keras.src.backend.jax.trainer", "JAXTrainer"),
    TRAINER("keras.src.backend.tensorflow.trainer", "TensorFlowTrainer"),
    /* Keras 2: of TensorFlow up to 2.15, and beside Keras 3. In Keras 3 the first of these modules has the class from above. */
    KERAS_2("keras.src.callbacks", "keras.src.engine.training", "keras.src.utils.tf_utils"),
    KERAS_2("tf_keras.src.callbacks", "tf_keras.src.engine.training", "tf_keras.src.utils.tf_utils"),
};

void keras_add_probes(void) {
  observe_add(probes, sizeof probes / sizeof probes[0]);
}

void keras_forget(void) {
  memset(pending, 0, sizeof pending);
  expected = (struct expected){0};
}
