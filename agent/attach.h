/* Attaching to the interpreter: from the ELF constructor for one in the process, from setlocale for one loaded later.
 *
 * Order: audit hook and the built-in module `cirron` go in before Py_Initialize. Of the audit events `exec` tells that a module
 * is about to run; when its body has returned, observe_module_ready is called. `cpython._PySys_ClearAuditHooks` is the end of
 * the interpreter: the session is closed there (session_close), because a death by SIGINT runs no destructors.
 */
#ifndef CIRRON_ATTACH_H
#define CIRRON_ATTACH_H

#include <stdbool.h>

/* From the constructor. False: no supported interpreter in this process (yet). Touches nothing else then. */
bool attach_early(void);

/* Exported to preload/preload.c: setlocale was called from this address. */
void cirron_core_setlocale(const void *caller);

/* From inside a running interpreter that we were not preloaded into (`import cirron` of the file itself). GIL held. Observes the
 * modules that are there already. False: attached already, or not to be. */
bool attach_late(void);

/* Is an interpreter attached? Any thread. */
bool attach_done(void);

#endif
