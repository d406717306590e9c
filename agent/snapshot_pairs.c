/* See snapshot_pairs.h. */
#include "snapshot_pairs.h"

#include <stdio.h>

static void drop(PyObject *object) {
  if (object)
    py.Py_DecRef(object);
}

/* The (name, tensor) pairs of a model that is not to be walked, by its own code: a new list, or NULL. */
static PyObject *pairs_of(PyObject *model) {
  PyObject *pairs = NULL, *generator;
  if ((void *)py_type(model) == py.PyList_Type) {
    py.Py_IncRef(model);
    return model;
  }
  if ((generator = py.PyObject_CallMethod(model, "named_parameters", NULL)))
    pairs = py.PySequence_List(generator);
  py.PyErr_Clear();
  drop(generator);
  return pairs;
}

/* Keras: (variable.path, variable.value) of model.weights. */
static PyObject *pairs_of_weights(PyObject *model) {
  PyObject *weights = py.PyObject_GetAttrString(model, "weights"), *variables = weights ? py.PySequence_List(weights) : NULL;
  PyObject *pairs = variables ? py.PyList_New(0) : NULL;
  for (Py_ssize_t i = 0; pairs && i < py.PyObject_Size(variables); i++) {
    PyObject *variable = py.PyList_GetItem(variables, i), *name = py.PyObject_GetAttrString(variable, "path");
    py.PyErr_Clear();
    if (!name)
      name = py.PyObject_GetAttrString(variable, "name");
    PyObject *value = py.PyObject_GetAttrString(variable, "value");
    if (value && py.PyCallable_Check(value)) { /* a method in Keras 2 */
      PyObject *called = py.PyObject_CallFunctionObjArgs(value, NULL);
      drop(value);
      value = called;
    }
    PyObject *pair = name && value ? py.Py_BuildValue("(OO)", name, value) : NULL;
    if (pair)
      (void)py.PyList_Append(pairs, pair); /* without memory it is missing */
    py.PyErr_Clear();
    drop(pair);
    drop(value);
    drop(name);
  }
  py.PyErr_Clear();
  drop(variables);
  drop(weights);
  return pairs;
}

bool pairs_is_keras(PyObject *model) {
  PyObject *module = py_module("keras"), *class = module ? py.PyObject_GetAttrString(module, "Model") : NULL;
  bool is = class && (void *)py_type(class) != NULL && py.PyType_IsSubtype(py_type(class), py.PyType_Type) &&
            py.PyType_IsSubtype(py_type(model), (PyTypeObject *)class);
  py.PyErr_Clear();
  drop(class);
  drop(module);
  return is;
}

static void add(struct walk *walk, PyObject *pairs, const char *prefix) {
  char name[1024];
  Py_ssize_t n = pairs ? py.PyObject_Size(pairs) : 0;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *pair = py.PyList_GetItem(pairs, i);
    bool is = pair && (void *)py_type(pair) == py.PyTuple_Type && py.PyTuple_Size(pair) == 2;
    PyObject *key = is ? py.PyTuple_GetItem(pair, 0) : NULL, *value = is ? py.PyTuple_GetItem(pair, 1) : NULL;
    Py_ssize_t len = 0;
    const char *text = key && (void *)py_type(key) == py.PyUnicode_Type ? py.PyUnicode_AsUTF8AndSize(key, &len) : NULL;
    int put = snprintf(name, sizeof name, "%s%s", prefix, text ? text : "?");
    walk_hash(walk, name);
    if (value && value != py._Py_NoneStruct)
      walk_add(walk, value, name, (size_t)put < sizeof name ? (size_t)put : sizeof name - 1);
  }
  py.PyErr_Clear();
}

void pairs_add(struct walk *walk, PyObject *model, const char *prefix) {
  PyObject *pairs = pairs_is_keras(model) ? pairs_of_weights(model) : pairs_of(model);
  add(walk, pairs, prefix);
  drop(pairs);
}
