/* A small agent around attach.c, trigger.c, observe.c and py.c: its probes count, and scripts ask it through ctypes.
 *
 * TEST_OUT=FILE: one line a closed interpreter, with the sum of all counts. CIRRON_ENABLED=0 keeps it inert.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/attach.h"
#include "agent/env.h"
#include "agent/glibc.h"
#include "agent/init.h"
#include "agent/module.h"
#include "agent/observe.h"
#include "agent/preload/symbol.h"
#include "agent/session.h"
#include "agent/task.h"

#define EXPORT __attribute__((visibility("default")))
#define SITES 64

struct site {
  struct probe probe;
  int enters, leaves, failures;
  size_t nargs;
  PyObject *argument; /* "key" of the last call; an address for comparison */
  char exception[64];
  bool stop;
};

static struct site sites[SITES];
static PyObject *key_name;

static bool enter(struct site *site, struct observe_call *call) {
  if (!key_name)
    key_name = py.PyUnicode_InternFromString("key");
  site->enters++;
  site->nargs = call->nargs;
  site->argument = observe_arg(call, 1, key_name);
  call->state[0] = site;
  call->state[5] = (void *)call->args;
  return true;
}

static void leave(struct site *site, struct observe_call *call, PyObject *result) {
  if (call->state[0] != site || call->state[5] != (void *)call->args)
    abort();
  if (result) {
    site->leaves++;
    return;
  }
  site->failures++;
  snprintf(site->exception, sizeof site->exception, "%s", py_exception_name());
  site->stop = py_exception_is_stop();
  py.PyErr_Clear(); /* a probe must not; the exception goes on all the same */
}

/* One pair of functions a site: a probe has no data of its own. */
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define X(n)                                                                                                                   \
  static bool enter_##n(struct observe_call *call) {                                                                           \
    return enter(&sites[n], call);                                                                                             \
  }                                                                                                                            \
  static void leave_##n(struct observe_call *call, PyObject *result) {                                                         \
    leave(&sites[n], call, result);                                                                                            \
  }
EACH(X)
#undef X
#define X(n) {enter_##n, leave_##n},
static const struct {
  bool (*enter)(struct observe_call *);
  void (*leave)(struct observe_call *, PyObject *);
} handlers[] = {EACH(X)};

static struct probe table[16];

/* Site 15 is for functions that are named at run time. */
static const char *const names[][3] = {
    {"observed.things", "Base.__init__", "direct"},
    {"observed.things", "Callable._call", ""},
    {"observed.things", "Stream.__iter__", ""},
    {"observed.things", "Stream.__next__", ""},
    {"observed.things", "plain", "direct"},
    {"observed.things", "fails", "direct"},
    {"observed.things", "recursive", "direct"},
    {"observed.things", "Base.static", "direct"},
    {"observed.things", "Base.of_class", "direct"},
    {"observed.things", "Outer.Inner.method", "direct"},
    {"observed", "top", "direct"},
    {"observed.things", "missing", ""},
    {"observed.things", "Base.value", ""}, /* a property: no function */
    {"observed.broken", "never", ""},
};
static const char *const torch_names[][3] = {
    {"torch.nn.modules.module", "Module._wrapped_call_impl", ""},
    {"torch._tensor", "Tensor.backward", "direct"},
    {"torch.utils.data.dataloader", "DataLoader.__iter__", ""},
    {"torch.utils.data.dataloader", "_BaseDataLoaderIter.__next__", ""},
    {"torch.optim.optimizer", "Optimizer.__init__", "direct"},
};

struct env session_env;

static void table_fill(const char *const (*from)[3], size_t n) {
  for (size_t i = 0; i < n; i++)
    table[i] =
        (struct probe){from[i][0], from[i][1], from[i][2][0] != 0, handlers[i].enter, handlers[i].leave, OBSERVE_NO_PACE};
  table[15] = (struct probe){"run", "time", true, handlers[15].enter, handlers[15].leave, OBSERVE_NO_PACE};
  observe_add(table, n);
}

bool agent_start(void) {
  static bool started;
  const char *off = getenv("CIRRON_ENABLED");
  session_env.enabled = !off || strcmp(off, "0") != 0;
  session_env.debug = getenv("CIRRON_DEBUG") != NULL;
  if (!session_env.enabled || started)
    return session_env.enabled;
  started = true;
  if (getenv("TEST_TORCH"))
    table_fill(torch_names, sizeof torch_names / sizeof *torch_names);
  else
    table_fill(names, sizeof names / sizeof *names);
  return true;
}

