/* scope(...): one object that is a context manager, the span it opened, and a decorator.
 *
 * The object stands for one span, that of its first use. Entered again - nested, by another thread or task, or once more later - it makes a
 * new object of the same name and attributes for that use and keeps it in the list `uses` until the use ends. __exit__ is called on
 * the object that was entered first, so it looks there for the newest use of its own thread or task. A use closes its own span and no other:
 * it knows the span's place and id, and the session it was opened in, since ids start anew in the child of a fork.
 *
 * A span borrows its attributes' text from its use, and points at the use (span.owner), until it is closed. A use whose object dies
 * before closes its span. Left on another thread than it was entered on, the span is closed later (module_left.c), and the memory of
 * the use, which the span may still point at, is freed only then.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cost.h"
#include "loop.h"
#include "module_sink.h"
#include "module_state.h"
#include "session.h"
#include "snapshot.h"

struct use {
  PyObject *name;
  struct module_state *state; /* of the module, which the type holds */
  PyObject *given;            /* attributes as passed: a dict that nobody else has, or NULL */
  PyObject *attrs;            /* the dict that `.attrs` gave out, or NULL */
  int64_t index;
  struct module_span span; /* `here` is also set where none could be opened */
  uint64_t parent;
  char *json;                       /* borrowed by the span */
  struct module_json_losses losses; /* of it, as counted */
  PyObject *uses;                   /* further uses, newest first; owns them */
  PyObject *older;                  /* next in that list */
  bool used, inside;
  bool tracked;        /* by the collector of cycles */
  bool lost;           /* left on another thread than the span's, which may still point here */
  _Atomic bool locked; /* protects uses, older, used, inside; held for a few instructions, taken in free-threaded builds only */
};

static struct use *use_of(PyObject *self) {
  return module_body(self);
}

static void lock(struct use *u) {
  while (py.free_threaded && atomic_exchange_explicit(&u->locked, true, memory_order_acquire))
    ;
}

static void unlock(struct use *u) {
  if (py.free_threaded)
    atomic_store_explicit(&u->locked, false, memory_order_release);
}

/* --- the span of one use --- */

/* The attributes as text in u->json. 0 or -ECANCELED; on trouble there is none. */
static int encode(struct use *u, size_t *len) {
  PyObject *attrs = u->attrs ? u->attrs : u->given;
  char buffer[MODULE_SPAN_JSON_MAX];
  struct module_json json;
  *len = 0;
  if (!attrs)
    return 0;
  module_json_begin(&json, buffer, sizeof buffer);
  py.Py_IncRef(attrs); /* what str() runs may let go of it */
  int r = module_json_dict(&json, attrs, !u->attrs);
  py.Py_DecRef(attrs);
  size_t n = module_json_end(&json);
  module_json_count(&json, &u->losses);
  char *text = n ? malloc(n) : NULL;
  if (text) {
    memcpy(text, buffer, n);
    *len = n;
  }
  u->json = text;
  return r;
}

/* 0 or -ECANCELED, then nothing is open. */
static int use_open(PyObject *self, struct scope *scope) {
  struct use *u = use_of(self);
  size_t len = 0;
  if (scope && (u->given || u->attrs)) {
    int r = encode(u, &len);
    if (r < 0)
      return r;
    scope = module_stack(); /* str() may have run anything */
  }
  if (!scope)
    return 0;
  uint32_t name = module_name(u->state, u->name);
  struct span *span = scope_push(scope, SPAN_USER, name, u->index, scope_clock(scope));
  if (!span)
    return 0;
  span->owner = self;
  span->attrs = len ? u->json : NULL;
  span->attrs_len = (uint32_t)len;
  module_span_opened(&u->span, scope, span);
  u->parent = span->parent;
  return 0;
}

/* The script may have changed the attributes since they were encoded. */
static int use_refresh(struct use *u) {
  if (!u->attrs)
    return 0;
  char *before = u->json;
  size_t len;
  int r = encode(u, &len);
  if (module_span_stack(&u->span)) { /* str() may have run anything */
    u->span.span->attrs = len ? u->json : NULL;
    u->span.span->attrs_len = (uint32_t)len;
  }
  free(before);
  return r;
}

