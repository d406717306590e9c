/* What is observed of PyTorch.
 *
 * Module.__call__ is whatever function the class has under that name: _call_impl in 1.13, _wrapped_call_impl in 2.x. Optimizers
 * wrap their class's `step` at the first construction, so that is found then, for classes of users and third parties too. An
 * iterator that is dropped is noticed by a weak reference; nothing else is left on the user's objects.
 */
#include "torch.h"

#include <string.h>

#include "collective.h"
#include "framework.h"
#include "hot.h"
#include "loop.h"
#include "names.h"
#include "observe.h"
#include "py.h"
#include "root.h"
#include "scope.h"
#include "session.h"
#include "shed.h"
#include "snapshot.h"
#include "snapshot_models.h"

#define FETCH_MODULE "torch.utils.data._utils.fetch"
#define WATCHED 64u /* iterators under way in the process; of more, the end of the pass is seen only by exhaustion */

/* What is open on this thread: calls inside are not counted again. Each call puts back at its end what there was at its begin, whatever
 * session has begun since. */
static __thread unsigned forwards, backwards;

HOT_DATA static bool quiet; /* by the settings */

static bool off(void) {
  return quiet || session_is_worker();
}

bool torch_off(void) {
  return off();
}

void torch_set_quiet(bool to) {
  quiet = to;
}

COLD static uint32_t class_name_new(struct scope *scope, PyObject *object) {
  return name_of_class(scope_names(scope), py_class_name(object), py_class_key(object));
}

HOT static uint32_t class_name_id(struct scope *scope, PyObject *object) {
  uint32_t id = name_known(scope_names(scope), py_class_key(object));
  return likely(id != 0) ? id : class_name_new(scope, object);
}

HOT static struct span *open_span(struct observe_call *call, enum span_kind kind, enum name name, uint32_t class,
                                  uint8_t flags) {
  struct scope *scope = call->state[0];
  struct span *span = scope_push_of(scope, kind, name_id(name), SPAN_NO_INDEX, scope_clock(scope), class, flags);
  call->state[1] = span;
  call->state[2] = span ? (void *)(uintptr_t)span->id : NULL;
  return span;
}

/* The call's span, if it is still open where it was. */
HOT static struct span *still_open(const struct observe_call *call) {
  struct span *span = call->state[1];
  return likely(span && scope_holds(call->state[0], span, (uint64_t)(uintptr_t)call->state[2])) ? span : NULL;
}

HOT static void close_span(struct observe_call *call, uint64_t end_ns, PyObject *result) {
  struct scope *scope = call->state[0];
  struct span *span = still_open(call);
  if (likely(span != NULL))
    scope_pop(scope, span, end_ns, likely(result != NULL) ? 0 : framework_exception(scope));
}

/* --- forward ------------------------------------------------------------------------------------------------------------- */

static PyObject *training_name(void) {
  HOT_DATA static PyObject *name;
  if (unlikely(!name))
    name = py.PyUnicode_InternFromString("training");
  return name;
}

HOT static bool forward_enter(struct observe_call *call) {
  if (forwards >= session_env.module_depth || call->nargs == 0 || off())
    return false;
  if (forwards == 0)
    snapshot_look();
  forwards++;
  int train = py_attr_true(call->args[0], training_name()); /* may run code of the script, which may call modules, */
  forwards += forwards == 0;                                /* or fork: torch_forget */
  struct scope *scope = scope_get();
  if (unlikely(!scope)) {
    forwards--;
    return false;
  }
  call->state[0] = scope;
  call->state[3] = (void *)(uintptr_t)(forwards - 1);
  loop_forward(scope, train != 0);
  if (unlikely(models_sought) && train != 0 && forwards == 1)
    models_saw_module(call->args[0]);
  if (likely(!shed_is(SHED_FORWARDS))) {
    uint8_t mode = train < 0 ? 0 : train ? SPAN_MODE_TRAIN : SPAN_MODE_EVAL;
    open_span(call, SPAN_FORWARD, NAME_FORWARD, class_name_id(scope, call->args[0]), mode);
  }
  return true;
}

HOT static void forward_leave(struct observe_call *call, PyObject *result) {
  forwards = (unsigned)(uintptr_t)call->state[3];
  if (!framework_same_stack(call))
    return;
  close_span(call, scope_clock(call->state[0]), result);
}

