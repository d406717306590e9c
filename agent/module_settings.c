/* See module_settings.h. */
#include "module_settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "module_config.h"
#include "session.h"

struct given {
  const char *who, *name;
  PyObject *value; /* borrowed */
};

/* --- checks: the value as it is kept, a new reference, or NULL with an error --- */

static PyObject *wrong_type(const struct given *g, const char *wanted) {
  return py.PyErr_Format(module_error(py.PyExc_TypeError), "%s(): %s must be %s, not '%.200s'", g->who, g->name, wanted,
                         py_class_name(g->value));
}

static PyObject *wrong_value(const struct given *g, const char *wanted) {
  return py.PyErr_Format(module_error(py.PyExc_ValueError), "%s(): %s must be %s, not %R", g->who, g->name, wanted, g->value);
}

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

static PyObject *check_snapshots(const struct given *g) {
  static const char *const modes[] = {"stats", "sampled", "full", "off", NULL};
  if (!module_is(g->value, py.PyUnicode_Type))
    return wrong_type(g, "a string");
  return is_one_of(g->value, modes) ? keep(g->value) : wrong_value(g, "'stats', 'sampled', 'full' or 'off'");
}

static bool is_whole(PyObject *value) {
  return module_is(value, py.PyLong_Type) && py_type(value) != py.PyBool_Type;
}

static int number_of(const struct given *g, double *out) {
  if (!module_is(g->value, py.PyFloat_Type) && !is_whole(g->value))
    return wrong_type(g, "a number"), -1;
  *out = py.PyFloat_AsDouble(g->value);
  return *out == -1.0 && py.PyErr_Occurred() ? -1 : 0;
}

static PyObject *check_sample_rate(const struct given *g) {
  double rate;
  if (number_of(g, &rate) < 0)
    return NULL;
  return rate >= 0.0 && rate <= 1.0 ? py.PyFloat_FromDouble(rate) : wrong_value(g, "a number between 0 and 1");
}

static PyObject *check_flush_interval(const struct given *g) {
  double seconds;
  if (number_of(g, &seconds) < 0)
    return NULL;
  return seconds > 0.0 && !isinf(seconds) ? py.PyFloat_FromDouble(seconds) : wrong_value(g, "a number of seconds above 0");
}

static PyObject *check_count(const struct given *g) {
  int overflow = 0;
  if (!is_whole(g->value))
    return wrong_type(g, "a whole number");
  long long count = py.PyLong_AsLongLongAndOverflow(g->value, &overflow);
  return count > 0 && !overflow ? keep(g->value) : wrong_value(g, "a whole number above 0, of at most 63 bits");
}

/* A new list of the strings of a list or tuple. */
static PyObject *strings_of(const struct given *g) {
  if (!module_is(g->value, py.PyList_Type) && !module_is(g->value, py.PyTuple_Type))
    return wrong_type(g, "a list of strings");
  PyObject *list = py.PySequence_List(g->value);
  Py_ssize_t n = list ? py.PyObject_Size(list) : 0;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *item = py.PyList_GetItem(list, i);
    if (module_is(item, py.PyUnicode_Type))
      continue;
    py.PyErr_Format(module_error(py.PyExc_ValueError), "%s(): items of %s must be strings, not %R", g->who, g->name, item);
    module_drop(list);
    return NULL;
  }
  return list;
}

/* A name for another version of us is no reason to stop a training: it is warned of, and left out. */
static PyObject *check_frameworks(const struct given *g) {
  PyObject *all = strings_of(g), *known = all ? py.PyList_New(0) : NULL;
  Py_ssize_t n = known ? py.PyObject_Size(all) : 0;
  for (Py_ssize_t i = 0; i < n && known; i++) {
    PyObject *item = py.PyList_GetItem(all, i);
    struct module_text text = {0};
    bool is_known = module_text(item, &text) && env_framework(text.text, text.len);
    module_text_drop(&text);
    int r = is_known ? py.PyList_Append(known, item)
                     : module_warn("cirron.profiler",
                                   py.PyUnicode_FromFormat("cirron: %s(): no framework %R; known are torch, tensorflow, keras, "
                                                           "transformers, sklearn",
                                                           g->who, item));
    if (r < 0) {
      module_drop(known);
      known = NULL;
    }
  }
  module_drop(all);
  return known;
}

