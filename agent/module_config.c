/* See module_config.h. The reading itself is config_file.c's; here it becomes Python objects.
 *
 * The classes derive from that of sys.implementation (types.SimpleNamespace), which has what they need: attributes, ==, a repr.
 */
#include "module_config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "config_file.h"
#include "module_check.h"

#define LOGGER "cirron.profiler"

static int say(const char *logger, const char *level, PyObject *text) {
  PyObject *logging = text ? py.PyImport_ImportModule("logging") : NULL;
  PyObject *place = logging ? py.PyObject_CallMethod(logging, "getLogger", "s", logger) : NULL;
  PyObject *done = place ? py.PyObject_CallMethod(place, level, "sO", "%s", text) : NULL;
  module_drop(done);
  module_drop(place);
  module_drop(logging);
  module_drop(text);
  return done || module_swallow() ? 0 : -1;
}

int module_warn(const char *logger, PyObject *text) {
  return say(logger, "warning", text);
}

int module_inform(const char *logger, PyObject *text) {
  return say(logger, "info", text);
}

/* --- paths --- */

static PyObject *path_text(const char *path) {
  return py.PyUnicode_DecodeUTF8(path, (Py_ssize_t)strlen(path), "surrogateescape");
}

/* As pathlib.Path. */
static PyObject *path_object(const char *path) {
  PyObject *text = path_text(path), *pathlib = text ? py.PyImport_ImportModule("pathlib") : NULL;
  PyObject *object = pathlib ? py.PyObject_CallMethod(pathlib, "Path", "O", text) : NULL;
  module_drop(pathlib);
  module_drop(text);
  return object;
}

/* --- values --- */

static PyObject *text_of(const struct doc_text *text) {
  return py.PyUnicode_DecodeUTF8(text->bytes, (Py_ssize_t)text->len, "replace");
}

static PyObject *value_of(const struct doc_node *node);

static PyObject *list_of(const struct doc_node *node) {
  PyObject *list = py.PyList_New(0);
  for (const struct doc_node *n = node->first; n && list; n = n->next) {
    PyObject *item = value_of(n);
    if (!item || py.PyList_Append(list, item) < 0) {
      module_drop(list);
      list = NULL;
    }
    module_drop(item);
  }
  return list;
}

/* dict[key] = value, which is taken over. */
static int put(PyObject *dict, PyObject *key, PyObject *value) {
  int r = key && value ? py.PyDict_SetItem(dict, key, value) : -1;
  module_drop(key);
  module_drop(value);
  return r;
}

static int put_named(PyObject *dict, const char *key, PyObject *value) {
  return put(dict, value ? py.PyUnicode_InternFromString(key) : NULL, value);
}

static PyObject *dict_of(const struct doc_node *node) {
  PyObject *dict = py.PyDict_New();
  for (const struct doc_node *n = node->first; n && dict; n = n->next) {
    PyObject *value = value_of(n);
    if (put(dict, value ? text_of(&n->key) : NULL, value) < 0) {
      module_drop(dict);
      dict = NULL;
    }
  }
  return dict;
}

static PyObject *value_of(const struct doc_node *node) {
  switch (node->kind) {
  case DOC_NULL:
    return module_none();
  case DOC_BOOL:
    return py.PyBool_FromLong(node->whole != 0);
  case DOC_INT:
    return py.PyLong_FromLongLong(node->whole);
  case DOC_FLOAT:
    return py.PyFloat_FromDouble(node->number);
  case DOC_TEXT:
    return text_of(&node->text);
  case DOC_LIST:
    return list_of(node);
  case DOC_MAP:
    return dict_of(node);
  }
  return module_none();
}

/* The section for profile(), whose `snapshots: off` is a word. */
static PyObject *profiling_of(const struct doc_node *section) {
  PyObject *dict = section && section->kind == DOC_MAP ? dict_of(section) : py.PyDict_New();
  const struct doc_node *snapshots = doc_find(section, "snapshots");
  bool word = dict && snapshots && snapshots->kind != DOC_NULL;
  if (word && put_named(dict, "snapshots", text_of(&snapshots->text)) < 0) {
    module_drop(dict);
    return NULL;
  }
  return dict;
}

