/* The Python module `cirron`, served as a built-in: scope, mark, epochs, batches, watch, wrap, profile. */
#ifndef CIRRON_MODULE_H
#define CIRRON_MODULE_H

#include "py.h"

/* For PyImport_AppendInittab. Multi-phase initialisation: returns a module definition. */
PyObject *module_init(void);

/* The same under the name that the file has to export when it is imported as an extension module, without preload: attaches to the
 * running interpreter first. With CIRRON_ENABLED=0 the module is there and records nothing. NULL: no interpreter that we know. */
PyObject *PyInit_cirron(void);

#endif
