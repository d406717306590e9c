/* CPython as the agent sees it: no Python header, no link to libpython, one binary for 3.8 to 3.15.
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
typedef PyObject *(*py_fastcall)(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

typedef void (*py_eval_fn)(void); /* frame evaluation: its true type depends on the version (trigger_frame.c) */

/* Structures of the stable interface, laid out as CPython has them. */
struct py_method { /* PyMethodDef */
  const char *name;
  PyCFunction function; /* by PY_METH_FASTCALL: PyObject *(PyObject *self, PyObject *const *args, Py_ssize_t nargs) */
  int flags;
  const char *doc;
};
#define PY_METH_VARARGS 0x1
#define PY_METH_KEYWORDS 0x2
#define PY_METH_NOARGS 0x4
#define PY_METH_O 0x8
#define PY_METH_CLASS 0x10
#define PY_METH_FASTCALL 0x80

struct py_slot { /* PyType_Slot */
  int id;
  void *value;
};
struct py_type_spec { /* PyType_Spec */
  const char *name;
  int basicsize, itemsize;
  unsigned flags;
  struct py_slot *slots;
};

struct py_allocator { /* PyMemAllocatorEx */
  void *context;
  void *(*malloc)(void *context, size_t size);
  void *(*calloc)(void *context, size_t count, size_t size);
  void *(*realloc)(void *context, void *block, size_t size);
  void (*free)(void *context, void *block);
};
#define PY_MEM_RAW 0

#define PY_VECTORCALL_ARGUMENTS_OFFSET ((size_t)1 << (8 * sizeof(size_t) - 1))

