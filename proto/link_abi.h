/* How control messages (cirron.proto) lie on the Unix socket, and where the socket is looked for.
 *
 *   uint32 length, little endian | that many bytes of one Envelope
 */
#ifndef CIRRON_LINK_ABI_H
#define CIRRON_LINK_ABI_H

#include <stdint.h>

#define LINK_PREFIX_BYTES 4u
#define LINK_MAX_MESSAGE 16384u /* bytes, without the prefix */
#define LINK_MAX_FDS 4u         /* descriptors that may be on their way at a time */

/* After $CIRRON_SOCKET, and in this order; the first is below $XDG_RUNTIME_DIR. */
#define LINK_USER_SOCKET "cirron/collectord.sock"
#define LINK_SYSTEM_SOCKET "/run/cirron/collectord.sock"

/* The store and lock of a private collector, below the working directory of the job. */
#define LINK_PRIVATE_STORE ".cirron/traces.db"

/* Its socket: HASH.sock, by the path of that directory, in $XDG_RUNTIME_DIR/cirron, else in /tmp/cirron-UID. */
#define LINK_PRIVATE_SOCKET "%s/%016llx.sock"
#define LINK_PRIVATE_FOLDER "/tmp/cirron-%u"

static inline uint64_t link_path_hash(const char *path) {
  uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
  for (; *path; path++)
    h = (h ^ (unsigned char)*path) * 0x100000001b3u;
  return h;
}

#endif
