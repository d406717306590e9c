/* The types of wrapped estimators.
 *
 * Much is asked of an object's type, not of the object: has it a len(), what is its name, what are its bases. So each class of estimators
 * gets a type of its own, which has what the class has and gives the class's answers:
 *
 *   WrappedEstimator       attributes, comparison, copies (module_wrap.c)
 *     LogisticRegression   made for sklearn's class of that name, with a Special for each method of the interpreter's that it has
 *   WrappedType            the type of such types: hands on what is asked of them to the class
 *
 * It is no subclass of the class, whose metaclass and __init_subclass__ would hear of it.
 */
#include "module_wrap.h"

#define CLASS_KEY "__cirron_class__"

/* --- a Special --- */

struct special {
  PyObject *name;
};

static struct special *special_of(PyObject *self) {
  return module_body(self);
}

static PyObject *special_get(PyObject *self, PyObject *object, PyObject *type) {
  (void)type;
  if (!object) {
    py.Py_IncRef(self);
    return self;
  }
  PyObject *name = special_of(self)->name;
  PyObject *value =
      py.PyObject_GetAttr(((struct wrapped *)module_body(object))->inner, name); /* only our types have a Special */
  PyObject *call = value ? module_wrap_call(object, value, name, WRAP_SELF) : NULL;
  module_drop(value);
  return call;
}

static void special_dealloc(PyObject *self) {
  module_drop(special_of(self)->name);
  module_free_object(self, false);
}

PyObject *module_wrap_special_type(void) {
  static struct py_slot slots[] = {
      {SLOT_NEW, module_no_new},
      {SLOT_DEALLOC, special_dealloc},
      {SLOT_DESCR_GET, special_get},
      {SLOT_DOC, "A method of the estimator that the interpreter looks for on the type."},
      {0, NULL},
  };
  return module_type("cirron.WrappedSpecial", sizeof(struct special), 0, slots);
}

static PyObject *special_new(struct module_state *state, PyObject *name) {
  PyObject *self = py.PyType_GenericAlloc((PyTypeObject *)state->wrap.special_type, 0);
  if (!self)
    return NULL;
  py.Py_IncRef(name);
  special_of(self)->name = name;
  return self;
}

/* --- types for classes --- */

static PyObject *type_own(PyObject *type, PyObject *name) {
  return py.PyObject_CallMethod((PyObject *)py.PyType_Type, "__getattribute__", "OO", type, name);
}

static PyObject *type_own_text(PyObject *type, const char *name) {
  return py.PyObject_CallMethod((PyObject *)py.PyType_Type, "__getattribute__", "Os", type, name);
}

/* The type's copies are ours, all else is the class's. */
static PyObject *type_attribute(PyObject *type, PyObject *name) {
  static const char *const own[] = {"__copy__", "__deepcopy__", "__reduce_ex__", "__cirron__", CLASS_KEY, NULL};
  const char *text = module_wrap_text(name);
  if (text[0] == '_' && module_wrap_is_any(text, own))
    return type_own(type, name);
  PyObject *class = type_own_text(type, CLASS_KEY);
  PyObject *value = class ? py.PyObject_GetAttr(class, name) : NULL;
  module_drop(class);
  return value;
}

/* type(model)(...) makes another of the kind: of the class, and wrapped. */
static PyObject *type_call(PyObject *type, PyObject *args, PyObject *kwargs) {
  PyObject *class = type_own_text(type, CLASS_KEY);
  PyObject *module = class ? type_own_text(type, "__cirron__") : NULL;
  PyObject *made = module ? py.PyObject_Call(class, args, kwargs) : NULL;
  PyObject *result = made ? module_wrap_new(py.PyModule_GetState(module), made) : NULL;
  module_drop(made);
  module_drop(module);
  module_drop(class);
  return result;
}

PyObject *module_wrap_meta_type(void) {
  static struct py_slot slots[] = {
      {SLOT_GETATTRO, type_attribute},
      {SLOT_CALL, type_call},
      {SLOT_DOC, "The type of the types of wrapped estimators."},
      {0, NULL},
  };
  struct py_type_spec spec = {.name = "cirron.WrappedType", .flags = MODULE_TYPE_FLAGS, .slots = slots};
  PyObject *bases = py.Py_BuildValue("(O)", py.PyType_Type);
  PyObject *type = bases ? py.PyType_FromSpecWithBases(&spec, bases) : NULL;
  module_drop(bases);
  return type;
}

/* What the interpreter looks for on types. repr, hash, comparison and attributes are the base type's; __del__ is not for us. */
static const char *const specials[] = {
    "__bool__",    "__len__",      "__length_hint__", "__iter__",     "__next__",      "__reversed__",  "__getitem__",
    "__setitem__", "__delitem__",  "__contains__",    "__missing__",  "__call__",      "__enter__",     "__exit__",
    "__await__",   "__aiter__",    "__anext__",       "__aenter__",   "__aexit__",     "__str__",       "__format__",
    "__bytes__",   "__dir__",      "__sizeof__",      "__fspath__",   "__int__",       "__float__",     "__complex__",
    "__index__",   "__round__",    "__trunc__",       "__floor__",    "__ceil__",      "__neg__",       "__pos__",
    "__abs__",     "__invert__",   "__add__",         "__radd__",     "__iadd__",      "__sub__",       "__rsub__",
    "__isub__",    "__mul__",      "__rmul__",        "__imul__",     "__matmul__",    "__rmatmul__",   "__imatmul__",
    "__truediv__", "__rtruediv__", "__itruediv__",    "__floordiv__", "__rfloordiv__", "__ifloordiv__", "__mod__",
    "__rmod__",    "__imod__",     "__divmod__",      "__rdivmod__",  "__pow__",       "__rpow__",      "__ipow__",
    "__lshift__",  "__rlshift__",  "__ilshift__",     "__rshift__",   "__rrshift__",   "__irshift__",   "__and__",
    "__rand__",    "__iand__",     "__or__",          "__ror__",      "__ior__",       "__xor__",       "__rxor__",
    "__ixor__",    NULL,
};

