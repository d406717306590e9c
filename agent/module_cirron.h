/* The class Cirron: settings of one's own, beneath those of profile(). */
#ifndef CIRRON_MODULE_CIRRON_H
#define CIRRON_MODULE_CIRRON_H

#include "module_state.h"

/* Makes the class and shows it in the module, with the module's functions as its methods. 0, or -1 with an error. */
int module_cirron_type(PyObject *module, PyObject **place);

/* What a Cirron object was given: a layer (module_settings.h), borrowed. */
PyObject *module_cirron_layer(PyObject *cirron);

/* New: what holds where it was given nothing (module_settings_beneath). NULL with an error. */
PyObject *module_cirron_beneath(PyObject *cirron);

/* The one that profile() without an object uses, borrowed; made when it is first asked for. NULL with an error. */
PyObject *module_default(PyObject *module);
PyObject *module_get_default(PyObject *module, PyObject *unused);

/* profile(...) of this object; cirron NULL: the module's function, whose arguments may all be given by position. */
PyObject *module_profile_of(PyObject *module, PyObject *cirron, PyObject *args, PyObject *kwargs);

#endif
