/* Files of settings as Python sees them: find_cirron_yaml(), load_cirron_yaml(); the section `profiling:` of cirron.yaml for profile(),
 * `[default]` of config.toml for Cirron(). */
#ifndef CIRRON_MODULE_CONFIG_H
#define CIRRON_MODULE_CONFIG_H

#include "module_state.h"

/* Makes the classes CirronYaml, ProfilingConfig and ServingConfig and shows them in the module. 0, or -1 with an error. */
int module_config_types(PyObject *module, struct module_config_state *config);

PyObject *module_find_yaml(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *module_load_yaml(PyObject *module, PyObject *args, PyObject *kwargs);

/* The section as a new dict, empty where there is none. `path`: of the file, or NULL: the nearest one. A file that is missing or wrong
 * costs one warning and counts as absent. NULL with an error (no memory, or what is not ours to swallow). */
PyObject *module_config_profiling(const char *path);
/* The same of ~/.cirron/config.toml, which may be missing without a word. */
PyObject *module_config_user(void);

/* Says it on the logger of that name, as a warning. Takes over `text`; NULL passes an error on. 0, or -1 with an error that is not
 * ours to swallow. */
int module_warn(const char *logger, PyObject *text);
int module_inform(const char *logger, PyObject *text); /* the same at level INFO, which nobody sees who has not asked for it */

#endif