/* Closing a span closes what is open above it; their attributes have to be as they are now, too. */
static int refresh_above(struct scope *scope, const struct span *span) {
  int r = 0;
  for (struct span *s = scope_top(scope); s && s != span; s = scope_below(scope, s))
    if (s->kind == SPAN_USER && s->owner && use_of((PyObject *)s->owner)->attrs) { /* a lost use has none */
      PyObject *owner = (PyObject *)s->owner;
      py.Py_IncRef(owner);
      int one = use_refresh(use_of(owner));
      py.Py_DecRef(owner);
      r = one ? one : r;
    }
  return r;
}

/* Asks nothing of Python. */
static void use_end(struct use *u, struct scope *scope, uint64_t end_ns, uint32_t exception) {
  if (scope) {
    u->parent = u->span.span->parent;
    loop_pop(scope, u->span.span, end_ns, exception);
  } else if (module_span_elsewhere(&u->span)) {
    u->lost = module_left(&u->span, end_ns, exception, u->json);
    u->json = NULL;
  }
  u->span.span = NULL;
  free(u->json);
  u->json = NULL;
}

static int use_close(struct use *u, uint64_t end_ns, uint32_t exception) {
  struct scope *scope = module_span_stack(&u->span);
  int r = 0;
  if (scope && (u->attrs || scope_top(scope) != u->span.span)) {
    r = refresh_above(scope, u->span.span);
    int own = use_refresh(u);
    r = own ? own : r;
    scope = module_span_stack(&u->span);
  }
  use_end(u, scope, end_ns, exception);
  return r;
}

/* --- the object --- */

static void use_track(PyObject *self) {
  py.PyObject_GC_Track(self);
  use_of(self)->tracked = true;
}

/* The memory of the last that died is taken again: of one type, the main interpreter's, whose GIL protects it. */
static struct {
  const PyTypeObject *type;
  PyObject *memory;
} spare;

void module_scope_reuse(const PyObject *type) {
  PyObject *memory = spare.memory;
  spare.memory = NULL;
  spare.type = (const PyTypeObject *)type;
  if (memory)
    py.PyObject_GC_Del(memory);
}

static PyObject *use_alloc(PyTypeObject *type) {
  PyObject *memory = spare.type == type ? spare.memory : NULL;
  if (!memory)
    return py._PyObject_GC_New(type);
  spare.memory = NULL;
  return py.PyObject_Init(memory, type);
}

static void use_free(PyObject *self, bool tracked) {
  PyTypeObject *type = py_type(self);
  if (tracked || spare.type != type || spare.memory) {
    module_free_object(self, true);
    return;
  }
  spare.memory = self;
  py.Py_DecRef((PyObject *)type);
}

/* Only one that has a dict, or further uses, can be part of a reference cycle: the collector of cycles is told of no other, which is quicker. Making it
 * may run anything all the same. */
static PyObject *use_new(PyTypeObject *type, struct module_state *state, PyObject *name, int64_t index, PyObject *given) {
  PyObject *self = use_alloc(type);
  if (!self)
    return NULL;
  struct use *u = use_of(self);
  memset(u, 0, sizeof *u);
  py.Py_IncRef(name);
  if (given)
    py.Py_IncRef(given);
  u->state = state;
  u->name = name;
  u->index = index;
  u->given = given;
  if (given || py_type(name) != py.PyUnicode_Type)
    use_track(self);
  return self;
}

static int use_traverse(PyObject *self, module_visit visit, void *arg) {
  struct use *u = use_of(self);
  int r = visit(u->name, arg);
  if (!r && u->attrs)
    r = visit(u->attrs, arg);
  if (!r && u->given)
    r = visit(u->given, arg);
  for (PyObject *use = u->uses; use && !r; use = use_of(use)->older)
    r = visit(use, arg);
  return r ? r : module_visit_type(self, visit, arg);
}