/* --- complaints --- */

static PyObject *complaint_text(const char *path, const struct config_complaint *why, const char *more) {
  PyObject *where = path_text(path), *all = NULL;
  PyObject *text = where ? py.PyUnicode_DecodeUTF8(why->text, (Py_ssize_t)strlen(why->text), "replace") : NULL;
  if (where && text)
    all = why->line ? py.PyUnicode_FromFormat("%U:%u: %U%s", where, why->line, text, more)
                    : py.PyUnicode_FromFormat("%U: %U%s", where, text, more);
  module_drop(where);
  module_drop(text);
  return all;
}

static int warn_unknown(const char *path, const struct doc *doc) {
  const struct doc_node *unknown = config_unknown(doc->root);
  struct config_complaint why = {.line = unknown ? unknown->line : 0};
  if (!unknown)
    return 0;
  (void)snprintf(why.text, sizeof why.text, "unknown key %.100s", unknown->key.bytes);
  return module_warn(LOGGER, complaint_text(path, &why, ""));
}

static int warn_unused(const char *path, const struct config_complaint *why) {
  return module_warn(LOGGER, complaint_text(path, why, "; the file is not used"));
}

PyObject *module_config_profiling(const char *path) {
  char file[PATH_MAX];
  struct config_complaint why = {0};
  struct doc *doc = NULL;
  if (path)
    (void)snprintf(file, sizeof file, "%s", path);
  int r = path ? 0 : config_find(NULL, file);
  if (r == 0)
    r = config_load(file, &doc, &why);
  if (r == 0) {
    PyObject *dict = warn_unknown(file, doc) < 0 ? NULL : profiling_of(doc_find(doc->root, "profiling"));
    doc_free(doc);
    return dict;
  }
  /* No file at all, or one that holds no project, is nothing to talk about, unless it was asked for. */
  if ((r != -ENOENT || path) && warn_unused(file, &why) < 0)
    return NULL;
  return py.PyDict_New();
}

PyObject *module_config_user(void) {
  char file[PATH_MAX];
  struct config_complaint why = {0};
  struct doc *doc = NULL;
  int r = config_load_user(file, &doc, &why);
  if (r < 0 && r != -ENOENT && warn_unused(file, &why) < 0)
    return NULL;
  const struct doc_node *section = doc ? doc_find(doc->root, "default") : NULL;
  PyObject *dict = section && section->kind == DOC_MAP ? dict_of(section) : py.PyDict_New();
  doc_free(doc);
  return dict;
}

/* --- find_cirron_yaml(start=None), load_cirron_yaml(path=None) --- */

PyObject *module_find_yaml(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"start", NULL};
  PyObject *start = py._Py_NoneStruct;
  char from[MODULE_PATH_MAX], found[PATH_MAX];
  (void)module;
  if (!py.PyArg_ParseTupleAndKeywords(args, kwargs, "|O:find_cirron_yaml", names, &start))
    return NULL;
  const struct module_given given = {.who = "find_cirron_yaml", .name = names[0], .value = start};
  if (start != py._Py_NoneStruct && module_check_path_bytes(&given, from) < 0)
    return NULL;
  int r = config_find(start == py._Py_NoneStruct ? NULL : from, found);
  return r == 0 ? path_object(found) : module_none();
}

/* dict[key] = value of the node, or `missing` (taken over) where there is none or nothing in it. */
static int put_or(PyObject *dict, const char *key, const struct doc_node *node, PyObject *missing) {
  bool there = node && node->kind != DOC_NULL;
  PyObject *value = there ? value_of(node) : missing;
  if (there)
    module_drop(missing);
  return put_named(dict, key, value);
}

/* An object of the class with these attributes. Takes over `dict`; NULL passes an error on. */
static PyObject *object_of(PyObject *type, PyObject *dict) {
  PyObject *none = dict ? py.Py_BuildValue("()") : NULL;
  PyObject *object = none ? py.PyObject_Call(type, none, dict) : NULL;
  module_drop(none);
  module_drop(dict);
  return object;
}

