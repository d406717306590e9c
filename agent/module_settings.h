/* What profile() and Cirron() can be given: one table of names and checks, and how the layers of settings lie on each other.
 *
 * A layer is a dict that holds what was given, checked and in one shape: numbers of seconds and rates as float, outputs and frameworks
 * as a list of texts. All of it needs the GIL; errors are ValueError or TypeError and name argument, value, and what is allowed.
 */
#ifndef CIRRON_MODULE_SETTINGS_H
#define CIRRON_MODULE_SETTINGS_H

#include "module_state.h"

/* layer[name] = value, checked. None is the same as not given. `who`: "profile" or "Cirron". 0, or -1 with an error. */
int module_setting_put(PyObject *layer, const char *who, const char *name, PyObject *value);

/* What a section (config=, or `profiling:` of a file) may say: the settings of a training, checked; names that are none are kept as
 * they are; output and the like are left out. 0, or -1 with an error. */
int module_settings_section(PyObject *layer, const char *who, PyObject *section);

/* New: the layer of ~/.cirron/config.toml, which may name what Cirron() can be given. What is empty or not allowed is left out. NULL with
 * an error that is not ours to swallow, or no memory. */
PyObject *module_settings_user(void);

/* New: what holds where nothing is given: built in, `user` on it, CIRRON_... on that. NULL with an error. */
PyObject *module_settings_beneath(PyObject *user);

/* The frameworks of a layer as bits (env.h); all where it says nothing. */
unsigned module_settings_frameworks(PyObject *layer);

#endif