/* Looked for as the interpreter does: in the dictionaries of the class and its bases, not in those of the class's own type. What every
 * object has does not count, and None means that there is none. 1, 0, or -1 with an error. */
static int has_special(PyObject *bases, PyObject *name) {
  for (Py_ssize_t i = 0; i < py.PyTuple_Size(bases); i++) {
    PyObject *base = py.PyTuple_GetItem(bases, i), *value = NULL;
    if (base == py.PyBaseObject_Type)
      return 0;
    PyObject *names = py.PyObject_GetAttrString(base, "__dict__");
    value = names ? py.PyObject_GetItem(names, name) : NULL;
    bool missing = names && !value && py.PyErr_ExceptionMatches(module_error(py.PyExc_KeyError));
    module_drop(names);
    if (value) {
      py.Py_DecRef(value);
      return value != py._Py_NoneStruct;
    }
    if (!missing)
      return -1;
    py.PyErr_Clear();
  }
  return 0;
}

static int add_special(struct module_state *state, PyObject *names, PyObject *bases, const char *text) {
  PyObject *name = py.PyUnicode_InternFromString(text);
  int r = name ? has_special(bases, name) : -1;
  PyObject *special = r > 0 ? special_new(state, name) : NULL;
  if (r > 0)
    r = special ? py.PyDict_SetItem(names, name, special) : -1;
  module_drop(special);
  module_drop(name);
  return r;
}

static int add_specials(struct module_state *state, PyObject *names, PyObject *class) {
  PyObject *bases = py.PyObject_GetAttrString(class, "__mro__");
  int r = bases ? 0 : -1;
  for (const char *const *at = specials; *at && r == 0; at++)
    r = add_special(state, names, bases, *at);
  module_drop(bases);
  return r;
}

/* What repr() of a type and pickles read from the dictionary itself. A class always has them. */
static int copy_text(PyObject *names, PyObject *class, const char *name) {
  PyObject *value;
  int r = module_wrap_find(class, name, &value);
  r = r > 0 ? py.PyDict_SetItemString(names, name, value) : r;
  module_drop(value);
  return r;
}

/* The type's dictionary. */
static PyObject *type_names(struct module_state *state, PyObject *class) {
  PyObject *names = py.PyDict_New(), *slots = py.Py_BuildValue("(s)", "__weakref__");
  if (names && slots && py.PyDict_SetItemString(names, "__slots__", slots) == 0 &&
      py.PyDict_SetItemString(names, CLASS_KEY, class) == 0 && copy_text(names, class, "__module__") == 0 &&
      copy_text(names, class, "__qualname__") == 0 && add_specials(state, names, class) == 0) {
    py.Py_DecRef(slots);
    return names;
  }
  module_drop(slots);
  module_drop(names);
  return NULL;
}

static PyObject *type_new(struct module_state *state, PyObject *class) {
  PyObject *names = type_names(state, class);
  PyObject *name = names ? py.PyUnicode_FromFormat("%s", py_type_name((PyTypeObject *)class)) : NULL;
  PyObject *bases = name ? py.Py_BuildValue("(O)", state->wrap.base_type) : NULL;
  PyObject *type = bases ? py.PyObject_CallFunctionObjArgs(state->wrap.meta_type, name, bases, names, NULL) : NULL;
  module_drop(bases);
  module_drop(name);
  module_drop(names);
  return type;
}

/* Types are kept as long as they are used, and neither keep a class alive nor are kept by it: both ends of the table are weak. */
static PyObject *type_kept(struct module_state *state, PyObject *class) {
  if (!state->wrap.types)
    state->wrap.types = module_wrap_ask("weakref", "WeakKeyDictionary", NULL, NULL);
  PyObject *types = state->wrap.types;
  PyObject *reference = types ? py.PyObject_CallMethod(types, "get", "O", class) : NULL;
  bool known = reference && reference != py._Py_NoneStruct;
  PyObject *type = known ? py.PyObject_CallFunctionObjArgs(reference, NULL) : NULL;
  module_drop(reference);
  if (type && type != py._Py_NoneStruct)
    return type;
  module_drop(type);
  return NULL;
}

PyObject *module_wrap_type_for(struct module_state *state, PyObject *class) {
  PyObject *type = type_kept(state, class);
  if (type || !module_swallow())
    return type;
  type = type_new(state, class);
  PyObject *reference = type && state->wrap.types ? py.PyWeakref_NewRef(type, NULL) : NULL;
  PyObject *done = reference ? py.PyObject_CallMethod(state->wrap.types, "__setitem__", "OO", class, reference) : NULL;
  module_drop(done);
  module_drop(reference);
  if (!type || done || module_swallow()) /* a class that cannot be a key has a type for each of its objects */
    return type;
  py.Py_DecRef(type);
  return NULL;
}
