/* The probe table, and what an observed function does when it is called.
 *
 * A function object is observed, not its code: the wrapper that a decorator made is one object, its code is shared by all users
 * of the decorator. Names are resolved in the dictionaries of module and classes, so that no descriptor and no __getattr__ runs.
 */
#include "observe.h"

#include <errno.h>
#include <string.h>

#include "cost.h"
#include "env.h"
#include "hot.h"
#include "observe_swap.h"
#include "observe_table.h"
#include "session.h"

#define TABLES_MAX 16
#define NAME_MAX_LEN 128

static struct {
  const struct probe *probes;
  size_t n;
} tables[TABLES_MAX];
static size_t table_count;

vectorcallfunc observe_paced;
bool (*observe_allowed)(const char *module);
void (*observe_found)(const struct probe *probe, int result);
void (*observe_ran)(const char *module);
HOT_DATA int (*_Atomic observe_after)(void);

void observe_add(const struct probe *probes, size_t n) {
  if (table_count < TABLES_MAX) {
    tables[table_count].probes = probes;
    tables[table_count++].n = n;
  }
}

/* The call failed: its exception goes on as it was, whatever happens in the probe. */
COLD static void leave_failed(const struct probe *probe, struct observe_call *call) {
  PyObject *type, *value, *trace;
  py.PyErr_Fetch(&type, &value, &trace);
  PyObject *kept[] = {type, value, trace};
  for (unsigned i = 0; i < 3; i++)
    if (kept[i])
      py.Py_IncRef(kept[i]);
  py.PyErr_Restore(type, value, trace); /* for the probe to look at */
  probe->leave(call, NULL);
  py.PyErr_Restore(kept[0], kept[1], kept[2]);
}

/* The end of a call, where there is something to do then. */
COLD static PyObject *go_on(const struct probe *probe, PyObject *result) {
  int (*after)(void) = observe_after;
  bool wanted = probe->pace == OBSERVE_UPDATE || probe->pace == OBSERVE_REQUEST;
  if (!after || !wanted || !result || after() == 0)
    return result;
  py.Py_DecRef(result);
  return NULL;
}

/* cost: NULL, or the timing of this call. */
static inline __attribute__((always_inline)) PyObject *run(PyObject *function, PyObject *const *args, size_t nargsf,
                                                           PyObject *kwnames, struct cost_timing *cost) {
  const struct probe *probe = observe_find(function);
  struct observe_call call = {.args = args, .nargs = nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, .kwnames = kwnames};
  bool entered = likely(probe != NULL) && probe->enter(&call);
  if (cost)
    cost_end(cost);
  PyObject *result = observe_original(function, args, nargsf, kwnames);
  if (!entered)
    return result;
  if (cost)
    cost_again(cost);
  if (likely(result != NULL))
    probe->leave(&call, result);
  else
    leave_failed(probe, &call);
  if (cost) {
    cost_end(cost);
    if (cost_watch)
      cost_watch();
  }
  return unlikely(observe_after != NULL) ? go_on(probe, result) : result;
}

COLD static PyObject *run_timed(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
  struct cost_timing cost = cost_begin();
  return run(function, args, nargsf, kwnames, &cost);
}

HOT PyObject *observe_run(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
  return unlikely(cost_due()) ? run_timed(function, args, nargsf, kwnames) : run(function, args, nargsf, kwnames, NULL);
}

static int enter_in_table(PyObject *function, const void *probe) {
  int result = observe_put(function, probe);
  if (result == 0 && observe_paced)
    py.Py_IncRef(function); /* observe_pause walks the table, which holds nothing by itself */
  return result;
}

void observe_pause(bool pause) {
  for (unsigned i = 0; observe_paced && i < OBSERVE_PLACES; i++) {
    const struct observe_entry *entry = observe_place(i);
    PyObject *function = atomic_load_explicit(&entry->function, memory_order_acquire);
    const struct probe *probe = atomic_load_explicit(&entry->probe, memory_order_relaxed);
    if (function && !probe->pace)
      observe_swap_pause(function, observe_run, probe->direct, pause);
  }
}

