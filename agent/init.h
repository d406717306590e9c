/* Start and end of the agent in a process. */
#ifndef CIRRON_INIT_H
#define CIRRON_INIT_H

#include <stdbool.h>

/* An interpreter was found: read the settings, register probes, fork and thread handlers. False: stay inert (CIRRON_ENABLED=0).
 * Called once by attach.c, before anything is attached; further calls return the same answer. */
bool agent_start(void);

#endif
