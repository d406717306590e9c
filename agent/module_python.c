/* Parts of the module that are written in Python: compiled when they are first needed. */
#include "module_state.h"

PyObject *module_python(const char *source) {
  PyObject *globals = py.PyDict_New(), *name = py.PyUnicode_InternFromString("cirron"), *code = NULL, *done = NULL;
  if (globals && name && py.PyDict_SetItemString(globals, "__name__", name) == 0 &&
      py.PyDict_SetItemString(globals, "__builtins__", py.PyEval_GetBuiltins()) == 0)
    code = py.Py_CompileString(source, "<cirron>", 257 /* Py_file_input */);
  done = code ? py.PyEval_EvalCode(code, globals, globals) : NULL;
  module_drop(code);
  module_drop(name);
  if (!done)
    module_drop(globals);
  module_drop(done);
  return done ? globals : NULL;
}
