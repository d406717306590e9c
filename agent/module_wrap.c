/* wrap(estimator): an object that is the estimator to everybody who looks at it, with its methods timed.
 *
 * It holds the estimator and hands everything on to it: attributes in both directions, comparison, hash, text. Its class says to be
 * the estimator's (__class__), and so it pickles as the estimator itself, byte for byte: whoever loads that needs no cirron. Copies and
 * clones are wrapped again. What the interpreter asks of an object's type, not of the object, is in module_wrap_type.c.
 *
 * Parts of a compound estimator (steps of a pipeline) are wrapped where they stand, in its own lists.
 */
#include "module_wrap.h"

#include <stdlib.h>
#include <string.h>

#include "module_wrong.h"
#include "versions.h"

#define DEPTH_MAX 16u /* compounds in compounds; one may hold itself */

static struct wrapped *wrapped_of(PyObject *self) {
  return module_body(self);
}

struct wrapped *module_wrapped(const struct module_state *state, PyObject *object) {
  return module_is(object, state->wrap.base_type) ? wrapped_of(object) : NULL;
}

/* --- what the parts of wrap() share --- */

bool module_wrap_is_any(const char *text, const char *const *list) {
  for (; *list; list++)
    if (strcmp(text, *list) == 0)
      return true;
  return false;
}

const char *module_wrap_text(PyObject *name) {
  const char *text = module_is(name, py.PyUnicode_Type) ? py.PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  if (text)
    return text;
  py.PyErr_Clear();
  return "";
}

int module_wrap_find(PyObject *object, const char *name, PyObject **out) {
  *out = py.PyObject_GetAttrString(object, name);
  if (*out)
    return 1;
  if (!py.PyErr_ExceptionMatches(module_error(py.PyExc_AttributeError)))
    return -1;
  py.PyErr_Clear();
  return 0;
}

PyObject *module_wrap_ask(const char *module, const char *function, PyObject *first, PyObject *second) {
  PyObject *holder = py.PyImport_ImportModule(module);
  PyObject *callable = holder ? py.PyObject_GetAttrString(holder, function) : NULL;
  PyObject *result = callable ? py.PyObject_CallFunctionObjArgs(callable, first, second, NULL) : NULL;
  module_drop(callable);
  module_drop(holder);
  return result;
}

/* Methods whose calls are spans whatever they are made of. An object that has none of them is no estimator. Common ones first. */
static const char *const verbs[] = {
    "fit",
    "predict",
    "transform",
    "score",
    "fit_transform",
    "partial_fit",
    "predict_proba",
    "decision_function",
    "inverse_transform",
    "score_samples",
    "fit_predict",
    "predict_log_proba",
    NULL,
};

static bool is_verb(const char *name) {
  return module_wrap_is_any(name, verbs);
}

/* --- attributes --- */

static bool is_class(PyObject *object) {
  return module_is(object, py.PyType_Type);
}

/* A method of the estimator, as opposed to a function or an object that it has as an attribute. */
static bool is_own_method(PyObject *value, PyObject *inner) {
  if (py_type(value) != py.PyMethod_Type && !module_is(value, py.PyCFunction_Type))
    return false;
  PyObject *self = py.PyObject_GetAttrString(value, "__self__");
  if (!self)
    py.PyErr_Clear();
  module_drop(self);
  return self == inner;
}

static bool starts(const char *text, const char *with) {
  return strncmp(text, with, strlen(with)) == 0;
}

/* Takes over `value`, an attribute of the estimator, and gives what the script is to see. */
static PyObject *show(PyObject *self, PyObject *name, const char *text, PyObject *value) {
  enum wrap_result result = WRAP_TIMED;
  if (text[0] == '_') {
    if (strcmp(text, "__sklearn_clone__") != 0)
      return value;
    result = WRAP_CLONE;
  } else if (starts(text, "get_") || starts(text, "set_")) {
    result = WRAP_SELF;
  }
  bool verb = is_verb(text) && py.PyCallable_Check(value) && !is_class(value);
  if (!verb && !is_own_method(value, wrapped_of(self)->inner))
    return value;
  PyObject *call = module_wrap_call(self, value, name, result);
  py.Py_DecRef(value);
  return call;
}

static PyObject *get_attribute(PyObject *self, PyObject *name) {
  static const char *const own[] = {"__copy__", "__deepcopy__", "__reduce_ex__", "__wrapped__", NULL};
  const char *text = module_wrap_text(name);
  if (text[0] == '_' && module_wrap_is_any(text, own))
    return py.PyObject_GenericGetAttr(self, name);
  PyObject *value = py.PyObject_GetAttr(wrapped_of(self)->inner, name);
  return value ? show(self, name, text, value) : NULL;
}