static int use_clear(PyObject *self) {
  struct use *u = use_of(self);
  PyObject *attrs = u->attrs, *given = u->given;
  u->attrs = u->given = NULL;
  module_drop(attrs);
  module_drop(given);
  return 0;
}

static void use_dealloc(PyObject *self) {
  struct use *u = use_of(self);
  if (u->tracked)
    py.PyObject_GC_UnTrack(self);
  if (u->span.span || u->json) /* before anything runs that could find it on the stack */
    use_end(u, module_span_stack(&u->span), scope_now(), 0);
  for (PyObject *use; (use = u->uses);) {
    u->uses = use_of(use)->older;
    use_of(use)->older = NULL;
    py.Py_DecRef(use);
  }
  (void)use_clear(self); /* cannot fail */
  module_drop(u->name);
  if (u->lost)
    module_left_bury(&u->span, self);
  else
    use_free(self, u->tracked);
}

/* The object for a use that begins now: itself the first time. New reference. */
static PyObject *use_begin(PyObject *self, uint64_t here) {
  struct use *u = use_of(self);
  lock(u);
  bool first = !u->used;
  if (first) {
    u->used = u->inside = true;
    u->span.here = here;
  }
  unlock(u);
  if (first) {
    py.Py_IncRef(self);
    return self;
  }
  PyObject *use = use_new(py_type(self), u->state, u->name, u->index, u->given);
  if (!use)
    return NULL;
  struct use *n = use_of(use);
  n->used = n->inside = true;
  n->span.here = here;
  py.Py_IncRef(use); /* the list's */
  lock(u);
  n->older = u->uses;
  u->uses = use;
  unlock(u);
  if (!u->tracked)
    use_track(self);
  return use;
}

/* Takes out of the list the newest use of this place, or of any. NULL: there is none. */
static PyObject *take_use(struct use *u, bool any, uint64_t here) {
  for (PyObject **at = &u->uses; *at; at = &use_of(*at)->older)
    if (any || use_of(*at)->span.here == here) {
      PyObject *found = *at;
      *at = use_of(found)->older;
      use_of(found)->older = NULL;
      return found;
    }
  return NULL;
}

/* One of several. */
__attribute__((noinline)) static PyObject *use_finish_one(PyObject *self) {
  struct use *u = use_of(self);
  uint64_t here = module_here(scope_peek()); /* may run anything: not while it is locked */
  lock(u);
  PyObject *found = take_use(u, false, here);
  if (!found && !(u->inside && u->span.here == here))
    found = take_use(u, true, 0);
  if (!found && u->inside)
    found = self;
  if (found)
    use_of(found)->inside = false;
  unlock(u);
  return found;
}

/* The use that ends now: the newest of this thread or task, else of any, for a generator may wander between them. NULL: none. Itself,
 * or a new reference. */
static PyObject *use_finish(PyObject *self) {
  struct use *u = use_of(self);
  lock(u);
  bool several = u->uses != NULL, inside = u->inside;
  if (!several)
    u->inside = false;
  unlock(u);
  return several ? use_finish_one(self) : inside ? self : NULL;
}

static PyObject *enter(PyObject *self) {
  struct scope *scope = module_stack();
  PyObject *use = use_begin(self, module_here(scope));
  if (use != self)
    scope = module_stack(); /* making it may have run anything */
  if (!use || use_open(use, scope) == 0)
    return use;
  PyObject *same = use_finish(self);
  if (same && same != self)
    py.Py_DecRef(same);
  py.Py_DecRef(use);
  return NULL;
}

static PyObject *scope_enter(PyObject *self, PyObject *unused) {
  (void)unused;
  struct cost_timing cost = cost_call();
  PyObject *use = enter(self);
  cost_end(&cost);
  return use;
}

/* A generator that is dropped inside a scope is left in good order. */
static uint32_t exception_of(PyObject *const *args, Py_ssize_t nargs) {
  if (nargs < 1 || args[0] == py._Py_NoneStruct || args[0] == module_error(py.PyExc_GeneratorExit))
    return 0;
  return scope_peek() ? module_exception(args[0], nargs > 1 ? args[1] : py._Py_NoneStruct) : 0;
}