/* X(return type, name, arguments): must be there, or the interpreter is not supported. */
#define PY_REQUIRED(X)                                                                                                         \
  X(const char *, Py_GetVersion, (void))                                                                                       \
  X(int, Py_IsInitialized, (void))                                                                                             \
  X(void, Py_IncRef, (PyObject *))                                                                                             \
  X(void, Py_DecRef, (PyObject *))                                                                                             \
  X(int, PyGILState_Check, (void))                                                                                             \
  X(PyObject *, PyObject_GetAttr, (PyObject *, PyObject *))                                                                    \
  X(PyObject *, PyObject_GetAttrString, (PyObject *, const char *))                                                            \
  X(int, PyObject_IsTrue, (PyObject *))                                                                                        \
  X(PyObject *, PyUnicode_InternFromString, (const char *))                                                                    \
  X(const char *, PyUnicode_AsUTF8AndSize, (PyObject *, Py_ssize_t *))                                                         \
  X(PyObject *, PyErr_Occurred, (void))                                                                                        \
  X(void, PyErr_Clear, (void))                                                                                                 \
  X(void, PyErr_Fetch, (PyObject **, PyObject **, PyObject **))                                                                \
  X(void, PyErr_Restore, (PyObject *, PyObject *, PyObject *))                                                                 \
  X(int, PyErr_ExceptionMatches, (PyObject *))                                                                                 \
  X(int, PySys_AddAuditHook, (int (*)(const char *, PyObject *, void *), void *))                                              \
  X(PyObject *, PyObject_GenericGetAttr, (PyObject *, PyObject *))                                                             \
  X(PyObject *, PyObject_GetItem, (PyObject *, PyObject *))                                                                    \
  X(int, PyObject_SetAttrString, (PyObject *, const char *, PyObject *))                                                       \
  X(PyObject *, PyObject_CallMethod, (PyObject *, const char *, const char *, ...))                                            \
  X(Py_ssize_t, PyTuple_Size, (PyObject *))                                                                                    \
  X(PyObject *, PyTuple_GetItem, (PyObject *, Py_ssize_t))                                                                     \
  X(PyObject *, PyDict_New, (void))                                                                                            \
  X(int, PyUnicode_Compare, (PyObject *, PyObject *))                                                                          \
  X(PyObject *, PyCFunction_NewEx, (struct py_method *, PyObject *, PyObject *))                                               \
  X(PyCFunction, PyCFunction_GetFunction, (PyObject *))                                                                        \
  X(PyObject *, PyCFunction_GetSelf, (PyObject *))                                                                             \
  X(int, PyCFunction_GetFlags, (PyObject *))                                                                                   \
  X(PyObject *, PyCode_NewEmpty, (const char *, const char *, int))                                                            \
  X(PyObject *, PyFunction_New, (PyObject *, PyObject *))                                                                      \
  X(PyObject *, PyType_FromSpecWithBases, (struct py_type_spec *, PyObject *))                                                 \
  X(PyObject *, PySys_GetObject, (const char *))                                                                               \
  X(PyObject *, PyImport_GetModuleDict, (void))                                                                                \
  X(int, PyImport_AppendInittab, (const char *, PyObject *(*)(void)))                                                          \
  X(void, PyMem_GetAllocator, (int, struct py_allocator *))                                                                    \
  X(void, PyMem_SetAllocator, (int, struct py_allocator *))                                                                    \
  X(void *, PyInterpreterState_Main, (void))                                                                                   \
  X(void *, PyModule_GetState, (PyObject *))                                                                                   \
  X(PyObject *, PyModuleDef_Init, (void *))                                                                                    \
  X(int, PyModule_AddObject, (PyObject *, const char *, PyObject *))                                                           \
  X(PyObject *, PyType_FromSpec, (struct py_type_spec *))                                                                      \
  X(PyObject *, PyType_GenericAlloc, (PyTypeObject *, Py_ssize_t))                                                             \
  X(int, PyType_IsSubtype, (PyTypeObject *, PyTypeObject *))                                                                   \
  X(void, PyObject_Free, (void *))                                                                                             \
  X(PyObject *, PyObject_Init, (PyObject *, PyTypeObject *))                                                                   \
  X(PyObject *, _PyObject_GC_New, (PyTypeObject *))                                                                            \
  X(void *, PyEval_SaveThread, (void))                                                                                         \
  X(void, PyEval_RestoreThread, (void *))                                                                                      \
  X(void, PyObject_GC_Track, (void *))                                                                                         \
  X(void, PyObject_GC_Del, (void *))                                                                                           \
  X(void, PyObject_GC_UnTrack, (void *))                                                                                       \
  X(PyObject *, PyObject_CallFunctionObjArgs, (PyObject *, ...))                                                               \
  X(PyObject *, PyObject_Str, (PyObject *))                                                                                    \
  X(PyObject *, PyObject_GetIter, (PyObject *))                                                                                \
  X(PyObject *, PyObject_SelfIter, (PyObject *))                                                                               \
  X(PyObject *, PyIter_Next, (PyObject *))                                                                                     \
  X(Py_ssize_t, PyObject_Size, (PyObject *))                                                                                   \
  X(int, PyCallable_Check, (PyObject *))                                                                                       \
  X(void, PyErr_SetString, (PyObject *, const char *))                                                                         \
  X(PyObject *, PyErr_NewExceptionWithDoc, (const char *, const char *, PyObject *, PyObject *))                               \
  X(PyObject *, PyErr_Format, (PyObject *, const char *, ...))                                                                 \
  X(int, PyArg_ParseTupleAndKeywords, (PyObject *, PyObject *, const char *, char **, ...))                                    \
  X(PyObject *, PyUnicode_FromStringAndSize, (const char *, Py_ssize_t))                                                       \
  X(PyObject *, PyUnicode_DecodeUTF8, (const char *, Py_ssize_t, const char *))                                                \
  X(PyObject *, PyUnicode_FromFormat, (const char *, ...))                                                                     \
  X(PyObject *, PyUnicode_AsEncodedString, (PyObject *, const char *, const char *))                                           \
  X(int, PyUnicode_CompareWithASCIIString, (PyObject *, const char *))                                                         \
  X(int, PyBytes_AsStringAndSize, (PyObject *, char **, Py_ssize_t *))                                                         \
  X(PyObject *, PyLong_FromLongLong, (long long))                                                                              \
  X(long long, PyLong_AsLongLongAndOverflow, (PyObject *, int *))                                                              \
  X(PyObject *, PyNumber_Index, (PyObject *))                                                                                  \
  X(PyObject *, PyNumber_Float, (PyObject *))                                                                                  \
  X(PyObject *, PyFloat_FromDouble, (double))                                                                                  \
  X(double, PyFloat_AsDouble, (PyObject *))                                                                                    \
  X(char *, PyOS_double_to_string, (double, char, int, int, int *))                                                            \
  X(void, PyMem_Free, (void *))                                                                                                \
  X(PyObject *, PyBool_FromLong, (long))                                                                                       \
  X(PyObject *, PyList_New, (Py_ssize_t))                                                                                      \
  X(int, PyList_Append, (PyObject *, PyObject *))                                                                              \
  X(PyObject *, PyList_GetItem, (PyObject *, Py_ssize_t))                                                                      \
  X(PyObject *, PyList_GetSlice, (PyObject *, Py_ssize_t, Py_ssize_t))                                                         \
  X(PyObject *, PySequence_Tuple, (PyObject *))                                                                                \
  X(PyObject *, PyObject_GenericGetDict, (PyObject *, void *))                                                                 \
  X(PyObject *, PyDict_GetItemWithError, (PyObject *, PyObject *))                                                             \
  X(Py_ssize_t, PyDict_Size, (PyObject *))                                                                                     \
  X(PyObject *, PyDict_Copy, (PyObject *))                                                                                     \
  X(PyObject *, PyDict_Items, (PyObject *))                                                                                    \
  X(int, PyDict_Next, (PyObject *, Py_ssize_t *, PyObject **, PyObject **))                                                    \
  X(int, PyDict_SetItem, (PyObject *, PyObject *, PyObject *))                                                                 \
  X(int, PyDict_SetItemString, (PyObject *, const char *, PyObject *))                                                         \
  X(int, PyDict_Update, (PyObject *, PyObject *))                                                                              \
  X(PyObject *, PyOS_FSPath, (PyObject *))                                                                                     \
  X(void, PySys_WriteStderr, (const char *, ...))                                                                              \
  X(PyObject *, Py_CompileString, (const char *, const char *, int))                                                           \
  X(PyObject *, PyEval_EvalCode, (PyObject *, PyObject *, PyObject *))                                                         \
  X(PyObject *, PyEval_GetBuiltins, (void))                                                                                    \
  X(PyObject *, PyEval_GetFrame, (void))                                                                                       \
  X(PyObject *, PyWeakref_NewRef, (PyObject *, PyObject *))                                                                    \
  X(long, PyLong_AsLong, (PyObject *))                                                                                         \
  X(PyObject *, PyObject_Call, (PyObject *, PyObject *, PyObject *))                                                           \
  X(int, PyObject_SetAttr, (PyObject *, PyObject *, PyObject *))                                                               \
  X(PyObject *, PyObject_Repr, (PyObject *))                                                                                   \
  X(PyObject *, PyObject_RichCompare, (PyObject *, PyObject *, int))                                                           \
  X(Py_ssize_t, PyObject_Hash, (PyObject *))                                                                                   \
  X(PyObject *, PyImport_ImportModule, (const char *))                                                                         \
  X(int, PyList_SetItem, (PyObject *, Py_ssize_t, PyObject *))                                                                 \
  X(PyObject *, PyLong_FromVoidPtr, (void *))                                                                                  \
  X(void, PyDict_Clear, (PyObject *))                                                                                          \
  X(int, PyDict_DelItem, (PyObject *, PyObject *))                                                                             \
  X(PyObject *, Py_BuildValue, (const char *, ...))                                                                            \
  X(PyObject *, PySequence_List, (PyObject *))                                                                                 \
  X(PyObject *, PySequence_GetSlice, (PyObject *, Py_ssize_t, Py_ssize_t))                                                     \
  X(PyObject *, PyInterpreterState_GetDict, (void *))

