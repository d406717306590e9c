/* The least that the operations of the module could cost in C, as an extension module: each reads the clock as often as ours has to, and
 * keeps nothing. Built by surface.py with the headers of the interpreter that it measures.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <time.h>

static volatile long long sink;

static void clock_read(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  sink = now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* --- span(name): a context manager --- */

typedef struct {
  PyObject_HEAD PyObject *name;
} Span;

static PyObject *span_enter(PyObject *self, PyObject *unused) {
  (void)unused;
  clock_read();
  Py_INCREF(self);
  return self;
}

static PyObject *span_exit(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  (void)self;
  (void)args;
  (void)nargs;
  clock_read();
  Py_RETURN_NONE;
}

static void span_free(PyObject *self) {
  Py_XDECREF(((Span *)self)->name);
  PyObject_Free(self);
}

static PyMethodDef span_methods[] = {
    {"__enter__", span_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))span_exit, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject span_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "floors.Span",
    .tp_basicsize = sizeof(Span),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = span_free,
    .tp_methods = span_methods,
};

static PyObject *span(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  (void)module;
  Span *s = nargs == 1 ? PyObject_New(Span, &span_type) : NULL;
  if (!s)
    return PyErr_Format(PyExc_TypeError, "span(name)");
  Py_INCREF(args[0]);
  s->name = args[0];
  return (PyObject *)s;
}

/* --- mark(name, value) --- */

static PyObject *mark(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  (void)module;
  (void)args;
  (void)nargs;
  clock_read();
  Py_RETURN_NONE;
}

/* --- each(iterable): an iterator --- */

typedef struct {
  PyObject_HEAD PyObject *inner;
} Each;

static PyObject *each_next(PyObject *self) {
  clock_read();
  PyObject *item = PyIter_Next(((Each *)self)->inner);
  clock_read();
  return item;
}

static void each_free(PyObject *self) {
  Py_XDECREF(((Each *)self)->inner);
  PyObject_Free(self);
}

static PyTypeObject each_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "floors.Each",
    .tp_basicsize = sizeof(Each),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = each_free,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = each_next,
};

static PyObject *each(PyObject *module, PyObject *iterable) {
  (void)module;
  PyObject *inner = PyObject_GetIter(iterable);
  Each *e = inner ? PyObject_New(Each, &each_type) : NULL;
  if (!e) {
    Py_XDECREF(inner);
    return NULL;
  }
  e->inner = inner;
  return (PyObject *)e;
}

static PyMethodDef functions[] = {
    {"span", (PyCFunction)(void (*)(void))span, METH_FASTCALL, NULL},
    {"mark", (PyCFunction)(void (*)(void))mark, METH_FASTCALL, NULL},
    {"each", each, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "floors", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit_floors(void) {
  if (PyType_Ready(&span_type) < 0 || PyType_Ready(&each_type) < 0)
    return NULL;
  return PyModule_Create(&definition);
}
