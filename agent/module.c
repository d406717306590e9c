/* The module `cirron`: its definition, mark(), and what its parts share.
 *
 * The definition is laid out by hand, since no header of any one Python version would fit the others: its head is as long as that
 * of objects of the interpreter at hand, and the slots are those that its version knows.
 */
#include "module.h"

#include <errno.h>
#include <string.h>

#include "attach.h"
#include "cost.h"
#include "glibc.h"
#include "module_cirron.h"
#include "module_config.h"
#include "module_first.h"
#include "module_sink.h"
#include "module_state.h"
#include "module_trace.h"
#include "module_wrong.h"

/* PyModuleDef behind its head. */
struct module_def {
  PyObject *(*init)(void);
  Py_ssize_t index;
  PyObject *copy;
  const char *name, *doc;
  Py_ssize_t size;
  struct py_method *methods;
  struct py_slot *slots; /* PyModuleDef_Slot is the same */
  int (*traverse)(PyObject *, module_visit, void *);
  int (*clear)(PyObject *);
  void (*free)(void *);
};

enum { MODULE_EXEC = 2, MODULE_INTERPRETERS = 3, MODULE_GIL = 4 }; /* Py_mod_... */

/* --- what the parts share --- */

bool module_swallow(void) {
  if (!py.PyErr_Occurred())
    return true;
  if (!py.PyErr_ExceptionMatches(module_error(py.PyExc_Exception)))
    return false;
  py.PyErr_Clear();
  return true;
}

int module_set(PyObject *dict, const char *key, PyObject *value) {
  int r = value ? py.PyDict_SetItemString(dict, key, value) : -1;
  module_drop(value);
  return r;
}

PyObject *module_type(const char *name, size_t body, unsigned flags, struct py_slot *slots) {
  struct py_type_spec spec = {
      .name = name,
      .basicsize = (int)(py.header + body),
      .flags = MODULE_TYPE_FLAGS | flags,
      .slots = slots,
  };
  return py.PyType_FromSpec(&spec);
}

int module_visit_type(PyObject *self, module_visit visit, void *arg) {
  return py.version < 309 ? 0 : visit((PyObject *)py_type(self), arg);
}

void module_free_object(PyObject *self, bool collected) {
  PyObject *type = (PyObject *)py_type(self);
  if (collected)
    py.PyObject_GC_Del(self);
  else
    py.PyObject_Free(self);
  py.Py_DecRef(type);
}

PyObject *module_no_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  (void)type;
  (void)args;
  (void)kwargs;
  py.PyErr_SetString(module_error(py.PyExc_TypeError), "objects of this type are made by the functions of cirron");
  return NULL;
}

/* --- mark(name, value, kind="point", **attrs) --- */

struct mark {
  PyObject *name, *value, *kind;
  bool summary;
};

static int read_kind(struct mark *m) {
  const struct module_given given = {.who = "mark", .name = "kind", .value = m->kind};
  if (!m->kind)
    return 0;
  if (module_is(m->kind, py.PyUnicode_Type)) {
    m->summary = py.PyUnicode_CompareWithASCIIString(m->kind, "summary") == 0;
    if (m->summary || py.PyUnicode_CompareWithASCIIString(m->kind, "point") == 0)
      return 0;
  }
  return (void)module_wrong_value(&given, "'point' or 'summary'"), -1;
}

/* The argument of that name, or NULL: it is an attribute, as `name` and `value` are where they were given by position. */
static PyObject **argument_of(struct mark *m, Py_ssize_t nargs, PyObject *key) {
  if (py.PyUnicode_CompareWithASCIIString(key, "kind") == 0)
    return &m->kind;
  if (nargs < 1 && py.PyUnicode_CompareWithASCIIString(key, "name") == 0)
    return &m->name;
  return nargs < 2 && py.PyUnicode_CompareWithASCIIString(key, "value") == 0 ? &m->value : NULL;
}

/* A name that is no str is taken as its str(). */
static int mark_put(struct module_state *state, const struct mark *m, const char *attrs, size_t attrs_len) {
  struct scope *scope = module_stack();
  if (!scope)
    return 0;
  struct scope_value value;
  struct module_text text;
  int r = module_value(m->value, &value, &text);
  PyObject *made = NULL, *name = m->name;
  if (r == 0 && py_type(name) != py.PyUnicode_Type && !module_is(name, py.PyUnicode_Type)) {
    name = made = py.PyObject_Str(name);
    if (!made)
      r = module_swallow() ? -ENOTSUP : -ECANCELED;
  }
  scope = scope_peek(); /* conversions may run anything */
  if (r == 0 && scope)
    scope_mark(scope, module_name(state, name), &value, m->summary, attrs, attrs_len);
  else if (r == -ENOTSUP)
    scope_refused_mark();
  module_drop(made);
  module_text_drop(&text);
  return r == -ECANCELED ? r : 0;
}

