/* What is wrong with an argument: errors that name the function, the argument, what is allowed, and the value. */
#ifndef CIRRON_MODULE_WRONG_H
#define CIRRON_MODULE_WRONG_H

#include "module_state.h"

struct module_given { /* an argument; all borrowed */
  const char *who, *name;
  PyObject *value;
};

/* "who(): name must be ALLOWED, not VALUE". What goes wrong while the value is shown is passed over, unless it is none of ours to clear,
 * such as Ctrl-C: then that is the error. Always NULL. */
PyObject *module_wrong_type(const struct module_given *g, const char *allowed);  /* TypeError */
PyObject *module_wrong_value(const struct module_given *g, const char *allowed); /* ValueError */
/* "who(): name VALUE is not valid: ALLOWED". A ValueError. */
PyObject *module_wrong_word(const struct module_given *g, const char *allowed);

/* A value for people: its repr, of some 100 characters at most. What would have a long one is not asked for it: "<list of 100000>". New
 * reference, or NULL with an error that is none of ours to clear. */
PyObject *module_shown(PyObject *value);

#endif
