/* See module_check.h. */
#include "module_check.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "env.h"
#include "module_config.h"

static PyObject *keep(PyObject *value) {
  py.Py_IncRef(value);
  return value;
}

static bool is_one_of(PyObject *text, const char *const *words) {
  for (; *words; words++)
    if (py.PyUnicode_CompareWithASCIIString(text, *words) == 0)
      return true;
  return false;
}

PyObject *module_check_text(const struct module_given *g) {
  return module_is(g->value, py.PyUnicode_Type) ? keep(g->value) : module_wrong_type(g, "a string");
}

PyObject *module_check_snapshots(const struct module_given *g) {
  static const char *const modes[] = {"stats", "sampled", "full", "off", NULL};
  static const char allowed[] = "'stats', 'sampled', 'full' or 'off'";
  if (!module_is(g->value, py.PyUnicode_Type))
    return module_wrong_type(g, allowed);
  return is_one_of(g->value, modes) ? keep(g->value) : module_wrong_value(g, allowed);
}

/* --- numbers, also those of numpy --- */

/* 0, or -1 with an error; truth values and texts are no numbers. */
static int number_of(const struct module_given *g, bool whole, const char *allowed, struct scope_value *out) {
  struct module_text text;
  int r = module_value(g->value, out, &text);
  module_text_drop(&text);
  if (r == 0 && (out->type == MARK_INT || (out->type == MARK_FLOAT && !whole)))
    return 0;
  if (r == -ECANCELED)
    return -1;
  bool too_large = r < 0 && module_is(g->value, py.PyLong_Type);
  (void)(too_large ? module_wrong_value : module_wrong_type)(g, allowed); /* NULL */
  return -1;
}

static PyObject *float_of(const struct module_given *g, double least, double most, const char *allowed) {
  struct scope_value value;
  if (number_of(g, false, allowed, &value) < 0)
    return NULL;
  double number = value.type == MARK_INT ? (double)value.i : value.f;
  return number >= least && number <= most ? py.PyFloat_FromDouble(number) : module_wrong_value(g, allowed);
}

PyObject *module_check_sample_rate(const struct module_given *g) {
  return float_of(g, 0.0, 1.0, "a number between 0 and 1");
}

PyObject *module_check_flush_interval(const struct module_given *g) {
  return float_of(g, 5e-324, 1.7976931348623157e308, "a number of seconds above 0");
}

PyObject *module_check_count(const struct module_given *g) {
  static const char allowed[] = "a whole number above 0, of at most 63 bits";
  struct scope_value value;
  if (number_of(g, true, allowed, &value) < 0)
    return NULL;
  return value.i > 0 ? py.PyLong_FromLongLong(value.i) : module_wrong_value(g, allowed);
}

int module_check_truth(const struct module_given *g, bool *out) {
  struct scope_value value;
  struct module_text text;
  int r = module_value(g->value, &value, &text);
  module_text_drop(&text);
  if (r == -ECANCELED)
    return -1;
  if (r < 0 || (value.type != MARK_BOOL && value.type != MARK_INT))
    return (void)module_wrong_type(g, "True or False"), -1;
  if (value.i != 0 && value.i != 1)
    return (void)module_wrong_value(g, "True or False"), -1;
  *out = value.i != 0;
  return 0;
}

/* --- lists --- */

/* A new list of the strings of a list or tuple. */
static PyObject *strings_of(const struct module_given *g, const char *allowed) {
  if (!module_is(g->value, py.PyList_Type) && !module_is(g->value, py.PyTuple_Type))
    return module_wrong_type(g, allowed);
  PyObject *list = py.PySequence_List(g->value);
  Py_ssize_t n = list ? py.PyObject_Size(list) : 0;
  for (Py_ssize_t i = 0; i < n; i++) {
    char name[64];
    struct module_given item = {.who = g->who, .name = name, .value = py.PyList_GetItem(list, i)};
    if (module_is(item.value, py.PyUnicode_Type))
      continue;
    (void)snprintf(name, sizeof name, "items of %s", g->name);
    (void)module_wrong_value(&item, "strings"); /* NULL */
    module_drop(list);
    return NULL;
  }
  return list;
}