static PyObject *section_object(PyObject *type, const struct doc_node *section, const char *const *keys, bool words) {
  if (!section || section->kind == DOC_NULL)
    return module_none();
  PyObject *dict = words ? profiling_of(section) : dict_of(section);
  for (; dict && *keys; keys++)
    if (!doc_find(section, *keys) && put_or(dict, *keys, NULL, module_none()) < 0) {
      module_drop(dict);
      dict = NULL;
    }
  return object_of(type, dict);
}

static PyObject *file_object(const struct module_config_state *types, const struct doc_node *root) {
  static const char *const profiling[] = {"snapshots", "sample_rate", "flush_interval", "frameworks", NULL};
  static const char *const serving[] = {"runtime", "class_labels", "feature_order", "input_schema", "output_schema", NULL};
  const struct doc_node *served = doc_find(root, "servingConfig");
  PyObject *dict = dict_of(root), *key = dict ? py.PyUnicode_InternFromString("servingConfig") : NULL;
  if (!served || served->kind == DOC_NULL)
    served = doc_find(root, "serving_config");
  int r = key ? 0 : -1;
  if (r == 0 && doc_find(root, "servingConfig"))
    r = py.PyDict_DelItem(dict, key);
  module_drop(key);
  if (r == 0 &&
      !(put_or(dict, "description", doc_find(root, "description"), module_none()) ||
        put_or(dict, "env", doc_find(root, "env"), py.PyDict_New()) ||
        put_or(dict, "secrets", doc_find(root, "secrets"), py.PyList_New(0)) ||
        put_or(dict, "data", doc_find(root, "data"), py.PyDict_New()) ||
        put_named(dict, "profiling", section_object(types->profiling, doc_find(root, "profiling"), profiling, true)) ||
        put_named(dict, "serving_config", section_object(types->serving, served, serving, false))))
    return object_of(types->file, dict);
  module_drop(dict);
  return NULL;
}

static PyObject *raise_complaint(const struct module_state *state, const char *path, const struct config_complaint *why) {
  PyObject *text = complaint_text(path, why, "");
  if (text)
    py.PyErr_Format(state->errors.yaml, "%U", text);
  module_drop(text);
  return NULL;
}

PyObject *module_load_yaml(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"path", NULL};
  const struct module_state *state = py.PyModule_GetState(module);
  PyObject *path = py._Py_NoneStruct, *object = NULL;
  struct config_complaint why = {0};
  struct doc *doc = NULL;
  char file[PATH_MAX];
  if (!py.PyArg_ParseTupleAndKeywords(args, kwargs, "|O:load_cirron_yaml", names, &path))
    return NULL;
  const struct module_given given = {.who = "load_cirron_yaml", .name = names[0], .value = path};
  if (path == py._Py_NoneStruct) {
    if (config_find(NULL, file) != 0)
      return module_none();
  } else if (module_check_path_bytes(&given, file) < 0) {
    return NULL;
  }
  int r = config_load(file, &doc, &why);
  if (r != 0)
    return raise_complaint(state, file, &why);
  if (warn_unknown(file, doc) == 0)
    object = file_object(&state->config, doc->root);
  doc_free(doc);
  return object;
}

/* --- the classes --- */

static int add(PyObject *module, PyObject *base, const char *name, const char *doc, PyObject **place) {
  PyObject *args = py.Py_BuildValue("(s(O){s:s,s:s})", name, base, "__module__", "cirron", "__doc__", doc);
  PyObject *type = args ? py.PyObject_Call(py.PyType_Type, args, NULL) : NULL;
  module_drop(args);
  return module_show(module, name, type, place);
}

int module_config_types(PyObject *module, struct module_config_state *config) {
  PyObject *example = py.PySys_GetObject("implementation");
  if (!example) {
    py.PyErr_SetString(module_error(py.PyExc_AttributeError), "sys.implementation is missing");
    return -1;
  }
  PyObject *base = (PyObject *)py_type(example);
  return add(module, base, "CirronYaml", "What cirron.yaml says. Made by load_cirron_yaml().", &config->file) ||
                 add(module, base, "ProfilingConfig", "The section profiling: of cirron.yaml.", &config->profiling) ||
                 add(module, base, "ServingConfig", "The section servingConfig: of cirron.yaml.", &config->serving)
             ? -1
             : 0;
}
