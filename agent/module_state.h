/* What the parts of the `cirron` module share: the module's state, its types, and the small questions asked of Python objects.
 *
 * All of it runs with the GIL held (or, free-threaded, an attached thread state). There is one state for each interpreter that
 * imports the module; nothing that belongs to an interpreter is kept outside of it.
 *
 * Two rules for errors. What goes wrong in our own bookkeeping is cleared and never seen by the script; arguments that no Python
 * function would accept raise as usual. Where script code is run on the way (__str__, __float__) KeyboardInterrupt and SystemExit
 * may come out of it: those are not ours to swallow, and go on to the caller (-ECANCELED below).
 */
#ifndef CIRRON_MODULE_STATE_H
#define CIRRON_MODULE_STATE_H

#include <stdatomic.h>

#include "py.h"
#include "scope.h"

#define MODULE_NAMES 256u           /* strings whose name id is remembered */
#define MODULE_SPAN_JSON_MAX 15000u /* bytes of attributes of a span; with its markup they fit one record */
#define MODULE_MARK_JSON_MAX 6000u  /* of a mark, */
#define MODULE_MARK_TEXT_MAX 9000u  /* and of its value, which share a record */

struct module_name_slot {
  PyObject *_Atomic text; /* strong */
  uint32_t id;
  _Atomic unsigned generation;
};

struct module_wrap_state { /* of wrap() */
  PyObject *base_type, *meta_type, *special_type, *call_type;
  PyObject *types; /* class to its type, once made */
};

struct
    module_errors { /* exception classes, strong: CirronError, CirronDependencyError (an ImportError, too), CirronYamlError */
  PyObject *base, *dependency, *yaml;
};

struct module_config_state { /* CirronYaml, ProfilingConfig, ServingConfig */
  PyObject *file, *profiling, *serving;
};

struct module_state {
  PyObject *scope_type, *iter_type, *profiler_type;
  PyObject *profiler;             /* the handle that profile() returns, once made */
  PyObject *cirron_type, *cirron; /* the class Cirron; the object that is used where none is named, once made */
  PyObject *decorate;             /* the Python half of the decorator, once made */
  PyObject *trace;                /* that of trace() and the sinks: its global names, a dict */
  PyObject *targets;              /* the sinks that profile() was asked for, a list; NULL: it was not called */
  struct module_errors errors;
  struct module_config_state config;
  struct module_wrap_state wrap;
  struct module_name_slot names[MODULE_NAMES];
};

/* Slots and flags of types (typeslots.h); part of the stable interface. */
enum {
  SLOT_NB_BOOL = 9,
  SLOT_SQ_LENGTH = 45,
  SLOT_CALL = 50,
  SLOT_CLEAR = 51,
  SLOT_DEALLOC = 52,
  SLOT_DESCR_GET = 54,
  SLOT_DOC = 56,
  SLOT_GETATTRO = 58,
  SLOT_HASH = 59,
  SLOT_ITER = 62,
  SLOT_ITERNEXT = 63,
  SLOT_METHODS = 64,
  SLOT_NEW = 65,
  SLOT_REPR = 66,
  SLOT_RICHCOMPARE = 67,
  SLOT_SETATTRO = 69,
  SLOT_TRAVERSE = 71,
  SLOT_GETSET = 73,
};
#define MODULE_TYPE_FLAGS (1u << 18) /* Py_TPFLAGS_DEFAULT */
#define MODULE_TYPE_GC (1u << 14)    /* Py_TPFLAGS_HAVE_GC */
#define MODULE_TYPE_BASE (1u << 10)  /* Py_TPFLAGS_BASETYPE */
#define MODULE_CALL_FAST (PY_METH_FASTCALL | PY_METH_KEYWORDS)

struct module_getset { /* PyGetSetDef */
  const char *name;
  PyObject *(*get)(PyObject *, void *);
  int (*set)(PyObject *, PyObject *, void *);
  const char *doc;
  void *closure;
};