void env_read_debug(void) {
} /* it always speaks */

void env_debug(const char *format, ...) {
  va_list args;
  va_start(args, format);
  (void)dprintf(2, "cirron: ");
  (void)vdprintf(2, format, args);
  (void)dprintf(2, "\n");
  va_end(args);
}

/* In place of the preloaded object: this library is preloaded itself. */
char *setlocale(int category, const char *locale);
__attribute__((visibility("default"))) char *setlocale(int category, const char *locale) {
  cirron_core_setlocale(__builtin_return_address(0));
  return ((char *(*)(int, const char *))symbol_next("setlocale"))(category, locale);
}

void session_announce(void) {
}

void task_interpreter_ends(void) {
}

void session_close(void) {
  const char *path = getenv("TEST_OUT");
  int enters = 0, leaves = 0, failures = 0;
  for (int i = 0; i < SITES; i++) {
    enters += sites[i].enters;
    leaves += sites[i].leaves;
    failures += sites[i].failures;
  }
  int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (fd < 0)
    return;
  (void)dprintf(fd, "closed %d %d %d\n", enters, leaves, failures);
  close(fd);
}

/* An empty module is enough to see that the entry is there. */
PyObject *module_init(void) {
  static struct {
    uintptr_t head[4]; /* free-threaded; the others begin two words later */
    struct {
      void *init;
      Py_ssize_t index;
      void *copy;
      const char *name, *doc;
      Py_ssize_t size;
      void *methods, *slots, *traverse, *clear, *free;
    } body;
  } definition = {.body = {.name = "cirron"}};
  static struct py_slot slots[3];
  if (py.version >= 312)
    slots[0] = (struct py_slot){3, (void *)2};
  if (py.version >= 313)
    slots[1] = (struct py_slot){4, (void *)1};
  definition.body.slots = slots;
  uintptr_t *head = py.free_threaded ? definition.head : definition.head + 2;
  if (!py.free_threaded)
    head[0] = 1;
  return py.PyModuleDef_Init(head);
}

__attribute__((constructor)) static void load(void) {
  (void)attach_early();
}

static struct site *site_named(const char *qualname) {
  for (int i = 0; i < 16; i++)
    if (table[i].qualname && strcmp(table[i].qualname, qualname) == 0)
      return &sites[i];
  return NULL;
}

EXPORT int test_enters(const char *qualname) {
  struct site *site = site_named(qualname);
  return site ? site->enters : -1;
}

EXPORT int test_leaves(const char *qualname) {
  struct site *site = site_named(qualname);
  return site ? site->leaves : -1;
}

EXPORT int test_failures(const char *qualname) {
  struct site *site = site_named(qualname);
  return site ? site->failures : -1;
}

EXPORT int test_nargs(const char *qualname) {
  struct site *site = site_named(qualname);
  return site ? (int)site->nargs : -1;
}

EXPORT void *test_argument(const char *qualname) {
  struct site *site = site_named(qualname);
  return site ? site->argument : NULL;
}

EXPORT const char *test_exception(const char *qualname) {
  struct site *site = site_named(qualname);
  return site ? site->exception : NULL;
}

EXPORT int test_stop(const char *qualname) {
  struct site *site = site_named(qualname);
  return site && site->stop;
}

EXPORT int test_observe(PyObject *function) {
  return observe_function(function, &table[15]);
}

static bool enter_nothing(struct observe_call *call) {
  (void)call;
  return true;
}

static void leave_nothing(struct observe_call *call, PyObject *result) {
  (void)call;
  (void)result;
}

/* What observing costs without what a probe does. */
EXPORT int test_observe_for_nothing(PyObject *function) {
  static const struct probe nothing = {"none", "none", true, enter_nothing, leave_nothing, OBSERVE_NO_PACE};
  return observe_function(function, &nothing);
}

EXPORT int test_attached(void) {
  return attach_done();
}

EXPORT int test_attach_late(void) {
  return attach_late();
}

EXPORT int test_attr_true(PyObject *object, PyObject *name) {
  return py_attr_true(object, name);
}

EXPORT const char *test_class_name(PyObject *object) {
  return py_class_name(object);
}

/* The same function by both ways of finding it. */
EXPORT int test_search(void) {
  static const char *const wanted[] = {"setlocale", "getpid", "strtol", "dlsym", "pthread_create"};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
    if (!symbol_search(wanted[i]) || symbol_search(wanted[i]) != symbol_next(wanted[i]))
      return (int)i;
  return symbol_search("no_function_has_this_name") == NULL ? -1 : 100;
}
