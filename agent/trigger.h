/* Learning that a module's body has run: its functions exist then, and nobody has called them from outside yet.
 *
 * trigger.c chooses the way: a local event on the module's code where sys.monitoring is (3.12 and later), else a frame-evaluation
 * hook that is gone before the body's first instruction. Both end in observe_module_ready(module), on the importing thread.
 */
#ifndef CIRRON_TRIGGER_H
#define CIRRON_TRIGGER_H

#include "py.h"

/* This code object, the body of `module`, is about to be run by this thread. `module` must live for ever. Leaves no error behind. */
void trigger_arm(PyObject *code, const char *module);

/* Any other body is about to be run: gives back what was taken for one that failed. Cheap. */
void trigger_sweep(void);

/* The interpreter is gone: what is armed was its. */
void trigger_forget(void);

/* The two ways, for trigger.c. 0, or -ENOTSUP: not possible in this interpreter or at this time. */
int trigger_monitor_arm(PyObject *code, const char *module);
void trigger_monitor_sweep(void);
void trigger_monitor_forget(void);
int trigger_frame_arm(PyObject *code, const char *module);
void trigger_frame_forget(void);

#endif
