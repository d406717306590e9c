/* epochs(...) and batches(...): an iterator around another that has a span open while the script works on an item.
 *
 * The span of an item begins when the item was fetched and ends when the next one is asked for, so fetching lies outside, where the
 * data_load spans of a loader find their place. It ends also at exhaustion, by close(), and when the iterator is dropped, which is
 * what leaving a loop by `break` does. Items are passed on as they are, and so is whatever the inner iterator raises.
 *
 * A batch says how long its item was waited for, from the request up to its begin: the attribute data_load_ns.
 */
#include <stdlib.h>
#include <string.h>

#include "cost.h"
#include "loop.h"
#include "module_sink.h"
#include "module_state.h"
#include "module_wrong.h"
#include "segment.h"
#include "session.h"
#include "snapshot.h"

struct iter {
  PyObject *iterable; /* for its length; NULL when closed */
  PyObject *inner;
  int64_t next_index;
  enum span_kind kind;
  uint32_t name;
  uint64_t name_session; /* in which `name` is the id */
  struct module_span span;
  char *json; /* of the batch that is open, or was; the span borrows it */
};

#define WAIT_KEY "{\"data_load_ns\":"
#define WAIT_BYTES (sizeof WAIT_KEY + 21) /* with the digits of 64 bits and a brace */

static struct iter *iter_of(PyObject *self) {
  return module_body(self);
}

/* Asks nothing of Python. Returns the time. */
static uint64_t span_close(struct iter *it) {
  struct module_span span = it->span;
  uint64_t now = scope_now();
  it->span.span = NULL;
  if (!span.span)
    return now;
  struct scope *scope = module_span_stack(&span);
  if (scope) {
    loop_pop(scope, span.span, now, 0);
  } else if (module_span_elsewhere(&span)) {
    (void)module_left(&span, now, 0, it->json); /* an ended thread has closed it */
    it->json = NULL;
  } else if (!session_get() || session_get()->prefix != span.session) {
    it->json = NULL; /* another thread has ended the session: the span may lie here for ever, and borrow it */
  }
  return now;
}

/* {"data_load_ns":123}; without memory there is none. */
static void say_wait(struct iter *it, struct span *span, uint64_t ns) {
  char digits[20];
  size_t n = 0, len = sizeof WAIT_KEY - 1;
  if (!it->json && !(it->json = malloc(WAIT_BYTES)))
    return;
  memcpy(it->json, WAIT_KEY, len);
  do
    digits[n++] = (char)('0' + ns % 10);
  while (ns /= 10);
  while (n)
    it->json[len++] = digits[--n];
  it->json[len++] = '}';
  span->attrs = it->json;
  span->attrs_len = (uint32_t)len;
}

static void span_open(struct iter *it, uint64_t asked_ns) {
  int64_t index = it->next_index++;
  struct scope *scope = module_stack();
  const struct session *session = session_get();
  if (!scope || !session)
    return;
  if (it->name_session != session->prefix) {
    it->name = it->kind == SPAN_EPOCH ? segment_name("epoch", 5) : segment_name("batch", 5);
    it->name_session = session->prefix;
  }
  uint64_t now = scope_clock(scope);
  struct span *span = scope_push(scope, it->kind, it->name, index, now);
  if (!span)
    return;
  module_span_opened(&it->span, scope, span);
  if (it->kind == SPAN_BATCH)
    say_wait(it, span, now > asked_ns ? now - asked_ns : 0);
}

static PyObject *iter_next(PyObject *self) {
  struct iter *it = iter_of(self);
  struct cost_timing cost = cost_call();
  uint64_t asked_ns = span_close(it);
  cost_end(&cost);
  snapshot_check();
  PyObject *inner = it->inner;
  if (!inner || module_sink_check_of(self) < 0)
    return NULL;
  inner = it->inner; /* printing may have closed us */
  if (!inner)
    return NULL;
  py.Py_IncRef(inner); /* fetching may close us */
  PyObject *item = py.PyIter_Next(inner);
  cost_again(&cost);
  if (item && it->inner)
    span_open(it, asked_ns);
  cost_end(&cost);
  py.Py_DecRef(inner);
  return item;
}

static int iter_clear(PyObject *self) {
  struct iter *it = iter_of(self);
  PyObject *iterable = it->iterable, *inner = it->inner;
  it->iterable = it->inner = NULL;
  module_drop(iterable);
  module_drop(inner);
  return 0;
}

static PyObject *iter_close(PyObject *self, PyObject *unused) {
  (void)unused;
  (void)span_close(iter_of(self));
  (void)iter_clear(self); /* cannot fail */
  return module_none();
}

