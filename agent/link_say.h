/* What is said on the control connection by messages of their own (proto/cirron.proto), with their descriptors: each at once, or not at all.
 * Records that are sent are pump.c's.
 *
 * All return 0, or a negative errno as link_socket_send. Under link.c's lock.
 */
#ifndef CIRRON_LINK_SAY_H
#define CIRRON_LINK_SAY_H

#include <stdbool.h>
#include <stdint.h>

#include "fd.h"
#include "ring_writer.h"

int say_hello(const struct owned_fd *socket);
int say_ring(const struct owned_fd *socket, const struct ring *ring);
int say_goodbye(const struct owned_fd *socket);

/* What of the snapshots a connection knows: zero at its begin. GIL held, as for all that touches their areas. */
struct say_snapshots {
  unsigned area;  /* generation of the area that it has; 0: none */
  uint64_t asked; /* number of the last request that it was told of */
};
/* Each request that it does not know of, and the area in which that lies. One whose area has lost its descriptor is passed over. */
int say_snapshots(const struct owned_fd *socket, struct say_snapshots *told);
bool say_snapshots_wait(const struct say_snapshots *told); /* is there one? */

void say_forget(void); /* another session begins: another Hello */

#endif