int observe_function(PyObject *function, const struct probe *probe) {
  vectorcallfunc ours = observe_paced && probe->pace ? observe_paced : observe_run;
  return observe_swap(function, ours, probe->direct, enter_in_table, probe);
}

static PyObject *keyword_arg(const struct observe_call *call, PyObject *name, bool by_text) {
  Py_ssize_t n = py.PyTuple_Size(call->kwnames);
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *key = py.PyTuple_GetItem(call->kwnames, i);
    if (by_text ? py.PyUnicode_Compare(key, name) == 0 : key == name)
      return call->args[call->nargs + (size_t)i];
  }
  return NULL;
}

PyObject *observe_arg(const struct observe_call *call, size_t position, PyObject *name) {
  if (position < call->nargs)
    return call->args[position];
  if (!call->kwnames || !name)
    return NULL;
  PyObject *found = keyword_arg(call, name, false); /* names at call sites are interned */
  return found ? found : keyword_arg(call, name, true);
}

/* owner.__dict__[name], as it lies there. New reference or NULL without an error. */
static PyObject *member_raw(PyObject *owner, const char *name) {
  PyObject *dict_name = py.PyUnicode_InternFromString("__dict__");
  PyObject *key = dict_name ? py.PyUnicode_InternFromString(name) : NULL;
  PyObject *dict = key ? py.PyObject_GenericGetAttr(owner, dict_name) : NULL;
  PyObject *member = dict ? py.PyObject_GetItem(dict, key) : NULL;
  if (!member)
    py.PyErr_Clear();
  PyObject *owned[] = {dict_name, key, dict};
  for (unsigned i = 0; i < 3; i++)
    if (owned[i])
      py.Py_DecRef(owned[i]);
  return member;
}

/* staticmethod and classmethod objects hold the function. Takes the reference. */
static PyObject *member_unwrap(PyObject *member) {
  void *type = py_type(member);
  if (type != py.PyStaticMethod_Type && type != py.PyClassMethod_Type)
    return member;
  PyObject *name = py.PyUnicode_InternFromString("__func__");
  PyObject *function = name ? py.PyObject_GenericGetAttr(member, name) : NULL;
  if (name)
    py.Py_DecRef(name);
  py.Py_DecRef(member);
  if (!function)
    py.PyErr_Clear();
  return function;
}

/* New reference or NULL. */
static PyObject *resolve(PyObject *module, const char *qualname) {
  py.Py_IncRef(module);
  PyObject *at = module;
  for (const char *part = qualname; at && *part;) {
    char name[NAME_MAX_LEN];
    size_t len = strcspn(part, ".");
    if (len >= sizeof name)
      len = sizeof name - 1;
    memcpy(name, part, len);
    name[len] = 0;
    PyObject *next = member_raw(at, name);
    py.Py_DecRef(at);
    at = next;
    part += len + (part[len] == '.');
  }
  return at ? member_unwrap(at) : NULL;
}

/* An attribute of a function or code object: no code of the script runs. New reference or NULL without an error. */
static PyObject *part_of(PyObject *object, const char *name) {
  PyObject *key = object ? py.PyUnicode_InternFromString(name) : NULL;
  PyObject *part = key ? py.PyObject_GenericGetAttr(object, key) : NULL;
  if (key)
    py.Py_DecRef(key);
  if (!part)
    py.PyErr_Clear();
  return part;
}

static bool names_begin(PyObject *names, long long count, const char *args) {
  Py_ssize_t at = 0;
  for (; *args; at++, args += *args == ' ') {
    size_t len = strcspn(args, " "), has = 0;
    Py_ssize_t bytes = 0;
    const char *name = at < count ? py.PyUnicode_AsUTF8AndSize(py.PyTuple_GetItem(names, at), &bytes) : NULL;
    has = (size_t)bytes;
    if (!name || has != len || memcmp(name, args, len) != 0)
      return false;
    args += len;
  }
  return true;
}