/* The same, but may be missing (NULL): newer or older versions only. */
#define PY_OPTIONAL(X)                                                                                                         \
  X(void, PyFunction_SetVectorcall, (PyObject *, vectorcallfunc))                                                              \
  X(vectorcallfunc, PyVectorcall_Function, (PyObject *))                                                                       \
  X(PyObject *, _PyFunction_Vectorcall, (PyObject *, PyObject *const *, size_t, PyObject *))                                   \
  X(void *, PyInterpreterState_Get, (void))                                                                                    \
  X(void *, PyInterpreterState_Head, (void))                                                                                   \
  X(void *, PyInterpreterState_Next, (void *))                                                                                 \
  X(void *, _PyInterpreterState_Get, (void))                                                                                   \
  X(py_eval_fn, _PyInterpreterState_GetEvalFrameFunc, (void *))                                                                \
  X(void, _PyInterpreterState_SetEvalFrameFunc, (void *, py_eval_fn))                                                          \
  X(PyObject *, _PyEval_EvalFrameDefault, (void))                                                                              \
  X(PyObject *, PyUnstable_InterpreterFrame_GetCode, (void *))                                                                 \
  X(int, PyGC_Disable, (void))                                                                                                 \
  X(int, PyGC_Enable, (void))                                                                                                  \
  X(void, PyMutex_Lock, (void *))                                                                                              \
  X(void, PyMutex_Unlock, (void *))

