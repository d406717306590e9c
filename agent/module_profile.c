/* profile(...) and its handle; flush, shutdown, health.
 *
 * Preloading alone traces. profile() settles what holds for this process and gives the one handle there is; it may be called again
 * after shutdown(), and then a new session begins. `enabled=False` is a handle, too, and nothing is recorded under it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "frameworks.h"
#include "glibc.h"
#include "init.h"
#include "keep.h"
#include "link.h"
#include "module_check.h"
#include "module_cirron.h"
#include "module_config.h"
#include "module_settings.h"
#include "module_sink.h"
#include "module_snapshot.h"
#include "module_state.h"
#include "module_trace.h"
#include "module_watch.h"
#include "ring_writer.h"
#include "segment.h"
#include "session.h"
#include "shed.h"
#include "snapshot.h"
#include "versions.h"

struct profiler {
  PyObject *settings; /* what holds: a dict */
  PyObject *cirron;   /* whose profile() was called */
  bool disabled;      /* by enabled=False */
};

#define LOGGER "cirron.profiler"
#define FLUSH_PATIENCE_NS 2000000000ull

static struct profiler *profiler_of(PyObject *self) {
  return module_body(self);
}

static void stop(void) {
  snapshot_finish();
  session_env.enabled = false; /* also where no session was made yet */
  session_close();
}

/* --- settings --- */

enum { CONFIG, FRAMEWORKS, SNAPSHOTS, SAMPLE_RATE, FLUSH_INTERVAL, PATH, OUTPUT, ARGUMENTS };
static const char *const arguments[ARGUMENTS] = {"config",         "frameworks", "snapshots", "sample_rate",
                                                 "flush_interval", "path",       "output"};

static bool is_given(PyObject *value) { /* None means "not given" everywhere */
  return value && value != py._Py_NoneStruct;
}

/* `path` names the file of settings; an existing folder is where to write to. */
static bool is_folder(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0)
    close(fd);
  return fd >= 0;
}

static int take_file(PyObject *out, const char *path) {
  PyObject *section = module_config_profiling(path);
  int r = section ? module_settings_section(out, "profile", section) : -1;
  module_drop(section);
  return r;
}

/* What was given as arguments, checked, and so that nothing has happened yet where something is wrong. */
static PyObject *check_arguments(PyObject *const given[ARGUMENTS]) {
  PyObject *out = py.PyDict_New();
  int r = out ? module_setting_put(out, "profile", "config", given[CONFIG]) : -1;
  if (r == 0 && is_given(given[CONFIG]))
    r = module_settings_section(out, "profile", given[CONFIG]);
  for (size_t i = CONFIG + 1; i < ARGUMENTS && r == 0; i++)
    r = module_setting_put(out, "profile", arguments[i], given[i]);
  if (r == 0)
    return out;
  module_drop(out);
  return NULL;
}

/* The layers, from the lowest: built in, config.toml, CIRRON_..., Cirron(...), cirron.yaml, config=, the other arguments. */
static PyObject *settle(PyObject *cirron, PyObject *const given[ARGUMENTS]) {
  PyObject *over = check_arguments(given), *out = over ? module_cirron_beneath(cirron) : NULL;
  PyObject *path = out ? py_dict_get(over, "path") : NULL;
  const struct module_given checked = {.who = "profile", .name = "path", .value = path};
  char bytes[MODULE_PATH_MAX];
  int r = !out || (path && module_check_path_bytes(&checked, bytes) < 0) ? -1 : 0;
  bool folder = r == 0 && path && is_folder(bytes);
  if (r == 0)
    r = py.PyDict_Update(out, module_cirron_layer(cirron));
  if (r == 0)
    r = take_file(out, path && !folder ? bytes : NULL);
  if (r == 0 && folder)
    r = module_setting_put(out, "profile", "output_dir", path);
  if (r == 0)
    r = py.PyDict_Update(out, over);
  module_drop(over);
  if (r == 0)
    return out;
  module_drop(out);
  return NULL;
}

/* --- profile --- */

