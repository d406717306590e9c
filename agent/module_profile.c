/* profile(...) and its handle; flush, shutdown, health.
 *
 * Preloading alone traces, so profile() has little to start: it checks and keeps what it is given, and `enabled=False` stops the
 * tracing of this process for good. What is kept is shown by Profiler.settings; which settings have an effect already is said in
 * the text of profile() (module.c).
 */
#include <math.h>
#include <string.h>

#include "clock.h"
#include "keep.h"
#include "link.h"
#include "module_state.h"
#include "module_trace.h"
#include "module_watch.h"
#include "ring_writer.h"
#include "segment.h"
#include "session.h"
#include "shed.h"

struct profiler {
  PyObject *settings; /* what was asked for, checked: a dict */
  bool disabled;      /* by enabled=False */
};

static struct profiler *profiler_of(PyObject *self) {
  return module_body(self);
}

static void stop(void) {
  session_env.enabled = false; /* also where no session was made yet */
  session_close();
}

/* --- checking arguments: 0, or -1 with an error --- */

static int wrong_type(const char *what, const char *wanted, PyObject *value) {
  py.PyErr_Format(module_error(py.PyExc_TypeError), "profile(): %s must be %s, not '%.200s'", what, wanted,
                  py_class_name(value));
  return -1;
}

static int check_snapshots(PyObject *value) {
  static const char *const modes[] = {"stats", "sampled", "full", "off"};
  if (!module_is(value, py.PyUnicode_Type))
    return wrong_type("snapshots", "a string", value);
  for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
    if (py.PyUnicode_CompareWithASCIIString(value, modes[i]) == 0)
      return 0;
  py.PyErr_Format(module_error(py.PyExc_ValueError), "profile(): snapshots must be 'stats', 'sampled', 'full' or 'off', not %R",
                  value);
  return -1;
}

static int check_number(const char *what, PyObject *value, double *out) {
  bool number = module_is(value, py.PyFloat_Type) || (module_is(value, py.PyLong_Type) && py_type(value) != py.PyBool_Type);
  if (!number)
    return wrong_type(what, "a number", value);
  *out = py.PyFloat_AsDouble(value);
  return *out == -1.0 && py.PyErr_Occurred() ? -1 : 0;
}

static int check_sample_rate(PyObject *value) {
  double rate;
  if (check_number("sample_rate", value, &rate) < 0)
    return -1;
  if (rate >= 0.0 && rate <= 1.0)
    return 0;
  py.PyErr_Format(module_error(py.PyExc_ValueError), "profile(): sample_rate must lie between 0 and 1, not %R", value);
  return -1;
}

static int check_flush_interval(PyObject *value) {
  double seconds;
  if (check_number("flush_interval", value, &seconds) < 0)
    return -1;
  if (seconds > 0.0 && !isinf(seconds))
    return 0;
  py.PyErr_Format(module_error(py.PyExc_ValueError), "profile(): flush_interval must be a number of seconds above 0, not %R",
                  value);
  return -1;
}

/* A list or tuple of strings, each of which `one` accepts. */
static int check_strings(const char *what, PyObject *value, int (*one)(PyObject *)) {
  if (!module_is(value, py.PyList_Type) && !module_is(value, py.PyTuple_Type))
    return wrong_type(what, "a list of strings", value);
  PyObject *items = py.PySequence_Tuple(value);
  Py_ssize_t n = items ? py.PyTuple_Size(items) : 0;
  int bad = items ? 0 : -1;
  for (Py_ssize_t i = 0; i < n && !bad; i++) {
    PyObject *item = py.PyTuple_GetItem(items, i);
    if (module_is(item, py.PyUnicode_Type)) {
      bad = one(item);
    } else {
      py.PyErr_Format(module_error(py.PyExc_ValueError), "profile(): items of %s must be strings, not %R", what, item);
      bad = -1;
    }
  }
  module_drop(items);
  return bad;
}

