/* The socket of the control connection: whom it leads to, and one message with a descriptor. Nothing here waits. Callers keep errno. */
#ifndef CIRRON_LINK_SOCKET_H
#define CIRRON_LINK_SOCKET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#include "fd.h"

typedef char sun_path[sizeof(((struct sockaddr_un *)0)->sun_path)];

/* Connects to a collector of ours, of root's, or of the owner of the folder that the socket lies in. 0, or a negative errno; -EPERM: it is
 * somebody else's. */
int link_socket_connect(const sun_path path, struct owned_fd *out);

/* Sends all of the message, with one descriptor (or -1). 0, or a negative errno: -EAGAIN: nothing was sent; -EBADF: the script closed the
 * socket. */
int link_socket_send(const struct owned_fd *to, const uint8_t *message, size_t len, int pass_fd);

#endif
