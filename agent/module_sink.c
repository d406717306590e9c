/* See module_sink.h. */
#include "module_sink.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "glibc.h"
#include "keep.h"
#include "module_check.h"
#include "module_trace.h"
#include "observe.h"
#include "session.h"

#define SECOND 1000000000.0

/* Of the interpreter whose profile() asked; others print nothing. */
static struct {
  struct module_state *state;
  _Atomic bool busy; /* printing: the script's code may come back here */
  bool told, at_exit, is_main;
  uint64_t at[KEEP_LOGS];
  struct module_trace_skip own; /* what printing itself recorded: printed, it would never end */
} lines;

static int lines_after_call(void);

/* --- settings --- */

static bool names(PyObject *item, const char *word) {
  return module_is(item, py.PyUnicode_Type) && py.PyUnicode_CompareWithASCIIString(item, word) == 0;
}

/* The outputs in their order, each once; an empty list where "none" is among them. New reference, or NULL with an error. */
static PyObject *targets_of(PyObject *output) {
  PyObject *given = module_is(output, py.PyUnicode_Type) ? py.Py_BuildValue("(O)", output) : py.PySequence_Tuple(output);
  PyObject *targets = given ? py.PyList_New(0) : NULL;
  Py_ssize_t n = targets ? py.PyTuple_Size(given) : 0;
  int bad = targets ? 0 : -1;
  bool seen[3] = {false}, none = false;
  static const char *const words[] = {"spool", "stdout", "log"};
  for (Py_ssize_t i = 0; i < n && !bad; i++) {
    PyObject *item = py.PyTuple_GetItem(given, i);
    none = none || names(item, "none");
    for (unsigned k = 0; k < 3 && !bad; k++)
      if (!seen[k] && names(item, words[k])) {
        seen[k] = true;
        bad = py.PyList_Append(targets, item);
      }
  }
  module_drop(given);
  if (bad || none) {
    module_drop(targets);
    return bad ? NULL : py.PyList_New(0);
  }
  return targets;
}

static bool has(PyObject *targets, const char *word) {
  for (Py_ssize_t i = 0; i < py.PyObject_Size(targets); i++)
    if (names(py.PyList_GetItem(targets, i), word))
      return true;
  return false;
}

/* <output_dir>/spool as bytes of the file system. False: its text cannot be one. */
static bool folder_of(PyObject *settings, char out[PATH_MAX]) {
  char bytes[MODULE_PATH_MAX];
  const struct module_given given = {.who = "profile", .name = "output_dir", .value = py_dict_get(settings, "output_dir")};
  if (!given.value || module_check_path_bytes(&given, bytes) < 0) {
    py.PyErr_Clear();
    return false;
  }
  const char *path = strncmp(bytes, "./", 2) == 0 && bytes[2] ? bytes + 2 : bytes;
  size_t len = strlen(path);
  while (len > 1 && path[len - 1] == '/')
    len--;
  (void)snprintf(out, PATH_MAX, "%.*s/spool", (int)len, path); /* fits: MODULE_PATH_MAX */
  return true;
}

static double number(PyObject *settings, const char *name) {
  PyObject *value = py_dict_get(settings, name);
  return value ? py.PyFloat_AsDouble(value) : 0;
}

static struct sink_settings sink_of(PyObject *settings, PyObject *targets, char folder[PATH_MAX]) {
  double interval = number(settings, "flush_interval");
  bool spool = has(targets, "spool") && folder_of(settings, folder);
  return (struct sink_settings){
      .spool = spool,
      .lines = has(targets, "stdout") || has(targets, "log"),
      .folder = folder,
      .interval_ns = (uint64_t)((interval < 1e6 ? interval : 1e6) * SECOND),
      .max_bytes = (uint64_t)number(settings, "spool_max_bytes"),
  };
}

/* Lines that are not out when the interpreter ends would need it after it is gone. */
static int flush_at_exit(PyObject *module) {
  if (lines.at_exit)
    return 0;
  PyObject *atexit = py.PyImport_ImportModule("atexit"), *flush = py.PyObject_GetAttrString(module, "flush");
  PyObject *done = atexit && flush ? py.PyObject_CallMethod(atexit, "register", "O", flush) : NULL;
  lines.at_exit = done != NULL;
  module_drop(done);
  module_drop(flush);
  module_drop(atexit);
  return lines.at_exit ? 0 : -1;
}

int module_sink_set(PyObject *module, PyObject *settings) {
  struct module_state *state = py.PyModule_GetState(module);
  PyObject *output = py_dict_get(settings, "output"), *targets = output ? targets_of(output) : NULL;
  if (!targets)
    return -1;
  char folder[PATH_MAX];
  struct sink_settings sink = sink_of(settings, targets, folder);
  PyObject *before = state->targets;
  state->targets = targets;
  module_drop(before);
  if (sink.lines) {
    lines.state = state;
    lines.is_main = py_in_main();
    atomic_store(&observe_after, lines_after_call);
    if (flush_at_exit(module) < 0)
      return -1;
  }
  sink_set(&sink);
  return 0;
}

/* --- lines --- */

/* What one sink could not do is said once; Ctrl-C and the like go on. */
static int done_with(PyObject *problem) {
  if (!problem)
    return module_swallow() ? 0 : -1;
  struct module_text text;
  if (problem != py._Py_NoneStruct && !lines.told && module_text(problem, &text)) {
    lines.told = true;
    env_complain("lines are lost: %.200s", text.text);
    module_text_drop(&text);
  }
  module_drop(problem);
  return 0;
}

static int print(struct module_state *state) {
  PyObject *function = module_trace_half(state, "emit");
  PyObject *data = function ? module_trace_rows(lines.at, &lines.own) : NULL;
  PyObject *problem = NULL, *targets = state->targets;
  lines.own.from = keep_head(KEEP_SPANS);
  if (data) {
    py.Py_IncRef(targets);
    problem = py.PyObject_CallFunctionObjArgs(function, data, targets, NULL);
    py.Py_DecRef(targets);
  }
  module_drop(data);
  lines.own.to = keep_head(KEEP_SPANS);
  lines.own.tid = (uint32_t)syscall(SYS_gettid);
  return done_with(problem);
}

int module_sink_lines(struct module_state *state) {
  if (state != lines.state || !state->targets || atomic_exchange(&lines.busy, true))
    return 0;
  atomic_store_explicit(&sink_lines_due, false, memory_order_relaxed);
  int r = print(state);
  atomic_store(&lines.busy, false);
  return r;
}

/* After a step or a request, which are observed in the main interpreter only. */
static int lines_after_call(void) {
  struct module_state *state = lines.state;
  return state && lines.is_main ? module_sink_check(state) : 0;
}

int module_sink_lines_of(PyObject *object) {
  PyObject *module = py.PyObject_GetAttrString(object, "__cirron__");
  if (!module) {
    py.PyErr_Clear();
    return 0;
  }
  int r = module_sink_lines(py.PyModule_GetState(module));
  py.Py_DecRef(module);
  return r;
}

int module_sink_flush(PyObject *self) {
  sink_flush();
  if (!lines.state)
    return 0;
  bool is_module = strcmp(py_class_name(self), "module") == 0;
  return is_module ? module_sink_lines(py.PyModule_GetState(self)) : module_sink_lines_of(self);
}

void module_sink_drop(const struct module_state *state) {
  if (lines.state == state)
    lines.state = NULL;
}

void module_sink_forget(void) {
  memset(lines.at, 0, sizeof lines.at);
  lines.own = (struct module_trace_skip){0};
  atomic_store(&lines.busy, false);
}
