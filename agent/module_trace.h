/* trace(...): what this process recorded, as a tree, a dict, JSON or a table. */
#ifndef CIRRON_MODULE_TRACE_H
#define CIRRON_MODULE_TRACE_H

#include "py.h"

/* cirron.trace(format="tree", name=None, last=None); module_trace_of_handle: the handle's method. Records are kept from the first call
 * on, and that one has what the rings hold of before. New reference, or NULL with an error: ValueError for another format, the dependency error without pandas. */
PyObject *module_trace(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *module_trace_of_handle(PyObject *handle, PyObject *args, PyObject *kwargs);

/* The Python half (module_trace_text.c); defines trace(data, format, name, last, missing) and what the sinks print with. */
extern const char module_trace_text[];

#endif