static int check_framework(PyObject *name) {
  static const char *const known[] = {"torch", "tensorflow", "keras", "transformers", "sklearn"};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (py.PyUnicode_CompareWithASCIIString(name, known[i]) == 0)
      return 0;
  struct module_text text;
  if (module_text(name, &text)) {
    py.PySys_WriteStderr(
        "cirron: profile(): no framework '%.100s'; known are torch, tensorflow, keras, transformers, sklearn\n", text.text);
    module_text_drop(&text);
  }
  return 0; /* a name for another version of us is no reason to stop a training */
}

static int check_frameworks(PyObject *value) {
  return check_strings("frameworks", value, check_framework);
}

static int check_sink(PyObject *name) {
  static const char *const known[] = {"spool", "stdout", "log", "none"};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (py.PyUnicode_CompareWithASCIIString(name, known[i]) == 0)
      return 0;
  py.PyErr_Format(module_error(py.PyExc_ValueError), "profile(): output %R is not valid: 'spool', 'stdout', 'log' or 'none'",
                  name);
  return -1;
}

static int check_output(PyObject *value) {
  return module_is(value, py.PyUnicode_Type) ? check_sink(value) : check_strings("output", value, check_sink);
}

static int check_path(PyObject *value) {
  PyObject *path = py.PyOS_FSPath(value);
  module_drop(path);
  return path ? 0 : wrong_type("path", "a path", value);
}

static int check_config(PyObject *value) {
  return module_is(value, py.PyDict_Type) ? 0 : wrong_type("config", "a dict", value);
}

static const struct setting {
  const char *name;
  int (*check)(PyObject *value);
  bool in_config; /* may be given in config= too, beneath the argument */
} settings[] = {
    {"config", check_config, false},
    {"frameworks", check_frameworks, true},
    {"snapshots", check_snapshots, true},
    {"sample_rate", check_sample_rate, true},
    {"flush_interval", check_flush_interval, true},
    {"path", check_path, false},
    {"output", check_output, false},
};
#define SETTINGS (sizeof settings / sizeof settings[0])

static int take(PyObject *out, const struct setting *setting, PyObject *value) {
  if (!value || value == py._Py_NoneStruct) /* None means "not given" everywhere */
    return 0;
  return setting->check(value) < 0 ? -1 : py.PyDict_SetItemString(out, setting->name, value);
}

/* All that was given and is right, as a new dict; NULL with an error. */
static PyObject *check_all(PyObject *const given[SETTINGS]) {
  PyObject *out = py.PyDict_New();
  int bad = out ? take(out, &settings[0], given[0]) : -1;
  for (size_t i = 1; i < SETTINGS && !bad; i++) {
    bool layered = settings[i].in_config && given[0] && given[0] != py._Py_NoneStruct;
    PyObject *beneath = layered ? py_dict_get(given[0], settings[i].name) : NULL;
    bad = !beneath && py.PyErr_Occurred() ? -1 : take(out, &settings[i], beneath);
    if (!bad)
      bad = take(out, &settings[i], given[i]);
  }
  if (!bad)
    return out;
  module_drop(out);
  return NULL;
}

static PyObject *profiler_get(struct module_state *state) {
  if (!state->profiler) {
    PyObject *made = py.PyType_GenericAlloc((PyTypeObject *)state->profiler_type, 0);
    PyObject *dict = made ? py.PyDict_New() : NULL;
    if (!dict) {
      module_drop(made);
      return NULL;
    }
    profiler_of(made)->settings = dict;
    state->profiler = made;
  }
  return state->profiler;
}

PyObject *module_profile(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"config",  "frameworks", "snapshots", "sample_rate", "flush_interval",
                          "enabled", "path",       "output",    NULL};
  PyObject *given[SETTINGS] = {0}, *enabled = py._Py_TrueStruct;
  if (!py.PyArg_ParseTupleAndKeywords(args, kwargs, "|OOOOOOOO:profile", names, &given[0], &given[1], &given[2], &given[3],
                                      &given[4], &enabled, &given[5], &given[6]))
    return NULL;
  int on = enabled == py._Py_NoneStruct ? 1 : py.PyObject_IsTrue(enabled);
  PyObject *checked = on < 0 ? NULL : check_all(given); /* before anything is changed */
  PyObject *self = checked ? profiler_get(py.PyModule_GetState(module)) : NULL;
  int r = self ? py.PyDict_Update(profiler_of(self)->settings, checked) : -1;
  module_drop(checked);
  if (r < 0)
    return NULL;
  if (!on) {
    profiler_of(self)->disabled = true;
    stop();
  } else if (session_env.enabled) {
    (void)keep_start(); /* no memory: trace() and the sinks have nothing, the collector has all */
  }
  py.Py_IncRef(self);
  return self;
}

