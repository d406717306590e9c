/* The value of a mark: what Python has as numbers, truth values and texts, and what can be asked to become one.
 *
 * Scalars of numpy and one-element arrays and tensors of any library have item(), which gives a plain Python object of the right
 * sort. What has no item() may be a whole number (__index__) or a number (__float__). PyNumber_Float alone will not do: it reads
 * texts and buffers as numbers.
 */
#include <errno.h>

#include "module_state.h"
#include "utf8.h"

static int read_int(PyObject *object, struct scope_value *out) {
  int overflow;
  long long value = py.PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow)
    return -ENOTSUP;
  if (value == -1 && py.PyErr_Occurred()) {
    py.PyErr_Clear();
    return -ENOTSUP;
  }
  *out = (struct scope_value){.type = MARK_INT, .i = value};
  return 0;
}

static int read_float(PyObject *object, struct scope_value *out) {
  double value = py.PyFloat_AsDouble(object);
  if (value == -1.0 && py.PyErr_Occurred()) {
    py.PyErr_Clear();
    return -ENOTSUP;
  }
  *out = (struct scope_value){.type = MARK_FLOAT, .f = value};
  return 0;
}

static int read_text(PyObject *object, struct scope_value *out, struct module_text *text) {
  if (!module_text(object, text))
    return -ENOTSUP;
  size_t len = utf8_cut(text->text, text->len, MODULE_MARK_TEXT_MAX);
  *out = (struct scope_value){.type = MARK_STRING, .text = text->text, .text_len = len};
  return 0;
}

/* A value of one of Python's own types or of a subclass. -EAGAIN: it is none. */
static int read_plain(PyObject *object, struct scope_value *out, struct module_text *text) {
  PyTypeObject *type = py_type(object);
  if (type == py.PyFloat_Type)
    return read_float(object, out);
  if (type == py.PyBool_Type) {
    *out = (struct scope_value){.type = MARK_BOOL, .i = object == py._Py_TrueStruct};
    return 0;
  }
  if (module_is(object, py.PyLong_Type))
    return read_int(object, out);
  if (module_is(object, py.PyUnicode_Type))
    return read_text(object, out, text);
  if (module_is(object, py.PyFloat_Type))
    return read_float(object, out);
  return -EAGAIN;
}

/* What a conversion gave, if it gave something plain. Takes over `result`. */
static int read_result(PyObject *result, struct scope_value *out, struct module_text *text) {
  if (!result)
    return module_swallow() ? -EAGAIN : -ECANCELED;
  int r = read_plain(result, out, text);
  if (r == 0 && out->type == MARK_STRING && !text->held)
    text->held = result; /* the text lies in it */
  else
    py.Py_DecRef(result);
  return r;
}

/* item() of a complex number gives one: that is the answer, and __float__ would only cut it. A long double gives itself. */
static int read_item(PyObject *object, struct scope_value *out, struct module_text *text) {
  PyObject *result = py.PyObject_CallMethod(object, "item", NULL);
  bool final = result && py_type(result) != py_type(object);
  int r = read_result(result, out, text);
  return r == -EAGAIN && final ? -ENOTSUP : r;
}

/* Has the class the method? Looked for on the class, so that an object that makes up attributes on demand is not asked. */
static bool has(PyObject *object, const char *method) {
  PyObject *found = py.PyObject_GetAttrString((PyObject *)py_type(object), method);
  if (found)
    py.Py_DecRef(found);
  else
    py.PyErr_Clear();
  return found != NULL;
}

int module_value(PyObject *object, struct scope_value *out, struct module_text *text) {
  *text = (struct module_text){0};
  int r = read_plain(object, out, text);
  if (r == -EAGAIN && object == py._Py_NoneStruct)
    return -ENOTSUP;
  if (r == -EAGAIN && has(object, "item"))
    r = read_item(object, out, text);
  if (r == -EAGAIN && has(object, "__index__"))
    r = read_result(py.PyNumber_Index(object), out, text);
  if (r == -EAGAIN && has(object, "__float__"))
    r = read_result(py.PyNumber_Float(object), out, text);
  return r == -EAGAIN ? -ENOTSUP : r;
}
