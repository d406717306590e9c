/* The checks of what profile(), Cirron() and others are given, and of what config.toml says.
 *
 * Each gives the value in the shape in which it is kept, a new reference, or NULL with a TypeError or ValueError that names argument,
 * value, and what is allowed (module_wrong.h). Nothing has happened then. All of it needs the GIL.
 */
#ifndef CIRRON_MODULE_CHECK_H
#define CIRRON_MODULE_CHECK_H

#include "module_wrong.h"

PyObject *module_check_snapshots(const struct module_given *g);
PyObject *module_check_sample_rate(const struct module_given *g);    /* a float */
PyObject *module_check_flush_interval(const struct module_given *g); /* a float */
PyObject *module_check_count(const struct module_given *g);          /* an int */
PyObject *
module_check_frameworks(const struct module_given *g);       /* a list, without those that are not known: they are warned of */
PyObject *module_check_output(const struct module_given *g); /* a list */
PyObject *module_check_path(const struct module_given *g);   /* a str */
PyObject *module_check_config(const struct module_given *g); /* a copy */
PyObject *module_check_text(const struct module_given *g);

/* A truth value. 0, or -1 with an error. */
int module_check_truth(const struct module_given *g, bool *out);

#define MODULE_PATH_MAX 4001 /* with the zero behind it: names of files come behind a folder */

/* A path object or text as bytes of the file system. The same. */
int module_check_path_bytes(const struct module_given *g, char out[MODULE_PATH_MAX]);

#endif
