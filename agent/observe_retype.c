/* CPython 3.11 inlines a call from Python code when the callee's type is exactly `function`, whatever its vectorcall slot says. An
 * observed function that is called that way gets this subtype instead: same size, same layout, same behaviour. Visible is only
 * `type(f) is types.FunctionType`; isinstance, identity, signature, pickle and copy are as before.
 */
#include "observe_swap.h"

enum {
  TYPE_BASETYPE = 1u << 10,
  TYPE_HAVE_VECTORCALL = 1u << 11,
  TYPE_METHOD_DESCRIPTOR = 1u << 17,
  TYPE_HAVE_VERSION_TAG = 1u << 18,
  SLOT_TP_METHODS = 64,
};

static PyTypeObject *subtype;
static bool tried;

/* Pickled by reference, as functions are: pickle knows only the exact type. */
static PyObject *reduce(PyObject *self, PyObject *unused) {
  (void)unused;
  return py.PyObject_GetAttrString(self, "__qualname__");
}

/* Type field: name, basicsize, itemsize, dealloc, vectorcall_offset, ... after the variable-size head; flags are word 18. */
static void *type_field(PyTypeObject *type, unsigned word) {
  return (char *)type + py.header + sizeof(Py_ssize_t) * (1 + word);
}
#define FIELD_NAME 0
#define FIELD_VECTORCALL_OFFSET 4
#define FIELD_FLAGS 18

/* `function` is no base type by its flag; it is for as long as this takes, with the GIL held. */
static PyTypeObject *subtype_make(void) {
  static struct py_method methods[] = {{"__reduce__", reduce, PY_METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
  static struct py_slot slots[] = {{SLOT_TP_METHODS, methods}, {0, NULL}};
  static struct py_type_spec spec = {
      .name = "builtins.function",
      .flags = TYPE_HAVE_VERSION_TAG | TYPE_METHOD_DESCRIPTOR | TYPE_HAVE_VECTORCALL,
      .slots = slots,
  };
  unsigned long *flags = type_field(py.PyFunction_Type, FIELD_FLAGS);
  unsigned long before = *flags;
  *flags |= TYPE_BASETYPE;
  PyObject *type = py.PyType_FromSpecWithBases(&spec, py.PyFunction_Type);
  *flags = before;
  return (PyTypeObject *)type;
}

/* Attributes of the class itself would hide those of its functions: put the function's own descriptors in their place. */
static bool descriptor_copy(const char *name) {
  PyObject *key = py.PyUnicode_InternFromString("__dict__");
  PyObject *dict = key ? py.PyObject_GenericGetAttr(py.PyFunction_Type, key) : NULL;
  PyObject *attribute = key ? py.PyUnicode_InternFromString(name) : NULL;
  PyObject *descriptor = dict && attribute ? py.PyObject_GetItem(dict, attribute) : NULL;
  bool ok = descriptor && py.PyObject_SetAttrString((PyObject *)subtype, name, descriptor) == 0;
  PyObject *owned[] = {key, dict, attribute, descriptor};
  for (unsigned i = 0; i < 4; i++)
    if (owned[i])
      py.Py_DecRef(owned[i]);
  return ok;
}

PyTypeObject *observe_retype(size_t vectorcall_offset) {
  if (tried)
    return subtype;
  tried = true;
  subtype = subtype_make();
  if (subtype && descriptor_copy("__module__") && descriptor_copy("__doc__")) {
    *(Py_ssize_t *)type_field(subtype, FIELD_VECTORCALL_OFFSET) = (Py_ssize_t)vectorcall_offset;
    *(const char **)type_field(subtype, FIELD_NAME) = "function"; /* for repr; a spec without a module would warn */
    return subtype;
  }
  py.PyErr_Clear();
  return subtype = NULL;
}

bool observe_retype_is(const PyObject *object) {
  return subtype && py_type(object) == subtype;
}

void observe_retype_forget(void) {
  tried = false;
  subtype = NULL;
}
