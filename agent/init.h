/* Start and end of the agent in a process. */
#ifndef CIRRON_INIT_H
#define CIRRON_INIT_H

#include <stdbool.h>

/* An interpreter was found: read the settings, register probes, fork and thread handlers. False: stay inert (CIRRON_ENABLED=0).
 * Called once by attach.c, before anything is attached; further calls return the same answer. */
bool agent_start(void);

/* After session_close: the next span makes a new session, as in the child of a fork. 0; -ENOTSUP: tracing was off from the start; -ENOMEM; -EBUSY: other
 * interpreters, with a GIL of their own, may still use the memory of the old one. GIL held. */
int agent_resume(void);

#endif