/* Takes over `settings`. */
static PyObject *profiler_new(struct module_state *state, PyObject *cirron, PyObject *settings) {
  PyObject *made = settings ? py.PyType_GenericAlloc((PyTypeObject *)state->profiler_type, 0) : NULL;
  if (!made) {
    module_drop(settings);
    return NULL;
  }
  py.Py_IncRef(cirron);
  *profiler_of(made) = (struct profiler){.settings = settings, .cirron = cirron};
  return made;
}

static void limit_trace(PyObject *settings) {
  int overflow;
  PyObject *spans = py_dict_get(settings, "trace_buffer_max_spans");
  if (spans)
    keep_limit_set((uint64_t)py.PyLong_AsLongLongAndOverflow(spans, &overflow)); /* checked: above 0 */
}

/* Recording goes on, or begins anew where it was ended. 0, or -1 with an error. */
static int start(PyObject *profiler) {
  int resumed = session_env.enabled ? 0 : agent_resume();
  if (resumed < 0) {
    profiler_of(profiler)->disabled = true;
    if (resumed == -EBUSY)
      return module_warn(
          LOGGER, py.PyUnicode_FromFormat("cirron: profile(): other interpreters of this process may still use what shutdown() "
                                          "ended; nothing is recorded any more"));
    return 0;
  }
  frameworks_choose(module_settings_frameworks(profiler_of(profiler)->settings));
  limit_trace(profiler_of(profiler)->settings);
  (void)session_ensure(); /* what asks to be traced has a session, also if nothing is recorded in it */
  (void)keep_start();     /* no memory: trace() and the sinks have nothing, the collector has all */
  if (module_snapshot_set(profiler_of(profiler)->settings) < 0)
    return -1;
  PyObject *module = py.PyObject_GetAttrString(profiler, "__cirron__");
  int r = module ? module_sink_set(module, profiler_of(profiler)->settings) : -1;
  module_drop(module);
  return r;
}

static PyObject *make(struct module_state *state, PyObject *cirron, bool on, PyObject *const given[ARGUMENTS]) {
  PyObject *made = profiler_new(state, cirron, settle(cirron, given));
  if (!made)
    return NULL;
  if (state->profiler) { /* a warning's handler has called us */
    module_drop(made);
    made = state->profiler;
    py.Py_IncRef(made);
    return made;
  }
  state->profiler = made;
  py.Py_IncRef(made);
  if (!on) {
    profiler_of(made)->disabled = true;
    stop();
    return made;
  }
  if (start(made) == 0)
    return made;
  module_drop(made);
  return NULL;
}

PyObject *module_profile_of(PyObject *module, PyObject *cirron, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"config",  "frameworks", "snapshots", "sample_rate", "flush_interval",
                          "enabled", "path",       "output",    NULL};
  struct module_state *state = py.PyModule_GetState(module);
  PyObject *given[ARGUMENTS] = {0}, *enabled = py._Py_TrueStruct;
  const char *format = cirron ? "|O$OOOOOOO:profile" : "|OOOOOOOO:profile";
  if (!py.PyArg_ParseTupleAndKeywords(args, kwargs, format, names, &given[CONFIG], &given[FRAMEWORKS], &given[SNAPSHOTS],
                                      &given[SAMPLE_RATE], &given[FLUSH_INTERVAL], &enabled, &given[PATH], &given[OUTPUT]))
    return NULL;
  if (state->profiler) {
    PyObject *there = state->profiler;
    py.Py_IncRef(there);
    if (module_warn(LOGGER,
                    py.PyUnicode_FromFormat("cirron: profile() was called more than once; the first call's settings hold, "
                                            "until shutdown()")) == 0)
      return there;
    module_drop(there);
    return NULL;
  }
  const struct module_given truth = {.who = "profile", .name = "enabled", .value = enabled};
  bool on = true;
  if (is_given(enabled) && module_check_truth(&truth, &on) < 0)
    return NULL;
  PyObject *whose = cirron ? cirron : module_default(module);
  return whose ? make(state, whose, on, given) : NULL;
}

