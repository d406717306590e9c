/* cirron.yaml, cirron.yml, cirron.json: finding and reading the file of settings of a project; ~/.cirron/config.toml, that of a user.
 *
 * Nothing waits: what is no ordinary file is not there. May be called from any thread; needs nothing of Python.
 */
#ifndef CIRRON_CONFIG_FILE_H
#define CIRRON_CONFIG_FILE_H

#include <limits.h>

#include "config_check.h"

/* The nearest one: in the folder `start` (or that of the file `start`; NULL: the working directory), else in the folders above; in
 * each in the order above. 0 and its absolute path, or a negative errno: -ENOENT, there is none. */
int config_find(const char *start, char path[PATH_MAX]);

/* Reads the file, *.json as JSON and others as YAML, and checks it. 0, and a document to be freed by doc_free. Else a negative errno
 * and *why says it: -ENOENT, no such file (or as in config_check), -EINVAL for its contents. */
int config_load(const char *path, struct doc **out, struct config_complaint *why);

/* Reads the user's file, where ~ is $HOME, whose path goes to `path`. As config_load, but nothing in it is checked. -ENOENT also where
 * there is no $HOME. */
int config_load_user(char path[PATH_MAX], struct doc **out, struct config_complaint *why);

#endif
