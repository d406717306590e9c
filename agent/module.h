/* The Python module `cirron`, served as a built-in: scope, mark, epochs, batches, watch, wrap, profile. */
#ifndef CIRRON_MODULE_H
#define CIRRON_MODULE_H

#include "py.h"

/* For PyImport_AppendInittab. Multi-phase initialisation: returns a module definition. */
PyObject *module_init(void);

#endif