static int iter_traverse(PyObject *self, module_visit visit, void *arg) {
  struct iter *it = iter_of(self);
  int r = it->iterable ? visit(it->iterable, arg) : 0;
  if (!r && it->inner)
    r = visit(it->inner, arg);
  return r ? r : module_visit_type(self, visit, arg);
}

static void iter_dealloc(PyObject *self) {
  py.PyObject_GC_UnTrack(self);
  (void)span_close(iter_of(self)); /* asks nothing of Python, so an error that is set stays */
  (void)iter_clear(self);
  free(iter_of(self)->json);
  module_free_object(self, true);
}

static Py_ssize_t iter_len(PyObject *self) {
  PyObject *iterable = iter_of(self)->iterable;
  if (iterable)
    return py.PyObject_Size(iterable);
  py.PyErr_SetString(module_error(py.PyExc_TypeError), "a closed iterator has no len()");
  return -1;
}

/* Without this, an iterator around something without a length could not be asked `if it`. */
static int iter_bool(PyObject *self) {
  Py_ssize_t len = iter_len(self);
  if (len >= 0)
    return len > 0;
  if (!py.PyErr_ExceptionMatches(module_error(py.PyExc_TypeError)))
    return -1;
  py.PyErr_Clear();
  return 1;
}

static PyObject *iter_of_what(PyObject *type, PyObject *what) {
  (void)what;
  py.Py_IncRef(type);
  return type;
}

PyObject *module_iter_type(void) {
  static struct py_method methods[] = {
      {"close", iter_close, PY_METH_NOARGS, "close($self, /)\n--\n\nCloses the open span and lets go of the iterable."},
      {"__class_getitem__", iter_of_what, PY_METH_O | PY_METH_CLASS, "LoopIterator[int], for annotations: the class itself."},
      {0},
  };
  static struct py_slot slots[] = {
      {SLOT_NEW, module_no_new},
      {SLOT_DEALLOC, iter_dealloc},
      {SLOT_TRAVERSE, iter_traverse},
      {SLOT_CLEAR, iter_clear},
      {SLOT_ITER, NULL},
      {SLOT_ITERNEXT, iter_next},
      {SLOT_METHODS, methods},
      {SLOT_SQ_LENGTH, iter_len},
      {SLOT_NB_BOOL, iter_bool},
      {SLOT_DOC, "An iterator with a span around each item. Made by epochs() and batches()."},
      {0, NULL},
  };
  slots[4].value = (void *)py.PyObject_SelfIter;
  return module_type("cirron.LoopIterator", sizeof(struct iter), MODULE_TYPE_GC, slots);
}

/* Where the class has no __iter__, no code of the script's has run yet, and the error is the interpreter's own. */
static bool has_iter(PyObject *iterable) {
  PyObject *method = py.PyObject_GetAttrString((PyObject *)py_type(iterable), "__iter__");
  bool there = method && method != py._Py_NoneStruct;
  if (!method)
    py.PyErr_Clear();
  module_drop(method);
  return there;
}

/* NULL with the error of the iterable, or with one that names it. */
static PyObject *iterator_of(PyObject *iterable, enum span_kind kind) {
  const struct module_given given = {.who = kind == SPAN_EPOCH ? "epochs" : "batches", .name = "iterable", .value = iterable};
  PyObject *inner = py.PyObject_GetIter(iterable);
  if (inner || !py.PyErr_ExceptionMatches(module_error(py.PyExc_TypeError)))
    return inner;
  PyObject *type, *value, *trace;
  py.PyErr_Fetch(&type, &value, &trace);
  if (has_iter(iterable)) {
    py.PyErr_Restore(type, value, trace);
    return NULL;
  }
  module_drop(type);
  module_drop(value);
  module_drop(trace);
  return module_wrong_type(&given, "something that can be iterated over");
}

static PyObject *iter_new(PyObject *module, PyObject *iterable, enum span_kind kind) {
  struct module_state *state = py.PyModule_GetState(module);
  PyObject *inner = iterator_of(iterable, kind);
  PyObject *self = inner ? py.PyType_GenericAlloc((PyTypeObject *)state->iter_type, 0) : NULL;
  if (!self) {
    module_drop(inner);
    return NULL;
  }
  struct iter *it = iter_of(self);
  py.Py_IncRef(iterable);
  it->iterable = iterable;
  it->inner = inner;
  it->kind = kind;
  return self;
}

PyObject *module_epochs(PyObject *module, PyObject *iterable) {
  return iter_new(module, iterable, SPAN_EPOCH);
}

PyObject *module_batches(PyObject *module, PyObject *iterable) {
  return iter_new(module, iterable, SPAN_BATCH);
}
