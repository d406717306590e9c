/* See module_settings.h. */
#include "module_settings.h"

#include <stdlib.h>
#include <string.h>

#include "keep.h"
#include "module_check.h"
#include "module_config.h"
#include "session.h"

enum {              /* what may stand where */
       SECTION = 1, /* config=, `profiling:` */
       USER = 2,    /* config.toml */
       NUMBER = 4,  /* there a text may stand for it, as in CIRRON_... */
};

static const struct setting {
  const char *name;
  PyObject *(*check)(const struct module_given *g);
  unsigned flags;
} settings[] = {
    {"frameworks", module_check_frameworks, SECTION},
    {"snapshots", module_check_snapshots, SECTION | USER},
    {"sample_rate", module_check_sample_rate, SECTION | USER | NUMBER},
    {"flush_interval", module_check_flush_interval, SECTION | USER | NUMBER},
    {"config", module_check_config, 0},
    {"path", module_check_path, 0},
    {"output", module_check_output, USER},
    {"output_dir", module_check_path, USER},
    {"spool_max_bytes", module_check_count, USER | NUMBER},
    {"trace_buffer_max_spans", module_check_count, USER | NUMBER},
    {"load_warn_bytes", module_check_count, USER | NUMBER},
    {"load_max_bytes", module_check_count, USER | NUMBER},
    {"api_key", module_check_text, USER},
    {"api_endpoint", module_check_text, USER},
    {"workspace_id", module_check_text, USER},
    {"ingest_path", module_check_text, USER},
    {"enabled", NULL, 0}, /* of profile() alone: never in a layer */
};
#define SETTINGS (sizeof settings / sizeof settings[0])

static const struct setting *setting_of(const char *name) {
  for (size_t i = 0; i < SETTINGS; i++)
    if (strcmp(settings[i].name, name) == 0)
      return &settings[i];
  return NULL;
}

int module_setting_put(PyObject *layer, const char *who, const char *name, PyObject *value) {
  const struct module_given g = {.who = who, .name = name, .value = value};
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
    else if (setting->flags & SECTION)
      r = module_setting_put(layer, who, setting->name, value);
  }
  module_drop(items);
  return r;
}

/* --- ~/.cirron/config.toml --- */

/* A text or a number with nothing behind the point as the number that stands for it, else as it is. New reference, or NULL with an error. */
static PyObject *number_of(PyObject *value) {
  bool text = module_is(value, py.PyUnicode_Type);
  if (!text && !module_is(value, py.PyFloat_Type)) {
    py.Py_IncRef(value);
    return value;
  }
  PyObject *number = py.PyNumber_Float(value);
  double f = number ? py.PyFloat_AsDouble(number) : 0.5;
  if (!(f >= -1e15 && f <= 1e15) || f != (double)(long long)f)
    return number;
  module_drop(number);
  return py.PyLong_FromLongLong((long long)f);
}

/* layer[name] = value, if that is something and allowed. 0, or -1 with an error that is not ours to swallow. */
static int put_user(PyObject *layer, const struct setting *setting, PyObject *value) {
  bool empty = module_is(value, py.PyUnicode_Type) && py.PyUnicode_CompareWithASCIIString(value, "") == 0;
  if (!(setting->flags & USER) || empty)
    return 0;
  bool number = setting->flags & NUMBER;
  bool text = setting->check == module_check_text && (module_is(value, py.PyFloat_Type) || py_type(value) == py.PyLong_Type);
  PyObject *shaped = number ? number_of(value) : text ? py.PyObject_Str(value) : NULL;
  if (!(number || text) || shaped)
    (void)module_setting_put(layer, "config.toml", setting->name, shaped ? shaped : value); /* what is wrong with it: below */
  module_drop(shaped);
  return module_swallow() ? 0 : -1;
}

PyObject *module_settings_user(void) {
  PyObject *section = module_config_user(), *layer = section ? py.PyDict_New() : NULL;
  int r = layer ? 0 : -1;
  for (size_t i = 0; i < SETTINGS && r == 0; i++) {
    PyObject *value = py_dict_get(section, settings[i].name);
    r = value ? put_user(layer, &settings[i], value) : py.PyErr_Occurred() ? -1 : 0;
  }
  module_drop(section);
  if (r == 0)
    return layer;
  module_drop(layer);
  return NULL;
}

