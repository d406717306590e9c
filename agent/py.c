/* Looking CPython up, and the few questions asked of its objects.
 *
 * Offsets used here are those of the object's and type's head, which are the same from 3.8 to 3.15 apart from the longer head of
 * free-threaded builds; py_find compares them with a type whose contents are known before anything relies on them.
 */
#include "py.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "glibc.h"
#include "hot.h"

HOT_DATA struct py_api py;

#define PY_OLDEST 308
#define PY_NEWEST 315

/* Offset of tp_name in a type, after the variable-size head. */
static size_t type_name_offset(void) {
  return py.header + sizeof(Py_ssize_t);
}

const char *py_type_name(const PyTypeObject *type) {
  const char *name = *(const char *const *)((const char *)type + type_name_offset());
  const char *dot = strrchr(name, '.');
  return dot ? dot + 1 : name;
}

int py_version_read(const char *text, bool *free_threaded) {
  char *rest;
  long major = strtol(text, &rest, 10);
  if (*rest != '.')
    return 0;
  long minor = strtol(rest + 1, NULL, 10);
  if (major != 3 || minor < PY_OLDEST % 100 || minor > PY_NEWEST % 100)
    return 0;
  *free_threaded = strstr(text, "free-threading") != NULL;
  return 300 + (int)minor;
}

/* A build with another object head (trace-refs) is refused here. */
static bool head_is_known(void) {
  PyObject *function_type = py.PyFunction_Type;
  return py_type(function_type) == py.PyType_Type && strcmp(py_type_name(py.PyFunction_Type), "function") == 0;
}

int py_find(void *library) {
  py.Py_GetVersion = (const char *(*)(void))dlsym(library, "Py_GetVersion");
  if (!py.Py_GetVersion)
    return -ENOTSUP;
  py.version = py_version_read(py.Py_GetVersion(), &py.free_threaded);
  if (!py.version || py.free_threaded) /* what scripts hand to our iterators and tables at the same time is not safe there */
    return -ENOTSUP;
  py.header = py.free_threaded ? 32 : 16;

#define X(ret, name, args)                                                                                                     \
  py.name = (ret(*) args)dlsym(library, #name);                                                                                \
  if (!py.name)                                                                                                                \
    return -ENOTSUP;
  PY_REQUIRED(X)
#undef X
#define X(ret, name, args) py.name = (ret(*) args)dlsym(library, #name);
  PY_OPTIONAL(X)
#undef X
#define X(name)                                                                                                                \
  py.name = dlsym(library, #name);                                                                                             \
  if (!py.name)                                                                                                                \
    return -ENOTSUP;
  PY_OBJECTS(X)
#undef X
  if (!py.PyInterpreterState_Get) /* 3.8 has it with an underscore */
    py.PyInterpreterState_Get = py._PyInterpreterState_Get;
  if (!py.PyInterpreterState_Get || !head_is_known())
    return -ENOTSUP;
  return 0;
}

bool py_in_main(void) {
  return py.PyInterpreterState_Get() == py.PyInterpreterState_Main();
}

/* From 3.12 on interpreters can have a GIL each. */
bool py_only_gil(void) {
  if (py.version < 312)
    return true;
  void *first = py.PyInterpreterState_Head ? py.PyInterpreterState_Head() : NULL;
  return first && py.PyInterpreterState_Next && !py.PyInterpreterState_Next(first);
}

PyObject *py_dict_get(PyObject *dict, const char *key) {
  PyObject *text = py.PyUnicode_InternFromString(key);
  PyObject *value = text ? py.PyDict_GetItemWithError(dict, text) : NULL;
  if (text)
    py.Py_DecRef(text);
  return value;
}

PyObject *py_module(const char *name) {
  PyObject *modules = py.PyImport_GetModuleDict();
  PyObject *key = py.PyUnicode_InternFromString(name);
  PyObject *module = modules && key ? py.PyObject_GetItem(modules, key) : NULL;
  if (key)
    py.Py_DecRef(key);
  if (!module)
    py.PyErr_Clear();
  return module;
}

const char *py_class_name(PyObject *object) {
  return py_type_name(py_type(object));
}

/* An odd factor keeps all of the type's bits; a renamed class has another tp_name. */
HOT uintptr_t py_class_key(PyObject *object) {
  PyTypeObject *type = py_type(object);
  const char *name = *(const char *const *)((const char *)type + type_name_offset());
  return (uintptr_t)type * 0x9e3779b97f4a7c15u + (uintptr_t)name;
}

/* True or False in the object's own dictionary: 1 or 0, else -1. */
HOT static int own_flag(PyObject *object, PyObject *name) {
  PyObject *dict = py.PyObject_GenericGetDict(object, NULL);
  PyObject *value = dict ? py.PyDict_GetItemWithError(dict, name) : NULL;
  if (dict)
    py.Py_DecRef(dict);
  else
    py.PyErr_Clear();
  return value == py._Py_TrueStruct ? 1 : value == py._Py_FalseStruct ? 0 : -1;
}

COLD static int attr_true_asked(PyObject *object, PyObject *name) {
  PyObject *attribute = py.PyObject_GetAttr(object, name);
  int truth = attribute ? py.PyObject_IsTrue(attribute) : -1;
  if (attribute)
    py.Py_DecRef(attribute);
  if (truth < 0)
    py.PyErr_Clear();
  return truth;
}

HOT int py_attr_true(PyObject *object, PyObject *name) {
  int truth = own_flag(object, name);
  return unlikely(truth < 0) ? attr_true_asked(object, name) : truth;
}

const char *py_exception_name(void) {
  PyObject *type = py.PyErr_Occurred();
  return type ? py_type_name((PyTypeObject *)type) : NULL;
}

bool py_exception_is_stop(void) {
  return py.PyErr_Occurred() && py.PyErr_ExceptionMatches(*(PyObject **)py.PyExc_StopIteration);
}