static int warn_of_framework(const struct module_given *g, PyObject *name) {
  PyObject *shown = module_shown(name);
  PyObject *text = shown ? py.PyUnicode_FromFormat("cirron: %s(): no framework %U; known are torch, tensorflow, keras, "
                                                   "transformers, sklearn, lightning",
                                                   g->who, shown)
                         : NULL;
  module_drop(shown);
  return module_warn("cirron.profiler", text);
}

/* A name for another version of us is no reason to stop a training: it is warned of, and left out. */
PyObject *module_check_frameworks(const struct module_given *g) {
  PyObject *all = strings_of(g, "a list of strings"), *known = all ? py.PyList_New(0) : NULL;
  Py_ssize_t n = known ? py.PyObject_Size(all) : 0;
  for (Py_ssize_t i = 0; i < n && known; i++) {
    PyObject *item = py.PyList_GetItem(all, i);
    struct module_text text = {0};
    bool is_known = module_text(item, &text) && env_framework(text.text, text.len);
    module_text_drop(&text);
    if ((is_known ? py.PyList_Append(known, item) : warn_of_framework(g, item)) < 0) {
      module_drop(known);
      known = NULL;
    }
  }
  module_drop(all);
  return known;
}

PyObject *module_check_output(const struct module_given *g) {
  static const char *const sinks[] = {"spool", "stdout", "log", "none", NULL};
  static const char allowed[] = "'spool', 'stdout', 'log' or 'none'";
  bool one = module_is(g->value, py.PyUnicode_Type);
  PyObject *list = one ? py.PyList_New(0) : strings_of(g, "'spool', 'stdout', 'log' or 'none', or a list of them");
  if (list && one && py.PyList_Append(list, g->value) < 0) {
    module_drop(list);
    return NULL;
  }
  Py_ssize_t n = list ? py.PyObject_Size(list) : 0;
  for (Py_ssize_t i = 0; i < n; i++) {
    struct module_given item = {.who = g->who, .name = g->name, .value = py.PyList_GetItem(list, i)};
    if (is_one_of(item.value, sinks))
      continue;
    (void)module_wrong_word(&item, allowed); /* NULL */
    module_drop(list);
    return NULL;
  }
  return list;
}

/* --- the rest --- */

/* What was raised is said in our words where it is of this class. Else it is no memory, or what __fspath__ raised, and stays. */
static int bad_path(const struct module_given *g, void *class, const char *allowed) {
  if (!py.PyErr_ExceptionMatches(module_error(class)))
    return -1;
  py.PyErr_Clear();
  (void)(class == py.PyExc_TypeError ? module_wrong_type : module_wrong_value)(g, allowed); /* NULL */
  return -1;
}

int module_check_path_bytes(const struct module_given *g, char out[MODULE_PATH_MAX]) {
  static const char allowed[] = "a path of at most 4000 bytes, without a zero byte";
  static_assert(MODULE_PATH_MAX == ENV_PATH_MAX + 1 && ENV_PATH_MAX == 4000, "said to people");
  PyObject *plain = py.PyOS_FSPath(g->value), *bytes = plain;
  char *text;
  Py_ssize_t len;
  if (plain && module_is(plain, py.PyUnicode_Type)) {
    bytes = py.PyUnicode_AsEncodedString(plain, "utf-8", "surrogateescape");
    module_drop(plain);
  }
  if (!bytes)
    return bad_path(g, plain ? py.PyExc_ValueError : py.PyExc_TypeError, allowed);
  bool good = py.PyBytes_AsStringAndSize(bytes, &text, &len) == 0 && len < MODULE_PATH_MAX && !memchr(text, 0, (size_t)len);
  if (good)
    memcpy(out, text, (size_t)len + 1);
  module_drop(bytes);
  return good ? 0 : ((void)module_wrong_value(g, allowed), -1);
}

PyObject *module_check_path(const struct module_given *g) {
  char bytes[MODULE_PATH_MAX];
  if (module_check_path_bytes(g, bytes) < 0)
    return NULL;
  if (!bytes[0])
    return module_wrong_value(g, "a path, which has at least one character");
  return py.PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)strlen(bytes), "surrogateescape");
}

PyObject *module_check_config(const struct module_given *g) {
  return module_is(g->value, py.PyDict_Type) ? py.PyDict_Copy(g->value) : module_wrong_type(g, "a dict");
}
