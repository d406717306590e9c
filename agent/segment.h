/* The segment of this process (proto/ring_abi.h): counters, and names that are given an id once.
 *
 * Thread-safe; a spinlock that is only held for a copy protects the table of names.
 */
#ifndef CIRRON_SEGMENT_H
#define CIRRON_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#include "../proto/ring_abi.h"

/* Makes the segment of a new session, or replaces that of the parent process after a fork (which is unmapped, not written).
 * Returns 0 or a negative errno; where memfd_create is refused the segment is private memory and segment_fd is -1. */
int segment_open(uint64_t session);
/* The same, of private memory in any case. */
int segment_open_private(uint64_t session);

/* The id of a name; the same id for the same bytes. Longer ones than NAME_MAX_BYTES are cut at a character boundary. 0 when there
 * is no segment or no room (counted). */
uint32_t segment_name(const char *text, size_t len);

/* The text of an id, which is good as long as the segment is. NULL: there is none. */
const char *segment_text(uint32_t id, size_t *len);

/* The script closed the segment's descriptor: moves the content to a new memfd at the same address. Returns 0 or a negative errno
 * (-ENOTSUP for private memory). A counter that another thread raises meanwhile may lose that one. */
int segment_renew(void);

/* In the child of a fork: gives the parent's segment up, so that no name lands in it before the child has its own. */
void segment_forget(void);

struct ring_segment *segment_get(void); /* NULL before segment_open */
int segment_fd(void);                   /* to pass on; -1 where it is no longer ours */
unsigned segment_generation(void);      /* changes with each segment_open: caches of ids start anew */

#endif
