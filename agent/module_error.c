/* The exceptions of the module `cirron`. What is wrong with an argument is a ValueError or TypeError of the interpreter's own; these
 * are for the rest. They are ordinary exception classes: they can be derived from, caught by their bases, pickled.
 */
#include "module_state.h"

#define DOC_ERROR "What cirron raises of its own."
#define DOC_DEPENDENCY "A package that was asked for by name is not installed. The text says how to install it."
#define DOC_YAML "A file of settings is missing, cannot be read, or says what it must not. The text names file and line."

int module_show(PyObject *module, const char *name, PyObject *object, PyObject **place) {
  if (!object)
    return -1;
  *place = object;
  py.Py_IncRef(object); /* PyModule_AddObject takes one when it works */
  if (py.PyModule_AddObject(module, name, object) == 0)
    return 0;
  py.Py_DecRef(object);
  return -1;
}

/* Takes over `bases`: a class or a tuple of them. */
static int add(PyObject *module, const char *name, const char *doc, PyObject *bases, PyObject **place) {
  PyObject *made = bases ? py.PyErr_NewExceptionWithDoc(name, doc, bases, NULL) : NULL;
  module_drop(bases);
  return module_show(module, name + sizeof "cirron." - 1, made, place);
}

static PyObject *held(void *exception) {
  PyObject *object = module_error(exception);
  py.Py_IncRef(object);
  return object;
}

int module_errors(PyObject *module, struct module_errors *errors) {
  if (add(module, "cirron.CirronError", DOC_ERROR, held(py.PyExc_Exception), &errors->base) < 0)
    return -1;
  PyObject *both = py.Py_BuildValue("(OO)", errors->base, module_error(py.PyExc_ImportError));
  if (add(module, "cirron.CirronDependencyError", DOC_DEPENDENCY, both, &errors->dependency) < 0)
    return -1;
  return add(module, "cirron.CirronYamlError", DOC_YAML, held(py.PyExc_Exception), &errors->yaml);
}
