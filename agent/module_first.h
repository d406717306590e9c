/* One agent a process, however many copies of its file are loaded: the one loaded first serves `import cirron`.
 *
 * Copies meet where the preloaded agent is switched off or hidden from the import, where a script loads the file by its path, or
 * where two folders of sys.path have one each. Two agents at work would observe every call twice.
 */
#ifndef CIRRON_MODULE_FIRST_H
#define CIRRON_MODULE_FIRST_H

#include "py.h"

/* PyInit_cirron of the copy that the loader loaded before this one; NULL when this one is the first. Any thread; asks the loader, some
 * microseconds. What it returns stays good: a copy is never unloaded. */
PyObject *(*module_first(void))(void);

#endif