/* --- backward ------------------------------------------------------------------------------------------------------------ */

HOT static bool backward_enter(struct observe_call *call) {
  if (backwards || off())
    return false;
  struct scope *scope = scope_get();
  if (!scope)
    return false;
  snapshot_check(); /* of an epoch that ended where nothing could be done */
  snapshot_fence_to_add();
  if (unlikely(scope != scope_peek())) /* another thread ended the session meanwhile */
    return false;
  call->state[0] = scope;
  backwards = 1;
  loop_backward(scope);
  if (likely(!shed_is(SHED_BACKWARDS)))
    open_span(call, SPAN_BACKWARD, NAME_BACKWARD, 0, 0);
  return true;
}

HOT static void backward_leave(struct observe_call *call, PyObject *result) {
  backwards = 0;
  if (!framework_same_stack(call))
    return;
  close_span(call, scope_clock(call->state[0]), result);
}

/* --- optimizers ---------------------------------------------------------------------------------------------------------- */

HOT static bool step_enter(struct observe_call *call) {
  if (call->nargs == 0 || off())
    return false;
  struct scope *scope = scope_get();
  if (!scope)
    return false;
  PyObject *self = call->args[0];
  for (struct span *s = scope_find(scope, SPAN_OPTIMIZER); s; s = scope_below(scope, s))
    if (s->kind == SPAN_OPTIMIZER && s->owner == self)
      return false; /* a subclass calling the step of its base */
  if (unlikely(snapshot_due || snapshot_reads || models_sought)) {
    if (models_sought)
      models_saw_optimizer(self);
    snapshot_check();
    snapshot_fence(SNAPSHOT_READS_WEIGHTS);
    if (scope != scope_peek()) /* another thread ended the session meanwhile */
      return false;
  }
  call->state[0] = scope;
  loop_update_begin(scope, self);
  struct span *span = open_span(call, SPAN_OPTIMIZER, NAME_OPTIMIZER_STEP, class_name_id(scope, call->args[0]), 0);
  if (likely(span != NULL))
    span->owner = self;
  return true;
}

HOT static void step_leave(struct observe_call *call, PyObject *result) {
  struct scope *scope = call->state[0];
  if (!framework_same_stack(call))
    return;
  uint64_t end_ns = scope_clock(scope);
  close_span(call, end_ns, result);
  loop_update_end(scope, end_ns);
  snapshot_check();
}

/* --- precision ----------------------------------------------------------------------------------------------------------- */

static bool autocast_enter(struct observe_call *call) {
  static PyObject *enabled;
  if (!enabled)
    enabled = py.PyUnicode_InternFromString("_enabled");
  if (call->nargs && enabled && py_attr_true(call->args[0], enabled) > 0)
    root_mixed_precision();
  return false;
}

static const struct probe step_probe = {
    .qualname = "step",
    .direct = true,
    .pace = OBSERVE_UPDATE,
    .enter = step_enter,
    .leave = step_leave,
};

static bool optimizer_enter(struct observe_call *call) {
  call->state[0] = call->nargs ? call->args[0] : NULL;
  return call->nargs != 0;
}

/* Constructed, or restored from a pickle: its class has its final `step` now. */
static void optimizer_leave(struct observe_call *call, PyObject *result) {
  if (!result)
    return;
  if (scope_peek())
    loop_optimizer(scope_peek());
  snapshot_seek();
  PyObject *step = NULL, *class = py.PyObject_GetAttrString(call->state[0], "__class__");
  if (class)
    step = py.PyObject_GetAttrString(class, "step");
  if (step)
    (void)observe_function(step, &step_probe); /* anything but a plain function cannot be observed, and is left alone */
  else
    py.PyErr_Clear();
  if (step)
    py.Py_DecRef(step);
  if (class)
    py.Py_DecRef(class);
}

/* --- data loading -------------------------------------------------------------------------------------------------------- */

/* Weak references to iterators under way. Entries are made and taken by whoever holds the GIL. */
static struct watched {
  const void *iterator;
  PyObject *reference;
} watched[WATCHED];