static PyObject *mark_wrong(const struct mark *m, Py_ssize_t nargs) {
  if (nargs > 2)
    return py.PyErr_Format(module_error(py.PyExc_TypeError), "mark() takes 2 positional arguments but %zd were given", nargs);
  return py.PyErr_Format(module_error(py.PyExc_TypeError), "mark() missing required argument: '%s'",
                         m->name ? "value" : "name");
}

/* The attributes are asked for their texts when nothing is wrong with the rest, and something is recorded. */
static PyObject *mark_named(PyObject *module, struct mark *m, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  char buffer[MODULE_MARK_JSON_MAX];
  struct module_json json;
  Py_ssize_t n = py.PyTuple_Size(kwnames);
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject **argument = argument_of(m, nargs, py.PyTuple_GetItem(kwnames, i));
    if (argument)
      *argument = args[nargs + i];
  }
  if (read_kind(m) < 0)
    return NULL;
  if (!m->name || !m->value)
    return mark_wrong(m, nargs);
  module_json_begin(&json, buffer, sizeof buffer);
  for (Py_ssize_t i = 0; i < n && module_stack(); i++) {
    PyObject *key = py.PyTuple_GetItem(kwnames, i);
    if (!argument_of(m, nargs, key) && module_json_entry(&json, key, args[nargs + i]) < 0)
      return NULL;
  }
  size_t len = module_json_end(&json);
  if (mark_put(py.PyModule_GetState(module), m, len ? buffer : NULL, len) < 0)
    return NULL;
  module_json_count(&json, &(struct module_json_losses){0});
  return module_none();
}

static PyObject *mark_untimed(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  struct mark m = {.name = nargs > 0 ? args[0] : NULL, .value = nargs > 1 ? args[1] : NULL};
  if (nargs > 2)
    return mark_wrong(&m, nargs);
  if (kwnames)
    return mark_named(module, &m, args, nargs, kwnames);
  if (!m.value)
    return mark_wrong(&m, nargs);
  return mark_put(py.PyModule_GetState(module), &m, NULL, 0) < 0 ? NULL : module_none();
}

static PyObject *mark(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  struct cost_timing cost = cost_call();
  PyObject *result = mark_untimed(module, args, nargs, kwnames);
  cost_end(&cost);
  return module_sink_after(py.PyModule_GetState(module), result);
}

/* --- the definition --- */

#define DOC_MODULE                                                                                                             \
  "Records what a training does, from inside the script.\n\n"                                                                  \
  "with cirron.scope('augmentation'): ...      a span\n"                                                                       \
  "cirron.mark('loss', loss.item())            a value, on the innermost open span\n"                                          \
  "for epoch in cirron.epochs(range(20)): ...  a span around each item\n\n"                                                    \
  "Nothing of this raises, waits or prints because of tracing: without a collector, when the\n"                                \
  "tracing is off, or when something cannot be kept, the script runs as it would without, and\n"                               \
  "health() tells what was left out."
#define DOC_SCOPE                                                                                                              \
  "scope(name, index=None, **attrs)\n--\n\n"                                                                                   \
  "A span, as a context manager or a decorator. `with scope(...) as s` gives an object with the\n"                             \
  "fields name, index, id, parent_id and the dict attrs, which may be changed while the span is\n"                             \
  "open. A scope may be entered again, and by several threads or tasks: each use is a span of its own.\n"                      \
  "Decorated generators and coroutines hold the span from their first step to their end.\n\n"                                  \
  "An exception that leaves the scope is noted by its class name and goes on. At most 63 spans\n"                              \
  "are open at a time in a thread or task; deeper ones are counted and not kept. Attributes take up to\n"                      \
  "15,000 bytes as JSON, texts in them 4,096; what is longer is shortened."