typedef int (*module_visit)(PyObject *, void *);

/* For method tables: the functions differ in their arguments by the flags. */
#define MODULE_CALL(function) ((PyCFunction)(void (*)(void))(function))

/* The object's own part lies behind its head, whose length is known at run time only. */
static inline void *module_body(PyObject *self) {
  return (char *)self + py.header;
}

static inline PyObject *module_none(void) {
  if (py.version < 312) /* it is not counted since */
    py.Py_IncRef(py._Py_NoneStruct);
  return py._Py_NoneStruct;
}

static inline PyObject *module_error(void *exception) {
  return *(PyObject **)exception;
}

static inline bool module_is(PyObject *object, void *type) {
  return py_type(object) == type || py.PyType_IsSubtype(py_type(object), type);
}

static inline void module_drop(PyObject *object) { /* accepts NULL */
  if (object)
    py.Py_DecRef(object);
}

/* dict[key] = value, which is taken over; NULL passes an error on. 0, or -1 with an error: whoever sets several stops at the first that
 * fails. */
int module_set(PyObject *dict, const char *key, PyObject *value);

/* Where spans belong that are opened in `scope`, the stack of a thread or task: its number. 0: nowhere, tracing is off. */
static inline uint64_t module_here(const struct scope *scope) {
  return scope ? scope_serial(scope) : 0;
}

/* A span that an object of ours has opened, and how to find it again. */
struct module_span {
  struct span *span; /* NULL: none was opened, or it is closed */
  uint64_t id, session;
  uint64_t here;   /* where it was opened, */
  uint64_t thread; /* and on which thread */
  bool shown;      /* in the table of open spans */
};
void module_span_opened(struct module_span *out, struct scope *scope, struct span *span);
/* The stack that the span is still open in, if that is one of the calling thread's, else NULL. */
struct scope *module_span_stack(const struct module_span *span);

/* Is it open on another thread, or was it when that ended? */
static inline bool module_span_elsewhere(const struct module_span *span) {
  return span->span && span->thread != scope_thread();
}

/* The span is left at end_ns, but lies on another thread's stack: to be closed when that thread comes by. Takes over `json`. False:
 * that thread has ended, and its spans with it. */
bool module_left(const struct module_span *span, uint64_t end_ns, uint32_t exception, char *json);
/* `object` is dead, but such a span may still point at it: its memory is freed when that is over. */
void module_left_bury(const struct module_span *span, PyObject *object);
void module_left_forget(void); /* in the child of a fork */
void module_left_close(void);  /* closes those of this thread; asks nothing of Python */
extern _Atomic unsigned module_left_count;

static inline void module_left_check(void) {
  if (atomic_load_explicit(&module_left_count, memory_order_relaxed))
    module_left_close();
}

/* The stack whose turn it is on the calling thread, for opening spans and for marks. NULL: tracing is off. */
static inline struct scope *module_stack(void) {
  module_left_check();
  return scope_get();
}

/* Makes one of the module's types from its slots. No type can be called to make objects. */
PyObject *module_type(const char *name, size_t body, unsigned flags, struct py_slot *slots);
/* Frees an object of such a type and lets go of the type. */
void module_free_object(PyObject *self, bool collected);
/* The end of a traverse: an object holds its type, which before 3.9 is not counted among what it holds. */
int module_visit_type(PyObject *self, module_visit visit, void *arg);
/* Takes over a new type (NULL: passes on the error) and keeps it in *place, borrowed as long as the module is there. It holds the
 * module, so that its objects can use the state. module_add_type: and shows it in the module. 0, or -1 with an error. */
int module_keep_type(PyObject *module, PyObject *type, PyObject **place);
int module_add_type(PyObject *module, const char *name, PyObject *type, PyObject **place);
/* Shows an object in the module under this name and keeps it in *place; takes it over, NULL passes on the error. */
int module_show(PyObject *module, const char *name, PyObject *object, PyObject **place);
/* tp_new of all types. */
PyObject *module_no_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);