PyObject *module_profile(PyObject *module, PyObject *args, PyObject *kwargs) {
  return module_profile_of(module, NULL, args, kwargs);
}

/* --- flush, shutdown, health --- */

/* The other threads go on meanwhile. */
static void nap(const struct timespec *time) {
  void *thread = py.PyEval_SaveThread();
  nanosleep(time, NULL);
  py.PyEval_RestoreThread(thread);
}

PyObject *module_flush(PyObject *self, PyObject *unused) {
  (void)unused;
  snapshot_finish();
  if (session_get())
    link_flush(FLUSH_PATIENCE_NS, nap);
  return module_sink_flush(self) < 0 ? NULL : module_none();
}

PyObject *module_shutdown(PyObject *module, PyObject *unused) {
  struct module_state *state = py.PyModule_GetState(module);
  PyObject *ended = state->profiler;
  (void)unused;
  stop();
  state->profiler = NULL; /* profile() may be called again */
  module_drop(ended);
  return module_sink_flush(module) < 0 ? NULL : module_none();
}

/* Of a handle that is no longer the one there is: nothing. */
static PyObject *shutdown_handle(PyObject *self, PyObject *unused) {
  PyObject *module = py.PyObject_GetAttrString(self, "__cirron__");
  struct module_state *state = module ? py.PyModule_GetState(module) : NULL;
  PyObject *result = !module ? NULL : state->profiler == self ? module_shutdown(module, unused) : module_none();
  module_drop(module);
  return result;
}

static int set_count(PyObject *dict, const char *key, uint64_t value) {
  return module_set(dict, key, py.PyLong_FromLongLong((long long)value));
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
  return value < 0 ? 0 : module_set(dict, key, py.PyLong_FromLongLong(value));
}

static int set_variable(PyObject *dict, const char *key, const char *variable) {
  const char *value = getenv(variable);
  return value && *value ? module_set(dict, key, text_or_none(value)) : 0;
}

