#include "framework.h"

#include <string.h>

#include "loop_own.h"
#include "names.h"
#include "segment.h"
#include "snapshot.h"

COLD uint32_t framework_exception(struct scope *scope) {
  const char *text = py_exception_name();
  return text ? name_of_class(scope_names(scope), text, (uintptr_t)text) : 0;
}

/* --- loops of the script's ----------------------------------------------------------------------------------------------- */

#define LOOPS 16u

/* Weak references to what the loops under way are known by; of more, one that is left by an exception goes unnoticed. */
static struct watched {
  PyObject *reference;
  uint64_t scope, number;
} watched[LOOPS];

static PyObject *gone(PyObject *self, PyObject *reference) {
  (void)self;
  struct scope *scope = scope_peek();
  for (unsigned i = 0; i < LOOPS; i++)
    if (watched[i].reference == reference) {
      if (scope && scope_serial(scope) == watched[i].scope && own_has(scope, watched[i].number))
        own_end(scope, watched[i].number, 0);
      watched[i] = (struct watched){0};
      py.Py_DecRef(reference);
      break;
    }
  py.Py_IncRef(py._Py_NoneStruct);
  return py._Py_NoneStruct;
}

static void watch(PyObject *object, uint64_t scope, uint64_t number) {
  static struct py_method method = {"loop_gone", gone, PY_METH_O, NULL};
  static PyObject *callback;
  unsigned i = 0;
  while (i < LOOPS && watched[i].reference)
    i++;
  if (!callback)
    callback = py.PyCFunction_NewEx(&method, NULL, NULL);
  PyObject *reference = i < LOOPS && callback ? py.PyWeakref_NewRef(object, callback) : NULL;
  if (reference)
    watched[i] = (struct watched){.reference = reference, .scope = scope, .number = number};
  else
    py.PyErr_Clear();
}

void framework_loop(struct scope *scope, PyObject *object) {
  const struct loop_run *run = own_training(scope);
  if (run && (!run->lone || run->object == object))
    return;
  uint64_t number = own_begin(scope, RUN_TRAINING, object);
  if (!number)
    return;
  own_run(scope)->lone = true;
  watch(object, scope_serial(scope), number);
}

void framework_end(struct scope *scope, uint64_t number, uint32_t exception) {
  own_end(scope, number, exception);
  snapshot_check();
}

void framework_epoch_end(struct scope *scope, struct loop_run *run, uint32_t exception) {
  own_epoch_end(scope, run, exception);
  snapshot_check();
}

void framework_forget(void) {
  memset(watched, 0, sizeof watched); /* the references stay; their callbacks find nothing */
}

/* --- numbers ------------------------------------------------------------------------------------------------------------- */

static bool is(PyObject *object, void *type) {
  return py_type(object) == type || py.PyType_IsSubtype(py_type(object), type);
}

bool framework_whole(PyObject *value, int64_t *out) {
  int overflow = 0;
  if (!value)
    return false;
  if (is(value, py.PyFloat_Type)) {
    double f = py.PyFloat_AsDouble(value);
    if (!(f > -0x1p62 && f < 0x1p62))
      return false;
    *out = (int64_t)f;
    return true;
  }
  if (!is(value, py.PyLong_Type))
    return false;
  *out = py.PyLong_AsLongLongAndOverflow(value, &overflow);
  return !overflow;
}

bool framework_attr(PyObject *object, const char *name, int64_t *out) {
  PyObject *value = object ? py.PyObject_GetAttrString(object, name) : NULL;
  bool got = framework_whole(value, out);
  if (value)
    py.Py_DecRef(value);
  else
    py.PyErr_Clear();
  return got;
}

PyObject *framework_arg(const struct observe_call *call, size_t position, const char *name) {
  if (likely(position < call->nargs) || !call->kwnames)
    return observe_arg(call, position, NULL);
  PyObject *text = py.PyUnicode_InternFromString(name), *value = observe_arg(call, position, text);
  if (text)
    py.Py_DecRef(text);
  else
    py.PyErr_Clear();
  return value;
}

static bool number_of(PyObject *value, struct scope_value *out) {
  int overflow = 0;
  if (is(value, py.PyFloat_Type)) {
    *out = (struct scope_value){.type = MARK_FLOAT, .f = py.PyFloat_AsDouble(value)};
    return true;
  }
  if (py_type(value) == py.PyBool_Type) {
    *out = (struct scope_value){.type = MARK_BOOL, .i = value == py._Py_TrueStruct};
    return true;
  }
  if (!is(value, py.PyLong_Type))
    return false;
  *out = (struct scope_value){.type = MARK_INT, .i = py.PyLong_AsLongLongAndOverflow(value, &overflow)};
  return !overflow;
}

/* Texts and None: nothing to be kept. */
static bool passed_over(PyObject *value) {
  return is(value, py.PyUnicode_Type) || value == py._Py_NoneStruct;
}

static enum framework_value value_of_other(PyObject *value, framework_value_of *value_of, struct scope_value *out) {
  enum framework_value is_what = value_of ? value_of(value, &out->f) : FRAMEWORK_NO_NUMBER;
  out->type = MARK_FLOAT;
  return is_what;
}

static void mark(struct scope *scope, PyObject *key, PyObject *value, uint64_t span, bool summary,
                 framework_value_of *value_of) {
  struct scope_value number = {0};
  Py_ssize_t len = 0;
  if (passed_over(value))
    return;
  enum framework_value is_what = number_of(value, &number) ? FRAMEWORK_NUMBER : value_of_other(value, value_of, &number);
  if (value_of && scope_peek() != scope) {
    py.PyErr_Clear();
    return;
  }
  const char *name = is(key, py.PyUnicode_Type) ? py.PyUnicode_AsUTF8AndSize(key, &len) : NULL;
  if (name && is_what == FRAMEWORK_NUMBER)
    scope_mark_of(scope, span, segment_name(name, (size_t)len), &number, summary, NULL, 0);
  else if (is_what != FRAMEWORK_PASSED_OVER)
    scope_refused_mark();
  py.PyErr_Clear();
}

bool framework_plain(PyObject *logs) {
  Py_ssize_t at = 0;
  PyObject *key, *value;
  struct scope_value number;
  bool plain = true;
  while (logs && is(logs, py.PyDict_Type) && plain && py.PyDict_Next(logs, &at, &key, &value))
    plain = passed_over(value) || number_of(value, &number);
  return plain;
}

void framework_marks(struct scope *scope, PyObject *logs, uint64_t span, bool summary) {
  Py_ssize_t at = 0;
  PyObject *key, *value;
  if (!logs || !is(logs, py.PyDict_Type))
    return;
  while (py.PyDict_Next(logs, &at, &key, &value))
    mark(scope, key, value, span, summary, NULL);
}

void framework_marks_of(struct scope *scope, PyObject *logs, uint64_t span, framework_value_of *value_of) {
  Py_ssize_t at = 0;
  PyObject *key, *value;
  if (!logs || !is(logs, py.PyDict_Type))
    return;
  while (scope_peek() == scope && py.PyDict_Next(logs, &at, &key, &value)) { /* value_of may run anything */
    py.Py_IncRef(key);
    py.Py_IncRef(value);
    mark(scope, key, value, span, false, value_of);
    py.Py_DecRef(value);
    py.Py_DecRef(key);
  }
}
