/* See module_wrong.h.
 *
 * A repr may be as large as the value, or fail. So the values of Python's own types are weighed first, and everything else that has a
 * length by that; for the rest there is no telling.
 */
#include "module_wrong.h"

#define SHOWN 100  /* characters of a value */
#define WEIGHT 500 /* characters, digits and items that a repr may be asked of */

/* len(value), -1: it has none; -2 with an error that is none of ours to clear. */
static Py_ssize_t length(PyObject *value) {
  Py_ssize_t n = py.PyObject_Size(value);
  return n >= 0 ? n : module_swallow() ? -1 : -2;
}

static bool is_text(PyObject *value) {
  return py_type(value) == py.PyUnicode_Type || py_type(value) == py.PyBytes_Type;
}

/* Bits of a whole number that has more than 63 of them, else 0. */
static long long bits(PyObject *value) {
  int overflow = 0;
  (void)py.PyLong_AsLongLongAndOverflow(value, &overflow);
  PyObject *count = overflow ? py.PyObject_CallMethod(value, "bit_length", NULL) : NULL;
  long long n = count ? py.PyLong_AsLongLongAndOverflow(count, &overflow) : 0;
  module_drop(count);
  py.PyErr_Clear();
  return n;
}

static int is_small(PyObject *value, int *left);

/* Takes over a list that nobody else has; NULL with an error: there was no memory for it. */
static int all_small(PyObject *items, int *left) {
  int r = items ? 1 : 0;
  if (!items)
    py.PyErr_Clear();
  for (Py_ssize_t i = 0; r > 0 && i < py.PyObject_Size(items); i++)
    r = is_small(py.PyList_GetItem(items, i), left);
  module_drop(items);
  return r;
}

/* Is what its repr takes less than *left, which becomes less by it? 1, 0, or -1 with an error. */
static int is_small(PyObject *value, int *left) {
  PyTypeObject *type = py_type(value);
  Py_ssize_t n = type == py.PyLong_Type ? (Py_ssize_t)(bits(value) / 3) : length(value);
  if (n < -1)
    return -1;
  *left -= 1;
  if (n > *left || *left < 0)
    return 0;
  if (type == py.PyDict_Type)
    return all_small(py.PyDict_Items(value), left);
  if (type == py.PyList_Type || type == py.PyTuple_Type)
    return all_small(py.PySequence_List(value), left);
  *left -= n > 0 ? (int)n : 0;
  return 1;
}

/* The first characters of a text, as it is (quotes and all) where it is short. Takes over `text`; NULL passes an error on. */
static PyObject *cut(PyObject *text) {
  if (!text || py.PyObject_Size(text) <= SHOWN)
    return text;
  PyObject *begin = py.PySequence_GetSlice(text, 0, SHOWN);
  PyObject *whole = begin ? py.PyUnicode_FromFormat("%U...", begin) : NULL;
  module_drop(begin);
  py.Py_DecRef(text);
  return whole;
}

/* NULL with or without an error: there is none to be had. */
static PyObject *repr(PyObject *value) {
  int left = WEIGHT;
  if (is_text(value) && py.PyObject_Size(value) > SHOWN) {
    PyObject *begin = py.PySequence_GetSlice(value, 0, SHOWN);
    PyObject *text = begin ? py.PyObject_Repr(begin) : NULL;
    PyObject *whole = text ? py.PyUnicode_FromFormat("%U...", text) : NULL;
    module_drop(text);
    module_drop(begin);
    return whole;
  }
  return is_small(value, &left) == 1 ? cut(py.PyObject_Repr(value)) : NULL;
}

PyObject *module_shown(PyObject *value) {
  PyObject *text = repr(value);
  if (text || !module_swallow())
    return text;
  bool whole = py_type(value) == py.PyLong_Type;
  Py_ssize_t n = whole ? (Py_ssize_t)bits(value) : length(value);
  if (n < -1)
    return NULL;
  const char *class = py_class_name(value);
  return n < 0 ? py.PyUnicode_FromFormat("<%.100s>", class)
               : py.PyUnicode_FromFormat("<%.100s of %zd%s>", class, n, whole ? " bits" : "");
}

PyObject *module_wrong_type(const struct module_given *g, const char *allowed) {
  PyObject *shown = module_shown(g->value);
  if (shown)
    py.PyErr_Format(module_error(py.PyExc_TypeError), "%s(): %s must be %s, not %U (%.100s)", g->who, g->name, allowed, shown,
                    py_class_name(g->value));
  module_drop(shown);
  return NULL;
}

PyObject *module_wrong_value(const struct module_given *g, const char *allowed) {
  PyObject *shown = module_shown(g->value);
  if (shown)
    py.PyErr_Format(module_error(py.PyExc_ValueError), "%s(): %s must be %s, not %U", g->who, g->name, allowed, shown);
  module_drop(shown);
  return NULL;
}

PyObject *module_wrong_word(const struct module_given *g, const char *allowed) {
  PyObject *shown = module_shown(g->value);
  if (shown)
    py.PyErr_Format(module_error(py.PyExc_ValueError), "%s(): %s %U is not valid: %s", g->who, g->name, shown, allowed);
  module_drop(shown);
  return NULL;
}