static PyObject *check_output(const struct given *g) {
  static const char *const sinks[] = {"spool", "stdout", "log", "none", NULL};
  bool one = module_is(g->value, py.PyUnicode_Type);
  PyObject *list = one ? py.PyList_New(0) : strings_of(g);
  if (list && one && py.PyList_Append(list, g->value) < 0) {
    module_drop(list);
    return NULL;
  }
  Py_ssize_t n = list ? py.PyObject_Size(list) : 0;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *item = py.PyList_GetItem(list, i);
    if (is_one_of(item, sinks))
      continue;
    py.PyErr_Format(module_error(py.PyExc_ValueError), "%s(): %s %R is not valid: 'spool', 'stdout', 'log' or 'none'", g->who,
                    g->name, item);
    module_drop(list);
    return NULL;
  }
  return list;
}

static PyObject *check_path(const struct given *g) {
  PyObject *path = py.PyOS_FSPath(g->value);
  return path ? path : wrong_type(g, "a path");
}

static PyObject *check_config(const struct given *g) {
  return module_is(g->value, py.PyDict_Type) ? py.PyDict_Copy(g->value) : wrong_type(g, "a dict");
}

static PyObject *check_text(const struct given *g) {
  return module_is(g->value, py.PyUnicode_Type) ? keep(g->value) : wrong_type(g, "a string");
}

static const struct setting {
  const char *name;
  PyObject *(*check)(const struct given *g);
  bool in_section;
} settings[] = {
    {"frameworks", check_frameworks, true},
    {"snapshots", check_snapshots, true},
    {"sample_rate", check_sample_rate, true},
    {"flush_interval", check_flush_interval, true},
    {"config", check_config, false},
    {"path", check_path, false},
    {"output", check_output, false},
    {"output_dir", check_path, false},
    {"spool_max_bytes", check_count, false},
    {"trace_buffer_max_spans", check_count, false},
    {"load_warn_bytes", check_count, false},
    {"load_max_bytes", check_count, false},
    {"api_key", check_text, false},
    {"api_endpoint", check_text, false},
    {"workspace_id", check_text, false},
    {"ingest_path", check_text, false},
    {"enabled", NULL, false}, /* of profile() alone: never in a layer */
};
#define SETTINGS (sizeof settings / sizeof settings[0])

static const struct setting *setting_of(const char *name) {
  for (size_t i = 0; i < SETTINGS; i++)
    if (strcmp(settings[i].name, name) == 0)
      return &settings[i];
  return NULL;
}

int module_setting_put(PyObject *layer, const char *who, const char *name, PyObject *value) {
  const struct given g = {.who = who, .name = name, .value = value};
  if (!value || value == py._Py_NoneStruct)
    return 0;
  PyObject *kept = setting_of(name)->check(&g);
  int r = kept ? py.PyDict_SetItemString(layer, name, kept) : -1;
  module_drop(kept);
  return r;
}

/* Is it the name of a setting? Keys of a dict can be anything. */
static const struct setting *setting_named(PyObject *key) {
  for (size_t i = 0; i < SETTINGS && module_is(key, py.PyUnicode_Type); i++)
    if (py.PyUnicode_CompareWithASCIIString(key, settings[i].name) == 0)
      return &settings[i];
  return NULL;
}

int module_settings_section(PyObject *layer, const char *who, PyObject *section) {
  PyObject *items = py.PyDict_Items(section);
  Py_ssize_t n = items ? py.PyObject_Size(items) : 0;
  int r = items ? 0 : -1;
  for (Py_ssize_t i = 0; i < n && r == 0; i++) {
    PyObject *key = py.PyTuple_GetItem(py.PyList_GetItem(items, i), 0),
             *value = py.PyTuple_GetItem(py.PyList_GetItem(items, i), 1);
    const struct setting *setting = setting_named(key);
    if (!setting)
      r = py.PyDict_SetItem(layer, key, value);
    else if (setting->in_section)
      r = module_setting_put(layer, who, setting->name, value);
  }
  module_drop(items);
  return r;
}