static int set_attribute(PyObject *self, PyObject *name, PyObject *value) {
  return py.PyObject_SetAttr(wrapped_of(self)->inner, name, value);
}

static PyObject *wrapped_repr(PyObject *self) {
  return py.PyObject_Repr(wrapped_of(self)->inner);
}

static Py_ssize_t wrapped_hash(PyObject *self) {
  return py.PyObject_Hash(wrapped_of(self)->inner);
}

static PyObject *compare(PyObject *self, PyObject *other, int operation) {
  const struct wrapped *w = wrapped_of(self), *with = module_wrapped(w->state, other);
  return py.PyObject_RichCompare(w->inner, with ? with->inner : other, operation);
}

static PyObject *get_wrapped(PyObject *self, void *unused) {
  (void)unused;
  PyObject *inner = wrapped_of(self)->inner;
  py.Py_IncRef(inner);
  return inner;
}

/* --- copies and pickles --- */

/* Takes over `inner`. */
static PyObject *wrap_copy(PyObject *self, PyObject *inner) {
  PyObject *copy = inner ? module_wrap_new(wrapped_of(self)->state, inner) : NULL;
  module_drop(inner);
  return copy;
}

static PyObject *wrapped_copy(PyObject *self, PyObject *unused) {
  (void)unused;
  return wrap_copy(self, module_wrap_ask("copy", "copy", wrapped_of(self)->inner, NULL));
}

static PyObject *wrapped_deepcopy(PyObject *self, PyObject *memo) {
  return wrap_copy(self, module_wrap_ask("copy", "deepcopy", wrapped_of(self)->inner, memo));
}

/* How to pickle the class, if somebody said so (copyreg). 1 with *out, 0, or -1 with an error. */
static int find_reducer(PyObject *inner, PyObject **out) {
  PyObject *module = py.PyImport_ImportModule("copyreg");
  PyObject *table = module ? py.PyObject_GetAttrString(module, "dispatch_table") : NULL;
  module_drop(module);
  if (!table)
    return -1;
  *out = module_is(table, py.PyDict_Type) ? py.PyDict_GetItemWithError(table, (PyObject *)py_type(inner)) : NULL;
  if (*out)
    py.Py_IncRef(*out);
  py.Py_DecRef(table);
  return *out ? 1 : py.PyErr_Occurred() ? -1 : 0;
}

/* An object that pickles as a name is found by that name; what wraps it is not. So: (inner,)[0]. */
static PyObject *reduce_by_item(PyObject *inner) {
  PyObject *module = py.PyImport_ImportModule("operator");
  PyObject *getitem = module ? py.PyObject_GetAttrString(module, "getitem") : NULL;
  PyObject *made = getitem ? py.Py_BuildValue("(O((O)i))", getitem, inner, 0) : NULL;
  module_drop(getitem);
  module_drop(module);
  return made;
}

static bool is_of(PyObject *frame, const char *const *packages) {
  PyObject *globals = py.PyObject_GetAttrString(frame, "f_globals");
  PyObject *name = globals && module_is(globals, py.PyDict_Type) ? py_dict_get(globals, "__name__") : NULL;
  const char *text = name && module_is(name, py.PyUnicode_Type) ? py.PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  bool found = false;
  for (; text && *packages && !found; packages++)
    found = strncmp(text, *packages, strlen(*packages)) == 0;
  module_drop(globals);
  return found;
}

/* Is it joblib that pickles, for a process of its own that is to do a part of the work? Nobody keeps what that makes. It is told by the
 * function that called pickle, which is none of Python's itself, or by the one that called cloudpickle. */
static bool on_its_way(void) {
  static const char *const senders[] = {"joblib.externals.loky.", "joblib.pool", NULL};
  static const char *const between[] = {"joblib.externals.cloudpickle", "cloudpickle.", NULL};
  PyObject *frame = py.PyEval_GetFrame();
  if (!frame)
    return false;
  bool found = is_of(frame, senders);
  PyObject *back = !found && is_of(frame, between) ? py.PyObject_GetAttrString(frame, "f_back") : NULL;
  found = found || (back && is_of(back, senders));
  module_drop(back);
  py.PyErr_Clear();
  return found;
}

