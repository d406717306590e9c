/* Starting a private collectord where none is there: for this user and working directory, never a child that the script could
 * meet in wait, and without any signal to it. */
#ifndef CIRRON_LAUNCH_H
#define CIRRON_LAUNCH_H

#include <stddef.h>

/* Socket path of the private collector of the present working directory, in a folder only this user can enter. 0 or -errno. */
int launch_socket_path(char *out, size_t size);

/* Starts it (collectord beside the agent's file, in bin or sbin one to three folders above it, or in PATH), without waiting until it listens.
 * Starting it twice at the same moment is harmless: one wins, the other ends. Returns 0 or -errno. */
int launch_collector(const char *socket_path);

#endif
