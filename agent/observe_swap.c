/* The vectorcall slot of function objects: finding it, being sure of it, writing it.
 *
 * The slot's offset is a field of the type. Before the first write the content of a newly made function's slot is compared with
 * what CPython itself says it is; each function to be observed must then have the same content. Anything else is refused.
 */
#include "observe_swap.h"

#include <errno.h>

#include "hot.h"

#define LARGEST_FUNCTION 1024 /* bytes; they have 120 to 170 */

HOT_DATA vectorcallfunc observe_original;

static size_t slot_offset;
static bool layout_tried;

static vectorcallfunc *slot_of(PyObject *function) {
  return (vectorcallfunc *)((char *)function + slot_offset);
}

/* Fields of a type: name, basic size, item size, destructor, vectorcall offset, each a word, after the variable-size head. */
static bool offset_find(void) {
  const Py_ssize_t *field = (const Py_ssize_t *)((const char *)py.PyFunction_Type + py.header + sizeof(Py_ssize_t));
  Py_ssize_t size = field[1], offset = field[4];
  if (size < (Py_ssize_t)py.header || size > LARGEST_FUNCTION || offset % (Py_ssize_t)sizeof(void *) != 0)
    return false;
  if (offset < (Py_ssize_t)py.header || offset + (Py_ssize_t)sizeof(void *) > size)
    return false;
  slot_offset = (size_t)offset;
  return true;
}

static vectorcallfunc original_of(PyObject *fresh) {
  vectorcallfunc content = *slot_of(fresh);
  if (py._PyFunction_Vectorcall && content != py._PyFunction_Vectorcall)
    return NULL;
  if (py.PyVectorcall_Function && content != py.PyVectorcall_Function(fresh))
    return NULL;
  return py._PyFunction_Vectorcall || py.PyVectorcall_Function ? content : NULL;
}

static PyObject *function_new(void) {
  PyObject *code = py.PyCode_NewEmpty("cirron", "cirron", 1);
  PyObject *globals = py.PyDict_New();
  PyObject *function = code && globals ? py.PyFunction_New(code, globals) : NULL;
  if (code)
    py.Py_DecRef(code);
  if (globals)
    py.Py_DecRef(globals);
  if (!function)
    py.PyErr_Clear();
  return function;
}

static bool layout_known(void) {
  if (layout_tried)
    return observe_original != NULL;
  PyObject *fresh = offset_find() ? function_new() : NULL;
  if (fresh) {
    observe_original = original_of(fresh);
    py.Py_DecRef(fresh);
  }
  layout_tried = true; /* last: threads that come together find the same (free-threaded builds) */
  return observe_original != NULL;
}

static void type_set(PyObject *object, PyTypeObject *type) {
  py.Py_IncRef((PyObject *)type); /* instances own their heap type */
  *(PyTypeObject **)((char *)object + py.header - sizeof(void *)) = type;
}

static void slot_set(PyObject *function, vectorcallfunc to) {
  if (py.PyFunction_SetVectorcall)
    py.PyFunction_SetVectorcall(function, to); /* also makes specialised call sites look again */
  else
    *slot_of(function) = to;
}

int observe_swap(PyObject *function, vectorcallfunc ours, bool direct, int (*before)(PyObject *, const void *),
                 const void *data) {
  if (!layout_known())
    return -ENOTSUP;
  bool retype = direct && py.version == 311;
  PyTypeObject *subtype = retype ? observe_retype(slot_offset) : NULL;
  bool plain = (void *)py_type(function) == py.PyFunction_Type;
  if (!plain && !observe_retype_is(function))
    return -ENOTSUP;
  if (*slot_of(function) == ours)
    return -EALREADY;
  if (!plain || *slot_of(function) != observe_original || (retype && !subtype))
    return -ENOTSUP;
  int result = before(function, data);
  if (result < 0)
    return result;
  slot_set(function, ours);
  if (retype)
    type_set(function, subtype);
  return 0;
}

void observe_swap_pause(PyObject *function, vectorcallfunc ours, bool direct, bool pause) {
  bool plain = (void *)py_type(function) == py.PyFunction_Type, retype = direct && py.version == 311;
  if (*slot_of(function) != (pause ? ours : observe_original) || plain != (!pause || !retype))
    return;
  if (retype) {
    PyTypeObject *before = py_type(function);
    type_set(function, pause ? (PyTypeObject *)py.PyFunction_Type : observe_retype(slot_offset));
    py.Py_DecRef((PyObject *)before); /* either counts: `function` itself has references enough */
  }
  slot_set(function, pause ? observe_original : ours);
}

void observe_swap_forget(void) {
  observe_retype_forget();
  layout_tried = false;
}