/* --- what holds where nothing is given --- */

static PyObject *text_of(const char *text) {
  return py.PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "surrogateescape");
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

static int put_built_in(PyObject *dict) {
  static const char *const nothing[] = {"api_key", "api_endpoint", "workspace_id", "ingest_path"};
  int r = module_set(dict, "snapshots", text_of("stats")) || module_set(dict, "sample_rate", py.PyFloat_FromDouble(0.01)) ||
          module_set(dict, "flush_interval", py.PyFloat_FromDouble(1.0)) ||
          module_set(dict, "output", names_of(ENV_SPOOL, ENV_SINKS)) || module_set(dict, "output_dir", text_of("./.cirron/")) ||
          module_set(dict, "spool_max_bytes", py.PyLong_FromLongLong(1000000000)) ||
          module_set(dict, "load_warn_bytes", py.PyLong_FromLongLong(1000000000)) ||
          module_set(dict, "load_max_bytes", py.PyLong_FromLongLong(10000000000)) ||
          module_set(dict, "trace_buffer_max_spans", py.PyLong_FromLongLong((long long)keep_limit()));
  for (size_t i = 0; i < sizeof nothing / sizeof nothing[0] && r == 0; i++)
    r = module_set(dict, nothing[i], module_none());
  return r;
}

/* A whole number above 0; anything else is as if it were not set. */
static int put_whole(PyObject *dict, const char *key, const char *text) {
  long long value = 0;
  size_t n = strspn(text, "0123456789");
  for (size_t i = 0; i < n && n <= 18 && text[n] == 0; i++)
    value = value * 10 + (text[i] - '0');
  return value > 0 ? module_set(dict, key, py.PyLong_FromLongLong(value)) : 0;
}

/* Variables that are not the agent's (env.c), or that only profile() looks at: as they are now. */
static int put_variables(PyObject *dict) {
  static const struct {
    const char *key, *variable;
    bool whole;
  } variables[] = {
      {"output_dir", "CIRRON_OUTPUT_DIR", false},        {"api_key", "CIRRON_API_KEY", false},
      {"api_endpoint", "CIRRON_API_ENDPOINT", false},    {"workspace_id", "CIRRON_WORKSPACE_ID", false},
      {"ingest_path", "CIRRON_INGEST_PATH", false},      {"load_warn_bytes", "CIRRON_LOAD_WARN_BYTES", true},
      {"load_max_bytes", "CIRRON_LOAD_MAX_BYTES", true},
  };
  int r = 0;
  for (size_t i = 0; i < sizeof variables / sizeof variables[0] && r == 0; i++) {
    const char *text = getenv(variables[i].variable);
    if (!text || !*text || strlen(text) > ENV_PATH_MAX)
      continue;
    r = variables[i].whole ? put_whole(dict, variables[i].key, text) : module_set(dict, variables[i].key, text_of(text));
  }
  return r;
}

static int put_environment(PyObject *dict) {
  static const char *const modes[] = {"stats", "sampled", "full", "off"};
  const struct env *env = &session_env;
  if ((env_is_set(env, "SNAPSHOTS") && module_set(dict, "snapshots", text_of(modes[env->snapshots]))) ||
      (env_is_set(env, "SAMPLE_RATE") && module_set(dict, "sample_rate", py.PyFloat_FromDouble(env->sample_rate))) ||
      (env_is_set(env, "FLUSH_INTERVAL") && module_set(dict, "flush_interval", py.PyFloat_FromDouble(env->flush_interval))) ||
      (env_is_set(env, "OUTPUT") && module_set(dict, "output", names_of(env->output, ENV_SINKS))) ||
      (env_is_set(env, "SPOOL_MAX_BYTES") &&
       module_set(dict, "spool_max_bytes", py.PyLong_FromLongLong((long long)env->spool_max_bytes))) ||
      (env->frameworks != ENV_FRAMEWORKS_ALL && module_set(dict, "frameworks", names_of(env->frameworks, ENV_FRAMEWORKS))))
    return -1;
  return put_variables(dict);
}

PyObject *module_settings_beneath(PyObject *user) {
  PyObject *dict = py.PyDict_New();
  if (dict && !(put_built_in(dict) || py.PyDict_Update(dict, user) || put_environment(dict)))
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
