/* CPython as the agent sees it: no Python header, no link to libpython, one binary for 3.8 to 3.14.
 *
 * Every function is looked up at run time in the process (or in the libpython that called us) and reached through `py`. All of
 * it needs the GIL (or an attached thread state) unless said otherwise. Reference counts are changed by Py_IncRef and Py_DecRef
 * only, so that free-threaded builds work too.
 */
#ifndef CIRRON_PY_H
#define CIRRON_PY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct _object PyObject;
typedef struct _typeobject PyTypeObject;
typedef ptrdiff_t Py_ssize_t;
typedef PyObject *(*vectorcallfunc)(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames);
typedef PyObject *(*PyCFunction)(PyObject *, PyObject *);

#define PY_VECTORCALL_ARGUMENTS_OFFSET ((size_t)1 << (8 * sizeof(size_t) - 1))

/* X(return type, name, arguments): must be there, or the interpreter is not supported. */
#define PY_REQUIRED(X)                                                                                                          \
  X(const char *, Py_GetVersion, (void))                                                                                        \
  X(int, Py_IsInitialized, (void))                                                                                              \
  X(void, Py_IncRef, (PyObject *))                                                                                              \
  X(void, Py_DecRef, (PyObject *))                                                                                              \
  X(int, PyGILState_Check, (void))                                                                                              \
  X(PyObject *, PyObject_GetAttr, (PyObject *, PyObject *))                                                                     \
  X(PyObject *, PyObject_GetAttrString, (PyObject *, const char *))                                                             \
  X(int, PyObject_IsTrue, (PyObject *))                                                                                         \
  X(PyObject *, PyUnicode_InternFromString, (const char *))                                                                     \
  X(const char *, PyUnicode_AsUTF8AndSize, (PyObject *, Py_ssize_t *))                                                          \
  X(PyObject *, PyErr_Occurred, (void))                                                                                         \
  X(void, PyErr_Clear, (void))                                                                                                  \
  X(void, PyErr_Fetch, (PyObject **, PyObject **, PyObject **))                                                                 \
  X(void, PyErr_Restore, (PyObject *, PyObject *, PyObject *))                                                                  \
  X(int, PyErr_ExceptionMatches, (PyObject *))                                                                                  \
  X(int, PySys_AddAuditHook, (int (*)(const char *, PyObject *, void *), void *))

/* The same, but may be missing (NULL): newer or older versions only. */
#define PY_OPTIONAL(X) X(int, PyFunction_SetVectorcall, (PyObject *, vectorcallfunc))

/* Data objects: X(name). PyExc_... are pointers to the object pointer. */
#define PY_OBJECTS(X)                                                                                                           \
  X(PyFunction_Type)                                                                                                            \
  X(PyExc_StopIteration)

struct py_api {
#define X(ret, name, args) ret(*name) args;
  PY_REQUIRED(X) PY_OPTIONAL(X)
#undef X
#define X(name) void *name;
      PY_OBJECTS(X)
#undef X
  /* Facts about this interpreter. */
  int version; /* 311 for 3.11 */
  bool free_threaded;
};

extern struct py_api py;

/* Class name of `object` (no module, as type(object).__name__); good as long as the class lives. Never NULL, sets no error.
 * *key is a pair of pointers in one number that changes when the class or its name does: a key for caches. */
const char *py_class_name(PyObject *object, uintptr_t *key);

/* Truth of an attribute: 1, 0, or -1 when it is missing or fails. Leaves no error behind, keeps one that was set before. */
int py_attr_true(PyObject *object, PyObject *name);

/* Class name of the exception that is set now, or NULL. Leaves it set. */
const char *py_exception_name(void);

/* Is the exception that is set now a StopIteration? */
bool py_exception_is_stop(void);

#endif