/* Runs Python source as a module `cirron` of its own. Its global names, a new dict, or NULL with an error. */
PyObject *module_python(const char *source);

/* Clears an error that is set. False: it is none of ours to clear, and stays. */
bool module_swallow(void);

/* A str as UTF-8. Lone surrogates become U+FFFD. False: no memory; no error is left. */
struct module_text {
  const char *text;
  size_t len;
  PyObject *held; /* the bytes, where the object itself does not keep them */
};
bool module_text(PyObject *string, struct module_text *out);
void module_text_drop(struct module_text *text);

/* The id of a name, from a table by identity, else from the segment. Needs a session. 0: none. */
uint32_t module_name(struct module_state *state, PyObject *string);
void module_names_free(struct module_state *state);
/* The id of an exception's class name. `value` may be None. */
uint32_t module_exception(PyObject *type, PyObject *value);

/* A mark's value. 0, -ENOTSUP: cannot be kept, -ECANCELED. The text is good until module_text_drop. */
int module_value(PyObject *object, struct scope_value *out, struct module_text *text);

/* Attributes as one JSON object, entry by entry, into a buffer that always stays a whole object. */
struct module_json_losses { /* entries that are not there as they were given */
  unsigned coerced;         /* as the str() of what no JSON holds, or shortened */
  unsigned left_out;        /* there was no room for them; said in the text */
};
struct module_json {
  char *begin, *at, *end;
  struct module_json_losses losses;
  bool changed; /* the entry that is being written */
};
void module_json_begin(struct module_json *json, char *buffer, size_t size);
int module_json_entry(struct module_json *json, PyObject *key, PyObject *value); /* 0 or -ECANCELED */
/* All entries of a dict: the same. `own`: nobody else has the dict, so nothing can change it meanwhile. */
int module_json_dict(struct module_json *json, PyObject *dict, bool own);
size_t module_json_end(struct module_json *json); /* its length; 0: nothing in it */

/* Counts what was lost for health(). *counted: what was counted before for the same span, whose place this takes. */
void module_json_count(const struct module_json *json, struct module_json_losses *counted);
struct module_json_totals {
  uint64_t coerced, left_out; /* of this process and session */
};
struct module_json_totals module_json_totals(void);
void module_json_forget(void); /* in the child of a fork, and where a session begins */

/* Makes the exception classes and shows them in the module. 0, or -1 with an error. */
int module_errors(PyObject *module, struct module_errors *errors);

/* scope(...) and its type. */
PyObject *module_scope_type(void);
void module_scope_reuse(const PyObject *type); /* of the main interpreter, or NULL: it goes */
PyObject *module_scope(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
/* The function `function`, run inside `scope`. New reference, or NULL with an error. */
PyObject *module_decorate(struct module_state *state, PyObject *scope, PyObject *function);

/* epochs(...), batches(...). */
PyObject *module_iter_type(void);
PyObject *module_epochs(PyObject *module, PyObject *iterable);
PyObject *module_batches(PyObject *module, PyObject *iterable);

/* wrap(...) and its types: module_wrap.h. watch(...): module_watch.h. */
PyObject *module_wrap(PyObject *module, PyObject *args, PyObject *kwargs);
int module_wrap_types(PyObject *module, struct module_wrap_state *wrap);
PyObject *module_watch(PyObject *module, PyObject *args, PyObject *kwargs);

/* profile(...), its handle, and the functions of the module that are the handle's methods too (both ignore `self`). */
PyObject *module_profiler_type(void);
PyObject *module_profile(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *module_flush(PyObject *self, PyObject *unused);
PyObject *module_shutdown(PyObject *self, PyObject *unused);
PyObject *module_health(PyObject *self, PyObject *unused);

#endif
