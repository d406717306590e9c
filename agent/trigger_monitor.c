/* sys.monitoring (3.12 and later): a PY_RETURN event on the code of a module's body alone.
 *
 * There is no C interface for tools, so Python's functions are called. A tool id is held only while a body is armed, so that
 * others find it free: 0 to 2 and 5 belong to debuggers, coverage, profilers and optimizers. A body that raises has no local event
 * before 3.15; its code object is then kept alive by nobody but us, which the next sweep sees.
 *
 * Threads: the GIL, or on free-threaded builds a PyMutex, which lets others stop the world while it waits.
 */
#include <errno.h>
#include <string.h>

#include "observe.h"
#include "trigger.h"

#define BODIES_MAX 64 /* as deep as imports of observed modules nest, plus those that failed */

static const int tool_ids[] = {4, 3};

static struct {
  struct body {
    PyObject *code; /* owned */
    const char *module;
  } bodies[BODIES_MAX];
  unsigned count;
  int tool;      /* held, or -1 */
  int py_return; /* the event's number */
  PyObject *callback;
} monitor = {.tool = -1};

static uint8_t monitor_mutex;     /* protects `monitor`; nothing else is held when it is taken */
static _Thread_local bool inside; /* its owner: audit hooks of others may import while we call Python */

static bool monitor_lock(void) {
  if (inside)
    return false;
  inside = true;
  if (py.free_threaded && py.PyMutex_Lock)
    py.PyMutex_Lock(&monitor_mutex);
  return true;
}

static void monitor_unlock(void) {
  if (py.free_threaded && py.PyMutex_Unlock)
    py.PyMutex_Unlock(&monitor_mutex);
  inside = false;
}

/* Takes a result that is only wanted for its being there. */
static int done(PyObject *result) {
  if (!result) {
    py.PyErr_Clear();
    return -ENOTSUP;
  }
  py.Py_DecRef(result);
  return 0;
}

static PyObject *monitoring(void) {
  return py.PySys_GetObject("monitoring");
}

static int set_events(PyObject *code, int events) {
  return done(py.PyObject_CallMethod(monitoring(), "set_local_events", "iOi", monitor.tool, code, events));
}

static int event_number(void) {
  PyObject *events = py.PyObject_GetAttrString(monitoring(), "events");
  PyObject *number = events ? py.PyObject_GetAttrString(events, "PY_RETURN") : NULL;
  long value = number ? py.PyLong_AsLong(number) : -1;
  if (events)
    py.Py_DecRef(events);
  if (number)
    py.Py_DecRef(number);
  py.PyErr_Clear();
  return (int)value;
}

static void tool_release(void) {
  (void)done(
      py.PyObject_CallMethod(monitoring(), "register_callback", "iiO", monitor.tool, monitor.py_return, py._Py_NoneStruct));
  (void)done(py.PyObject_CallMethod(monitoring(), "free_tool_id", "i", monitor.tool));
  monitor.tool = -1;
}

static int tool_take(void) {
  monitor.py_return = event_number();
  if (monitor.py_return <= 0)
    return -ENOTSUP;
  for (size_t i = 0; i < sizeof tool_ids / sizeof *tool_ids; i++) {
    if (done(py.PyObject_CallMethod(monitoring(), "use_tool_id", "is", tool_ids[i], "cirron")) != 0)
      continue; /* somebody has it */
    monitor.tool = tool_ids[i];
    if (done(py.PyObject_CallMethod(monitoring(), "register_callback", "iiO", monitor.tool, monitor.py_return,
                                    monitor.callback)) == 0)
      return 0;
    tool_release();
    return -ENOTSUP;
  }
  return -ENOTSUP;
}

static void body_drop(unsigned i) {
  PyObject *code = monitor.bodies[i].code;
  (void)set_events(code, 0); /* first: free_tool_id of 3.12.0 leaves local events where they are */
  monitor.bodies[i] = monitor.bodies[--monitor.count];
  py.Py_DecRef(code);
  if (monitor.count == 0)
    tool_release();
}

/* The body of a module returns: (code, offset, value). */
static PyObject *body_returns(PyObject *self, PyObject *const *args, Py_ssize_t n) {
  (void)self;
  const char *module = NULL;
  if (n > 0 && monitor_lock()) {
    for (unsigned i = 0; i < monitor.count && !module; i++)
      if (monitor.bodies[i].code == args[0]) {
        module = monitor.bodies[i].module;
        body_drop(i);
      }
    monitor_unlock();
  }
  if (module)
    observe_module_ready(module);
  py.Py_IncRef(py._Py_NoneStruct);
  return py._Py_NoneStruct;
}

static int callback_make(void) {
  static struct py_method method = {"cirron", (PyCFunction)(void (*)(void))body_returns, PY_METH_FASTCALL, NULL};
  if (!monitor.callback && !(monitor.callback = py.PyCFunction_NewEx(&method, NULL, NULL))) {
    py.PyErr_Clear();
    return -ENOMEM;
  }
  return 0;
}

static int body_add(PyObject *code, const char *module) {
  for (unsigned i = 0; i < monitor.count; i++)
    if (monitor.bodies[i].code == code) /* run again while it runs: one event serves both */
      return 0;
  if (monitor.count == BODIES_MAX || !monitoring() || callback_make() != 0)
    return -ENOTSUP;
  if (monitor.tool < 0 && tool_take() != 0)
    return -ENOTSUP;
  if (set_events(code, monitor.py_return) != 0) {
    if (monitor.count == 0)
      tool_release();
    return -ENOTSUP;
  }
  py.Py_IncRef(code);
  monitor.bodies[monitor.count++] = (struct body){code, module};
  return 0;
}

int trigger_monitor_arm(PyObject *code, const char *module) {
  if (!monitor_lock())
    return -ENOTSUP;
  int result = body_add(code, module);
  monitor_unlock();
  return result;
}

/* Only with the GIL: elsewhere a count of references is in two parts. A body that runs is held by its frame and its importer. */
void trigger_monitor_sweep(void) {
  if (monitor.count == 0 || py.free_threaded || !monitor_lock())
    return;
  for (unsigned i = monitor.count; i-- > 0;)
    if (*(const uint32_t *)monitor.bodies[i].code == 1)
      body_drop(i);
  monitor_unlock();
}

void trigger_monitor_forget(void) {
  memset(&monitor, 0, sizeof monitor);
  monitor.tool = -1;
}
