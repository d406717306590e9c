/* A word to the collector that writes a store: its socket is found, one Command goes out, one CommandReply comes back. */
#ifndef CIRRON_COMMAND_H
#define CIRRON_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"

struct command_reply {
  uint32_t sessions; /* that were told */
  int32_t error;     /* a positive errno, or 0 */
};

/* Connects to $CIRRON_SOCKET; where that is not set, to the private collector whose store lies at `store` or, for each of
 * `directories`, that of jobs in there; then to the user's, then to the system's. Returns the connection, or -1 and one line in
 * `why`. */
int command_connect(const char *store, const char *const *directories, size_t count, struct buf *why);

/* Asks for a snapshot of the session with this prefix (0: all that run), waits for the reply up to wait_ms. Closes fd. Returns 0, or
 * -1 and one line in `why`. */
int command_snapshot(int fd, uint64_t session, int wait_ms, struct command_reply *out, struct buf *why);

#endif