/* Wrapped again where the agent is; it need not be there, so the text is for anybody's Python. */
static PyObject *reduce_for_worker(PyObject *inner) {
  static const char text[] =
      "__import__('cirron').wrap(estimator) if 'cirron' in __import__('sys').builtin_module_names else estimator";
  PyObject *module = py.PyImport_ImportModule("builtins");
  PyObject *eval = module ? py.PyObject_GetAttrString(module, "eval") : NULL;
  PyObject *made = eval ? py.Py_BuildValue("(O(s{sO}))", eval, text, "estimator", inner) : NULL;
  module_drop(eval);
  module_drop(module);
  return made;
}

/* As pickle would ask the estimator itself. */
static PyObject *wrapped_reduce(PyObject *self, PyObject *protocol) {
  PyObject *inner = wrapped_of(self)->inner, *reducer = NULL;
  if (on_its_way())
    return reduce_for_worker(inner);
  int r = find_reducer(inner, &reducer);
  if (r < 0)
    return NULL;
  PyObject *result =
      r ? py.PyObject_CallFunctionObjArgs(reducer, inner, NULL) : py.PyObject_CallMethod(inner, "__reduce_ex__", "O", protocol);
  module_drop(reducer);
  if (!result || !module_is(result, py.PyUnicode_Type))
    return result;
  py.Py_DecRef(result);
  return reduce_by_item(inner);
}

/* --- the type of all --- */

static int wrapped_traverse(PyObject *self, module_visit visit, void *arg) {
  PyObject *inner = wrapped_of(self)->inner; /* not there yet, if another thread collects while it is made */
  int r = inner ? visit(inner, arg) : 0;
  return r ? r : module_visit_type(self, visit, arg);
}

static void wrapped_dealloc(PyObject *self) {
  py.PyObject_GC_UnTrack(self);
  module_drop(wrapped_of(self)->inner);
  free(wrapped_of(self)->attrs);
  module_free_object(self, true);
}

static PyObject *base_type(void) { /* no tp_clear: a cycle through it goes through the estimator's attributes, which has one */
  static struct py_method methods[] = {
      {"__copy__", wrapped_copy, PY_METH_NOARGS, "A copy of the estimator, wrapped."},
      {"__deepcopy__", wrapped_deepcopy, PY_METH_O, "A copy of the estimator and all in it, wrapped."},
      {"__reduce_ex__", wrapped_reduce, PY_METH_O, "Pickles as the estimator itself."},
      {0},
  };
  static struct module_getset members[] = {
      {"__wrapped__", get_wrapped, NULL, "The estimator itself.", NULL},
      {0},
  };
  static struct py_slot slots[] = {
      {SLOT_NEW, module_no_new},
      {SLOT_DEALLOC, wrapped_dealloc},
      {SLOT_TRAVERSE, wrapped_traverse},
      {SLOT_GETATTRO, get_attribute},
      {SLOT_SETATTRO, set_attribute},
      {SLOT_REPR, wrapped_repr},
      {SLOT_HASH, wrapped_hash},
      {SLOT_RICHCOMPARE, compare},
      {SLOT_METHODS, methods},
      {SLOT_GETSET, members},
      {SLOT_DOC, "An estimator whose methods are timed. Made by wrap()."},
      {0, NULL},
  };
  return module_type("cirron.WrappedEstimator", sizeof(struct wrapped), MODULE_TYPE_GC | MODULE_TYPE_BASE, slots);
}

/* --- wrap(estimator) --- */

/* 1, 0, or -1 with an error: what a property of the object raises. */
static int is_estimator(PyObject *object) {
  if (is_class(object))
    return 0;
  for (const char *const *at = verbs; *at; at++) {
    PyObject *value;
    int r = module_wrap_find(object, *at, &value);
    if (r < 0)
      return -1;
    r = r && py.PyCallable_Check(value);
    module_drop(value);
    if (r)
      return 1;
  }
  return 0;
}

static PyObject *wrap(struct module_state *state, PyObject *inner, unsigned depth);

/* (name, part, ...) with the part wrapped; NULL without an error if there is nothing to wrap. */
static PyObject *wrap_item(struct module_state *state, PyObject *item, unsigned depth) {
  if (py_type(item) != py.PyTuple_Type || py.PyTuple_Size(item) < 2 ||
      !module_is(py.PyTuple_GetItem(item, 0), py.PyUnicode_Type))
    return NULL;
  PyObject *part = py.PyTuple_GetItem(item, 1);
  if (module_wrapped(state, part) || is_estimator(part) <= 0) /* 'passthrough', 'drop', None */
    return NULL;
  PyObject *wrapped = wrap(state, part, depth + 1), *items = wrapped ? py.PySequence_List(item) : NULL, *whole = NULL;
  if (items) {
    py.Py_IncRef(wrapped); /* PyList_SetItem takes it */
    whole = py.PyList_SetItem(items, 1, wrapped) == 0 ? py.PySequence_Tuple(items) : NULL;
  }
  module_drop(items);
  module_drop(wrapped);
  return whole;
}