/* Rank, run and the like, where known. NULL with an error. */
static PyObject *platform_context(void) {
  struct env_ranks ranks = env_ranks();
  const char *run = env_run_id();
  PyObject *dict = py.PyDict_New();
  if (dict &&
      !(set_known(dict, "rank", ranks.rank) || set_known(dict, "local_rank", ranks.local_rank) ||
        set_known(dict, "world_size", ranks.world_size) || (run[0] ? module_set(dict, "run_id", text_or_none(run)) : 0) ||
        set_variable(dict, "pipeline_id", "CIRRON_PIPELINE_ID") ||
        set_variable(dict, "deployment_id", "CIRRON_DEPLOYMENT_ID") ||
        set_variable(dict, "workspace_id", "CIRRON_WORKSPACE_ID")))
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

/* 0, or -1 with an error. */
static int add_installed(PyObject *list, const char *package) {
  PyObject *module = py_module(package);
  bool is = module && frameworks_allow(package);
  PyObject *name = is ? text_or_none(package) : NULL;
  int r = !is ? 0 : name ? py.PyList_Append(list, name) : -1;
  module_drop(name);
  module_drop(module);
  return r;
}

/* What is observed by itself: the packages that may be and are there. */
static PyObject *installed(bool on) {
  PyObject *list = py.PyList_New(0);
  for (unsigned i = 0; list && on && frameworks_name(i); i++)
    if (add_installed(list, frameworks_name(i)) < 0) {
      module_drop(list);
      list = NULL;
    }
  return list;
}

/* New reference, or NULL with an error. */
static PyObject *missing_of(const struct version *v) {
  PyObject *list = py.PyList_New(0);
  for (unsigned i = 0; list && i < v->named; i++) {
    PyObject *name = py.PyUnicode_FromFormat("%s:%s", v->missing[i]->module, v->missing[i]->qualname);
    if (!name || py.PyList_Append(list, name) < 0) {
      module_drop(list);
      list = NULL;
    }
    module_drop(name);
  }
  return list;
}

static PyObject *version_of(const struct version *v) {
  PyObject *dict = py.PyDict_New();
  if (dict && !(module_set(dict, "version", text_or_none(v->text[0] ? v->text : NULL)) ||
                module_set(dict, "tested", py.PyUnicode_FromFormat("%s to %s", v->from, v->to)) ||
                module_set(dict, "in_range", py.PyBool_FromLong(!v->untested)) || set_count(dict, "observed", v->observed) ||
                module_set(dict, "missing", missing_of(v))))
    return dict;
  module_drop(dict);
  return NULL;
}

/* The packages that were met. */
static PyObject *versions(void) {
  PyObject *dict = py.PyDict_New();
  bool more = true;
  for (unsigned i = 0; dict && more; i++) {
    const struct version *v = versions_at(i, &more);
    if (v && module_set(dict, v->package, version_of(v)) < 0) {
      module_drop(dict);
      dict = NULL;
    }
  }
  return dict;
}

static int set_drops(PyObject *dict) {
  struct drops d = count_drops();
  struct module_json_totals attrs = module_json_totals();
  return set_count(dict, "scope_drop_count", d.depth + d.spans) || set_count(dict, "mark_drop_count", d.marks + d.refused) ||
         set_count(dict, "mark_refused_count", d.refused) || set_count(dict, "name_drop_count", d.names) ||
         set_count(dict, "ring_drop_count", d.rings) || set_count(dict, "attr_coerced_count", attrs.coerced) ||
         set_count(dict, "attr_drop_count", attrs.left_out);
}

static int set_transport(PyObject *dict, const struct session *session) {
  bool connected = session && link_connected();
  const char *mode = session_env.enabled ? "normal" : "stopped";
  return module_set(dict, "enabled", py.PyBool_FromLong(session_env.enabled)) ||
         module_set(dict, "transport", text_or_none(connected ? session->by_messages ? "socket" : "ring" : NULL)) ||
         module_set(dict, "flush_mode", text_or_none(mode)) || set_count(dict, "flush_restart_count", 0) ||
         module_set(dict, "platform_context", platform_context()) ||
         module_set(dict, "installed_hooks", installed(session_env.enabled)) ||
         module_set(dict, "frameworks_installed", installed(session_env.enabled)) ||
         module_set(dict, "frameworks", versions()) || module_set(dict, "watched", names_of(module_watched()));
}

static int set_spool(PyObject *dict) {
  struct sink_counts spool = sink_counts();
  return module_set(dict, "spool_dir", text_or_none(spool.folder)) || set_count(dict, "spool_bytes", spool.bytes) ||
         set_count(dict, "spool_drop_count", spool.removed) || set_count(dict, "spool_error_count", spool.failures) ||
         set_count(dict, "spool_lost_bytes", spool.lost_bytes) || set_count(dict, "flush_latency_ns", spool.latency_ns);
}

static int set_kept(PyObject *dict) {
  struct keep_counts kept = keep_counts();
  return set_count(dict, "trace_span_count", kept.spans) || set_count(dict, "trace_bytes", kept.bytes) ||
         set_count(dict, "trace_drop_count", kept.evicted_spans) ||
         set_count(dict, "trace_mark_drop_count", kept.evicted_marks);
}

/* What was not measured is None, not 0. */
static int set_cost(PyObject *dict, const struct session *session) {
  struct ring_segment *segment = segment_get();
  struct scope *scope = scope_peek();
  uint64_t spent = segment ? __atomic_load_n(&segment->overhead_ns, __ATOMIC_RELAXED) : 0;
  uint64_t age = session ? clock_system() - session->start_ns : 0;
  bool known = spent && age;
  return set_count(dict, "detail_shed_count", shed_level) || set_count(dict, "scope_depth", scope ? scope_depth(scope) : 0) ||
         module_set(dict, "overhead_ns", known ? py.PyLong_FromLongLong((long long)spent) : module_none()) ||
         module_set(dict, "overhead_ratio", known ? py.PyFloat_FromDouble((double)spent / (double)age) : module_none());
}

static int set_snapshots(PyObject *dict) {
  struct snapshot_counts n = snapshot_counts();
  return set_count(dict, "snapshot_count", n.taken) || set_count(dict, "snapshot_tensor_count", n.tensors) ||
         set_count(dict, "snapshot_torn_count", n.torn) || set_count(dict, "snapshot_skip_count", n.skipped) ||
         set_count(dict, "snapshot_own_count", n.own) || set_count(dict, "snapshot_wait_ns", n.wait_ns) ||
         set_count(dict, "snapshot_list_ns", n.list_ns) || set_count(dict, "snapshot_blob_count", n.blobs) ||
         set_count(dict, "snapshot_blob_error_count", n.blob_failures) ||
         set_count(dict, "snapshot_blob_drop_count", n.blobs_removed);
}

PyObject *module_health(PyObject *self, PyObject *unused) {
  (void)self;
  (void)unused;
  const struct session *session = session_get();
  PyObject *dict = py.PyDict_New();
  if (dict && !(set_transport(dict, session) || set_drops(dict) || set_spool(dict) || set_kept(dict) || set_snapshots(dict) ||
                set_cost(dict, session)))
    return dict;
  module_drop(dict);
  return NULL;
}

/* --- the handle --- */

static void profiler_dealloc(PyObject *self) {
  module_drop(profiler_of(self)->settings);
  module_drop(profiler_of(self)->cirron);
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

static PyObject *get_cirron(PyObject *self, void *unused) {
  (void)unused;
  PyObject *cirron = profiler_of(self)->cirron;
  py.Py_IncRef(cirron);
  return cirron;
}

static PyObject *get_hooks(PyObject *self, void *unused) {
  (void)unused;
  return installed(session_env.enabled && !profiler_of(self)->disabled);
}

/* name -> True; there is nothing else to hold. */
static PyObject *get_handles(PyObject *self, void *unused) {
  PyObject *names = get_hooks(self, unused), *dict = names ? py.PyDict_New() : NULL;
  Py_ssize_t n = dict ? py.PyObject_Size(names) : 0;
  for (Py_ssize_t i = 0; i < n && dict; i++)
    if (py.PyDict_SetItem(dict, py.PyList_GetItem(names, i), py._Py_TrueStruct) < 0) {
      module_drop(dict);
      dict = NULL;
    }
  module_drop(names);
  return dict;
}

static PyObject *get_context(PyObject *self, void *unused) {
  (void)self;
  (void)unused;
  return platform_context();
}

PyObject *module_profiler_type(void) {
  static struct py_method methods[] = {
      {"trace", MODULE_CALL(module_trace_of_handle), PY_METH_VARARGS | PY_METH_KEYWORDS,
       "trace($self, /, format='tree', name=None, last=None)\n--\n\nThe same as cirron.trace()."},
      {"flush", module_flush, PY_METH_NOARGS, "flush($self, /)\n--\n\nThe same as cirron.flush()."},
      {"shutdown", shutdown_handle, PY_METH_NOARGS, "shutdown($self, /)\n--\n\nThe same as cirron.shutdown()."},
      {"health", module_health, PY_METH_NOARGS, "health($self, /)\n--\n\nThe same as cirron.health()."},
      {0},
  };
  static struct module_getset members[] = {
      {"enabled", get_enabled, NULL, "Is this process being traced?", NULL},
      {"settings", get_settings, NULL,
       "What holds, as a dict: built in, from config.toml, CIRRON_..., Cirron(), cirron.yaml and profile(). "
       "With enabled=False: what would.",
       NULL},
      {"cirron", get_cirron, NULL, "The Cirron object whose profile() was called.", NULL},
      {"installed_hooks", get_hooks, NULL, "The frameworks that are observed, a list of names.", NULL},
      {"hook_handles", get_handles, NULL, "The same, as the keys of a dict.", NULL},
      {"platform_context", get_context, NULL, "Rank and run, where known: a dict.", NULL},
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