/* --- what holds where nothing is given --- */

static PyObject *text_of(const char *text) {
  return py.PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "surrogateescape");
}

static int set_text(PyObject *dict, const char *key, const char *variable, const char *otherwise) {
  const char *text = getenv(variable);
  text = text && *text ? text : otherwise;
  return module_set(dict, key, text ? text_of(text) : module_none());
}

/* A whole number above 0; anything else is as if it were not set. */
static int set_whole(PyObject *dict, const char *key, const char *variable, long long otherwise) {
  const char *text = getenv(variable);
  long long value = 0;
  size_t n = text ? strspn(text, "0123456789") : 0;
  for (size_t i = 0; i < n && n <= 18 && text[n] == 0; i++)
    value = value * 10 + (text[i] - '0');
  return module_set(dict, key, py.PyLong_FromLongLong(value > 0 ? value : otherwise));
}

/* The names of the bits, from "a|b|c". */
static PyObject *names_of(unsigned bits, const char *words) {
  PyObject *list = py.PyList_New(0);
  for (unsigned bit = 1; list && *words; bit <<= 1) {
    size_t len = strcspn(words, "|");
    PyObject *text = bits & bit ? py.PyUnicode_FromStringAndSize(words, (Py_ssize_t)len) : NULL;
    words += len + (words[len] == '|');
    if ((bits & bit) && (!text || py.PyList_Append(list, text) < 0)) {
      module_drop(list);
      list = NULL;
    }
    module_drop(text);
  }
  return list;
}

PyObject *module_settings_defaults(void) {
  static const char *const modes[] = {"stats", "sampled", "full", "off"};
  const struct env *env = &session_env;
  PyObject *dict = py.PyDict_New();
  if (!dict)
    return NULL;
  if (!(module_set(dict, "snapshots", text_of(modes[env->snapshots])) ||
        module_set(dict, "sample_rate", py.PyFloat_FromDouble(env->sample_rate)) ||
        module_set(dict, "flush_interval", py.PyFloat_FromDouble(env->flush_interval)) ||
        (env->frameworks == ENV_FRAMEWORKS_ALL ? 0
                                               : module_set(dict, "frameworks", names_of(env->frameworks, ENV_FRAMEWORKS))) ||
        module_set(dict, "output", names_of(env->output, ENV_SINKS)) ||
        set_text(dict, "output_dir", "CIRRON_OUTPUT_DIR", "./.cirron/") ||
        set_whole(dict, "spool_max_bytes", "CIRRON_SPOOL_MAX_BYTES", 1000000000) ||
        set_whole(dict, "load_warn_bytes", "CIRRON_LOAD_WARN_BYTES", 1000000000) ||
        set_whole(dict, "load_max_bytes", "CIRRON_LOAD_MAX_BYTES", 10000000000) ||
        module_set(dict, "trace_buffer_max_spans", py.PyLong_FromLongLong(100000)) ||
        set_text(dict, "api_key", "CIRRON_API_KEY", NULL) || set_text(dict, "api_endpoint", "CIRRON_API_ENDPOINT", NULL) ||
        set_text(dict, "workspace_id", "CIRRON_WORKSPACE_ID", NULL) ||
        set_text(dict, "ingest_path", "CIRRON_INGEST_PATH", NULL)))
    return dict;
  module_drop(dict);
  return NULL;
}

unsigned module_settings_frameworks(PyObject *layer) {
  PyObject *list = py_dict_get(layer, "frameworks");
  Py_ssize_t n = list ? py.PyObject_Size(list) : 0;
  unsigned bits = list ? 0 : ENV_FRAMEWORKS_ALL;
  for (Py_ssize_t i = 0; i < n; i++) {
    struct module_text text = {0};
    if (module_text(py.PyList_GetItem(list, i), &text))
      bits |= env_framework(text.text, text.len);
    module_text_drop(&text);
  }
  return bits;
}