/* Data objects: X(name). PyExc_... are pointers to the object pointer. */
#define PY_OBJECTS(X)                                                                                                          \
  X(PyFunction_Type)                                                                                                           \
  X(PyExc_StopIteration)                                                                                                       \
  X(PyType_Type)                                                                                                               \
  X(PyMethod_Type)                                                                                                             \
  X(PyCFunction_Type)                                                                                                          \
  X(PyStaticMethod_Type)                                                                                                       \
  X(PyCode_Type)                                                                                                               \
  X(PyClassMethod_Type)                                                                                                        \
  X(_Py_NoneStruct)                                                                                                            \
  X(PyBaseObject_Type)                                                                                                         \
  X(PyUnicode_Type)                                                                                                            \
  X(PyBytes_Type)                                                                                                              \
  X(PyLong_Type)                                                                                                               \
  X(PyFloat_Type)                                                                                                              \
  X(PyBool_Type)                                                                                                               \
  X(PyDict_Type)                                                                                                               \
  X(PyList_Type)                                                                                                               \
  X(PyTuple_Type)                                                                                                              \
  X(_Py_TrueStruct)                                                                                                            \
  X(_Py_FalseStruct)                                                                                                           \
  X(PyExc_Exception)                                                                                                           \
  X(PyExc_GeneratorExit)                                                                                                       \
  X(PyExc_AttributeError)                                                                                                      \
  X(PyExc_ImportError)                                                                                                         \
  X(PyExc_KeyError)                                                                                                            \
  X(PyExc_TypeError)                                                                                                           \
  X(PyExc_ValueError)

struct py_api {
#define X(ret, name, args) ret(*name) args;
  PY_REQUIRED(X)
  PY_OPTIONAL(X)
#undef X
#define X(name) void *name;
  PY_OBJECTS(X)
#undef X
  /* Facts about this interpreter. */
  int version; /* 311 for 3.11 */
  bool free_threaded;
  size_t header; /* bytes of PyObject's head: 16, free-threaded 32 */
};

extern struct py_api py;

/* Py_GetVersion's text as 311 for 3.11, and is it a build without the GIL? 0: a version that is not known here; *free_threaded is then
 * as it was. */
int py_version_read(const char *text, bool *free_threaded);

/* Fills `py` from the process (RTLD_DEFAULT) or a library. 0, or -ENOTSUP: no CPython, none that we know, or a build without the GIL; `py` is then not to
 * be used but for Py_GetVersion, which is NULL where there is no CPython. Needs no GIL and no initialised interpreter. */
int py_find(void *library);

/* The type of an object, borrowed. */
static inline PyTypeObject *py_type(const PyObject *object) {
  return *(PyTypeObject *const *)((const char *)object + py.header - sizeof(void *));
}

/* dict[key], borrowed. NULL without an error: there is none; with one: no memory, which PyDict_GetItemString would not tell apart, and
 * prints. */
PyObject *py_dict_get(PyObject *dict, const char *key);

/* The same as sys.modules[name], or NULL; new reference, leaves no error behind. */
PyObject *py_module(const char *name);

/* Is this thread in the main interpreter? We act in no other. */
bool py_in_main(void);
/* Does whoever holds the GIL here hold the only one of the process? False where that cannot be told. */
bool py_only_gil(void);

/* Class name of `object` (no module, as type(object).__name__); good as long as the class lives. Never NULL, sets no error. */
const char *py_class_name(PyObject *object);
const char *py_type_name(const PyTypeObject *type); /* the same, of the class */
/* A pair of pointers in one number that changes when the class or its name does: a key for caches. */
uintptr_t py_class_key(PyObject *object);

/* Truth of an attribute, which an object's own True or False is without asking its class (no data descriptor stands before it in what
 * we ask for): 1, 0, or -1 when it is missing or fails. Where no error is set; leaves none behind. */
int py_attr_true(PyObject *object, PyObject *name);

/* Class name of the exception that is set now, or NULL. Leaves it set. */
const char *py_exception_name(void);

/* Is the exception that is set now a StopIteration? */
bool py_exception_is_stop(void);

#endif