/* --- flush, shutdown, health --- */

PyObject *module_flush(PyObject *self, PyObject *unused) {
  (void)self;
  (void)unused;
  if (session_get())
    link_tick(clock_system());
  return module_none();
}

PyObject *module_shutdown(PyObject *self, PyObject *unused) {
  (void)self;
  (void)unused;
  stop();
  return module_none();
}

/* Takes over `value`. */
static int set(PyObject *dict, const char *key, PyObject *value) {
  int r = value ? py.PyDict_SetItemString(dict, key, value) : -1;
  module_drop(value);
  return r;
}

static int set_count(PyObject *dict, const char *key, uint64_t value) {
  return set(dict, key, py.PyLong_FromLongLong((long long)value));
}

static PyObject *text_or_none(const char *text) { /* from the environment: any bytes */
  return text ? py.PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace") : module_none();
}

struct drops {
  uint64_t spans, marks, depth, refused, names, rings;
};

static struct drops count_drops(void) {
  struct drops d = {0};
  for (const struct ring *r = session_rings(); r; r = r->next)
    if (r->shm) {
      d.spans += __atomic_load_n(&r->shm->dropped_spans, __ATOMIC_RELAXED);
      d.marks += __atomic_load_n(&r->shm->dropped_marks, __ATOMIC_RELAXED);
    }
  struct ring_segment *segment = segment_get();
  if (segment) {
    d.depth = __atomic_load_n(&segment->dropped_depth, __ATOMIC_RELAXED);
    d.refused = __atomic_load_n(&segment->refused_marks, __ATOMIC_RELAXED);
    d.names = __atomic_load_n(&segment->dropped_names, __ATOMIC_RELAXED);
    d.rings = __atomic_load_n(&segment->dropped_rings, __ATOMIC_RELAXED);
  }
  return d;
}

static int set_known(PyObject *dict, const char *key, int value) {
  return value < 0 ? 0 : set(dict, key, py.PyLong_FromLongLong(value));
}

/* Rank and run, where known. NULL with an error. */
static PyObject *platform_context(void) {
  struct env_ranks ranks = env_ranks();
  const char *run = env_run_id();
  PyObject *dict = py.PyDict_New();
  if (dict && (set_known(dict, "rank", ranks.rank) | set_known(dict, "local_rank", ranks.local_rank) |
               set_known(dict, "world_size", ranks.world_size) | (run[0] ? set(dict, "run_id", text_or_none(run)) : 0)) == 0)
    return dict;
  module_drop(dict);
  return NULL;
}

/* Takes over a list of (model, name), or NULL: none. A list of the names, or NULL with an error. */
static PyObject *names_of(PyObject *models) {
  PyObject *names = py.PyList_New(0);
  Py_ssize_t n = models && names ? py.PyObject_Size(models) : 0;
  for (Py_ssize_t i = 0; i < n && names; i++)
    if (py.PyList_Append(names, py.PyTuple_GetItem(py.PyList_GetItem(models, i), 1)) < 0) {
      module_drop(names);
      names = NULL;
    }
  module_drop(models);
  return names;
}

static int set_drops(PyObject *dict) {
  struct drops d = count_drops();
  return set_count(dict, "scope_drop_count", d.depth + d.spans) | set_count(dict, "mark_drop_count", d.marks + d.refused) |
         set_count(dict, "mark_refused_count", d.refused) | set_count(dict, "name_drop_count", d.names) |
         set_count(dict, "ring_drop_count", d.rings);
}