#define DOC_MARK                                                                                                               \
  "mark(name, value, *, kind='point', **attrs)\n--\n\n"                                                                        \
  "Notes a value on the innermost open span of this thread, else on the session. kind='summary'\n"                             \
  "says that it is the one value that stands for the whole span.\n\n"                                                          \
  "Values are numbers (whole ones up to 64 bits), truth values and texts (up to 9,000 bytes of\n"                              \
  "UTF-8, longer ones are cut), also as scalars of numpy or as arrays and tensors of one element.\n"                           \
  "Anything else is not kept and counted in health()['mark_refused_count']; nothing is raised."
#define DOC_EPOCHS                                                                                                             \
  "epochs(iterable, /)\n--\n\n"                                                                                                \
  "Iterates over iterable, with a span `epoch` open while the script works on each item, index\n"                              \
  "0, 1, 2 and so on. Leaving the loop closes the open span."
#define DOC_BATCHES                                                                                                            \
  "batches(iterable, /)\n--\n\n"                                                                                               \
  "Iterates over iterable, with a span `batch` open while the script works on each item, index\n"                              \
  "0, 1, 2 and so on. The time to fetch an item lies outside of it and is its attribute\n"                                     \
  "data_load_ns: nanoseconds. Leaving the loop closes the open span."
#define DOC_WATCH                                                                                                              \
  "watch(model, name=None)\n--\n\n"                                                                                            \
  "Names a model whose parameters and gradients are to be looked at when an epoch ends. May be\n"                              \
  "called for several; each has a name of its own, by default that of its class (Net, Net#2).\n"                               \
  "They are held weakly. watch(None) forgets all. health()['watched'] shows the names.\n\n"                                    \
  "Where nothing is named, the model that a framework trains is looked at, else those that an\n"                               \
  "optimizer of the script updates."
#define DOC_WRAP                                                                                                               \
  "wrap(estimator)\n--\n\n"                                                                                                    \
  "The estimator, with a span for each call of its methods: fit, predict, transform, score and all\n"                          \
  "others but get_... and set_... . The span is named after the method and has an attribute\n"                                 \
  "`estimator`, the name of the class. What the estimator calls of its own is part of the span.\n\n"                           \
  "What is returned is the estimator to isinstance, clone, Pipeline, GridSearchCV and the like.\n"                             \
  "Copies and clones are timed, too. It pickles as the estimator itself. Steps of a pipeline and\n"                            \
  "other parts that it keeps in lists (steps, transformer_list, transformers, estimators) are\n"                               \
  "wrapped in place. `__wrapped__` is the estimator as it was. TypeError for what is none."
#define DOC_PROFILE                                                                                                            \
  "profile(config=None, frameworks=None, snapshots=None, sample_rate=None, flush_interval=None,\n"                             \
  "        enabled=True, path=None, output=None)\n--\n\n"                                                                      \
  "The handle of this process's tracing. Called once; a second call gives the same handle and\n"                               \
  "warns. After shutdown() it may be called again, and a new session begins.\n\n"                                              \
  "What is given holds, else what config= says (a dict), else `profiling:` of the nearest\n"                                   \
  "cirron.yaml (or of the file path=), else what Cirron() was given, else CIRRON_..., else what\n"                             \
  "~/.cirron/config.toml says. frameworks: those\n"                                                                            \
  "that are observed by themselves, [] for none. enabled=False: nothing is recorded. TypeError or\n"                           \
  "ValueError for what cannot be.\n\n"                                                                                         \
  "snapshots: 'stats' (default): statistics of weights and gradients when an epoch ends; 'full': raw\n"                        \
  "tensors, too, as safetensors in output_dir/snapshots; 'sampled': those of a sample_rate of the\n"                           \
  "epochs; 'off'.\n\n"                                                                                                         \
  "output: where closed spans go in this process, beside the collector. 'spool' (default): a file of\n"                        \
  "JSON every flush_interval seconds in .cirron/spool; 'stdout': a line each, printed when the script\n"                       \
  "next calls this module or a step ends; 'log': the same to the logger cirron.trace; a list of these;\n"                      \
  "'none'."
#define DOC_GET_DEFAULT "get_default()\n--\n\nThe Cirron object that the functions of this module use."
#define DOC_TRACE                                                                                                              \
  "trace(format='tree', name=None, last=None)\n--\n\n"                                                                         \
  "What this process recorded, without leaving it. 'tree' prints one line a span, or shows it in a\n"                          \
  "notebook; 'dict' and 'json' give the same with all fields; 'df' a pandas.DataFrame, one row a\n"                            \
  "span. Spans that are not closed yet are shown as open.\n\n"                                                                 \
  "name: spans of that name and what lies in them. last: the so many that ended last.\n\n"                                     \
  "After profile() or a first trace() up to 100,000 spans are kept (Cirron(trace_buffer_max_spans=...)\n"                      \
  "says how many are shown), with their summary marks and\n"                                                                   \
  "the newest 1,024 others of each, in at most 16 MiB; the oldest make way. The first trace()\n"                               \
  "without profile() has what the buffers to the collector still hold."
