/* A method of a wrapped estimator: looks like the bound method it stands for, and is a span while it runs.
 *
 * The method itself runs on the estimator, not on what wraps it, so what it calls of its own is no further span.
 */
#include <stdlib.h>
#include <string.h>

#include "cost.h"
#include "loop.h"
#include "module_wrap.h"
#include "session.h"

struct call {
  PyObject *self; /* the wrapped estimator */
  PyObject *function, *name;
  enum wrap_result result;
};

static struct call *call_of(PyObject *self) {
  return module_body(self);
}

/* --- the span --- */

struct running {
  struct module_span span;
  char *json; /* borrowed by the span */
};

static void open_span(const struct call *c, struct running *r) {
  struct scope *scope = module_stack();
  if (!scope || !session_get())
    return;
  const struct wrapped *w = module_body(c->self);
  struct span *span = scope_push(scope, SPAN_USER, module_name(w->state, c->name), SPAN_NO_INDEX, scope_clock(scope));
  if (!span)
    return;
  r->json = w->attrs ? malloc(w->attrs_len) : NULL;
  if (r->json) {
    memcpy(r->json, w->attrs, w->attrs_len);
    span->attrs = r->json;
    span->attrs_len = (uint32_t)w->attrs_len;
  }
  module_span_opened(&r->span, scope, span);
}

/* The exception that is set, as a name; it stays set. */
static uint32_t exception_id(void) {
  PyObject *type, *value, *trace;
  py.PyErr_Fetch(&type, &value, &trace);
  uint32_t id = type ? module_exception(type, py._Py_NoneStruct) : 0;
  py.PyErr_Restore(type, value, trace);
  return id;
}

/* The method may have forked, ended the session, or (greenlets) come back on another stack. */
static void close_span(struct running *r, bool raised) {
  if (!r->span.span)
    return;
  uint64_t end_ns = scope_now();
  module_left_check();
  struct scope *scope = module_span_stack(&r->span);
  uint32_t exception = raised && session_get() ? exception_id() : 0;
  if (scope) {
    loop_pop(scope, r->span.span, end_ns, exception);
  } else if (module_span_elsewhere(&r->span)) {
    (void)module_left(&r->span, end_ns, exception, r->json); /* an ended thread has closed it */
    return;
  }
  free(r->json);
}

static PyObject *run(const struct call *c, PyObject *args, PyObject *kwargs) {
  struct running r = {0};
  struct cost_timing cost = cost_call();
  open_span(c, &r);
  cost_end(&cost);
  PyObject *result = py.PyObject_Call(c->function, args, kwargs);
  cost_again(&cost);
  close_span(&r, !result);
  cost_end(&cost);
  return result;
}

/* --- the object --- */

/* What fit() and its like return is the estimator: the script goes on with the one that is wrapped. Takes over `result`. */
static PyObject *hand_out(const struct call *c, PyObject *result) {
  const struct wrapped *w = module_body(c->self);
  if (!result || module_wrapped(w->state, result))
    return result;
  PyObject *out = result;
  if (result == w->inner) {
    py.Py_IncRef(c->self);
    out = c->self;
  } else if (c->result == WRAP_CLONE) {
    out = module_wrap_new(w->state, result);
  }
  if (out != result)
    py.Py_DecRef(result);
  return out;
}

static PyObject *call_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  const struct call *c = call_of(self);
  py.Py_IncRef(self); /* whoever calls may let go of it meanwhile */
  PyObject *result = c->result == WRAP_TIMED ? run(c, args, kwargs) : py.PyObject_Call(c->function, args, kwargs);
  result = hand_out(c, result);
  py.Py_DecRef(self);
  return result;
}

static PyObject *call_getattro(PyObject *self, PyObject *name) {
  const struct call *c = call_of(self);
  if (py.PyUnicode_CompareWithASCIIString(name, "__self__") != 0)
    return py.PyObject_GetAttr(c->function, name);
  py.Py_IncRef(c->self);
  return c->self;
}

static int call_setattro(PyObject *self, PyObject *name, PyObject *value) {
  return py.PyObject_SetAttr(call_of(self)->function, name, value);
}

static PyObject *call_repr(PyObject *self) {
  return py.PyObject_Repr(call_of(self)->function);
}

static Py_ssize_t call_hash(PyObject *self) {
  return py.PyObject_Hash(call_of(self)->function);
}

static PyObject *call_compare(PyObject *self, PyObject *other, int operation) {
  PyObject *with = py_type(other) == py_type(self) ? call_of(other)->function : other;
  return py.PyObject_RichCompare(call_of(self)->function, with, operation);
}

static int call_traverse(PyObject *self, module_visit visit, void *arg) {
  struct call *c = call_of(self);
  int r = c->self ? visit(c->self, arg) : 0; /* not there yet, if another thread collects while it is made */
  if (!r && c->function)
    r = visit(c->function, arg);
  return r ? r : module_visit_type(self, visit, arg);
}

static void call_dealloc(PyObject *self) {
  struct call *c = call_of(self);
  py.PyObject_GC_UnTrack(self);
  module_drop(c->self);
  module_drop(c->function);
  module_drop(c->name);
  module_free_object(self, true);
}

PyObject *
module_wrap_call_type(void) { /* no tp_clear: cycles through it go through the estimator's attributes, which has one */
  static struct py_slot slots[] = {
      {SLOT_NEW, module_no_new},
      {SLOT_DEALLOC, call_dealloc},
      {SLOT_TRAVERSE, call_traverse},
      {SLOT_CALL, call_call},
      {SLOT_GETATTRO, call_getattro},
      {SLOT_SETATTRO, call_setattro},
      {SLOT_REPR, call_repr},
      {SLOT_HASH, call_hash},
      {SLOT_RICHCOMPARE, call_compare},
      {SLOT_DOC, "A method of a wrapped estimator."},
      {0, NULL},
  };
  return module_type("cirron.WrappedMethod", sizeof(struct call), MODULE_TYPE_GC, slots);
}

PyObject *module_wrap_call(PyObject *self, PyObject *function, PyObject *name, enum wrap_result result) {
  const struct wrapped *w = module_body(self);
  PyObject *made = py.PyType_GenericAlloc((PyTypeObject *)w->state->wrap.call_type, 0);
  if (!made)
    return NULL;
  py.Py_IncRef(self);
  py.Py_IncRef(function);
  py.Py_IncRef(name);
  *call_of(made) = (struct call){.self = self, .function = function, .name = name, .result = result};
  return made;
}