static int set_transport(PyObject *dict, const struct session *session) {
  bool connected = session && link_connected();
  const char *mode = session_env.enabled ? "normal" : "stopped";
  return set(dict, "enabled", py.PyBool_FromLong(session_env.enabled)) |
         set(dict, "transport", text_or_none(connected ? session->by_messages ? "socket" : "ring" : NULL)) |
         set(dict, "flush_mode", text_or_none(mode)) | set(dict, "spool_dir", module_none()) |
         set_count(dict, "spool_bytes", 0) | set_count(dict, "spool_drop_count", 0) |
         set_count(dict, "flush_restart_count", 0) | set(dict, "platform_context", platform_context()) |
         set(dict, "watched", names_of(module_watched()));
}

static int set_kept(PyObject *dict) {
  struct keep_counts kept = keep_counts();
  return set_count(dict, "trace_span_count", kept.spans) | set_count(dict, "trace_bytes", kept.bytes) |
         set_count(dict, "trace_drop_count", kept.evicted_spans) | set_count(dict, "trace_mark_drop_count", kept.evicted_marks);
}

/* What was not measured is None, not 0. */
static int set_cost(PyObject *dict, const struct session *session) {
  struct ring_segment *segment = segment_get();
  struct scope *scope = scope_peek();
  uint64_t spent = segment ? __atomic_load_n(&segment->overhead_ns, __ATOMIC_RELAXED) : 0;
  uint64_t age = session ? clock_system() - session->start_ns : 0;
  bool known = spent && age;
  PyObject *ratio = known ? py.PyFloat_FromDouble((double)spent / (double)age) : module_none();
  return set_count(dict, "detail_shed_count", shed_level) | set_count(dict, "scope_depth", scope ? scope_depth(scope) : 0) |
         set(dict, "overhead_ns", known ? py.PyLong_FromLongLong((long long)spent) : module_none()) |
         set(dict, "overhead_ratio", ratio);
}

PyObject *module_health(PyObject *self, PyObject *unused) {
  (void)self;
  (void)unused;
  const struct session *session = session_get();
  PyObject *dict = py.PyDict_New();
  if (dict && (set_transport(dict, session) | set_drops(dict) | set_kept(dict) | set_cost(dict, session)) == 0)
    return dict;
  module_drop(dict);
  return NULL;
}

/* --- the handle --- */

static void profiler_dealloc(PyObject *self) {
  module_drop(profiler_of(self)->settings);
  module_free_object(self, false);
}

static PyObject *get_enabled(PyObject *self, void *unused) {
  (void)unused;
  return py.PyBool_FromLong(session_env.enabled && !profiler_of(self)->disabled);
}

static PyObject *get_settings(PyObject *self, void *unused) {
  (void)unused;
  return py.PyDict_Copy(profiler_of(self)->settings);
}

PyObject *module_profiler_type(void) {
  static struct py_method methods[] = {
      {"trace", MODULE_CALL(module_trace_of_handle), PY_METH_VARARGS | PY_METH_KEYWORDS, "The same as cirron.trace()."},
      {"flush", module_flush, PY_METH_NOARGS, "The same as cirron.flush()."},
      {"shutdown", module_shutdown, PY_METH_NOARGS, "The same as cirron.shutdown()."},
      {"health", module_health, PY_METH_NOARGS, "The same as cirron.health()."},
      {0},
  };
  static struct module_getset members[] = {
      {"enabled", get_enabled, NULL, "Is this process being traced?", NULL},
      {"settings", get_settings, NULL, "What profile() was given, as a dict.", NULL},
      {0},
  };
  static struct py_slot slots[] = {
      {SLOT_NEW, module_no_new},
      {SLOT_DEALLOC, profiler_dealloc},
      {SLOT_METHODS, methods},
      {SLOT_GETSET, members},
      {SLOT_DOC, "The handle of the tracing of this process. Made by profile()."},
      {0, NULL},
  };
  return module_type("cirron.Profiler", sizeof(struct profiler), 0, slots);
}