#define DOC_FIND_YAML                                                                                                          \
  "find_cirron_yaml(start=None)\n--\n\n"                                                                                       \
  "The nearest cirron.yaml, cirron.yml or cirron.json, in this order: in the folder start (the\n"                              \
  "working directory), else in those above it. A pathlib.Path, or None."
#define DOC_LOAD_YAML                                                                                                          \
  "load_cirron_yaml(path=None)\n--\n\n"                                                                                        \
  "What that file says, with a field for each of its keys. Without a path, the nearest one, or\n"                              \
  "None where there is none. CirronYamlError names file and line of what is wrong."
#define DOC_FLUSH                                                                                                              \
  "flush()\n--\n\n"                                                                                                            \
  "Writes what was recorded to the sinks of profile(), and makes sure that the collector has it: records\n"                    \
  "lie in memory shared with that from the moment they are made. Where they are sent instead, a collector\n"                   \
  "that takes them slowly is waited for, 2 s at most; one that takes nothing, once, for 0.3 s."
#define DOC_SHUTDOWN                                                                                                           \
  "shutdown()\n--\n\nCloses the session: what this thread has open is closed, all is written to the sinks, and\n"              \
  "nothing is recorded any more in this process. The end of the program does the same."
#define DOC_HEALTH                                                                                                             \
  "health()\n--\n\n"                                                                                                           \
  "How the tracing of this process is, as a dict: is it enabled, is a collector connected\n"                                   \
  "(transport), what was left out and why (..._count), what it costs (overhead_...)."

static struct py_method functions[] = {
    {"scope", MODULE_CALL(module_scope), MODULE_CALL_FAST, DOC_SCOPE},
    {"mark", MODULE_CALL(mark), MODULE_CALL_FAST, DOC_MARK},
    {"epochs", module_epochs, PY_METH_O, DOC_EPOCHS},
    {"batches", module_batches, PY_METH_O, DOC_BATCHES},
    {"watch", MODULE_CALL(module_watch), PY_METH_VARARGS | PY_METH_KEYWORDS, DOC_WATCH},
    {"wrap", MODULE_CALL(module_wrap), PY_METH_VARARGS | PY_METH_KEYWORDS, DOC_WRAP},
    {"profile", MODULE_CALL(module_profile), PY_METH_VARARGS | PY_METH_KEYWORDS, DOC_PROFILE},
    {"trace", MODULE_CALL(module_trace), PY_METH_VARARGS | PY_METH_KEYWORDS, DOC_TRACE},
    {"find_cirron_yaml", MODULE_CALL(module_find_yaml), PY_METH_VARARGS | PY_METH_KEYWORDS, DOC_FIND_YAML},
    {"load_cirron_yaml", MODULE_CALL(module_load_yaml), PY_METH_VARARGS | PY_METH_KEYWORDS, DOC_LOAD_YAML},
    {"get_default", module_get_default, PY_METH_NOARGS, DOC_GET_DEFAULT},
    {"flush", module_flush, PY_METH_NOARGS, DOC_FLUSH},
    {"shutdown", module_shutdown, PY_METH_NOARGS, DOC_SHUTDOWN},
    {"health", module_health, PY_METH_NOARGS, DOC_HEALTH},
    {0},
};

int module_keep_type(PyObject *module, PyObject *type, PyObject **place) {
  if (!type)
    return -1;
  *place = type;
  return py.PyObject_SetAttrString(type, "__cirron__", module);
}

int module_add_type(PyObject *module, const char *name, PyObject *type, PyObject **place) {
  return module_keep_type(module, type, place) < 0 ? -1 : module_show(module, name, type, place);
}