static void unwatch(struct watched *w) {
  PyObject *reference = w->reference;
  *w = (struct watched){0};
  py.Py_DecRef(reference);
}

static PyObject *dropped(PyObject *self, PyObject *reference) {
  (void)self;
  for (unsigned i = 0; i < WATCHED; i++)
    if (watched[i].reference == reference) {
      loop_pass_end(watched[i].iterator, false);
      unwatch(&watched[i]);
      snapshot_check();
      break;
    }
  PyObject *none = py._Py_NoneStruct;
  py.Py_IncRef(none);
  return none;
}

static struct py_method dropped_method = {"iterator_dropped", dropped, PY_METH_O, NULL};

/* Loaders by number: the address of one that died is soon another's. A loader keeps its number as long as it lives. */
static struct known {
  const void *loader;
  PyObject *reference;
  uintptr_t number;
} known[WATCHED];

static PyObject *loader_dropped(PyObject *self, PyObject *reference) {
  (void)self;
  for (unsigned i = 0; i < WATCHED; i++)
    if (known[i].reference == reference) {
      known[i] = (struct known){0};
      py.Py_DecRef(reference);
      break;
    }
  PyObject *none = py._Py_NoneStruct;
  py.Py_IncRef(none);
  return none;
}

static struct py_method loader_dropped_method = {"loader_dropped", loader_dropped, PY_METH_O, NULL};

/* Of more loaders than we can remember, each pass counts as one over a loader of its own. */
static const void *loader_number(PyObject *loader) {
  static uintptr_t last;
  static PyObject *callback;
  struct known *k = NULL;
  for (unsigned i = 0; i < WATCHED; i++)
    if (known[i].loader == loader)
      return (const void *)known[i].number;
    else if (!known[i].reference && !k)
      k = &known[i];
  uintptr_t number = ++last;
  if (!callback)
    callback = py.PyCFunction_NewEx(&loader_dropped_method, NULL, NULL);
  PyObject *reference = k && callback ? py.PyWeakref_NewRef(loader, callback) : NULL;
  if (reference)
    *k = (struct known){.loader = loader, .reference = reference, .number = number};
  else
    py.PyErr_Clear();
  return (const void *)number;
}

static void watch(PyObject *iterator) {
  static PyObject *callback;
  struct watched *w = NULL;
  for (unsigned i = 0; i < WATCHED && !w; i++)
    if (watched[i].iterator == iterator)
      return; /* a loader with persistent workers gives the same one again */
    else if (!watched[i].reference)
      w = &watched[i];
  if (!callback)
    callback = py.PyCFunction_NewEx(&dropped_method, NULL, NULL);
  PyObject *reference = w && callback ? py.PyWeakref_NewRef(iterator, callback) : NULL;
  if (reference)
    *w = (struct watched){.iterator = iterator, .reference = reference};
  else
    py.PyErr_Clear();
}

static bool iter_enter(struct observe_call *call) {
  call->state[0] = call->nargs ? call->args[0] : NULL;
  return call->nargs && !off();
}

static bool loader_enter(struct observe_call *call) {
  (void)call;
  if (!off())
    loop_loader(scope_peek());
  return false;
}

static void iter_leave(struct observe_call *call, PyObject *result) {
  struct scope *scope = result ? scope_get() : NULL;
  if (!scope)
    return;
  loop_pass_begin(scope, loader_number(call->state[0]), result);
  watch(result);
  snapshot_check(); /* of the epoch before, which waited for its last update */
}

HOT static bool next_enter(struct observe_call *call) {
  struct scope *scope = call->nargs && !off() ? scope_get() : NULL;
  if (!scope)
    return false;
  call->state[0] = scope;
  call->state[3] = call->args[0];
  struct span *load = loop_load_begin(scope, call->args[0]);
  call->state[1] = load;
  call->state[2] = load ? (void *)(uintptr_t)load->id : NULL;
  return true;
}

HOT static void next_leave(struct observe_call *call, PyObject *result) {
  struct scope *scope = call->state[0];
  struct span *load = call->state[1];
  if (!framework_same_stack(call))
    return;
  if (likely(still_open(call) != NULL))
    loop_load_end(scope, call->state[3], load, result != NULL);
  if (unlikely(!result) && py_exception_is_stop()) {
    loop_pass_end(call->state[3], true);
    snapshot_check();
  }
  snapshot_look();
}