/* A part that cannot be wrapped stays as it is. -1 with an error that is none of ours to clear. */
static int wrap_list(struct module_state *state, PyObject *list, unsigned depth) {
  for (Py_ssize_t i = 0; i < py.PyObject_Size(list); i++) {
    PyObject *item = py.PyList_GetItem(list, i);
    if (item)
      py.Py_IncRef(item);
    PyObject *whole = item ? wrap_item(state, item, depth) : NULL;
    module_drop(item);
    if (whole)
      (void)py.PyList_SetItem(list, i, whole); /* shorter by now: then an error, cleared below; takes `whole` in any case */
    if (!module_swallow())
      return -1;
  }
  return 0;
}

static int wrap_parts(struct module_state *state, PyObject *inner, unsigned depth) {
  static const char *const lists[] = {"steps", "transformer_list", "transformers", "estimators", NULL};
  for (const char *const *at = lists; *at && depth < DEPTH_MAX; at++) {
    PyObject *list;
    int r = module_wrap_find(inner, *at, &list);
    if (r < 0 && !module_swallow())
      return -1;
    r = list && py_type(list) == py.PyList_Type ? wrap_list(state, list, depth) : 0;
    module_drop(list);
    if (r < 0)
      return -1;
  }
  return 0;
}

/* {"estimator": NAME OF THE CLASS}. Without memory the spans have none. */
static void describe(struct wrapped *w) {
  char buffer[MODULE_SPAN_JSON_MAX];
  struct module_json json;
  PyObject *key = py.PyUnicode_InternFromString("estimator");
  PyObject *value = py.PyUnicode_FromFormat("%s", py_class_name(w->inner));
  module_json_begin(&json, buffer, sizeof buffer);
  if (key && value)
    (void)module_json_entry(&json, key, value); /* runs no code of the script's: both are plain texts */
  size_t len = module_json_end(&json);
  w->attrs = len ? malloc(len) : NULL;
  if (w->attrs)
    memcpy(w->attrs, buffer, w->attrs_len = len);
  py.PyErr_Clear();
  module_drop(value);
  module_drop(key);
}

static PyObject *wrap(struct module_state *state, PyObject *inner, unsigned depth) {
  PyObject *type = wrap_parts(state, inner, depth) < 0 ? NULL : module_wrap_type_for(state, (PyObject *)py_type(inner));
  PyObject *self = type ? py.PyType_GenericAlloc((PyTypeObject *)type, 0) : NULL;
  module_drop(type);
  if (!self)
    return NULL;
  struct wrapped *w = wrapped_of(self);
  py.Py_IncRef(inner);
  w->inner = inner;
  w->state = state;
  describe(w);
  return self;
}

PyObject *module_wrap_new(struct module_state *state, PyObject *inner) {
  return wrap(state, inner, 0);
}

#define ESTIMATOR "an object with fit(), predict(), transform(), score() or the like"

PyObject *module_wrap(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"estimator", NULL};
  struct module_state *state = py.PyModule_GetState(module);
  PyObject *estimator;
  if (!py.PyArg_ParseTupleAndKeywords(args, kwargs, "O:wrap", names, &estimator))
    return NULL;
  if (module_wrapped(state, estimator)) {
    py.Py_IncRef(estimator);
    return estimator;
  }
  const struct module_given given = {.who = "wrap", .name = names[0], .value = estimator};
  int r = is_estimator(estimator);
  if (r > 0)
    versions_used("sklearn");
  if (r > 0)
    return module_wrap_new(state, estimator);
  return r < 0
             ? NULL
             : module_wrong_type(&given, is_class(estimator) ? ESTIMATOR " (no class: make an object of it first)" : ESTIMATOR);
}

int module_wrap_types(PyObject *module, struct module_wrap_state *wrap) {
  return module_keep_type(module, module_wrap_call_type(), &wrap->call_type) ||
         module_keep_type(module, module_wrap_special_type(), &wrap->special_type) ||
         module_keep_type(module, module_wrap_meta_type(), &wrap->meta_type) ||
         module_add_type(module, "WrappedEstimator", base_type(), &wrap->base_type);
}