static PyObject *leave(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  uint64_t end_ns = scope_now();
  module_left_check(); /* before anything looks at the spans above */
  PyObject *use = use_finish(self);
  if (!use)
    return module_none();
  int r = use_close(use_of(use), end_ns, exception_of(args, nargs));
  if (use != self)
    py.Py_DecRef(use);
  return r == 0 ? module_none() : NULL;
}

static PyObject *scope_exit(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  struct cost_timing cost = cost_call();
  PyObject *result = leave(self, args, nargs);
  cost_end(&cost);
  snapshot_check();
  return module_sink_after(use_of(self)->state, result);
}

static PyObject *scope_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"function", NULL};
  PyObject *function;
  if (!py.PyArg_ParseTupleAndKeywords(args, kwargs, "O:scope", names, &function))
    return NULL;
  return module_decorate(use_of(self)->state, self, function);
}

static PyObject *scope_repr(PyObject *self) {
  return py.PyUnicode_FromFormat("<cirron scope %R>", use_of(self)->name);
}

static PyObject *get_name(PyObject *self, void *unused) {
  (void)unused;
  PyObject *name = use_of(self)->name;
  py.Py_IncRef(name);
  return name;
}

static PyObject *get_index(PyObject *self, void *unused) {
  (void)unused;
  int64_t index = use_of(self)->index;
  return index == SPAN_NO_INDEX ? module_none() : py.PyLong_FromLongLong(index);
}

/* 32 hex digits: the session's prefix and the number in it. */
static PyObject *id_text(const struct use *u, uint64_t id) {
  return id ? py.PyUnicode_FromFormat("%08x%08x%08x%08x", (unsigned)(u->span.session >> 32), (unsigned)u->span.session,
                                      (unsigned)(id >> 32), (unsigned)id)
            : module_none();
}

static PyObject *get_id(PyObject *self, void *unused) {
  (void)unused;
  return id_text(use_of(self), use_of(self)->span.id);
}

static PyObject *get_parent(PyObject *self, void *unused) {
  (void)unused;
  struct use *u = use_of(self);
  if (module_span_stack(&u->span))
    u->parent = u->span.span->parent; /* may have been moved */
  return id_text(u, u->parent);
}

static PyObject *get_attrs(PyObject *self, void *unused) {
  (void)unused;
  struct use *u = use_of(self);
  if (!u->attrs) {
    PyObject *attrs = u->given ? py.PyDict_Copy(u->given) : py.PyDict_New();
    lock(u);
    PyObject *late = u->attrs ? attrs : NULL; /* another thread was first */
    u->attrs = late ? u->attrs : attrs;
    unlock(u);
    if (attrs && !u->tracked)
      use_track(self);
    module_drop(late);
  }
  if (u->attrs)
    py.Py_IncRef(u->attrs);
  return u->attrs;
}

PyObject *module_scope_type(void) {
  static struct py_method methods[] = {
      {"__enter__", scope_enter, PY_METH_NOARGS,
       "__enter__($self, /)\n--\n\nOpens the span. Returns the object that stands for it."},
      {"__exit__", MODULE_CALL(scope_exit), PY_METH_FASTCALL,
       "__exit__($self, type, value, traceback, /)\n--\n\nCloses the span. An exception is noted and goes on."},
      {0},
  };
  static struct module_getset members[] = {
      {"name", get_name, NULL, "Name of the span.", NULL},
      {"index", get_index, NULL, "Index of the span, or None.", NULL},
      {"id", get_id, NULL, "Id of the span, 32 hex digits; None before it was opened, or when it is not recorded.", NULL},
      {"parent_id", get_parent, NULL, "Id of the span around it, or None like id.", NULL},
      {"attrs", get_attrs, NULL, "Attributes, a dict. Changes made while the span is open are recorded.", NULL},
      {0},
  };
  static struct py_slot slots[] = {
      {SLOT_NEW, module_no_new},
      {SLOT_DEALLOC, use_dealloc},
      {SLOT_TRAVERSE, use_traverse},
      {SLOT_CLEAR, use_clear},
      {SLOT_CALL, scope_call},
      {SLOT_REPR, scope_repr},
      {SLOT_METHODS, methods},
      {SLOT_GETSET, members},
      {SLOT_DOC, "A span to be opened by `with`, or by a decorated function. Made by scope()."},
      {0, NULL},
  };
  return module_type("cirron.Scope", sizeof(struct use), MODULE_TYPE_GC, slots);
}

