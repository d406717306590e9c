/* How control messages (cirron.proto) lie on the Unix socket, and where the socket is looked for.
 *
 *   uint32 length, little endian | that many bytes of one Envelope
 */
#ifndef CIRRON_LINK_ABI_H
#define CIRRON_LINK_ABI_H

#define LINK_PREFIX_BYTES 4u
#define LINK_MAX_MESSAGE 16384u /* bytes, without the prefix */
#define LINK_MAX_FDS 4u         /* descriptors that may be on their way at a time */

/* After $CIRRON_SOCKET, and in this order; the first is below $XDG_RUNTIME_DIR. */
#define LINK_USER_SOCKET "cirron/collectord.sock"
#define LINK_SYSTEM_SOCKET "/run/cirron/collectord.sock"

/* The store and lock of a private collector, below the working directory of the job. */
#define LINK_PRIVATE_STORE ".cirron/traces.db"

#endif