static int module_exec(PyObject *module) {
  struct module_state *s = py.PyModule_GetState(module);
  PyObject *version = py.PyUnicode_FromStringAndSize(CIRRON_VERSION, sizeof CIRRON_VERSION - 1);
  int bad = version ? py.PyObject_SetAttrString(module, "__version__", version) : -1;
  module_drop(version);
  bad = bad || module_add_type(module, "Scope", module_scope_type(), &s->scope_type);
  if (!bad && py_in_main() && !py.free_threaded)
    module_scope_reuse(s->scope_type);
  return bad || module_add_type(module, "LoopIterator", module_iter_type(), &s->iter_type) ||
                 module_add_type(module, "Profiler", module_profiler_type(), &s->profiler_type) ||
                 module_wrap_types(module, &s->wrap) || module_errors(module, &s->errors) ||
                 module_config_types(module, &s->config) || module_cirron_type(module, &s->cirron_type)
             ? -1
             : 0;
}

static int module_traverse(PyObject *module, module_visit visit, void *arg) {
  struct module_state *s = py.PyModule_GetState(module);
  if (!s) /* 3.8 asks before there is one */
    return 0;
  const struct module_wrap_state *w = &s->wrap;
  const struct module_errors *e = &s->errors;
  const struct module_config_state *c = &s->config;
  PyObject *held[] = {s->scope_type,   s->iter_type, s->profiler_type, s->profiler, s->decorate,   w->base_type, w->meta_type,
                      w->special_type, w->call_type, w->types,         e->base,     e->dependency, e->yaml,      c->file,
                      c->profiling,    c->serving,   s->cirron_type,   s->cirron,   s->trace,      s->targets};
  int r = 0;
  for (size_t i = 0; i < sizeof held / sizeof held[0] && !r; i++)
    r = held[i] ? visit(held[i], arg) : 0;
  return r;
}

static int module_clear(PyObject *module) {
  struct module_state *s = py.PyModule_GetState(module);
  if (!s)
    return 0;
  if (py_in_main())
    module_scope_reuse(NULL);
  struct module_wrap_state *w = &s->wrap;
  struct module_errors *e = &s->errors;
  struct module_config_state *c = &s->config;
  PyObject **held[] = {&s->scope_type, &s->iter_type,   &s->profiler_type, &s->profiler,  &s->decorate,
                       &w->base_type,  &w->meta_type,   &w->special_type,  &w->call_type, &w->types,
                       &e->base,       &e->dependency,  &e->yaml,          &c->file,      &c->profiling,
                       &c->serving,    &s->cirron_type, &s->cirron,        &s->trace,     &s->targets};
  for (size_t i = 0; i < sizeof held / sizeof held[0]; i++) {
    PyObject *object = *held[i];
    *held[i] = NULL;
    module_drop(object);
  }
  return 0;
}

static void module_free(void *module) {
  struct module_state *s = py.PyModule_GetState(module);
  (void)module_clear(module); /* cannot fail */
  if (s) {
    module_sink_drop(s);
    module_names_free(s);
  }
}

PyObject *module_init(void) {
  static _Alignas(max_align_t) char memory[32 + sizeof(struct module_def)];
  static struct py_slot slots[4];
  struct module_def *def = (struct module_def *)(memory + py.header);
  if (!def->name) {
    struct py_slot *slot = slots;
    *slot++ = (struct py_slot){MODULE_EXEC, (void *)module_exec};
    if (py.version >= 312)
      *slot++ = (struct py_slot){MODULE_INTERPRETERS, (void *)2}; /* each with a lock of its own */
    if (py.version >= 313)
      *slot++ = (struct py_slot){MODULE_GIL, (void *)1}; /* not needed */
    def->doc = DOC_MODULE;
    def->size = sizeof(struct module_state);
    def->methods = functions;
    def->slots = slots;
    def->traverse = module_traverse;
    def->clear = module_clear;
    def->free = module_free;
    def->name = "cirron";
  }
  return py.PyModuleDef_Init(memory);
}

/* Of `py` nothing may be used in this interpreter. */
static PyObject *import_error(void) {
  void (*set)(PyObject *, const char *) = (void (*)(PyObject *, const char *))dlsym(RTLD_DEFAULT, "PyErr_SetString");
  PyObject **type = dlsym(RTLD_DEFAULT, "PyExc_ImportError");
  if (set && type)
    set(*type, "cirron does not know this Python, or it is built without the GIL");
  return NULL;
}

__attribute__((visibility("default"))) PyObject *PyInit_cirron(void) {
  PyObject *(*first)(void) = module_first();
  if (first)
    return first();
  (void)attach_late(); /* false: attached before, or tracing is off, or no interpreter we know: told apart below */
  if (!attach_done() && py_find(RTLD_DEFAULT) != 0)
    return import_error();
  return module_init();
}
