/* See attach.h. States: nothing found -> attached -> (Py_Finalize) -> to be attached again at the next start of an interpreter.
 *
 * setlocale is the one function of libc that every version calls while it starts, after its list of audit hooks is in place and
 * before its modules are built, so a libpython that a host loads with dlopen is met there. The preloaded object interposes it and
 * tells us where the call came from.
 *
 * Threads: the audit callback may be called by any thread and any interpreter at the same time; we act in the main one only, with
 * its GIL held or its thread attached. setlocale may be called by any thread.
 */
#include "attach.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "attach_hook.h"
#include "cost.h"
#include "env.h"
#include "glibc.h"
#include "init.h"
#include "module.h"
#include "observe.h"
#include "session.h"
#include "task.h"
#include "trigger.h"

extern const char *Py_GetVersion(void) __attribute__((weak));

static atomic_bool attached;
static atomic_bool announced;                    /* the program has begun; its forked children inherit that it has */
static atomic_bool inert;                        /* there is an interpreter, and it is not to be touched */
static atomic_flag attaching = ATOMIC_FLAG_INIT; /* one thread does it; others go on without */

static const char *code_text(PyObject *code, const char *attribute, PyObject **owner) {
  *owner = py.PyObject_GetAttrString(code, attribute);
  return *owner ? py.PyUnicode_AsUTF8AndSize(*owner, NULL) : NULL;
}

/* The name of an observed module whose body this code is, or NULL. */
static const char *body_of(PyObject *code) {
  PyObject *file, *name = NULL;
  const char *text = code_text(code, "co_filename", &file);
  const char *module = text ? observe_wanted_module(text) : NULL;
  if (module && (!(text = code_text(code, "co_name", &name)) || strcmp(text, "<module>") != 0))
    module = NULL;
  if (file)
    py.Py_DecRef(file);
  if (name)
    py.Py_DecRef(name);
  return module;
}

static void body_begins(PyObject *args) {
  if (!py.Py_IsInitialized() || !py_in_main())
    return;
  trigger_sweep();
  if (!atomic_exchange(&announced, true))
    session_announce();
  PyObject *code = py.PyTuple_Size(args) > 0 ? py.PyTuple_GetItem(args, 0) : NULL;
  if (!code || (void *)py_type(code) != py.PyCode_Type)
    return; /* somebody's own sys.audit("exec", ...) */
  const char *module = body_of(code);
  if (module)
    trigger_arm(code, module);
  if (py.PyErr_Occurred())
    py.PyErr_Clear();
}

static void body_timed(PyObject *args) {
  struct cost_timing cost = cost_rare();
  body_begins(args);
  cost_end(&cost);
}

static void interpreter_ends(void) {
  if (py.Py_IsInitialized())
    return; /* a script that raises this event itself */
  session_close();
  trigger_forget();
  observe_forget();
  task_interpreter_ends();
  attach_hook_before_free();
  atomic_store(&attached, false);
}

static int audit(const char *event, PyObject *args, void *data) {
  (void)data;
  if (event[0] == 'e' && strcmp(event, "exec") == 0)
    body_timed(args);
  else if (event[0] == 'c' && strcmp(event, "cpython._PySys_ClearAuditHooks") == 0)
    interpreter_ends();
  return 0;
}

/* The table of built-in modules survives the interpreter; once per library is enough. */
static void builtin_add(void) {
  static const void *added_to;
  if (added_to == py.PyFunction_Type)
    return;
  if (py.PyImport_AppendInittab("cirron", module_init) == 0)
    added_to = py.PyFunction_Type;
}

static bool attach_never(void) {
  atomic_store(&inert, true);
  return false;
}

/* Where there is no interpreter at all, nothing is said. */
static bool attach_refuse(void) {
  if (py.Py_GetVersion) {
    const char *version = py.Py_GetVersion();
    env_read_debug();
    env_debug("Python %.*s is %s: nothing of it is recorded", (int)strcspn(version, " "), version,
              py.free_threaded ? "a build without the GIL" : "none that is known here");
  }
  return attach_never();
}

/* An interpreter that is not initialised yet, in a library or the process itself. */
static bool attach_before_start(void *library) {
  if (py_find(library) != 0)
    return attach_refuse();
  if (py.Py_IsInitialized()) /* we were loaded by a running interpreter: attach_late, if anybody wants it */
    return false;
  if (!agent_start())
    return attach_never();
  if (attach_hook_add(audit) != 0)
    return false;
  builtin_add();
  atomic_store(&attached, true);
  return true;
}

static bool attach_once(bool (*attach)(void *), void *library) {
  if (atomic_load(&attached) || atomic_load(&inert) || atomic_flag_test_and_set(&attaching))
    return false;
  bool result = attach(library);
  atomic_flag_clear(&attaching);
  return result;
}

bool attach_early(void) {
  return Py_GetVersion && dlsym && attach_once(attach_before_start, RTLD_DEFAULT);
}

static bool attach_running(void *library) {
  if (py_find(library) != 0)
    return attach_refuse();
  if (!py.Py_IsInitialized() || !py.PyGILState_Check() || !py_in_main())
    return false;
  if (!agent_start())
    return attach_never();
  if (attach_hook_add(audit) != 0) {
    py.PyErr_Clear(); /* another hook refused ours */
    return false;
  }
  atomic_store(&attached, true);
  observe_modules_present();
  return true;
}

bool attach_late(void) {
  return dlsym && attach_once(attach_running, RTLD_DEFAULT);
}

bool attach_done(void) {
  return atomic_load_explicit(&attached, memory_order_relaxed);
}

/* The library that the address is in, if it is a libpython and not one that is only called so. Closed again by dlclose. */
static void *library_of(const void *address) {
  Dl_info info;
  if (!dladdr || !dlopen || !dladdr(address, &info) || !info.dli_fname)
    return NULL;
  const char *base = strrchr(info.dli_fname, '/');
  if (!strstr(base ? base : info.dli_fname, "python"))
    return NULL;
  void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (!library || dlsym(library, "Py_GetVersion"))
    return library;
  (void)dlerror(); /* the program's own next question is not to get our answer */
  (void)dlclose(library);
  return NULL;
}

static void attach_to_caller(const void *caller) {
  if (Py_GetVersion) { /* attached before, and its interpreter has ended */
    (void)attach_early();
    return;
  }
  void *library = library_of(caller);
  if (!library)
    return;
  (void)attach_once(attach_before_start, library);
  (void)dlclose(library); /* our own count of it only */
}

/* A libpython, or a program that is linked to one, calls setlocale (preload/preload.c). Any thread. */
__attribute__((visibility("default"))) void cirron_core_setlocale(const void *caller) {
  int error = errno;
  if (!atomic_load_explicit(&attached, memory_order_relaxed) && !atomic_load_explicit(&inert, memory_order_relaxed))
    attach_to_caller(caller);
  errno = error;
}