/* The data set's side of a data_load, in the worker process that does it. */
static bool fetch_enter(struct observe_call *call) {
  struct scope *scope = scope_get();
  if (!scope)
    return false;
  call->state[0] = scope;
  open_span(call, SPAN_FETCH, NAME_FETCH, 0, 0);
  return true;
}

static void fetch_leave(struct observe_call *call, PyObject *result) {
  struct scope *scope = call->state[0];
  struct span *span = framework_same_stack(call) ? still_open(call) : NULL;
  if (span && !result && py_exception_is_stop())
    scope_dissolve(scope, span); /* the data set is at its end: nothing was fetched */
  else if (span)
    close_span(call, scope_clock(scope), result);
}

static const struct probe fetch_probes[] = {
    {.module = FETCH_MODULE,
     .qualname = "_MapDatasetFetcher.fetch",
     .direct = true,
     .enter = fetch_enter,
     .leave = fetch_leave},
    {.module = FETCH_MODULE,
     .qualname = "_IterableDatasetFetcher.fetch",
     .direct = true,
     .enter = fetch_enter,
     .leave = fetch_leave},
};

/* Fetching is observed in workers only: elsewhere it lies in its data_load, and would pay for nothing. */
static bool worker_enter(struct observe_call *call) {
  (void)call;
  if (!session_is_worker() && session_env.workers) {
    observe_add(fetch_probes, sizeof fetch_probes / sizeof fetch_probes[0]);
    observe_module_ready(FETCH_MODULE);
  }
  session_set_worker();
  return false;
}

static const struct probe probes[] = {
    {.module = "torch.nn.modules.module",
     .qualname = "Module.__call__",
     .direct = true, /* by super().__call__ */
     .enter = forward_enter,
     .leave = forward_leave},
    {.module = "torch._tensor",
     .qualname = "Tensor.backward",
     .direct = true,
     .enter = backward_enter,
     .leave = backward_leave},
    {.module = "torch.autograd", .qualname = "backward", .direct = true, .enter = backward_enter, .leave = backward_leave},
    {.module = "torch.optim.optimizer",
     .qualname = "Optimizer.__init__",
     .direct = true,
     .pace = OBSERVE_PASS,
     .enter = optimizer_enter,
     .leave = optimizer_leave},
    {.module = "torch.optim.optimizer",
     .qualname = "Optimizer.__setstate__",
     .direct = true,
     .pace = OBSERVE_PASS,
     .enter = optimizer_enter,
     .leave = optimizer_leave},
    {.module = "torch.amp.autocast_mode", .qualname = "autocast.__enter__", .direct = true, .enter = autocast_enter},
    {.module = "torch.utils.data.dataloader",
     .qualname = "DataLoader.__init__",
     .direct = true,
     .pace = OBSERVE_ALWAYS,
     .enter = loader_enter},
    {.module = "torch.utils.data.dataloader",
     .qualname = "DataLoader.__iter__",
     .direct = true,
     .pace = OBSERVE_PASS,
     .enter = iter_enter,
     .leave = iter_leave},
    {.module = "torch.utils.data.dataloader",
     .qualname = "_BaseDataLoaderIter.__next__",
     .direct = true,
     .pace = OBSERVE_REQUEST,
     .enter = next_enter,
     .leave = next_leave},
    /* An optimizer of Keras on torch is none of torch's. */
    {.module = "keras.src.backend.torch.optimizers.torch_parallel_optimizer",
     .qualname = "TorchParallelOptimizer._backend_update_step",
     .direct = true,
     .pace = OBSERVE_UPDATE,
     .enter = step_enter,
     .leave = step_leave},
    {.module = "torch.utils.data._utils.worker", .qualname = "_worker_loop", .direct = true, .enter = worker_enter},
};

void torch_add_probes(void) {
  observe_add(probes, sizeof probes / sizeof probes[0]);
  collective_add_probes();
}

void torch_forget(void) {
  collective_forget();
  forwards = backwards = 0;
  /* The references stay with the copies of iterators and loaders; their callbacks find nothing. */
  memset(watched, 0, sizeof watched);
  memset(known, 0, sizeof known);
}