/* --- scope(name, index=None, **attrs) --- */

struct request {
  PyObject *name, *index, *attrs;
  PyObject *made; /* a name that had to be made */
};

static int take_attr(struct request *r, PyObject *key, PyObject *value) {
  if (!r->attrs)
    r->attrs = py.PyDict_New();
  return r->attrs ? py.PyDict_SetItem(r->attrs, key, value) : -1;
}

static int take_keyword(struct request *r, PyObject *key, PyObject *value) {
  bool is_name = py.PyUnicode_CompareWithASCIIString(key, "name") == 0;
  PyObject **place = is_name ? &r->name : &r->index;
  if (!is_name && py.PyUnicode_CompareWithASCIIString(key, "index") != 0)
    return take_attr(r, key, value);
  if (*place) {
    py.PyErr_Format(module_error(py.PyExc_TypeError), "scope() got multiple values for argument '%U'", key);
    return -1;
  }
  *place = value;
  return 0;
}

/* A name that is no str is taken as its str(): a span is not worth an exception. */
static int settle_name(struct request *r) {
  if (!r->name) {
    py.PyErr_SetString(module_error(py.PyExc_TypeError), "scope() missing 1 required positional argument: 'name'");
    return -1;
  }
  if (py_type(r->name) == py.PyUnicode_Type || module_is(r->name, py.PyUnicode_Type))
    return 0;
  r->made = py.PyObject_Str(r->name);
  if (!r->made) {
    if (!module_swallow())
      return -1;
    r->made = py.PyUnicode_FromFormat("<%s>", py_class_name(r->name));
  }
  r->name = r->made;
  return r->made ? 0 : -1;
}

/* An index that is no whole number of 64 bits is kept as an attribute. */
static int settle_index(struct request *r, int64_t *out) {
  *out = SPAN_NO_INDEX;
  if (!r->index || r->index == py._Py_NoneStruct)
    return 0;
  PyObject *whole = py.PyNumber_Index(r->index);
  int overflow = 0;
  long long value = whole ? py.PyLong_AsLongLongAndOverflow(whole, &overflow) : 0;
  bool good = whole && !overflow;
  module_drop(whole);
  if (good) {
    *out = value;
    return 0;
  }
  if (!whole && !module_swallow())
    return -1;
  PyObject *key = py.PyUnicode_InternFromString("index");
  int r2 = key ? take_attr(r, key, r->index) : -1;
  module_drop(key);
  return r2;
}

static PyObject *make(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  struct request r = {.name = nargs > 0 ? args[0] : NULL, .index = nargs > 1 ? args[1] : NULL};
  struct module_state *state = py.PyModule_GetState(module);
  Py_ssize_t named = kwnames ? py.PyTuple_Size(kwnames) : 0;
  PyObject *self = NULL;
  int64_t index = SPAN_NO_INDEX;
  int bad = 0;
  if (nargs > 2)
    return py.PyErr_Format(module_error(py.PyExc_TypeError), "scope() takes at most 2 positional arguments (%zd given)", nargs);
  for (Py_ssize_t i = 0; i < named && !bad; i++)
    bad = take_keyword(&r, py.PyTuple_GetItem(kwnames, i), args[nargs + i]);
  if (!bad && !settle_name(&r) && !settle_index(&r, &index))
    self = use_new((PyTypeObject *)state->scope_type, state, r.name, index, r.attrs);
  module_drop(r.attrs);
  module_drop(r.made);
  return self;
}

PyObject *module_scope(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
  struct cost_timing cost = cost_call();
  PyObject *self = make(module, args, nargs, kwnames);
  cost_end(&cost);
  return self;
}
