/* See snapshot_values.h. */
#include "snapshot_values.h"

#include <stdio.h>
#include <string.h>

#include "../proto/snapshot_abi.h"

static void drop(PyObject *object) {
  if (object)
    py.Py_DecRef(object);
}

/* --- arrays -------------------------------------------------------------------------------------------------------------- */

static bool array_item(PyObject *array, const char *name, int64_t *out, unsigned n, bool *good) {
  PyObject *tuple = py.PyObject_GetAttrString(array, name);
  *good = tuple && (void *)py_type(tuple) == py.PyTuple_Type && py.PyTuple_Size(tuple) == (Py_ssize_t)n;
  for (unsigned i = 0; i < n && *good; i++) {
    int overflow = 0;
    out[i] = py.PyLong_AsLongLongAndOverflow(py.PyTuple_GetItem(tuple, i), &overflow);
  }
  py.PyErr_Clear();
  drop(tuple);
  return *good;
}

static int64_t number_of(PyObject *object, const char *name) {
  PyObject *value = py.PyObject_GetAttrString(object, name);
  int overflow = 0;
  int64_t number = value ? py.PyLong_AsLongLongAndOverflow(value, &overflow) : -1;
  py.PyErr_Clear();
  drop(value);
  return number;
}

/* numpy.asarray(object), which copies nothing where the framework's own memory can be looked at. */
static PyObject *as_array(PyObject *object) {
  PyObject *numpy = py_module("numpy");
  PyObject *array = numpy ? py.PyObject_CallMethod(numpy, "asarray", "(O)", object) : NULL;
  py.PyErr_Clear();
  drop(numpy);
  return array;
}

static void array_dtype(PyObject *array, struct tensor_facts *facts) {
  PyObject *dtype = py.PyObject_GetAttrString(array, "dtype"), *name = dtype ? py.PyObject_GetAttrString(dtype, "name") : NULL;
  Py_ssize_t len;
  const char *text = name ? py.PyUnicode_AsUTF8AndSize(name, &len) : NULL;
  for (unsigned i = TENSOR_NONE + 1; i < TENSOR_DTYPES && text; i++)
    if (strcmp(text, tensor_dtype_name((enum tensor_dtype)i)) == 0)
      facts->dtype = (enum tensor_dtype)i;
  if (facts->dtype == TENSOR_NONE) {
    snprintf(facts->dtype_name, sizeof facts->dtype_name, "%s", text ? text : "?");
    snprintf(facts->reason, sizeof facts->reason, "%s", facts->dtype_name);
  }
  py.PyErr_Clear();
  drop(name);
  drop(dtype);
}

static bool array_address(PyObject *array, struct tensor_facts *facts) {
  PyObject *interface = py.PyObject_GetAttrString(array, "__array_interface__");
  PyObject *data = interface && (void *)py_type(interface) == py.PyDict_Type ? py_dict_get(interface, "data") : NULL;
  int overflow = 0;
  bool good = data && (void *)py_type(data) == py.PyTuple_Type && py.PyTuple_Size(data) == 2;
  if (good)
    facts->address = (uint64_t)py.PyLong_AsLongLongAndOverflow(py.PyTuple_GetItem(data, 0), &overflow);
  py.PyErr_Clear();
  drop(interface);
  return good && !overflow;
}

/* Of an array of NumPy's. */
static bool array_facts(PyObject *array, struct tensor_facts *facts) {
  memset(facts, 0, sizeof *facts);
  facts->version = UINT64_MAX;
  int64_t ndim = number_of(array, "ndim"), item = number_of(array, "itemsize");
  bool good = ndim >= 0 && ndim <= TENSOR_MAX_DIMS && item > 0;
  good = good && array_item(array, "shape", facts->shape, (unsigned)ndim, &good) &&
         array_item(array, "strides", facts->strides, (unsigned)ndim, &good) && array_address(array, facts);
  if (!good)
    return false;
  facts->ndim = (uint8_t)ndim;
  facts->elements = number_of(array, "size");
  array_dtype(array, facts);
  for (int64_t i = 0; i < ndim; i++) {
    if (facts->strides[i] % item != 0)
      return false; /* a field of a record */
    facts->strides[i] /= item;
  }
  return true;
}

/* What is no tensor of torch's, or an unusual one. */
static void no_tensor(PyObject *object, struct tensor_facts *facts) {
  memset(facts, 0, sizeof *facts);
  facts->version = UINT64_MAX;
  snprintf(facts->dtype_name, sizeof facts->dtype_name, "%s", "?");
  snprintf(facts->reason, sizeof facts->reason, "a %.50s", py_class_name(object));
}

void values_facts(PyObject *object, struct tensor_facts *facts) {
  if (tensor_facts(object, facts))
    return;
  PyObject *array = as_array(object);
  bool good = array && array_facts(array, facts);
  drop(array);
  if (!good)
    no_tensor(object, facts);
  else if (!facts->reason[0]) /* what was seen may be a copy: it is asked again when it is read */
    snprintf(facts->reason, sizeof facts->reason, "%s", "array");
}

PyObject *values_of(PyObject *object, struct tensor_facts *facts) {
  PyObject *values;
  if (!tensor_is(object)) {
    values = as_array(object);
    if (values && array_facts(values, facts))
      return values;
  } else if (tensor_facts(object, facts) && !facts->reason[0]) {
    py.Py_IncRef(object);
    return object;
  } else {
    values = facts->dtype != TENSOR_NONE ? tensor_to_host(object) : NULL;
    if (values && tensor_facts(values, facts) && !facts->reason[0]) {
      facts->flags |= SNAPSHOT_COPY;
      return values;
    }
  }
  drop(values);
  return NULL;
}