/* Are the function's arguments called as the probe knows them? Those of a decorator's (*args, **kwargs) may be. */
static bool args_fit(PyObject *function, const char *args) {
  PyObject *code = part_of(function, "__code__");
  PyObject *names = part_of(code, "co_varnames"), *count = part_of(code, "co_argcount");
  int overflow;
  long long n = count ? py.PyLong_AsLongLongAndOverflow(count, &overflow) : 0;
  bool known = names && (void *)py_type(names) == py.PyTuple_Type && n <= py.PyTuple_Size(names);
  bool fit = !known || n == 0 || names_begin(names, n, args);
  PyObject *owned[] = {code, names, count};
  for (unsigned i = 0; i < 3; i++)
    if (owned[i])
      py.Py_DecRef(owned[i]);
  py.PyErr_Clear();
  return fit;
}

static void probe_set(PyObject *module, const struct probe *probe) {
  if (!probe->qualname)
    return;
  PyObject *function = resolve(module, probe->qualname);
  int result = !function                                         ? -ENOENT
               : probe->args && !args_fit(function, probe->args) ? -EINVAL
                                                                 : observe_function(function, probe);
  if (function)
    py.Py_DecRef(function);
  if (observe_found)
    observe_found(probe, result);
  if (result < 0 && result != -EALREADY && session_env.debug)
    env_debug("%s:%s is not observed: %s", probe->module, probe->qualname, strerror(-result));
}

void observe_meanwhile(const struct probe *probe, bool on) {
  PyObject *module = py_module(probe->module), *function = module ? resolve(module, probe->qualname) : NULL;
  if (function && on)
    (void)observe_function(function, probe); /* what cannot be observed is left alone */
  else if (function)
    observe_swap_pause(function, observe_run, probe->direct, true);
  if (function)
    py.Py_DecRef(function);
  if (module)
    py.Py_DecRef(module);
}

void observe_module_ready(const char *module_name) {
  struct cost_timing cost = cost_rare();
  PyObject *module = observe_allowed && !observe_allowed(module_name) ? NULL : py_module(module_name);
  if (!module)
    return;
  for (size_t t = 0; t < table_count; t++)
    for (size_t i = 0; i < tables[t].n; i++)
      if (strcmp(tables[t].probes[i].module, module_name) == 0)
        probe_set(module, &tables[t].probes[i]);
  if (observe_ran)
    observe_ran(module_name);
  py.Py_DecRef(module);
  cost_end(&cost);
}

void observe_modules_present(void) {
  for (size_t t = 0; t < table_count; t++)
    for (size_t i = 0; i < tables[t].n; i++)
      if (i == 0 || strcmp(tables[t].probes[i].module, tables[t].probes[i - 1].module) != 0)
        observe_module_ready(tables[t].probes[i].module);
}

/* Does the path file[0..len) end in the module's name with '/' for '.', as whole parts? */
static bool path_ends_in(const char *file, size_t len, const char *module) {
  size_t n = strlen(module);
  if (n > len || (n < len && file[len - n - 1] != '/'))
    return false;
  for (const char *path = file + len - n; n-- > 0;)
    if ((module[n] == '.' ? '/' : module[n]) != path[n])
      return false;
  return true;
}

static size_t without_suffix(const char *text, size_t len, const char *suffix) {
  size_t n = strlen(suffix);
  return len >= n && memcmp(text + len - n, suffix, n) == 0 ? len - n : 0;
}

const char *observe_wanted_module(const char *file_name) {
  size_t len = without_suffix(file_name, strlen(file_name), ".py");
  if (len == 0)
    return NULL;
  size_t package_len = without_suffix(file_name, len, "/__init__");
  for (size_t t = 0; t < table_count; t++)
    for (size_t i = 0; i < tables[t].n; i++) {
      const char *module = tables[t].probes[i].module;
      if (path_ends_in(file_name, package_len ? package_len : len, module))
        return module;
    }
  return NULL;
}

void observe_forget(void) {
  observe_swap_forget();
}
